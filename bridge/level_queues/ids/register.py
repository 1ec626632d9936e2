"""The register of ids: claims and cancels, by the log that all bridges share.

Cancel and replace are exact between bridges, by three rules:

- a message claims its id before it goes to its level;
- a bridge delivers a message that bears a claim only while it has read the log beyond that claim, and all that stood there `replica.FRESH` seconds ago;
- a cancel is answered `done` where its message is due MARGIN later at the earliest, or once the log says that it was cancelled; else it waits.

So no message is delivered whose cancel was answered `done`, as long as the clocks of the bridges differ by less than MARGIN less FRESH.
"""

from __future__ import annotations

import secrets
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from ....adapters.base import NotConnected
from ....core.store import Answer
from .known import said_by
from .lines import ENDED, MARK, Claim, beginning, cancelling, claiming, going_on, kept, said, spent

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ....adapters.base import Holding
    from ....adapters.clock import Clock
    from ....adapters.id_log import IdLog, Line
    from ....core.ledger import Event
    from .known import Fate, Ids, Word
    from .replica import Replica

MARGIN = 2_000
"""Milliseconds: every bridge hears in time of a cancel for what is due later than this."""


class Claiming(NamedTuple):
    """A message is to take this id, and is due then. `mark` is the same where its source gives it again; empty where that cannot be told."""

    id: str
    due: int
    mark: bytes = b""


class Cancelling(NamedTuple):
    """The message with this id is to be cancelled; if there is none, the first to claim it before `until`. `mark` as above."""

    id: str
    until: int
    mark: bytes = b""


class Register:
    """Claims, cancels, and what becomes of them, by one bridge's `replica` of the log. Any thread.

    `memory` is for how long an ending is remembered for late cancels (ms).
    """

    def __init__(self, replica: Replica, clock: Clock, memory: int) -> None:
        self.replica = replica
        self._clock = clock
        self._memory = memory
        self._terms: dict[Holding, tuple[Hashable, int]] = {}

    def enter(self, entries: Sequence[Claiming | Cancelling], now: int, holder: Holding | None = None) -> tuple[list[Claim], list[Answer]]:
        """Claims and cancels, in order: durable for all bridges on return. ENDED for what has come to its end before. Raises NotConnected.

        A cancel is not waited for: `in_flight` says that it stands, and holds if it came in time. `holder` has given the messages, and can tell whether
        it has them still.
        """
        marked = any(entry.mark for entry in entries)
        term = self._term(holder) if marked and holder is not None else -1
        if marked:
            self.replica.be_sure()
        marks = [entry.mark or secrets.token_bytes(MARK) for entry in entries]
        known = self._known(entries, marks)
        claimed = any(before is not None and before.term == term for _, before in known)
        if holder is not None and claimed:  # in this term: its copies could not be told apart
            del self._terms[holder]
            term = self._term(holder)
        lines = [
            None if ended else _line(entry, mark, now, term, before)
            for entry, mark, (ended, before) in zip(entries, marks, known, strict=True)
        ]
        places = iter(self.replica.append([line for line in lines if line is not None]))
        claims: list[Claim] = []
        answers: list[Answer] = []
        for entry, mark, line in zip(entries, marks, lines, strict=True):
            if isinstance(entry, Cancelling):
                answers.append(Answer("done") if line is None else self._answer(entry, mark, next(places), 0.0))
            else:
                claims.append(ENDED if line is None else _claim(mark, line, next(places)))
        return claims, answers

    def _term(self, holder: Holding) -> int:
        """A fencing token for what the holder gave last: higher than that of any bridge that had it before, lower than that of any that gets it later.

        For it is the place of a line that was written before the broker said that the holder has not lost it; who gets it after that writes its line
        later. One that had lost it before gets none. So it does no harm if a bridge stands still here, or later, and writes its claims too late.
        """
        tenure, known = (self.replica.readings, holder.tenure()), self._terms.get(holder)
        if known is not None and known[0] == tenure:
            return known[1]
        (place,) = self.replica.append([beginning(secrets.token_bytes(MARK))])
        if not holder.affirm(tenure[1]):
            return self._term(holder)
        self._terms[holder] = tenure, place
        return place

    def _known(self, entries: Sequence[Claiming | Cancelling], marks: Sequence[bytes]) -> list[tuple[bool, Word | None]]:
        """Of each, whether that message has come to its end, or that cancel has done its work; else what the log says of it already."""
        with self.replica.changed:
            ids = self.replica.ids
            return [(ids.has_ended(entry.id, mark), said_by(ids.words(entry.id), mark)) for entry, mark in zip(entries, marks, strict=True)]

    # What becomes of messages.

    def fate(self, id: str, claim: Claim) -> Fate | None:  # noqa: A002 - the field's own word
        """Why this message must not be delivered, None where it may, as far as this bridge has read."""
        with self.replica.changed:
            return self.replica.ids.fate(id, claim)

    def ended(self, id: str, claim: Claim, event: Event, now: int) -> None:  # noqa: A002 - the field's own word
        """A message has come to its end. Does not block; written a little later."""
        with self.replica.changed:
            self.replica.say_ended(claim.mark, self.replica.ids.ending(id, claim, event, now))

    def goes_on(self, id: str, claim: Claim, due: int, now: int) -> None:  # noqa: A002 - the field's own word
        """A message has another occurrence. As `ended`."""
        self.replica.say([going_on(id, claim.mark, now, due)])

    # Cancels.

    def cancel(self, id: str, now: int, patience: float) -> Answer:  # noqa: A002 - the field's own word
        """Cancel whatever bears this id. Waits up to `patience` seconds for the end of a message that is due about now. Raises NotConnected."""
        mark, entry = secrets.token_bytes(MARK), Cancelling(id, 0)
        (place,) = self.replica.append([cancelling(id, mark, now, entry.until)])
        return self._answer(entry, mark, place, patience)

    def _answer(self, entry: Cancelling, mark: bytes, place: int, patience: float) -> Answer:
        replica, sure, deadline = self.replica, self._clock() + MARGIN, time.monotonic() + patience
        with replica.changed:  # from here on the log is not read anew, but while this waits
            try:
                replica.reach(place)
            except NotConnected as error:
                raise NotConnected(f"{error}; a cancel was written, and holds") from error
            while (answer := self._judged(entry.id, mark, place, sure)).outcome == "in_flight":
                left = deadline - time.monotonic()
                if left <= 0 or not replica.changed.wait(left):
                    break
            late = answer.outcome == "too_late" or (answer.outcome == "unknown" and not entry.until)
            if late:
                replica.say([spent(entry.id, mark)])
            return answer

    def _judged(self, id: str, mark: bytes, place: int, sure: int) -> Answer:  # noqa: A002 - the field's own word
        ids = self.replica.ids
        own = said_by(ids.words(id), mark)
        place = place if own is None else own.place  # where it stood first
        target, fate = ids.target(id, place)
        if target is None:
            ended = ids.ended(id)
            if ended is None or ended.at < self._clock() - self._memory:
                return Answer("unknown")
            in_time = ended.event == "cancelled" and ended.place > place and not ids.was_late(id, mark)
            return Answer("done") if in_time else Answer("too_late", ended.event, ended.at)
        if target.until < sure:
            return Answer("in_flight")  # also behind an earlier cancel: whether that one came in time is not known yet
        return Answer("done") if fate is None else Answer("too_late", *fate)


