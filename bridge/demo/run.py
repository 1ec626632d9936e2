"""One run of the demo: send, watch, add up."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import TYPE_CHECKING

from rich.live import Live

from ...adapters.clock import wall_clock
from ...adapters.memory import Memory, broker
from ...core.durations import HOUR_MS
from ..config import Config
from ..control import Control
from ..engine import Engine
from ..metrics import Metrics
from . import books, tables
from .account import Account
from .arrivals import Arrivals
from .workload import SECONDS, Sample, plain, special

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, Group

    from .faults import Faults, Planted

PATIENCE = 10.0
"""Seconds beyond the last due time in which everything must have arrived."""

CRON_WITHIN = 25.0
"""Seconds: where the next full minute is further away, the cron's first occurrence is released by hand, so that the demo stays short."""


def configuration(folder: Path) -> Config:
    """One route on the embedded broker; the ledger beside the store, because it outlives it."""
    return Config.model_validate(
        {
            "bridge": "demo",
            "store": {"path": folder / "store"},
            "ledger": {"path": folder / "ledger"},
            "brokers": {"memory": {"type": "memory", "name": "demo"}},
            "routes": [
                {
                    "name": "demo",
                    "from": {"broker": "memory", "queue": "demo.in"},
                    "to": {"broker": "memory"},
                    "allow_to": ["demo.out"],
                    "dead_letter": "demo.dead",
                }
            ],
        }
    )


class Demo:
    """Leaves `ledger/`, `observed/` and the store in `folder`."""

    def __init__(self, folder: Path, console: Console, faults: Faults | None) -> None:
        self.console = console
        self.config = configuration(folder)
        self.engine = Engine(self.config, wall_clock, Metrics(version("delaybridge")), self._failed)
        observed = folder / "observed"
        self.account = Account(Arrivals("demo.out", observed, faults), Arrivals("demo.dead", observed), faults)
        self.control = Control(self.engine)
        self.ended = False
        self._began = wall_clock()

    @property
    def planted(self) -> list[Planted] | None:
        """The faults that were done; None where none were asked for."""
        faults = self.account.faults
        return faults.planted if faults else None

    @property
    def window(self) -> tuple[int, int]:
        """Full hours (epoch ms) that hold the due time of everything that was sent. The cron was scheduled up to a minute ahead."""
        return self._began // HOUR_MS * HOUR_MS, (wall_clock() + 60_000) // HOUR_MS * HOUR_MS + HOUR_MS

    def _failed(self, worker: str, error: BaseException) -> None:
        self.console.print(f"[red]{worker} died: {error!r}")

    def run(self) -> bool:
        """Whether everything arrived, none early, and the ledger adds up."""
        for part in (self.account.arrivals, self.account.dead, self.engine):
            part.start()
        began = time.monotonic()
        self._send()
        with Live(console=self.console, refresh_per_second=5) as live:
            while not self._finished(time.monotonic() - began):
                live.update(self._progress(time.monotonic() - began))
                time.sleep(0.2)  # the display's own rhythm
            live.update(self._progress(time.monotonic() - began), refresh=True)
        self.console.print()
        pending = self.engine.store.counts().pending
        self.ended = self.engine.drain(10)
        if not self.ended:
            self.console.print("[red]the engine did not stop in time")
            return False
        self.account.arrivals.stop()
        self.account.dead.stop()
        self.console.print(tables.sent_and_arrived(self.account))
        assert pending is not None  # a time index knows
        return self._verdict(pending)

    def _progress(self, elapsed: float) -> Group:
        return tables.progress(self.account, self.engine.store.counts(), elapsed)

    def _send(self) -> None:
        now, memory = wall_clock(), broker("demo")
        samples: list[Sample] = [*plain(now), *special(now)]
        for sample in samples:
            self.account.sent[sample.group] += 1
            self.account.expected[sample.group] += sample.deliveries or 0
            memory.put("demo.in", sample.message, Memory(name="demo"))
        self._release_cron_at = 0.0 if 60 - time.time() % 60 <= CRON_WITHIN else SECONDS / 2

    def _finished(self, elapsed: float) -> bool:
        if self._release_cron_at and elapsed > self._release_cron_at:
            self.control.release("demo-cron")
            self._release_cron_at = 0.0
        arrivals = self.account.arrivals
        enough = arrivals.taken.total() > self.account.expected.total() and not arrivals.outstanding and elapsed > SECONDS
        if enough or elapsed > SECONDS + PATIENCE + CRON_WITHIN:
            self.control.cancel("demo-cron")
            return True
        return False

    def _verdict(self, pending: int) -> bool:
        checks = books.checks(self.account, books.read(self.config.ledger_path), pending)
        for sentence, holds in checks.items():
            self.console.print(f"[green]✓[/] {sentence}" if holds else f"[red]✗ {sentence}", soft_wrap=True)
        return all(checks.values())
