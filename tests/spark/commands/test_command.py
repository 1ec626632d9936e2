"""The command as its user runs it: a process of its own, over a million events."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from delaybridge.core.durations import HOUR_MS
from spark import million
from spark.java import needs_java
from spark.ledgers import T0, Bridge

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


@needs_java
def test_in_a_million_events_exactly_the_planted_faults_are_found(tmp_path: Path) -> None:
    planted = million.make(tmp_path, MESSAGES)

    done = _run(*_inputs(tmp_path), *WINDOW, "--out", str(tmp_path / "out"), "--json")
    told = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (1, "")
    assert _by_finding(told) == planted
    assert told["totals"]["scheduled"] == MESSAGES - million.EACH
    assert told["totals"]["residue"] == -million.EACH
    assert {row["id"] for row in _rows(told, "histories")} == set().union(*planted.values())


def _by_finding(told: dict[str, Any]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in _rows(told, "discrepancies"):
        found[row["finding"]].add(row["id"])
    return dict(found)


@dataclass(frozen=True)
class Shown:
    """What a command left: on its terminal, on its standard output, and the report in the folder that the URL below is mounted on."""

    terminal: str
    printed: dict[str, Any]
    report: dict[str, Any]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The command on a terminal, over a ledger behind a URL of Hadoop that is none of a local file."""
    folder, bridge = tmp_path_factory.mktemp("mounted"), Bridge()
    bridge.both("fine", T0)
    bridge.quiet()
    bridge.write(folder / "ledger")
    (folder / "ledger" / "_reach").mkdir()
    (folder / "ledger" / "_reach" / "b.json").write_text(f'{{"bridge": "b", "sequence": 3, "at_ms": {T0 + 100 * HOUR_MS}}}')
    mount = ("--conf", f"spark.hadoop.fs.viewfs.mounttable.t.link./there=file://{folder}", "--conf", "spark.master=local[2]")
    places = ("--ledger", "viewfs://t/there/ledger", "--out", "viewfs://t/there/out", "--since", "2025-06-15", "--until", "2025-06-16")
    command: list[str | Path] = [Path(sys.executable).with_name("delaybridge"), "audit", "reconcile", *places, *mount, "--json"]
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment) as process:
        os.close(theirs)
        terminal = b"".join(iter(lambda: _read(ours), b"")).decode()
        printed = process.stdout.read() if process.stdout else ""
    os.close(ours)
    assert process.returncode == 0, terminal
    [report] = (folder / "out").glob("*/report.json")
    return Shown(terminal, json.loads(printed), json.loads(report.read_text()))


def _read(descriptor: int) -> bytes:
    """What comes on a terminal; nothing where nobody holds its other end any more."""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""


@needs_java
def test_on_a_terminal_what_is_being_done_is_shown_and_nothing_that_spark_says(shown: Shown) -> None:
    steps = {"Reading", "Counting the ledgers", "How far the ledgers reach", "Where they differ", "What is wrong", "Adding up", "Writing"}
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\u2800-\u28ff]|[\r\n]", "\n", shown.terminal)
    said = {re.sub(r" \(\d+ of \d+ tasks\)$", "", line.strip()) for line in plain.split("\n")}

    assert {"Reading", "Counting the ledgers"} <= said
    assert said <= steps | {""}


@needs_java
def test_ledger_and_results_lie_behind_any_url_of_hadoop(shown: Shown) -> None:
    assert (shown.report["verdict"], shown.report["totals"]["delivered"]) == ("clean", 1)
    assert shown.report["bridges"][0]["reaches"].startswith("2025-06-19")
    assert shown.report["tables"]["summary"].startswith("viewfs://t/there/out/2025-06-15T00Z..2025-06-16T00Z/tables-")
    assert shown.printed["totals"] == shown.report["totals"]


@needs_java
def test_what_cannot_be_read_is_told_in_a_sentence_with_exit_code_2(tmp_path: Path) -> None:
    done = _run("--ledger", str(tmp_path / "nothing"), "--conf", "spark.master=local[1]")

    assert done.returncode == 2
    assert done.stderr.startswith(f"cannot say: ledger {tmp_path}/nothing: no Parquet files can be read there")
    assert len(done.stderr.splitlines()) < 4
