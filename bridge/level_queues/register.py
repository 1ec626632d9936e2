"""The register of ids: what one bridge knows of the log that all bridges share, and how it writes there.

Cancel and replace are exact between bridges, by three rules:

- a message claims its id before it goes to its level;
- a bridge delivers a message that bears a claim only while it has read the log beyond that claim, and all that stood there FRESH seconds ago;
- a cancel is answered `done` where its message is due MARGIN later at the earliest, or once the log says that it was cancelled; else it waits.

So no message is delivered whose cancel was answered `done`, as long as the clocks of the bridges differ by less than MARGIN less FRESH.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import structlog

from ...adapters.base import AdapterError, NotConnected
from ...core.store import Answer
from ...core.uptime import uptime
from .ids import Ids, Word, said_by
from .lines import ENDED, MARK, Claim, beginning, cancelling, claiming, going_on, is_decision, kept, parts, readable, said, spent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ...adapters.base import Holding
    from ...adapters.id_log import IdLog, Line
    from ...core.ledger import Event
    from ..clock import Clock
    from .ids import Fate

log = structlog.get_logger()

FRESH = 1.0
"""Seconds. Nothing that bears a claim is delivered by what the log said longer ago."""

MARGIN = 2_000
"""Milliseconds: every bridge hears in time of a cancel for what is due later than this."""

LOOK = 0.2
"""Seconds between two questions for the end of the log: the longest for which a settled ending is not written, too."""

PATIENCE = 10.0
"""Seconds in which a bridge reads a line that it has written itself."""

KEPT = 15 * 86_400_000
"""Milliseconds beyond its due time after which no level holds a message any more: levels are kept for two weeks."""

AT_ONCE = 2_000
"""Lines that are written together."""

GONE_FOR = 3_600.0
"""Seconds without a look, as on a machine that was suspended, after which the log is read anew: what was forgotten in it meanwhile may have left it."""


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
    """What one bridge knows of the log of ids. Any thread; what reads and writes the log is `RegisterWorker`.

        decided   gets ids with more than one claim or cancel, and ids of which another bridge has ended a message undelivered
        seen      is called when more of the log is read, or its end is confirmed
        memory    milliseconds for which an ending is remembered for late cancels

    `decided` and `seen` must not block.
    """

    def __init__(self, shared: IdLog, clock: Clock, decided: Callable[[set[str]], None], seen: Callable[[], None], memory: int) -> None:
        self._log = shared
        self._clock = clock
        self._decided = decided
        self._on_seen = seen
        self._memory = memory
        self._ids = Ids()
        self._changed = threading.Condition()
        self._seen = float("-inf")
        self._end = 0
        self._outgoing: deque[Line] = deque()
        self._own_endings: set[bytes] = set()
        self._doubtful = float("-inf")
        self._written = -1
        self._terms: dict[Holding, tuple[Hashable, int]] = {}

    # What the store asks.

    def enter(self, entries: Sequence[Claiming | Cancelling], now: int, holder: Holding | None = None) -> tuple[list[Claim], list[Answer]]:
        """Claims and cancels, in order: durable for all bridges on return. ENDED for what has come to its end before. Raises NotConnected.

        A cancel is not waited for: `in_flight` says that it stands, and holds if it came in time. `holder` has given the messages, and can tell whether
        it has them still.
        """
        marked = any(entry.mark for entry in entries)
        term = self._term(holder) if marked and holder is not None else -1
        if marked:
            self._be_sure()
        marks = [entry.mark or secrets.token_bytes(MARK) for entry in entries]
        lines = [self._line(entry, mark, now, term) for entry, mark in zip(entries, marks, strict=True)]
        places = iter(self._append([line for line in lines if line is not None]))
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
        tenure, known = holder.tenure(), self._terms.get(holder)
        if known is not None and known[0] == tenure:
            return known[1]
        (place,) = self._append([beginning(secrets.token_bytes(MARK))])
        if not holder.affirm(tenure):
            return self._term(holder)
        self._terms[holder] = tenure, place
        return place

    def doubt(self) -> None:
        """What was claimed last comes again soon: look at the log before the next claim."""
        self._doubtful = uptime()

    def _be_sure(self) -> None:
        """Wait until what this bridge has written is read, and what others wrote before they left its messages to this one."""

        def sure() -> bool:
            return self._ids.read > self._written and self._seen > max(self._doubtful, uptime() - FRESH)

        with self._changed:
            if not self._changed.wait_for(sure, PATIENCE):
                raise NotConnected(f"this bridge has not read the log of ids within {PATIENCE:g} s")

    def _line(self, entry: Claiming | Cancelling, mark: bytes, now: int, term: int) -> Line | None:
        """The line for a claim or a cancel; None for a message that has come to its end, and for a cancel that has done its work."""
        with self._changed:
            if self._ids.has_ended(entry.id, mark):
                return None
            before = said_by(self._ids.words(entry.id), mark)
        if isinstance(entry, Cancelling):
            return cancelling(entry.id, mark, now, entry.until, _first(before))
        return claiming(entry.id, mark, now, entry.due, _first(before), term if term >= 0 else _after(before))

    def cancel(self, id: str, now: int, patience: float) -> Answer:  # noqa: A002 - the field's own word
        """Cancel whatever bears this id. Waits up to `patience` seconds for the end of a message that is due about now. Raises NotConnected."""
        mark, entry = secrets.token_bytes(MARK), Cancelling(id, 0)
        (place,) = self._append([cancelling(id, mark, now, entry.until)])
        return self._answer(entry, mark, place, patience)

    def fate(self, id: str, claim: Claim) -> Fate | None:  # noqa: A002 - the field's own word
        """Why this message must not be delivered, None where it may, as far as this bridge has read."""
        with self._changed:
            return self._ids.fate(id, claim)

    def certain(self, claim: Claim, since: float) -> bool:
        """Whether this bridge knows enough to deliver a message that it has had since then (`uptime`).

        A log that has been looked at since, and does not reach as far as the claim, is another log: of that claim nobody knows anything. Of a message that this
        bridge itself has ended, the log is to say so first: this one is its copy.
        """
        known = self._ids.read > claim.place or self._seen > since
        return known and uptime() - self._seen <= FRESH and claim.mark not in self._own_endings

    def ended(self, id: str, claim: Claim, event: Event, now: int) -> None:  # noqa: A002 - the field's own word
        """A message has come to its end. Does not block; written a little later."""
        with self._changed:
            if lines := self._ids.ending(id, claim, event, now):
                self._outgoing += lines
                self._own_endings.add(claim.mark)

    def goes_on(self, id: str, claim: Claim, due: int, now: int) -> None:  # noqa: A002 - the field's own word
        """A message has another occurrence. As `ended`."""
        with self._changed:
            self._outgoing.append(going_on(id, claim.mark, now, due))

    @property
    def known(self) -> tuple[int, int]:
        """How far the log is read, and to where it went when it was looked at."""
        return self._ids.read, self._end

    @property
    def size(self) -> int:
        """How many ids the log says anything of."""
        return len(self._ids)

    # Cancels.

    def _answer(self, entry: Cancelling, mark: bytes, place: int, patience: float) -> Answer:
        sure, deadline = self._clock() + MARGIN, time.monotonic() + patience
        with self._changed:
            if not self._changed.wait_for(lambda: self._ids.read > place, PATIENCE):
                raise NotConnected(f"this bridge has not read the log of ids within {PATIENCE:g} s; a cancel was written, and holds")
            while (answer := self._judged(entry.id, mark, place, sure)).outcome == "in_flight":
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            late = answer.outcome == "too_late" or (answer.outcome == "unknown" and not entry.until)
            if late:
                self._outgoing.append(spent(entry.id, mark))
            return answer

    def _judged(self, id: str, mark: bytes, place: int, sure: int) -> Answer:  # noqa: A002 - the field's own word
        own = said_by(self._ids.words(id), mark)
        place = place if own is None else own.place  # where it stood first
        target, fate = self._ids.target(id, place)
        if target is None:
            ended = self._ids.ended(id)
            if ended is None or ended.at < self._clock() - self._memory:
                return Answer("unknown")
            in_time = ended.event == "cancelled" and ended.place > place and not self._ids.was_late(id, mark)
            return Answer("done") if in_time else Answer("too_late", ended.event, ended.at)
        if target.until < sure:
            return Answer("in_flight")  # also behind an earlier cancel: whether that one came in time is not known yet
        return Answer("done") if fate is None else Answer("too_late", *fate)

    # What the worker does.

    def connect(self) -> None:
        """Go on reading where it was, or anew where that is long ago. Raises NotConnected."""
        place = self._ids.read if uptime() - self._seen < GONE_FOR else 0
        found = self._log.connect(place)
        if found < place:
            log.error("log_of_ids_is_another", lines=place, action="what waits is delivered, also what was cancelled or replaced")
        if found != self._ids.read:
            with self._changed:
                self._seen = float("-inf")
                self._written = -1
                self._terms = {}
                self._ids = Ids()
                self._ids.read = found

    def look(self, stopping: Callable[[], bool]) -> None:
        """Read the log up to its present end, and what comes within LOOK; write what is to be written. Raises NotConnected."""
        asked = uptime()
        if float("-inf") < self._seen < asked - GONE_FOR:
            raise NotConnected("the log of ids was not read for so long that it is read anew")
        self._end = self._log.end()
        while self._ids.read < self._end and not stopping():
            self._read(LOOK)
        if self._ids.read >= self._end:
            with self._changed:
                self._seen = asked
                self._changed.notify_all()
            self._on_seen()
        self.write()
        while (left := asked + LOOK - uptime()) > 0 and not stopping():
            self._read(left)

    def _read(self, timeout: float) -> None:
        read, lines = self._log.read(timeout)
        contested: set[str] = set()
        with self._changed:
            for place, line in lines:
                if readable(line):
                    self._take(place, line, contested)
                else:
                    log.warning("foreign_line_in_the_log_of_ids", place=place, action="it is passed over; see who else writes there")
            self._ids.read = read
            if lines:
                self._changed.notify_all()
        if lines:
            self._on_seen()
        if contested:
            self._decided(contested)

    def _take(self, place: int, line: Line, contested: set[str]) -> None:
        more, (mark, id_) = self._ids.apply(place, line), parts(line)
        own, caught_up = mark in self._own_endings, self._seen > float("-inf")
        if line.value is not None or own:  # what stood once and may be over is not said again
            self._outgoing += (each for each in more if caught_up or each.value is None or each.key != line.key)
        if self._ids.contested(id_) or (is_decision(line) and not own):
            contested.add(id_.decode())
        if line.value is None:
            self._own_endings.discard(mark)

    def write(self) -> None:
        """Write what is to be written; what could not be is written later. Raises NotConnected."""
        while lines := self._next():
            self._append(lines)
            for _ in lines:
                self._outgoing.popleft()

    def _next(self) -> list[Line]:
        with self._changed:
            return list(islice(self._outgoing, AT_ONCE))

    def sweep(self) -> None:
        """Do away with lines that nobody needs."""
        with self._changed:
            self._outgoing += self._ids.outdated(self._clock(), KEPT)

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self._log.close()

    def _append(self, lines: Sequence[Line]) -> list[int]:
        try:
            places = self._log.append(lines)
        except AdapterError as error:
            self.doubt()
            raise NotConnected(f"the log of ids takes nothing: {error}") from error
        with self._changed:  # several threads write: none may undo what another has noted
            self._written = max([self._written, *places])
        return places


def claims(shared: IdLog, known: Ids, entries: Sequence[Claiming], now: int) -> list[Claim]:
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


def _claim(mark: bytes, line: Line, place: int, *, moved: bool = False) -> Claim:
    """What the message bears of this line."""
    return Claim(mark, place, moved, said(kept(line, place)).term)


def _first(word: Word | None) -> int:
    """Where it stood first, for a line that says it again."""
    return -1 if word is None else word.place


def _after(word: Word | None) -> int:
    """A term for a message from a source that has none: where it stood last under one, later than that."""
    return word.last if word is not None and word.term >= 0 else -1


def read_all(shared: IdLog) -> Ids:
    """What the log says, while nobody writes to it. Raises NotConnected."""
    ids = Ids()
    ids.read = shared.connect(0)
    end = shared.end()
    while ids.read < end:
        ids.read, lines = shared.read(LOOK)
        for place, line in lines:
            if readable(line):
                ids.apply(place, line)
    return ids


def mark_of(source: str, token: bytes) -> bytes:
    """The mark of a message that its source names by this token."""
    return blake2b(token, digest_size=MARK, key=source.encode()[:64]).digest()
