"""Level queues with a log of ids, which other bridges may share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokers.common import wait_until
from contract.level_queues import Stepped
from contract.stores import T0, bodies, give, take

from delaybridge.adapters.levelled import Level
from delaybridge.adapters.memory import Memory, adapter, broker

from .id_bridges import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from delaybridge.adapters.id_log import IdLog
    from delaybridge.core.ledger import Event
    from delaybridge.core.store import Record

LEVEL = Level("levels.ids", 0, "ids")


def log_of(name: str) -> IdLog:
    """The log of the memory broker of this name."""
    return adapter.id_log(Memory(name=name), LEVEL)


class Killed(BaseException):
    """No part of a bridge sees this coming."""


def killed(*_: object, **__: object) -> None:
    """Stands where a bridge is killed."""
    raise Killed


class Sharing(Stepped):
    """With a thread that reads the log; `events` are the ledger's."""

    def __init__(self, path: Path, name: str = "") -> None:
        super().__init__(path, log=log_of(name or str(path)), name=name)
        assert self.claims.register is not None
        self.register = self.claims.register
        self.replica = self.register.replica
        self.reader = Reader(self.replica)

    def start(self) -> Sharing:
        self.reader.start()
        return self

    def handed_out(self, now: int) -> list[str]:
        """What may be delivered, once this bridge knows all that was said before."""
        self.read()
        return bodies(take(self, now))

    def holds(self, *records: Record) -> None:
        """It has these in memory, for their last instants."""
        give(self, *records)
        self.move_on(T0 + 100)
        self.read()
        assert self.holding == len(records)

    @property
    def holding(self) -> int:
        return len(self._waiting._entries)

    def ends_elsewhere(self, event: Event) -> None:
        """Another bridge ends what this one holds, and tells its ledger."""
        for entry in list(self._waiting._entries.values()):
            assert entry.claim is not None
            for line in self.replica.ids.ending(entry.record.id, entry.claim, event, T0):
                broker(self.name).append("levels.ids", [line])
            self.read()

    def left(self) -> int:
        """What the broker still has once this bridge has let go of all."""
        self.move_on(self.now)
        for passage in self.passages:
            passage.close()
        return sum(len(broker(self.name).queue(address)) for address in self.places.addresses)

    def read(self) -> None:
        """Until all that stands in the log is read."""
        end = len(broker(self.name).lines("levels.ids", 0))
        wait_until(lambda: self.replica.known[0] >= end, "the log to be read")

    @property
    def events(self) -> dict[str, int]:
        return {event: count for event, count in self.counts().events.items() if count}

    def close(self) -> None:
        self.reader.stop()
        super().close()

    def die(self) -> None:
        self.reader.stop()
        super().die()
