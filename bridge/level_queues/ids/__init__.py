"""Ids in level queues: what is cancelled and replaced, by a log that all bridges share, on a broker that can keep one.

lines      the lines of the log
known      what they say: which messages wait under an id, and what ends them
endings    what has ended and left the log
replica    what this bridge has read of it, and is about to write; `worker`: its thread
register   how claims and cancels are entered, and answered
claims     which messages claim an id, and which may be delivered
"""
