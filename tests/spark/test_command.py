"""The command as its user runs it: a process of its own, over a million events."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from spark import million
from spark.java import needs_java

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGES = 500_000
"""Two events each."""

WINDOW = ("--since", "2025-06-16", "--until", "2025-06-17", "--as-of", "2025-06-19", "--conf", "spark.master=local[2]")

pytest.importorskip("pyspark")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("delaybridge")
    return subprocess.run([command, "audit", "reconcile", *arguments], capture_output=True, text=True, check=False, timeout=400)


def _inputs(folder: Path) -> list[str]:
    return [word for name in million.BRIDGES for word in ("--ledger", str(folder / name))] + ["--observed", str(folder / "seen")]


def _rows(told: dict[str, Any], table: str) -> list[dict[str, Any]]:
    folder = told["tables"][table].removeprefix("file:")
    return [row for file in sorted(Path(folder).glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def _audited(folder: Path, more: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    done = _run(*_inputs(folder), *WINDOW, "--out", str(folder / "out"), "--json", *more)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@needs_java
def test_in_a_million_events_exactly_the_planted_faults_are_found_and_again_the_same(tmp_path: Path) -> None:
    planted = million.make(tmp_path, MESSAGES)

    code, told = _audited(tmp_path)
    found = _by_finding(told)
    histories = _rows(told, "histories")
    _, again = _audited(tmp_path, ["--allow", "late=1%"])

    assert code == 1
    assert found == planted
    assert told["totals"]["scheduled"] == MESSAGES - million.EACH
    assert told["totals"]["residue"] == -million.EACH
    assert {row["id"] for row in histories} == set().union(*planted.values())
    assert _by_finding(again) == found
    assert {name: again[name] for name in ("totals", "worst", "hours")} == {name: told[name] for name in ("totals", "worst", "hours")}
    [window] = (tmp_path / "out").iterdir()
    assert [entry.name.split("-")[0] for entry in sorted(window.iterdir()) if not entry.name.startswith(".")] == [
        "report.html",
        "report.json",
        "tables",
    ]


def _by_finding(told: dict[str, Any]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in _rows(told, "discrepancies"):
        found[row["finding"]].add(row["id"])
    return dict(found)


@needs_java
def test_what_cannot_be_read_is_told_in_a_sentence_with_exit_code_2(tmp_path: Path) -> None:
    done = _run("--ledger", str(tmp_path / "nothing"), "--conf", "spark.master=local[1]")

    assert done.returncode == 2
    assert done.stderr.startswith(f"cannot say: ledger {tmp_path}/nothing: no Parquet files can be read there")
    assert len(done.stderr.splitlines()) < 4
