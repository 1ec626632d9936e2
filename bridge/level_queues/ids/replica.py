"""One bridge's replica of the log of ids, which all bridges share: what it has read there, and what it is about to write."""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from ....adapters.base import AdapterError, NotConnected
from ....adapters.clock import uptime
from ....adapters.moves import LEAD
from .known import Ids
from .lines import is_decision, parts, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ....adapters.clock import Clock
    from ....adapters.id_log import IdLog, Line
    from .lines import Claim

log = structlog.get_logger()

FRESH = 1.0 - LEAD / 1000
"""Seconds. Nothing that bears a claim is delivered by what the log said more than a second before it is due, and some of it is handed out before that."""

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


class Replica:
    """Any thread, but for what `ReplicaWorker` calls (see below).

        decided   gets ids with more than one claim or cancel, and ids of which another bridge has ended a message undelivered
        seen      is called when more of the log is read, or its end is confirmed
        changed   is to be held while `ids` is read, and is notified when more is known
        readings  how often the log was read from its beginning: places in it are of no use in the next reading

    `decided` and `seen` must not block.
    """

    def __init__(self, shared: IdLog, clock: Clock, decided: Callable[[set[str]], None], seen: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self.ids = Ids()
        self.readings = 0
        self._log = shared
        self._clock = clock
        self._decided = decided
        self._on_seen = seen
        self._seen = float("-inf")
        self._end = 0
        self._outgoing: deque[Line] = deque()
        self._own_endings: set[bytes] = set()
        self._doubtful = float("-inf")
        self._written = -1

    @property
    def known(self) -> tuple[int, int]:
        """How far the log is read, and to where it went when it was looked at."""
        return self.ids.read, self._end

    @property
    def size(self) -> int:
        """How many ids the log says anything of."""
        return len(self.ids)

    def doubt(self) -> None:
        """What was claimed last comes again soon: look at the log before the next claim."""
        self._doubtful = uptime()

    def be_sure(self) -> None:
        """Wait until what this bridge has written is read, and what others wrote before they left its messages to this one. Raises NotConnected."""

        def sure() -> bool:
            return self.ids.read > self._written and self._seen > max(self._doubtful, uptime() - FRESH)

        self._wait(sure)

    def reach(self, place: int) -> None:
        """Wait until what stands at that place is read. Raises NotConnected."""
        self._wait(lambda: self.ids.read > place)

    def _wait(self, known: Callable[[], bool]) -> None:
        with self.changed:
            if not self.changed.wait_for(known, PATIENCE):
                raise NotConnected(f"this bridge has not read the log of ids within {PATIENCE:g} s")

    def certain(self, claim: Claim, since: float) -> bool:
        """Whether this bridge knows enough to deliver a message that it has had since then (`uptime`).

        A log that has been looked at since, and does not reach as far as the claim, is another log: of that claim nobody knows anything. Of a message that this
        bridge itself has ended, the log is to say so first: this one is its copy.
        """
        known = self.ids.read > claim.place or self._seen > since
        return known and uptime() - self._seen <= FRESH and claim.mark not in self._own_endings

    def append(self, lines: Sequence[Line]) -> list[int]:
        """Write lines: durable for all bridges on return. Where they stand. Raises NotConnected."""
        try:
            places = self._log.append(lines)
        except AdapterError as error:
            self.doubt()
            raise NotConnected(f"the log of ids takes nothing: {error}") from error
        with self.changed:  # several threads write: none may undo what another has noted
            self._written = max([self._written, *places])
        return places

    def say(self, lines: Iterable[Line]) -> None:
        """Have lines written a little later. Does not block."""
        with self.changed:
            self._outgoing += lines

    def say_ended(self, mark: bytes, lines: Sequence[Line]) -> None:
        """As `say`, that a message has come to its end here, where there is anything to say of it."""
        if lines:
            with self.changed:
                self._outgoing += lines
                self._own_endings.add(mark)

    # What the worker does, in its own thread.

    def connect(self) -> None:
        """Go on reading where it was, or anew where that is long ago. Raises NotConnected."""
        place = self.ids.read if uptime() - self._seen < GONE_FOR else 0
        found = self._log.connect(place)
        if found < place:
            log.error("log_of_ids_is_another", lines=place, action="what waits is delivered, also what was cancelled or replaced")
        if found != self.ids.read:
            with self.changed:
                self._seen = float("-inf")
                self._written = -1
                # Of the others the endings are written, and may never be read: a copy would wait for that for ever.
                self._own_endings &= {parts(line)[0] for line in self._outgoing}
                self.readings += 1
                self.ids = Ids()
                self.ids.read = found

    def look(self, stopping: Callable[[], bool]) -> None:
        """Read the log up to its present end, and what comes within LOOK; write what is to be written. Raises NotConnected."""
        asked = uptime()
        if float("-inf") < self._seen < asked - GONE_FOR:
            raise NotConnected("the log of ids was not read for so long that it is read anew")
        self._end = self._log.end()
        while self.ids.read < self._end and not stopping():
            self._read(LOOK)
        if self.ids.read >= self._end:
            with self.changed:
                self._seen = asked
                self.changed.notify_all()
            self._on_seen()
        self.write()
        while (left := asked + LOOK - uptime()) > 0 and not stopping():
            self._read(left)

    def _read(self, timeout: float) -> None:
        read, lines = self._log.read(timeout)
        contested: set[str] = set()
        with self.changed:
            for place, line in lines:
                if readable(line):
                    self._take(place, line, contested)
                else:
                    log.warning("foreign_line_in_the_log_of_ids", place=place, action="it is passed over; see who else writes there")
            self.ids.read = read
            if lines:
                self.changed.notify_all()
        if lines:
            self._on_seen()  # first: what is released now can be withdrawn by what was decided
        if contested:
            self._decided(contested)

    def _take(self, place: int, line: Line, contested: set[str]) -> None:
        more, (mark, id_) = self.ids.apply(place, line), parts(line)
        own, caught_up = mark in self._own_endings, self._seen > float("-inf")
        if line.value is not None or own:  # what stood once and may be over is not said again
            self._outgoing += (each for each in more if caught_up or each.value is None or each.key != line.key)
        if self.ids.contested(id_) or (is_decision(line) and not own):
            contested.add(id_.decode())
        if line.value is None:
            self._own_endings.discard(mark)

    def write(self) -> None:
        """Write what is to be written; what could not be is written later. Raises NotConnected."""
        while lines := self._next():
            self.append(lines)
            for _ in lines:
                self._outgoing.popleft()

    def _next(self) -> list[Line]:
        with self.changed:
            return list(islice(self._outgoing, AT_ONCE))

    def sweep(self) -> None:
        """Do away with lines that nobody needs."""
        with self.changed:
            self._outgoing += self.ids.outdated(self._clock(), KEPT)

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self._log.close()


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
