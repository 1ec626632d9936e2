"""The audit of the demo's own run: the command `delaybridge audit reconcile`, and whether it finds what it must."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from . import books, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from .faults import Finding, Planted

NEEDED_JAVA = 17
CANNOT_SAY = 2
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # for what is not a stage
    "spark.sql.adaptive.enabled": "false",  # after each stage it plans the rest anew
    "spark.sql.shuffle.partitions": "2",
}
"""For a few thousand rows, which need no good programs and plans: a quarter less processor time."""


def unavailable() -> str | None:
    """Why the audit cannot run here; None where it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is not there: pip install '.[spark]' in a clone of delaybridge"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    told = _version(java) if java else ""
    found = re.search(r'version "(\d+)', told)
    if found is None:
        return f"it needs Java {NEEDED_JAVA} or later, and there is no Java" + (f" in JAVA_HOME ({home})" if home else "")
    return None if int(found[1]) >= NEEDED_JAVA else f"it needs Java {NEEDED_JAVA} or later, and this is {told.splitlines()[0]}"


def _version(java: str) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - the user's own Java
    except OSError:
        return ""


class Proof(NamedTuple):
    """What came of an audit: whether it is `sound`, that is, finds nothing, or exactly what was planted; and whether a `report` of it was named."""

    sound: bool
    report: bool


def prove(folder: Path, window: tuple[int, int], planted: Sequence[Planted] | None, console: Console) -> Proof:
    """Audit `folder` and say what came out."""
    console.print("\nNow Spark compares the ledger with what arrived.")
    done = _audit(folder, window, console)
    if not done.stdout or done.returncode == CANNOT_SAY:
        told = _why(done)
        console.print(f"[red]✗ the audit says nothing certain: {escape(told)}", soft_wrap=True, highlight=False)
        return Proof(sound=False, report=False)
    report = json.loads(done.stdout)
    found = _findings(report)
    sound = _nothing(report, found, console) if planted is None else _exactly(planted, found, console)
    console.print(f"Report: {_local(report['html'])}", soft_wrap=True, highlight=False)
    return Proof(sound, report=True)


def _why(done: subprocess.CompletedProcess[str]) -> str:
    if not done.stdout:
        return done.stderr.strip()
    return "; ".join(json.loads(done.stdout)["cannot_say"])


def _audit(folder: Path, window: tuple[int, int], console: Console) -> subprocess.CompletedProcess[str]:
    since, until = (datetime.fromtimestamp(instant / 1000, UTC).isoformat() for instant in window)
    inputs = ["--ledger", str(folder / "ledger"), "--observed", str(folder / "observed"), "--all-ended"]
    options = ["--since", since, "--until", until, "--out", str(folder / "audit"), "--json"]
    quick = [word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}")]
    command = [sys.executable, "-m", "delaybridge.spark_jobs.reconcile", *inputs, *options, *quick]
    with Progress(SpinnerColumn(), TextColumn("Spark works"), TimeElapsedColumn(), console=console, transient=True) as shown:
        shown.add_task("audit", total=None)
        return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module


def _findings(report: dict[str, Any]) -> Counter[Finding]:
    """Every discrepancy, from the table: the report itself holds the worst of them only."""
    rows = books.read(Path(_local(report["tables"]["discrepancies"])))
    return Counter((str(row["finding"]), str(row["id"]), int(str(row["occurrence"]))) for row in rows)


def _local(url: str) -> str:
    return unquote(urlsplit(url).path)


def _nothing(report: dict[str, Any], found: Counter[Finding], console: Console) -> bool:
    totals = report["totals"]
    if report["verdict"] == "clean" and not found:
        seen = ", ".join(f"{totals[name]:,} {name}" for name in ("scheduled", "delivered", "observed"))
        console.print(f"[green]✓[/] the audit finds nothing: {seen}", soft_wrap=True)
        return True
    named = ", ".join(f"{finding} {id_} #{occurrence}" for finding, id_, occurrence in sorted(found)[:5])
    console.print(f"[red]✗ the audit finds {found.total()} discrepancies: {named}", soft_wrap=True, highlight=False)
    return False


def _exactly(planted: Sequence[Planted], found: Counter[Finding], console: Console) -> bool:
    console.print(tables.planted_and_found(planted, found))
    if found == Counter(fault.finding for fault in planted):
        console.print(
            f"[green]✓[/] the audit names exactly the {len(planted)} messages that were lost, doubled and delayed", soft_wrap=True
        )
        return True
    console.print("[red]✗ the audit does not name exactly what was lost, doubled and delayed", soft_wrap=True)
    return False
