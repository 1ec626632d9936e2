"""A broker's client in a process of its own.

Python computes on one core in each process. The client libraries are written in Python, and take as much of that core as all that the bridge does
itself; and each thread that waits for it makes the others slower. So a source and a sink can each have a process: it speaks with the broker, and with
the bridge over a pair of sockets, in batches. Nothing that must not be lost is in it: where it dies it is as if the connection had gone. It ends when
the bridge does.
"""
