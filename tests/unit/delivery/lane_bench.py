"""A lane with a real store, and a sink that does what each test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delaybridge.adapters.base import AdapterError, Outgoing
from delaybridge.bridge.delivery.backoff import Backoff
from delaybridge.bridge.delivery.holds import Holds
from delaybridge.bridge.delivery.lane import Lane, LaneSettings
from delaybridge.bridge.downtimes import DowntimeFile
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.by_target import ByTarget
from delaybridge.core.downtimes import Downtimes
from delaybridge.core.message import Message
from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Put, Record
from delaybridge.core.targets import ANY
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T0 = 1_750_000_000_000


def settings(window: int = 2_000, share: int = 1_000, give_up_after: int = 3_600_000, **others: int) -> LaneSettings:
    """As a configuration without a word on lanes gives them, but for these."""
    return LaneSettings(window, share, give_up_after, **others)


def partition_of(record: Record, total: int) -> int:
    """As in `by_target.PartitionOf`: by a key that is a number."""
    key = record.message.key
    return ANY if key is None else int(key) % total


class Bench:
    """A lane with its store, and a sink that keeps what was published until the test answers."""

    def __init__(self, path: Path, settings: LaneSettings, dead_letter: str = "") -> None:
        self.store = TimeIndex(path, bridge="test", min_free_disk=0, reserve_bytes=0, partition_of=partition_of)
        self.holds = self.no_holds()
        self.dead_letter = dead_letter
        self.settings = settings
        self.paused: set[str] = set()
        self.lane = self.new_lane(T0)
        self.wire: list[Outgoing] = []

    def no_holds(self) -> Holds:
        return Holds(Backoff(first=1.0, cap=1.0), ByTarget(partition_of))

    def new_lane(self, started: int) -> Lane:
        """One that is started now. What was before is not known."""
        return Lane(
            "rabbit",
            self.store,
            self.holds,
            {"orders": self.dead_letter},
            self.paused,
            started,
            DowntimeFile(self.store.path / "downtimes.json", Downtimes(((0, started),))),
            self.settings,
            Metrics("test"),
            lambda: None,
        )

    def put(
        self, name: str, due: int, address: str = "a", now: int = T0, route: str = "orders", key: int | None = None, **schedule: object
    ) -> None:
        record = Record(
            message=Message(name.encode(), key=None if key is None else b"%d" % key),
            schedule=Schedule(due=due, **schedule),  # type: ignore[arg-type]  # what each test gives
            lane="rabbit",
            address=address,
            id=name,
            route=route,
            taken=now,
        )
        self.store.put([Put(record)], now)

    def tick(self, now: int) -> int:
        return self.lane.tick(now, self.wire.extend)

    def answer(self, error: AdapterError | Callable[[Outgoing], AdapterError | None] | None = None) -> list[str]:
        """Answer all that is on the wire; returns the bodies."""
        answered, self.wire = self.wire, []
        self.lane.confirm([(sent.tag, error(sent) if callable(error) else error) for sent in answered])
        return bodies(answered)

    def deliver(self, now: int) -> list[str]:
        """Tick, confirm and settle until nothing more comes at this instant."""
        delivered = []
        while self.tick(now) >= 0 and self.wire:
            delivered += self.answer()
        self.tick(now + self.settings.settle_after)
        return delivered


def bodies(sent: Sequence[Outgoing]) -> list[str]:
    """The texts that were published."""
    return [(out.message.body or b"").decode() for out in sent]
