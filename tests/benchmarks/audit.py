"""The audit of a day: events per second and core, memory, and the same asked as one plain join. Each size has a process of its own, as a user's has."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .audit_ledger import FAULTS, messages
from .figures import Figure, at_least, at_most

ROOT = Path(__file__).parents[2]
PER_CORE = 400_000
LINEAR = 1.15
CORES = os.cpu_count() or 1


def audit(directory: Path, sizes: Sequence[int]) -> list[Figure]:
    """Sizes are rows of ledgers and observations; one ledger is on the disk at a time."""
    taken = {size: measured(directory / str(size), size) for size in sizes}
    return [figure for size, one in taken.items() for figure in figures(size, one)] + growth(
        {size: one["again"] for size, one in taken.items()}
    )


def growth(seconds: dict[int, float]) -> list[Figure]:
    """How the time grows, by what further events cost: planning some twenty queries takes as long for any size."""
    steps = [((small, large), (seconds[large] - seconds[small]) / (large - small)) for small, large in itertools.pairwise(seconds)]
    return [
        Figure(f"audit: further events, {_between(small, large)}", 1 / cost / CORES, "events/s and core") for (small, large), cost in steps
    ] + [
        at_most(f"audit: time for a further event, {_between(*then)} / {_between(*before)}", later / earlier, "", LINEAR)
        for (before, earlier), (then, later) in itertools.pairwise(steps)
    ]


def measured(folder: Path, events: int) -> dict[str, Any]:
    """What `audit_run` tells of such a ledger, which is gone afterwards."""
    folder.mkdir(parents=True)
    try:
        _run("audit_ledger", folder, str(events))
        told: dict[str, Any] = json.loads(_run("audit_run", folder))
    finally:
        shutil.rmtree(folder)
    assert told["findings"] == {"duplicated": FAULTS, "late": FAULTS, "not_observed": FAULTS}, told["findings"]
    return told


def _run(module: str, *arguments: str | Path) -> str:
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def figures(size: int, one: dict[str, Any]) -> list[Figure]:
    """The second audit in a session counts: the first one also pays for compiling, once."""
    at, events = f"audit of {_short(size)} events", messages(size) * 3
    return [
        at_least(f"{at}", events / one["again"] / CORES, "events/s and core", PER_CORE)
        if size >= 10_000_000
        else Figure(f"{at}", events / one["again"] / CORES, "events/s and core"),
        Figure(f"{at}, in a session that has just started", events / one["first"] / CORES, "events/s and core"),
        Figure(f"{at}: a plain join, in a session that is warm", events / one["join"] / CORES, "events/s and core"),
        Figure(f"{at}: start of the session", one["start"], "s"),
        Figure(f"{at}: peak memory", one["memory"], "MiB"),
        Figure(f"{at}: peak memory with the plain join", one["join_memory"], "MiB"),
    ]


def _between(small: int, large: int) -> str:
    return f"{_short(small)} to {_short(large)}"


def _short(size: int) -> str:
    return f"{size / 1e6:g} M"
