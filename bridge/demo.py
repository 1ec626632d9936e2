"""`delaybridge demo`: the whole bridge on the embedded broker, two thousand messages in twenty seconds, and the sums at the end.

Everything is the real thing: engine, store on disk, ledger files. What is counted is what arrived at the destination queue, not what the bridge
believes.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from ..adapters.memory import Memory, MemorySource, broker
from ..core.fields import plain as plain_headers
from ..core.ledger import CLOSING
from .clock import wall_clock
from .config import Config, Logs
from .demo_workload import SECONDS, Sample, plain, special
from .engine import Engine
from .logs import configure
from .metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.ledger import Event

PATIENCE = 10.0
"""Seconds beyond the last due time in which everything must have arrived."""

CRON_WITHIN = 25.0
"""Seconds: where the next full minute is further away, the cron's first occurrence is released by hand, so that the demo stays short."""


class Arrivals:
    """Reads a destination queue on its own thread and keeps what each message says, with the moment of its arrival."""

    def __init__(self, queue: str) -> None:
        self.lateness: defaultdict[str, list[int]] = defaultdict(list)
        self.seen: Counter[tuple[str, int]] = Counter()
        self.latest: list[str] = []
        self._source = MemorySource(broker("demo"), queue)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"arrivals {queue}", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._source.connect()
        self._thread.start()

    def stop(self) -> None:
        """Take what is there, and end."""
        self._stopping.set()
        self._thread.join()
        self._source.close()

    @property
    def total(self) -> int:
        """How many messages arrived."""
        return self.seen.total()

    def _read(self) -> None:
        while (batch := self._source.receive(1000, 0.2)) is not None or not self._stopping.is_set():
            if batch is None:
                continue
            now = wall_clock()
            for received in batch.messages:
                headers = plain_headers(received.message.headers)
                group, due, occurrence = str(headers.get("demo-group")), headers["x-delay-due"], headers["x-delay-occurrence"]
                assert isinstance(due, int)
                assert isinstance(occurrence, int)
                self.lateness[group].append(now - due)
                self.seen[str(headers["x-delay-id"]), occurrence] += 1
                self.latest = [*self.latest[-4:], f"{group}: {(received.message.body or b'').decode()!r}, {now - due} ms late"]
            batch.ack()


