"""What the log of ids says: which messages wait under an id, and which of them were cancelled or replaced. Nothing here knows a broker or a thread.

The order of the log decides, no clock. A message whose id may be asked for *claims* the id before it goes to its level: it writes a line, and bears the place
of that line with it. It is ended by what the log says of the id after that: a *cancel* cancels it, another claim replaces it. A cancel that finds no message
may wait for the next claim.

    key                   value                                      without a value
    m mark id             a claim: when it was made, when it is due, the message has come to its end; the note says how and when
                          and where it stood first
    d mark id             when the running occurrence is due         as above
    f mark id             its fate, where what ended it is gone      as above
    c mark id             a cancel, and until when it may wait,      it has done its work
                          and where it stood first

A mark tells the lines of one message from those of other messages with its id. No line is ever rewritten with another meaning: so the broker may drop all but
the last line of each key at any time, and what is left says the same.

A message that its source gives again claims again under its mark, and keeps its first place: what was decided about it stands, and of its copies only the
last one is delivered. A cancel that is given again keeps its first place, too, and is not repeated once it has done its work: it must not cancel what was
sent after it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import msgspec

from ...adapters.id_log import Line
from .endings import DECIDED, Ended, Endings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...core.ledger import Event

Decision = tuple[Literal["cancelled", "replaced"], int]
"""What ends a message before it is delivered, and since when (epoch ms)."""

Fate = Decision | tuple[Literal["over"], int]
"""Why the holder of a message must not deliver it. `over`: another bridge has ended it, and told the ledger."""

_CLAIM, _DUE, _FATE, _CANCEL = b"m", b"d", b"f", b"c"
MARK = 8
"""Bytes of a mark."""

_PLACE = struct.Struct(">q")
_HEAD = 1 + MARK + _PLACE.size


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """What a waiting message bears: its mark, and the place of its claim in the log.

    `moved`: it came from another store, which tells the ledger nothing; so neither does a copy that was left behind when that was interrupted.
    """

    mark: bytes
    place: int
    moved: bool = False


ENDED = Claim(b"", -1)
"""In place of a claim: the message has come to its end already, and was given again by its source."""


class Word(NamedTuple):
    """One claim or one cancel, in the order of the log.

    place   where it stands first; `last`, where it stands last
    at      when it was made
    until   of a claim, when its message is due; of a cancel, how long it waits for a message, 0 where it does not
    fate    what ended a claim's message, where that is gone from the log
    """

    cancel: bool
    mark: bytes
    place: int
    at: int
    until: int
    last: int
    fate: Decision | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, int]).decode


def claiming(id: str, mark: bytes, now: int, due: int, first: int = -1) -> Line:  # noqa: A002 - the field's own word
    """A message takes an id; `first` is where it has done so before."""
    return Line(_key(_CLAIM, mark, id), _encode((now, due, first)))


def cancelling(id: str, mark: bytes, now: int, until: int, first: int = -1) -> Line:  # noqa: A002 - the field's own word
    """Cancel the message with this id; if there is none, the first that claims it by `until`. 0: do not wait. `first` is the cancel's earlier place."""
    return Line(_key(_CANCEL, mark, id), _encode((now, until, first)))


def going_on(id: str, mark: bytes, now: int, due: int) -> Line:  # noqa: A002 - the field's own word
    """The message has another occurrence, due then."""
    return Line(_key(_DUE, mark, id), _encode((now, due, -1)))


def spent(id: str, mark: bytes) -> Line:  # noqa: A002 - the field's own word
    """A cancel has done its work, or found nothing to do: its line may go."""
    return Line(_key(_CANCEL, mark, id), None)


def _fated(id: str, mark: bytes, fate: Decision) -> Line:  # noqa: A002 - the field's own word
    return Line(_key(_FATE, mark, id), _encode((fate[1], DECIDED.index(fate[0]), -1)))


def is_decision(line: Line) -> bool:
    """Whether it says that a message has ended by what the log had decided."""
    return line.value is None and line.note.partition(b" ")[0].decode() in DECIDED


def readable(line: Line) -> bool:
    """Whether it is one of ours: anybody who may write to the log may write anything."""
    try:
        line.key[1 + MARK :].decode()
        if line.value is not None:
            _decode(line.value)
        elif line.note:
            _, at, claimed = line.note.decode().split(" ")
            int(at), int(claimed)
    except ValueError:  # msgspec's and Python's own are
        return False
    return line.key[:1] in (_CLAIM, _DUE, _FATE, _CANCEL) and len(line.key) >= 1 + MARK


