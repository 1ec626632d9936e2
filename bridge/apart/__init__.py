"""A broker's client in a process of its own.

A Python process uses one core. The client libraries are written in Python, and take as much of that core as everything else that the bridge does;
and each thread that waits for the core makes the others slower. So a source and a sink can each have a process: it speaks with the broker, and with
the bridge over a pair of sockets, in batches. It holds nothing that must not be lost: if it dies, that is like a lost connection. It ends when
the bridge does.
"""
