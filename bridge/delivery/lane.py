"""Delivery to one destination broker: everything that is due goes out, what was confirmed is closed, and the tick says how long to wait.

One thread calls `tick` (and `drain`); `confirm` may be called from any thread. What is in memory is bounded by the window.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from ...adapters.base import AdapterError, BackOff, NotConnected, Outcome, Outgoing, Rejected
from ...core import headers
from ...core.message import Message
from ...core.reasons import Reason
from ...core.store import Due, Held, Store
from ...core.targets import Partition, address_of
from .closing import Closing
from .flights import Flight, Flights
from .holds import NEVER, Hold, Holds

if TYPE_CHECKING:
    from ...core.targets import Target
    from ..downtimes import DowntimeFile
    from ..metrics import Metrics, Published

log = structlog.get_logger()

Publish = Callable[[Sequence[Outgoing]], None]


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """Bounds of one lane. Times in milliseconds.

    window, window_bytes    unconfirmed messages, and their bytes, at most
    batch                   messages read, published or settled in one go: other lanes wait for no longer than that takes
    slow_after              a destination is stuck if its oldest message has been unconfirmed for longer
    share                   what a stuck destination may have unconfirmed; meanwhile the window is larger by this, for the others
    settle_after            a confirmed message is settled at the latest after this long; in between, confirms share one write
    give_up_after           overdue messages are dead-lettered where a destination refuses that has refused for so long; 0: never
    lead                    messages are given to the sink so long before they are due: it keeps them until then, see DepartureSink
    """

    window: int
    share: int
    give_up_after: int
    window_bytes: int = 64 << 20
    batch: int = 100
    slow_after: int = 1000
    settle_after: int = 5
    lead: int = 0


class Lane:
    """One destination broker. `paused` names routes that wait; for `dead_letters` and `on_settle` see Closing."""

    def __init__(
        self,
        name: str,
        store: Store,
        holds: Holds,
        dead_letters: Mapping[str, str],
        paused: AbstractSet[str],
        started: int,
        down: DowntimeFile,
        settings: LaneSettings,
        metrics: Metrics,
        on_settle: Callable[[], None],
    ) -> None:
        self.name = name
        self.store = store
        self.holds = holds
        self.settings = settings
        self.paused = paused
        self.published = 0
        self._down = down
        self._metrics = metrics
        self._closing = Closing(store, dead_letters, down, metrics, on_settle, batch=settings.batch, after=settings.settle_after)
        self._inbox: deque[Sequence[Outcome]] = deque()
        self._flights = Flights()
        self._stuck = ""
        self._given_up: set[Target] = set()
        self._now = started
        for target, (attempts, error) in store.held(name).items():
            holds.restore(target, attempts, error, started)

    @property
    def in_flight(self) -> int:
        """How many messages are published and not confirmed yet."""
        return len(self._flights)

    def confirm(self, outcomes: Sequence[Outcome]) -> None:
        """What became of published messages. Any thread; never blocks."""
        self._inbox.append(outcomes)

    def connected(self, now: int) -> None:
        """The sink is connected, for the first time or again; `tick` comes next."""
        self._keep_time(now)
        self.holds.connected(now)

    def tick(self, now: int, publish: Publish) -> int:
        """Do all that can be done now; returns the milliseconds until there will be more to do (an outcome or an earlier message aside).

        Raises NotConnected when the sink cannot publish; what it was given is due again.
        """
        self._keep_time(now)
        self._absorb(now)
        self._stuck = self._stuck_address(now)
        self._give_up(now)
        self._send_held(now, publish)
        full = self._send_due(now, publish)
        self._closing.tick(now)
        return max(0, min(self._closing.by, self._next_chance(full)) - now)

    def _keep_time(self, now: int) -> None:
        """If the wall clock was set back, move all planned times back with it; nothing that falls due from now on counts as missed."""
        if now < self._now:
            self._down.set_back(now)
            self._closing.set_back(now)
            self.holds.set_back(self._now - now)
            self._flights.set_back(self._now - now)
        self._now = now

    def _next_chance(self, full: bool) -> int:
        """When time alone lets something go out. Without room, something only goes out after an outcome, or once a destination is found stuck."""
        if self._given_up:
            return self._now
        if full:
            return NEVER if self._stuck else self._flights.oldest.since + self.settings.slow_after + 1
        next_due = self.store.next_due(self.name)
        return min(self.holds.next_retry(), NEVER if next_due is None else next_due - self.settings.lead)

    def drain(self, now: int) -> bool:
        """Settle what was confirmed, publish nothing; True when nothing is in flight any more."""
        self._absorb(now)
        self._closing.settle(now)
        return not self._flights

    def _send_due(self, now: int, publish: Publish) -> bool:
        """Publish what is due, but no more than about a window in one tick, for outcomes must not wait longer. True when the window is full."""
        for _ in range(1 + self.settings.window // self.settings.batch):
            room, space = self._room()
            if room <= 0 or space <= 0:
                return True
            limit = min(room, self.settings.batch)
            batch = self.store.due(self.name, now + self.settings.lead, limit, space)
            if batch:
                self._dispatch(batch, now, publish, None)
            if len(batch) < limit:
                return False  # where there is more after all, it is due, and the next tick comes at once
        return False

    def _send_held(self, now: int, publish: Publish) -> None:
        for target, hold in self.holds.ready(now):
            room, space = self._room()
            if room <= 0 or space <= 0:
                return
            if self._stuck and self._crowds(address_of(target)):
                self.holds.slow(target, now + self.settings.slow_after // 10)
                continue
            share = 1 if hold.probing else (room + 1) // 2  # the other half is for what falls due
            if self._catch_up(target, share, now, publish):
                self.holds.turn(target)
            elif not hold.in_flight and hold.retry_at <= now:
                self.holds.free(target)
                if hold.told and not hold.probing:  # else what was behind it has been given up
                    log.info("destination_free", lane=self.name, address=str(target))

    def _catch_up(self, target: Target, share: int, now: int, publish: Publish) -> int:
        """Publish what is held at a target, at most `share` of it; returns how many."""
        sent = 0
        while sent < share and (space := self._room()[1]) > 0 and not (self._stuck and self._crowds(address_of(target))):
            limit = min(share - sent, self.settings.batch)
            batch = self._held_batch(target, limit, space, now)
            behind = self._dispatch(batch, now, publish, target) if batch else 0
            sent += len(batch)
            if len(batch) < limit or behind == len(batch):
                break
        return sent

    def _held_batch(self, target: Target, limit: int, space: int, now: int) -> Sequence[Due]:
        """The next records that are held there, if they are due.

        Where the clock was set back, some may not be: these are put back, and looked at again each second, at the latest.
        """
        batch = self.store.due_held(self.name, target, now, limit, space)
        due_by = now + self.settings.lead
        early = [each for each in batch if each.record.schedule.due > due_by]
        if not early:
            return batch
        self.store.put_back([each.key for each in early])
        self.holds.slow(target, min(now + self.settings.slow_after, *(each.record.schedule.due for each in early)))
        return [each for each in batch if each.record.schedule.due <= due_by]

    def _room(self) -> tuple[int, int]:
        """How many more messages, and bytes, may be in flight."""
        settings = self.settings
        beyond = settings.share if self._stuck else 0
        return (
            settings.window + beyond - len(self._flights),
            settings.window_bytes + settings.window_bytes * beyond // settings.window - self._flights.bytes,
        )

    def _dispatch(self, batch: Sequence[Due], now: int, publish: Publish, held: Target | None) -> int:
        """Publish what need not wait at its target; returns how many must."""
        outgoing: list[Outgoing] = []
        behind: list[Held] = []
        stopped = ""
        for due in batch:
            # All that is held is for one target: what stands there behind a message that must wait, waits with it.
            where, why = (held, stopped) if held is not None and stopped else self._held_by(due, held, now)
            if where is not None:
                behind.append(_waits(due, where, why))
                stopped = why if where == held else stopped
            elif not self._closing.expired(due, now):
                outgoing.append(self._take_off(due, now, held))
        if behind:
            self.store.hold(behind, now)
        if outgoing:
            try:
                publish(outgoing)
            except NotConnected as error:
                self.confirm([(sent.tag, error) for sent in outgoing])
                raise
        return len(behind)

    def _held_by(self, due: Due, held: Target | None, now: int) -> tuple[Target | None, str]:
        """Where this record must wait and why, if it must: its route is paused, its destination fails, or does not confirm.

        What was held behind a whole destination waits with all that is held for its partition: the store lets only what falls due wait there by itself.
        """
        address = due.record.address
        if self.paused and due.record.route in self.paused:
            self.holds.pause(held or address)
            return held or address, "paused"
        if self.holds.targets and not isinstance(held, Partition):
            for target, hold in self.holds.targets.of(due.record):
                if target != held and (held is not None or not hold.open(now)):
                    return target, hold.error
        if self._stuck and self._crowds(address):
            self.holds.slow(held or address, now + self.settings.slow_after // 10)
            return held or address, "slow: earlier messages are not confirmed yet"
        return None, ""

    def _stuck_address(self, now: int) -> str:
        """The destination whose message has been unconfirmed for longest, if that is too long."""
        if not self._flights or now - self._flights.oldest.since <= self.settings.slow_after:
            return ""
        return self._flights.oldest.address

    def _crowds(self, address: str) -> bool:
        """Whether an address uses all that it may: a stuck one its share of the window, any other half of what is free, so that a new one still finds room."""
        room, space = self._room()
        flying = self._flights.to[address]
        return flying >= room or (address == self._stuck and (flying >= self.settings.share or space <= self.settings.window_bytes // 2))

    def _take_off(self, due: Due, now: int, held: Target | None) -> Outgoing:
        record = due.record
        message = record.message
        self._flights.take_off(Flight(due, now, message.size, held))
        if held is not None:
            self.holds.targets[held].in_flight += 1
        table = headers.delivered(message.headers, record.id, record.schedule.occurrence, record.schedule.due)
        return Outgoing(due.key, record.address, Message(message.body, table, message.properties, message.key))

    def _land(self, key: bytes) -> Flight:
        flight = self._flights.land(key)
        if flight.held is not None and (hold := self.holds.targets.get(flight.held)) is not None:
            hold.in_flight -= 1
        return flight

    def _absorb(self, now: int) -> None:
        """Sort the outcomes that came in: delivered, dead, to be held, or unknown (due again)."""
        inbox, lateness = self._inbox, []
        answers: Counter[tuple[str, Published]] = Counter()
        failed: list[Held] = []
        unknown: list[bytes] = []
        while inbox:
            for key, error in inbox.popleft():
                flight = self._land(key)
                due = flight.due
                answers[due.record.route, _answer(error)] += 1
                if error is None:
                    lateness.append(self._closing.delivered(due, now))
                    if flight.held is not None:
                        self.holds.works(flight.held, now)
                else:
                    self._undelivered(flight, error, now, failed, unknown)
        for (route, answer), count in answers.items():
            self._metrics.published(route, answer, count)
        if lateness:
            self.published += len(lateness)
            self._metrics.lateness(self.name, lateness)
        if failed:
            self.store.hold(failed, now)
        if unknown:
            self.store.put_back(unknown)
        if failed or unknown:
            self._metrics.retries(len(failed) + len(unknown))

    def _undelivered(self, flight: Flight, error: AdapterError, now: int, failed: list[Held], unknown: list[bytes]) -> None:
        due = flight.due
        if isinstance(error, NotConnected):
            unknown.append(due.key)
        elif isinstance(error, Rejected):
            self._closing.dead_letter(due, now, error.reason, error.detail, due.attempts + 1)
        else:
            failed.append(self._fail(flight, error, now))

    def _fail(self, flight: Flight, error: AdapterError, now: int) -> Held:
        """Hold it at its partition, where only that refuses. What was held at a partition stays there, whatever refuses now: others stand behind it."""
        due = flight.due
        partitions = error.partitions if isinstance(error, BackOff) else 0
        target = flight.held if isinstance(flight.held, Partition) else self.holds.targets.target(due.record, partitions)
        hold = self.holds.fail(target, str(error), now)
        if not hold.told:
            hold.told = True
            log.warning("destination_held", lane=self.name, address=str(target), error=str(error), action="tried again with growing waits")
        if self._gives_up(hold):
            self._given_up.add(target)
        return _waits(due, target, str(error), attempts=due.attempts + 1)

    def _gives_up(self, hold: Hold) -> bool:
        return 0 < self.settings.give_up_after <= hold.refused_for

    def _give_up(self, now: int) -> None:
        """Dead-letter one batch of what has been overdue for too long at a target that was given up, unless it works meanwhile.

        What falls due waits for that, and the next tick comes at once. What is not overdue for so long, or is paused, goes on being tried.
        """
        target = next(iter(self._given_up), None)
        if target is None:
            return
        hold = self.holds.targets.get(target)
        if hold is None or not self._gives_up(hold):
            self._given_up.discard(target)
            return
        rest: list[bytes] = []
        batch = self.store.due_held(self.name, target, now, self.settings.batch, self.settings.window_bytes)
        for due in batch:
            if now - due.record.schedule.due < self.settings.give_up_after or due.record.route in self.paused:
                rest.append(due.key)
            elif not self._closing.expired(due, now):
                self._closing.dead_letter(due, now, Reason.DELIVERY_FAILED, hold.error, due.attempts)
        if rest:
            self.store.put_back(rest)
        self._closing.settle(now)
        if rest or not batch:  # what is overdue stands before the rest
            self._given_up.discard(target)


def _waits(due: Due, target: Target, why: str, attempts: int | None = None) -> Held:
    return Held(due.key, due.attempts if attempts is None else attempts, why, target if isinstance(target, Partition) else None)


def _answer(error: AdapterError | None) -> Published:
    if error is None:
        return "confirmed"
    if isinstance(error, NotConnected):
        return "unknown"
    return "rejected" if isinstance(error, Rejected) else "held"