def parts(line: Line) -> tuple[bytes, bytes]:
    """The mark and the id in a line's key."""
    return line.key[1 : 1 + MARK], line.key[1 + MARK :]


def _key(kind: bytes, mark: bytes, id: str) -> bytes:  # noqa: A002 - the field's own word
    return kind + mark + id.encode()


class Ids:
    """What all lines before place `read` say. Not safe for several threads.

    While a message bears an id, that costs one entry of bytes, which are read when somebody asks.
    """

    def __init__(self) -> None:
        self.read = 0
        self._lines: dict[bytes, tuple[bytes, ...]] = {}
        self._endings = Endings()

    def __len__(self) -> int:
        return len(self._lines)

    def apply(self, place: int, line: Line) -> list[Line]:
        """Apply the next line; returns lines to append: keys that are done with, and the fate of a copy whose original has ended."""
        head, id_ = line.key[: 1 + MARK], line.key[1 + MARK :]
        if line.value is None:
            return self._forget(place, head, id_, line.note)
        if head[:1] == _CANCEL and self._endings.spent(id_, head[1:]):
            return [Line(line.key, None)]  # whoever took it in again had not read so far
        kept = tuple(each for each in self._lines.get(id_, ()) if each[: 1 + MARK] != head)
        if head[:1] in (_DUE, _FATE) and all(each[: 1 + MARK] != _CLAIM + head[1:] for each in kept):
            return [Line(line.key, None)]  # its message has ended meanwhile
        self._lines[id_] = (*kept, head + _PLACE.pack(place) + line.value)
        return self._copied(place, head, id_)

    def _copied(self, place: int, head: bytes, id_: bytes) -> list[Line]:
        """Tell a copy its fate. It is one if its message has ended and claims its id again: the bridge that took it in again had not read the end."""
        ended = self._endings.of(id_, head[1:]) if head[:1] == _CLAIM else None
        if ended is None:
            return []
        fate = _fated(id_.decode(), head[1:], ("replaced", ended.at))
        self.apply(place, fate)
        return [fate]

    def _forget(self, place: int, head: bytes, id_: bytes, note: bytes) -> list[Line]:
        kept, gone = self._lines.get(id_, ()), {head}
        if head[:1] == _CLAIM:
            words, mark = _words(kept), head[1:]
            gone |= {_CANCEL + word.mark for word in words if word.cancel and [each.mark for each in _targets(words, word)] == [mark]}
            gone |= {each[: 1 + MARK] for each in kept if each[1 : 1 + MARK] == mark}
            if note:
                event, at, claimed = note.decode().split(" ")
                self._endings.message(id_, Ended(cast("Event", event), int(at), place, Claim(mark, int(claimed))))
        for each in gone:
            if each[:1] == _CANCEL:
                self._endings.cancel(id_, each[1:])
        left = tuple(each for each in kept if each[: 1 + MARK] not in gone)
        if left:
            self._lines[id_] = left
        else:
            self._lines.pop(id_, None)
        return [Line(each[: 1 + MARK] + id_, None) for each in kept if each[: 1 + MARK] in gone - {head}]

    def words(self, id: str) -> list[Word]:  # noqa: A002 - the field's own word
        """The claims and cancels of an id, in the order of the log."""
        return _words(self._lines.get(id.encode(), ()))

    def ended(self, id: str) -> Ended | None:  # noqa: A002 - the field's own word
        """How the last that bore it ended, where that is remembered."""
        return self._endings.last(id.encode())

    def has_ended(self, id: str, mark: bytes) -> bool:  # noqa: A002 - the field's own word
        """Whether this very message has come to its end, or this cancel has done its work, as far as is remembered."""
        return self._endings.of(id.encode(), mark) is not None or self._endings.spent(id.encode(), mark)

    def fate(self, id: str, claim: Claim) -> Fate | None:  # noqa: A002 - the field's own word
        """Why this message must not be delivered, None where it may. Of one that the log does not know (any more) nothing is said: it may.

        So may one that somebody has delivered already and the broker gives again: what was to follow, as a dead letter, may not have been confirmed.
        """
        words = self.words(id)
        own = said_by(words, claim.mark)
        if own is not None:
            return _copy(claim, own.at) if claim.place < own.last else fate_of(words, own)
        ended = self._endings.of(id.encode(), claim.mark)
        if ended is None:
            return None
        if ended.claim.place != claim.place:
            return _copy(claim, ended.at)  # the other one has ended
        return ("over", ended.at) if ended.event in DECIDED else None

    def contested(self, id: bytes) -> bool:  # noqa: A002 - the field's own word
        """Whether the log says more of this id than that one message has claimed it."""
        return len(self._lines.get(id, ())) > 1

    def ending(self, id: str, claim: Claim, event: Event | None, now: int) -> list[Line]:  # noqa: A002 - the field's own word
        """What to append, in order, when a message has come to its end. Without an event: it has left these level queues.

        A message that it replaced may still wait somewhere, and must know its fate by itself from now on. A cancel that was for this message only has done
        its work, and must not meet the next one.
        """
        words = self.words(id)
        own = said_by(words, claim.mark)
        lines: list[Line] = []
        if own is not None and own.last > claim.place:
            return lines  # a copy of it is still there
        if own is not None:
            older = [word for word in words if not word.cancel and word.place < own.place and word.fate is None]
            lines += (_fated(id, word.mark, fate) for word in older if (fate := fate_of(words, word)) is not None)
            lines += (spent(id, word.mark) for word in words if word.cancel and _targets(words, word) == [own])
        said = {each[:1] for each in self._lines.get(id.encode(), ()) if each[1 : 1 + MARK] == claim.mark}
        lines += (Line(_key(kind, claim.mark, id), None) for kind in (_DUE, _FATE) if kind in said)
        return [*lines, Line(_key(_CLAIM, claim.mark, id), None, f"{event} {now} {claim.place}".encode() if event else b"")]

    def outdated(self, now: int, most: int) -> Iterator[Line]:
        """Lines that nobody needs: of messages overdue by more than `most` ms, which no level can hold any more, and of cancels that waited in vain."""
        for id_, lines in list(self._lines.items()):
            words = _words(lines)
            old = {
                word.mark
                for word in words
                if word.until < (now if word.cancel else now - most) and not (word.cancel and _targets(words, word))
            }
            yield from (Line(each[: 1 + MARK] + id_, None) for each in lines if each[1 : 1 + MARK] in old)


