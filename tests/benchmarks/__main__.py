"""All measurements in one run: a table, bench.json, and exit status 1 where a budget is missed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from brokers import rabbitmq
from rich.console import Console

from .burst import burst
from .figures import Figure, plain, table_of
from .lateness import lateness
from .pending import pending
from .store import store
from .throughput import throughput
from .traffic import Traffic

FULL = bool(os.environ.get("BENCH_FULL"))
RELAYED, ROUNDS = (100_000, 5) if FULL else (60_000, 3)
PENDING = (10_000, 1_000_000, 10_000_000) if FULL else (10_000, 1_000_000)
AT_ONCE = 1_000_000 if FULL else 200_000
STEADY = Traffic(rate=1_000, seconds=30 if FULL else 20, delays=(1_000, 5_000))


def measurements(url: str, directory: Path) -> dict[str, Callable[[], list[Figure]]]:
    """Each group of figures by name, in the order in which they are taken."""
    return {
        "store": lambda: store(directory / "store"),
        "throughput": lambda: throughput(url, directory / "throughput", RELAYED, ROUNDS),
        "lateness": lambda: lateness(url, directory / "lateness", STEADY),
        "pending": lambda: pending(url, directory / "pending", PENDING),
        "burst": lambda: burst(url, directory / "burst", AT_ONCE, RELAYED),
    }


def measure(only: list[str], console: Console) -> list[Figure]:
    """Take the figures, on a broker and a directory that are gone afterwards."""
    figures: list[Figure] = []
    with rabbitmq.start() as broker, tempfile.TemporaryDirectory(prefix="delaybridge-bench-") as directory:
        console.print(f"RabbitMQ: {broker.provider}; {os.cpu_count()} cores; stores in {directory}")
        for name, take in measurements(broker.url, Path(directory)).items():
            if not only or name in only:
                began = time.monotonic()
                console.print(f"{name} ...")
                figures += take()
                console.print(f"{name}: {time.monotonic() - began:.0f} s")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("only", nargs="*", help="groups to measure: store, throughput, lateness, pending, burst [default: all]")
    parser.add_argument("--json", action="store_true", help="print JSON to standard output, everything else to standard error")
    asked = parser.parse_args()
    figures = measure(asked.only, Console(stderr=True))
    document = json.dumps({"full": FULL, "cores": os.cpu_count(), "figures": plain(figures)}, indent=2)
    Path("bench.json").write_text(document + "\n")
    if asked.json:
        print(document)
    Console(stderr=asked.json).print(table_of(figures))
    return int(any(figure.ok is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
