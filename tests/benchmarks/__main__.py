"""All measurements in one run: a table, bench.json, and exit status 1 where a budget is missed or a group cannot be measured."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from brokers import kafka, rabbitmq
from rich.console import Console

from .active_queues import ActiveQueues
from .audit import audit
from .burst import burst
from .figures import Figure, beside, plain, table_of
from .isolation import isolation
from .kafka_topics import Topics
from .lateness import lateness
from .levels import levels
from .pending import pending
from .places import Places
from .queues import Queues
from .scheduler import broker, scheduler
from .store import store
from .throughput import halves, ratios
from .traffic import Traffic

FULL = bool(os.environ.get("BENCH_FULL"))
RELAYED, ROUNDS = (100_000, 5) if FULL else (60_000, 3)
RELAYED_BY_ACTIVEMQ = RELAYED // 2
PENDING = (10_000, 1_000_000, 10_000_000) if FULL else (10_000, 1_000_000)
AT_ONCE = 1_000_000 if FULL else 200_000
SCHEDULED = 12_000
AT_LEVELS = 40_000 if FULL else 20_000
AUDITED = (1_000_000, 10_000_000, 100_000_000) if FULL else (1_000_000, 10_000_000)
STEADY = Traffic(rate=1_000, seconds=30 if FULL else 20, delays=(1_000, 5_000))


def on_rabbitmq(take: Callable[[str], list[Figure]]) -> list[Figure]:
    """Each group has a fresh broker, which no other one runs beside."""
    with rabbitmq.start() as running:
        return take(running.url)


def throughput(url: str, directory: Path) -> list[Figure]:
    with Queues(url) as queues:
        return ratios(queues, directory, RELAYED, ROUNDS) + halves(queues, directory, RELAYED)


def both(places: Places, directory: Path, count: int) -> list[Figure]:
    """Throughput and lateness."""
    with places:
        return ratios(places, directory / "throughput", count, ROUNDS) + lateness(places, directory / "lateness", STEADY, beside)


def on_kafka(directory: Path) -> list[Figure]:
    with kafka.start(java=kafka.USUAL) as running:
        return both(Topics(running.url), directory, RELAYED)


def on_activemq(directory: Path) -> list[Figure]:
    with broker(scheduler=False) as url:
        return both(ActiveQueues(url), directory, RELAYED_BY_ACTIVEMQ)


def isolated(directory: Path) -> list[Figure]:
    """On each broker."""
    figures = on_rabbitmq(lambda url: isolation(Queues(url), directory / "rabbitmq", AT_ONCE))
    with kafka.start(java=kafka.USUAL) as running:
        figures += isolation(Topics(running.url), directory / "kafka", AT_ONCE)
    with broker(scheduler=False) as url:
        return figures + isolation(ActiveQueues(url), directory / "activemq", AT_ONCE // 2)


def levels_on_kafka(directory: Path) -> list[Figure]:
    with kafka.start(java=kafka.USUAL) as running:
        return levels(Topics(running.url), directory, AT_LEVELS, STEADY)


def levels_on_activemq(directory: Path) -> list[Figure]:
    with broker(scheduler=False) as url:
        return levels(ActiveQueues(url), directory, AT_LEVELS, STEADY)


GROUPS: dict[str, Callable[[Path], list[Figure]]] = {
    "store": store,
    "throughput": lambda directory: on_rabbitmq(lambda url: throughput(url, directory)),
    "lateness": lambda directory: on_rabbitmq(lambda url: lateness(Queues(url), directory, STEADY)),
    "pending": lambda directory: on_rabbitmq(lambda url: pending(url, directory, PENDING)),
    "burst": lambda directory: on_rabbitmq(lambda url: burst(url, directory, AT_ONCE)),
    "isolation": isolated,
    "kafka": on_kafka,
    "activemq": on_activemq,
    "levels": lambda directory: on_rabbitmq(lambda url: levels(Queues(url), directory, AT_LEVELS, STEADY)),
    "levels-kafka": levels_on_kafka,
    "levels-activemq": levels_on_activemq,
    "audit": lambda directory: audit(directory, AUDITED),
    "scheduler": lambda directory: scheduler(directory, SCHEDULED, STEADY),
}
"""Each group of figures by name, in the order in which they are taken. Where no broker is named it is RabbitMQ."""


def measure(only: list[str], console: Console) -> tuple[list[Figure], list[str]]:
    """Take the figures, on brokers and in a directory that are gone afterwards; and the groups that failed, which cost no other its figures."""
    figures: list[Figure] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="delaybridge-bench-") as directory:
        console.print(f"{os.cpu_count()} cores; stores in {directory}")
        for name, take in GROUPS.items():
            if not only or name in only:
                began = time.monotonic()
                console.print(f"{name} ...")
                try:
                    figures += take(Path(directory) / name)
                except Exception:  # noqa: BLE001 - shown, and told by the exit status
                    console.print_exception()
                    failed.append(name)
                console.print(f"{name}: {time.monotonic() - began:.0f} s")
    return figures, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="group", help=f"groups to measure: {', '.join(GROUPS)} [default: all]")
    parser.add_argument("--json", action="store_true", help="print JSON to standard output, everything else to standard error")
    asked = parser.parse_args()
    figures, failed = measure(asked.only, Console(stderr=True))
    document = json.dumps({"full": FULL, "cores": os.cpu_count(), "figures": plain(figures), "failed": failed}, indent=2)
    Path("bench.json").write_text(document + "\n")
    if asked.json:
        print(document)
    Console(stderr=asked.json).print(table_of(figures))
    for name in failed:
        print(f"{name}: not measured, see above", file=sys.stderr)
    return int(bool(failed) or any(figure.ok is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