def said_by(words: Sequence[Word], mark: bytes) -> Word | None:
    """The claim of one message, or one cancel, by its mark; None where the log does not have it (any more)."""
    return next((word for word in words if word.mark == mark), None)


def _copy(claim: Claim, at: int) -> Fate:
    """What ends one of two copies of a message."""
    return ("over", at) if claim.moved else ("replaced", at)


def fate_of(words: Sequence[Word], own: Word) -> Decision | None:
    """What ends a message, by all claims and cancels of its id."""
    if own.fate is not None:
        return own.fate
    for word in words:
        if word.place > own.place:
            return ("cancelled" if word.cancel else "replaced"), word.at
        if word.cancel and _targets(words, word) == [own]:
            return "cancelled", own.at
    return None


def _targets(words: Sequence[Word], cancel: Word) -> list[Word]:
    """The messages that a cancel is for: those that claimed the id before it; if there are none, the next one, if it comes in time."""
    older = [word for word in words if not word.cancel and word.place < cancel.place]
    if older:
        return older
    following = next((word for word in words if not word.cancel), None)
    return [following] if following is not None and following.at <= cancel.until else []


def _words(lines: Sequence[bytes]) -> list[Word]:
    """Claims and cancels, each with what else is said of it, in the order of the log."""
    found: dict[bytes, Word] = {}
    more: list[tuple[bytes, bytes, int, int]] = []
    for line in lines:
        kind, mark, (at, value, first) = line[:1], line[1 : 1 + MARK], _decode(line[_HEAD:])
        if kind in (_CLAIM, _CANCEL):
            (place,) = _PLACE.unpack_from(line, 1 + MARK)
            found[mark] = Word(kind == _CANCEL, mark, place if first < 0 else first, at, value, place)
        else:
            more.append((kind, mark, at, value))
    for kind, mark, at, value in more:
        if mark in found:
            found[mark] = found[mark]._replace(**({"until": value} if kind == _DUE else {"fate": (DECIDED[value], at)}))
    return sorted(found.values(), key=lambda word: word.place)
