"""The lines of the log of ids: how they are written, and what they say. What follows from them is another matter: see known.py.

    key                   value                                      without a value
    m mark id             a claim: when it was made, when it is due, the message has come to its end; the note says how and when
                          where it stood first, and its term
    d mark id             when the running occurrence is due         as above
    f mark id             its fate, where what ended it is gone      as above
    c mark id             a cancel, until when it may wait,          it has done its work
                          and where it stood first
    t mark                                                           a term begins, and is called by the place of this line

A mark tells the lines of one message from those of other messages with its id. No line is ever rewritten with another meaning: so the broker may drop all but
the last line of each key at any time, and what is left says the same.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple

import msgspec

from ....adapters.id_log import Line

CLAIM, DUE, FATE, CANCEL, TERM = b"m", b"d", b"f", b"c", b"t"
MARK = 8
"""Bytes of a mark."""
HEAD = 1 + MARK
"""Bytes of a kind and a mark: what comes before the id in a key."""

DECIDED: tuple[Literal["cancelled", "replaced"], ...] = ("cancelled", "replaced")
"""How the log itself may end a message, before it is delivered: a bridge that still holds it must not deliver it. The log has their index here."""

Decision = tuple[Literal["cancelled", "replaced"], int]
"""What ends a message before it is delivered, and since when (epoch ms)."""

_PLACE = struct.Struct(">q")


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """What a waiting message bears: its mark, the place of its claim in the log, and its term.

    `moved`: it came from another store, which tells the ledger nothing; so neither does a copy that was left behind when that was interrupted.
    """

    mark: bytes
    place: int
    moved: bool = False
    term: int = -1


ENDED = Claim(b"", -1)
"""In place of a claim: the message has come to its end already, and was given again by its source."""


class _Value(msgspec.Struct, array_like=True, frozen=True):
    at: int
    until: int
    first: int = -1
    term: int = -1


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Value).decode


def claiming(id: str, mark: bytes, now: int, due: int, first: int = -1, term: int = -1) -> Line:  # noqa: A002 - the field's own word
    """A message takes an id; `first` is where it has done so before."""
    return Line(_key(CLAIM, mark, id), _encode(_Value(now, due, first, term)))


def cancelling(id: str, mark: bytes, now: int, until: int, first: int = -1) -> Line:  # noqa: A002 - the field's own word
    """Cancel the message with this id; if there is none, the first that claims it by `until`. 0: do not wait. `first` is the cancel's earlier place."""
    return Line(_key(CANCEL, mark, id), _encode(_Value(now, until, first)))


def beginning(mark: bytes) -> Line:
    """A term begins."""
    return Line(_key(TERM, mark, ""), None)


def going_on(id: str, mark: bytes, now: int, due: int) -> Line:  # noqa: A002 - the field's own word
    """The message has another occurrence, due then."""
    return Line(_key(DUE, mark, id), _encode(_Value(now, due)))


def spent(id: str, mark: bytes) -> Line:  # noqa: A002 - the field's own word
    """A cancel has done its work, or found nothing to do: its line may go."""
    return Line(_key(CANCEL, mark, id), None)


def fated(id: str, mark: bytes, fate: Decision) -> Line:  # noqa: A002 - the field's own word
    """What ended the message is gone from the log, or was there before it."""
    return Line(_key(FATE, mark, id), _encode(_Value(fate[1], DECIDED.index(fate[0]))))


def over(id: str, mark: bytes, note: str) -> Line:  # noqa: A002 - the field's own word
    """The message has come to its end. The note says how, when, and what place its claim had; without it the message has left these level queues."""
    return Line(_key(CLAIM, mark, id), None, note.encode())


def is_decision(line: Line) -> bool:
    """Whether it says that a message has ended by what the log had decided."""
    return line.value is None and line.note.partition(b" ")[0].decode() in DECIDED


def readable(line: Line) -> bool:
    """Whether it is one of ours: anybody who may write to the log may write anything."""
    try:
        line.key[HEAD:].decode()
        if line.value is not None:
            value = _decode(line.value)
            if line.key[:1] == FATE and value.until not in range(len(DECIDED)):
                return False
        elif line.note:
            _, at, claimed = line.note.decode().split(" ")
            int(at), int(claimed)
    except (ValueError, RecursionError):  # msgspec's and Python's own are the former, but for arrays that are nested too deep
        return False
    return line.key[:1] in (CLAIM, DUE, FATE, CANCEL, TERM) and len(line.key) >= HEAD


def parts(line: Line) -> tuple[bytes, bytes]:
    """The mark and the id in a line's key."""
    return line.key[1:HEAD], line.key[HEAD:]


def _key(kind: bytes, mark: bytes, id: str) -> bytes:  # noqa: A002 - the field's own word
    return kind + mark + id.encode()


def kept(line: Line, place: int) -> bytes:
    """A line with a value that stands at this place, without its id: as bytes it takes the least memory, while its message waits."""
    assert line.value is not None
    return line.key[:HEAD] + _PLACE.pack(place) + line.value


class Said(NamedTuple):
    """What a kept line says.

    place   where it stands, `first` where its message or its cancel has stood first
    at      when it was written
    until   of a claim and an occurrence, when the message is due; of a cancel, how long it waits for a message; of a fate, its index in DECIDED
    term    of a claim
    """

    kind: bytes
    mark: bytes
    place: int
    at: int
    until: int
    first: int
    term: int

    def kept(self) -> bytes:
        """See `kept`."""
        return kept(self.again(b""), self.place)

    def again(self, id_: bytes) -> Line:
        """A line that says it once more."""
        return Line(self.kind + self.mark + id_, _encode(_Value(self.at, self.until, self.first, self.term)))


def said(kept: bytes) -> Said:
    """What a kept line says. A term that is no earlier than its claim is a place of another log, which stood here before: it says nothing in this one."""
    (place,), value = _PLACE.unpack_from(kept, HEAD), _decode(kept[HEAD + _PLACE.size :])
    first, term = place if value.first < 0 else value.first, value.term if value.term < place else -1
    return Said(kept[:1], kept[1:HEAD], place, value.at, value.until, first, term)