def claims_of_moved(shared: IdLog, known: Ids, entries: Sequence[Claiming], now: int) -> list[Claim]:
    """Claims of messages that move here from another store, by their marks. ENDED for messages that have ended here, or gone on. Raises AdapterError.

    A message that is `known` was moved before, by a move that was interrupted: it claims again at its first place, and of its copies only this one counts.
    """
    before = [said_by(known.words(entry.id), entry.mark) for entry in entries]
    fresh = [
        not known.has_ended(entry.id, entry.mark) and (word is None or word.until <= entry.due)
        for entry, word in zip(entries, before, strict=True)
    ]
    lines = [
        claiming(entry.id, entry.mark, now, entry.due, _first(word), _after(word)) if new else None
        for entry, word, new in zip(entries, before, fresh, strict=True)
    ]
    places = iter(shared.append(given) if (given := [line for line in lines if line is not None]) else ())
    return [
        ENDED if line is None else _claim(entry.mark, line, next(places), moved=True) for entry, line in zip(entries, lines, strict=True)
    ]


def _line(entry: Claiming | Cancelling, mark: bytes, now: int, term: int, before: Word | None) -> Line:
    """The line for a claim or a cancel, of which the log says this already."""
    if isinstance(entry, Cancelling):
        return cancelling(entry.id, mark, now, entry.until, _first(before))
    return claiming(entry.id, mark, now, entry.due, _first(before), term if term >= 0 else _after(before))


def _claim(mark: bytes, line: Line, place: int, *, moved: bool = False) -> Claim:
    """What the message bears of this line."""
    return Claim(mark, place, moved, said(kept(line, place)).term)


def _first(word: Word | None) -> int:
    """Where it stood first, for a line that says it again."""
    return -1 if word is None else word.place


def _after(word: Word | None) -> int:
    """A term for a message from a source that has none: where it stood last under one, later than that."""
    return word.last if word is not None and word.term >= 0 else -1


def mark_of(source: str, token: bytes) -> bytes:
    """The mark of a message that its source names by this token."""
    return blake2b(token, digest_size=MARK, key=source.encode()[:64]).digest()
