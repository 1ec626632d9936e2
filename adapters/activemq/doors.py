"""The messages that go to ActiveMQ alone, each with a receipt, because their destination is not trusted with transactions (yet)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...core.reasons import Reason
from ..base import BackOff
from .flights import alone

if TYPE_CHECKING:
    from collections.abc import Iterator, Reversible

    from ..base import AdapterError, Outcome
    from .flights import Prepared
    from .standing import Standing

_NARROW = 4  # of a suspect's door: when it shuts, what is in flight there stays so, and what waits is told


class Door:
    """The messages for one destination that go alone; `width` of them at a time.

    width      1 once nothing speaks against the destination: then it is trusted with transactions after a receipt that leaves nothing in flight
    failed     so many messages came from transactions that failed: as many answers are awaited before `width` becomes 1
    shut       ActiveMQ holds back a receipt
    since      when the last receipt came, or the door was made
    waiting    messages that are not sent yet
    flying     messages without a receipt, by the receipt's name
    """

    def __init__(self, destination: str, *, width: int, now: float) -> None:
        self.destination = destination
        self.width = width
        self.failed = 0
        self.shut = False
        self.since = now
        self.waiting: deque[Prepared] = deque()
        self.flying: dict[bytes, Prepared] = {}

    def held_back(self) -> BackOff:
        """Why nothing goes through while it is shut."""
        return BackOff(
            Reason.REFUSED_BY_BROKER,
            f"ActiveMQ holds back the answer to a message for {self.destination}: is it full? (producer flow control)",
        )


class Doors:
    """All doors of one connection; one thread. Outcomes are added to `outcomes`; `numbers` name receipts; `now` is in seconds of a monotonic clock."""

    def __init__(self, standing: Standing, outcomes: list[Outcome], numbers: Iterator[int]) -> None:
        self._standing = standing
        self._outcomes = outcomes
        self._numbers = numbers
        self._doors: dict[str, Door] = {}
        self._behind: dict[bytes, Door] = {}

    def stands(self, destination: str) -> bool:
        """Whether there is a door for it: then nothing may pass by it, or messages would change places."""
        return destination in self._doors

    def awaits(self, receipt: bytes) -> bool:
        """Whether this receipt is for a message that went alone."""
        return receipt in self._behind

    def destination(self, receipt: bytes) -> str:
        """Where that message goes."""
        return self._behind[receipt].destination

    @property
    def busy(self) -> bool:
        """Whether any receipt is to come."""
        return bool(self._behind)

    def send(self, message: Prepared, out: list[bytes], now: float, width: int = 1) -> None:
        """Put a message into `out`, or let it wait at its door; a new door has this width. It is above 1 for one that a transaction failed with."""
        name = message.destination
        door = self._doors.get(name)
        if door is None:
            narrow = self._standing.suspects(name)
            door = self._doors[name] = Door(name, width=_NARROW if narrow else width, now=now)
        if door.shut:
            self._outcomes.append((message.tag, door.held_back()))
            return
        door.waiting.append(message)
        door.failed += width > 1
        self._through(door, out)

    def _through(self, door: Door, out: list[bytes]) -> None:
        while door.waiting and len(door.flying) < door.width:
            message = door.waiting.popleft()
            receipt = b"%d" % next(self._numbers)
            door.flying[receipt] = message
            self._behind[receipt] = door
            out.append(alone(message, receipt))

    def answered(self, receipt: bytes, error: AdapterError | None, out: list[bytes], now: float) -> Reversible[Prepared]:
        """A receipt, or a refusal, has come. Puts what may follow into `out`; returns what need not go alone any more, in order."""
        door = self._behind.pop(receipt)
        self._outcomes.append((door.flying.pop(receipt).tag, error))
        door.since, door.shut = now, False
        if error is None:
            self._standing.forgive(door.destination)
        door.failed = max(0, door.failed - 1)
        if not door.failed and not self._standing.suspects(door.destination):
            door.width = 1  # else a door at which something always waits would stand for good
        trusted = error is None and door.width == 1 and not door.flying
        if trusted:
            self._standing.trust(door.destination)
        if trusted or not (door.waiting or door.flying):
            del self._doors[door.destination]
            return door.waiting
        self._through(door, out)
        return ()

    def shut(self, now: float, blocked: float) -> None:
        """Shut those for which ActiveMQ has held back a receipt for `blocked` seconds: what waits there is held back."""
        for door in self._doors.values():
            if now - door.since > blocked:
                door.shut = True
                self._outcomes.extend((each.tag, door.held_back()) for each in door.waiting)
                door.waiting.clear()

    def under_way(self) -> Iterator[Prepared]:
        """What has no outcome yet."""
        for door in self._doors.values():
            yield from door.flying.values()
            yield from door.waiting
