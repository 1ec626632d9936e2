"""A waiting record as a message of a level queue.

The body is the whole record, so that nothing depends on what a broker can say. Two headers:

    delaybridge-since    since when it waits at this level (epoch ms); `adapters.levelled.SINCE`
    delaybridge-record   for people who look into the queue: its id, when it is due (epoch ms), how many levels it has been through, broker and
                         address where it goes then; one line of them, because each header of a message costs brokers and clients time
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from ...core import fields
from ...core.message import PERSISTENT, Message, Properties
from ...core.store import Record
from .ids.lines import Claim

_PROPERTIES = Properties(content_type=b"application/vnd.delaybridge.record+msgpack", delivery_mode=PERSISTENT)


Occurrence = tuple[str, int, int, str, int, int, int]


class Envelope(msgspec.Struct, array_like=True, frozen=True):
    """A record at a level since `since` (epoch ms, by the clock of the bridge that put it there), after so many `hops` through levels before.

    order   its place among all that are due at the same instant: when it was first put, and a number; or its place in the store that it came from. Copies
            of what was scheduled once have it in common
    claim   where it stands in the log of ids
    """

    record: Record
    since: int
    hops: int = 0
    order: int = 0
    claim: Claim | None = None

    @property
    def occurrence(self) -> Occurrence:
        """Names what is to be delivered: the same for all copies of what was scheduled once, and for nothing else."""
        record, schedule = self.record, self.record.schedule
        return record.id, schedule.occurrence, schedule.due, record.kind, record.taken, self.order, hash(record.message.body)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


LONGEST_KEY = 255
"""Bytes. Not every broker takes a longer key as a header."""

LONGEST_LINE = 1_000
"""Characters. For people it is enough, and ActiveMQ takes no more than 10 KB."""


def pack(envelope: Envelope) -> Message:
    """The message. It has the record's key, or a digest of that: what has the same key stays in one partition, and in order."""
    record = envelope.record
    line = f"id={record.id} due={record.schedule.due} hops={envelope.hops} to={record.lane} {record.address}"
    told = (("delaybridge-since", envelope.since), ("delaybridge-record", line[:LONGEST_LINE]))
    key = record.message.key
    if key is not None and len(key) > LONGEST_KEY:
        key = blake2b(key, digest_size=16).hexdigest().encode()
    return Message(_encode(envelope), fields.table(told), _PROPERTIES, key)


def unpack(message: Message) -> Envelope:
    """The envelope. Raises ValueError for a message that no bridge put there."""
    try:
        return _decode(message.body or b"")
    except (msgspec.MsgspecError, RecursionError) as error:  # who may write here may nest arrays as deep as he likes
        raise ValueError(f"no bridge put this message here: {error}") from error