class Demo:
    """One run: send, watch, add up."""

    def __init__(self, store: Path, console: Console) -> None:
        self.console = console
        self.config = Config.model_validate(
            {
                "bridge": "demo",
                "store": {"path": store},
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
        self.sent: Counter[str] = Counter()
        self.expected: Counter[str] = Counter()
        self.engine = Engine(self.config, wall_clock, Metrics(version("delaybridge")), self._failed)
        self.arrivals, self.dead = Arrivals("demo.out"), Arrivals("demo.dead")

    def _failed(self, worker: str, error: BaseException) -> None:
        self.console.print(f"[red]{worker} died: {error!r}")

    def run(self) -> int:
        """0 where everything arrived, none early, and the ledger adds up; else 1."""
        for part in (self.arrivals, self.dead, self.engine):
            part.start()
        began = time.monotonic()
        self._send()
        with Live(console=self.console, refresh_per_second=5) as live:
            while not self._finished(began):
                live.update(self._progress(began))
                time.sleep(0.2)  # the display's own rhythm
            live.update(self._progress(began), refresh=True)
        self.console.print()
        pending = self.engine.store.counts().pending
        if not self.engine.drain(10):
            self.console.print("[red]the engine did not stop in time")
            return 1
        self.arrivals.stop()
        self.dead.stop()
        return self._report(pending)

    def _send(self) -> None:
        now, memory = wall_clock(), broker("demo")
        samples: list[Sample] = [*plain(now), *special(now)]
        for sample in samples:
            self.sent[sample.group] += 1
            self.expected[sample.group] += sample.deliveries or 0
            memory.put("demo.in", sample.message, Memory(name="demo"))
        self._release_cron_at = 0.0 if 60 - time.time() % 60 <= CRON_WITHIN else SECONDS / 2
        self._cron_due = 60 - time.time() % 60

    def _finished(self, began: float) -> bool:
        elapsed = time.monotonic() - began
        if self._release_cron_at and elapsed > self._release_cron_at:
            self.engine.control.release("demo-cron")
            self._release_cron_at = 0.0
        enough = self.arrivals.total >= self.expected.total() + 1 and elapsed > SECONDS
        if enough or elapsed > SECONDS + PATIENCE + CRON_WITHIN:
            self.engine.control.cancel("demo-cron")
            return True
        return False

    def _progress(self, began: float) -> Group:
        counts = self.engine.store.counts()
        table = Table(
            title=f"delaybridge demo, second {time.monotonic() - began:.0f} of {SECONDS}", title_justify="left", box=SIMPLE, pad_edge=False
        )
        for name in ("sent", "waiting", "arrived", "dead-lettered", "cancelled", "replaced"):
            table.add_column(name, justify="right")
        events: dict[Event, int] = counts.events
        table.add_row(
            str(self.sent.total()),
            str(counts.pending),
            str(self.arrivals.total),
            str(self.dead.total),
            str(events.get("cancelled", 0)),
            str(events.get("replaced", 0)),
        )
        return Group(table, *self.arrivals.latest)

    def _report(self, pending: int) -> int:
        ledger = read_ledger(self.config.ledger_path)
        table = Table(
            title="What was sent, and what arrived", caption="late: milliseconds", title_justify="left", box=SIMPLE_HEAD, padding=0
        )
        table.add_column("dialect", no_wrap=True)
        for column in (
            "sent",
            "deliv-\nered",
            "can-\ncelled",
            "re-\nplaced",
            "dead\nletters",
            "late\np50",
            "late\np99",
            "late\nmax",
            "early",
        ):
            table.add_column(column, justify="right", no_wrap=True)
        for group in self.sent:
            table.add_row(group, str(self.sent[group]), *self._group_cells(group))
        self.console.print(table)
        return self._verdict(ledger, pending)

    def _group_cells(self, group: str) -> list[str]:
        late = sorted(self.arrivals.lateness.get(group, ()))
        percentiles = [f"{late[min(len(late) - 1, int(len(late) * q))]}" for q in (0.5, 0.99)] if late else ["", ""]
        return [
            str(len(late)),
            "1" if group == "cancelled" else "",
            "1" if group == "replaced" else "",
            str(len(self.dead.lateness.get(group, ()))) if group == "refused" else "",
            *percentiles,
            str(late[-1]) if late else "",
            str(sum(value < 0 for value in late)),
        ]

    def _verdict(self, ledger: Iterable[dict[str, object]], pending: int) -> int:
        events: Counter[object] = Counter()
        delivered: Counter[tuple[object, object]] = Counter()
        for row in ledger:
            events[row["event"]] += 1
            if row["event"] == "delivered":
                delivered[row["id"], row["occurrence"]] += 1
        closed = {event: events[event] for event in CLOSING}
        checks = {
            "none early": not any(value < 0 for late in self.arrivals.lateness.values() for value in late),
            "every expected message arrived": all(
                len(self.arrivals.lateness[group]) == count or group == "cron" for group, count in self.expected.items() if count
            ),
            "the cron fired": bool(self.arrivals.lateness["cron"]),
            "three were refused with a reason": len(self.dead.lateness["refused"]) == 3,
            "one was cancelled, one replaced": (events["cancelled"] >= 1, events["replaced"]) == (True, 1),
            "the ledger names what arrived": delivered == self.arrivals.seen,
            f"it adds up: {events['scheduled']} scheduled = "
            + " + ".join(f"{count} {event}" for event, count in closed.items() if count)
            + f" + {pending} pending": events["scheduled"] == sum(closed.values()) + pending,
        }
        for sentence, holds in checks.items():
            self.console.print(f"[green]✓[/] {sentence}" if holds else f"[red]✗ {sentence}", soft_wrap=True)
        return 0 if all(checks.values()) else 1


def read_ledger(path: Path) -> list[dict[str, object]]:
    """All rows of a ledger directory."""
    import pyarrow.dataset as ds  # noqa: PLC0415 - slow to import

    files = sorted(path.rglob("*.parquet"))
    rows: list[dict[str, object]] = ds.dataset(files, format="parquet").to_table().to_pylist() if files else []
    return rows


def demo() -> int:
    """Run the demo in a temporary directory; returns the exit code."""
    configure(Logs(level="error"))
    with tempfile.TemporaryDirectory(prefix="delaybridge-demo-") as directory:
        return Demo(Path(directory), Console()).run()
