"""Bridges that share a log of ids, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokers.common import wait_until
from contract.level_queues import declared

from delaybridge.bridge.level_queues.ids.register import Claiming, Register
from delaybridge.bridge.level_queues.ids.replica import Replica
from delaybridge.bridge.level_queues.ids.worker import ReplicaWorker
from delaybridge.bridge.metrics import Metrics

from .id_lines import HOUR, T0

if TYPE_CHECKING:
    from delaybridge.adapters.id_log import IdLog
    from delaybridge.bridge.level_queues.ids.lines import Claim
    from delaybridge.core.store import Answer

NEVER = float("inf")


class Reader:
    """The thread that reads the log for one replica."""

    def __init__(self, replica: Replica) -> None:
        self._died: list[BaseException] = []
        self._worker = ReplicaWorker(
            replica, "memory", Metrics("test"), lambda _, error: self._died.append(error), declared(), lambda: None
        )

    def start(self) -> None:
        self._worker.start()
        wait_until(lambda: self._worker.caught_up, "the log to be read")

    def stop(self) -> None:
        self._worker.stop()
        if self._worker.alive:
            assert self._worker.join(10)
        assert self._died == []


class Bridge:
    """A register with its thread, at T0 for ever."""

    def __init__(self, log: IdLog) -> None:
        self.decided: set[str] = set()
        self.replica = Replica(log, lambda: T0, self.decided.update, lambda: None)
        self.register = Register(self.replica, lambda: T0, 24 * HOUR)
        self._reader = Reader(self.replica)

    def start(self) -> Bridge:
        self._reader.start()
        return self

    def stop(self) -> None:
        self._reader.stop()

    def claim(self, name: str = "a", due: int = T0 + HOUR) -> Claim:
        (claim,), _ = self.register.enter([Claiming(name, due)], T0)
        return claim

    def cancel(self, name: str = "a", patience: float = 0.0) -> Answer:
        return self.register.cancel(name, T0, patience)

    def knows(self, claim: Claim) -> None:
        wait_until(lambda: self.replica.certain(claim, NEVER), "the bridge to know of it")
