"""The audit on one screen of a terminal, and a sign of life while Spark works."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ...core.ledger import CLOSING
from ..reconciling.findings import FINDINGS
from ..reconciling.verdict import all_ended, undecided
from .markup import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from rich.status import Status

ROWS = 8
"""So many destinations and examples stand on the screen; the report has more."""

ALWAYS = ("scheduled", "delivered")
"""Columns that are shown whatever stands in them."""

KINDS = 2
"""So many findings have a column of their own; more than that are added up, for the headline names them."""

HEADLINES = {
    "clean": ("green", "Clean:"),
    "discrepancies": ("red", "Discrepancies:"),
    "cannot_say": ("yellow", "Cannot say:"),
}


@contextmanager
def progress(spark: SparkSession, console: Console) -> Iterator[Callable[[str], None]]:
    """Gives a function that says what is being done; on a terminal it is shown with the tasks that Spark has finished, else not at all."""
    if not console.is_terminal:
        yield lambda _: None
        return
    ended = threading.Event()
    step = ["Reading"]
    with console.status(step[0]) as status:
        watcher = threading.Thread(target=_watch, args=(spark, status, step, ended), name="progress", daemon=True)
        watcher.start()
        try:
            yield lambda text: step.__setitem__(0, text)
        finally:
            ended.set()
            watcher.join()


def _watch(spark: SparkSession, status: Status, step: list[str], ended: threading.Event) -> None:
    """Until it has ended, or Java has: whoever waits for the job says so."""
    with suppress(Py4JError, OSError):
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(0.5):  # the display's own rhythm
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            total = sum(stage.numTasks for stage in stages if stage)
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            status.update(f"{step[0]} ({done} of {total} tasks)" if total else step[0])


def screen(told: dict[str, Any]) -> Group:
    """The summary."""
    parts: list[Any] = [headline(told), _equation(told["totals"]), _destinations(told["destinations"], told["counted"]["destinations"])]
    if told["worst"]:
        parts.append(_worst(told["worst"], sum(told["totals"][name] or 0 for name in FINDINGS)))
    lateness = told["lateness"]
    if lateness["max_ms"] is not None:
        parts.append(
            Text("Lateness by the ledger: p50 {p50_ms:,} ms, p95 {p95_ms:,} ms, p99 {p99_ms:,} ms, max {max_ms:,} ms".format_map(lateness))
        )
    return Group(*parts)


def places(told: dict[str, Any]) -> list[str]:
    """Where the report and the tables are, a line each; none where nothing was written."""
    return [f"Report: {told['html']}", f"Tables: {told['tables']['summary'].rsplit('/', 1)[0]}"] if "html" in told else []


def shown(console: Console, what: Group, lines: Sequence[str]) -> str:
    """As this console prints it: a summary, and below it lines that are not wrapped: a path that is cut in two, as in a mail of cron's, leads nowhere."""
    with console.capture() as captured:
        console.print(what)
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)
        console.quiet = True  # at the end rich writes what is left, which is nothing, and fails where nothing can be written
    return captured.get()


def headline(told: dict[str, Any]) -> Text:
    """The verdict in one to a few lines."""
    colour, word = HEADLINES[told["verdict"]]
    window = told["window"]
    text = Text(f"{word} ", style=f"bold {colour}")
    if told["verdict"] == "clean":
        text.append(all_ended(told["totals"]), style=colour)
    if told["verdict"] == "cannot_say":
        text.append(undecided(told["totals"]), style=colour)
    text.append(", ".join(f"{told['totals'][name]:,} {name.replace('_', ' ')}" for name in told["beyond_tolerance"]), style=colour)
    text.append(f"\nDue {window['since']} to {window['until']}, SLA {told['sla_ms']:,} ms", style="default")
    for reason in told["cannot_say"]:
        text.append(f"\n- {printable(reason)}", style="yellow")
    return text


def _equation(totals: dict[str, Any]) -> Text:
    parts = [f"{totals[name]:,} {name.replace('_', ' ')}" for name in (*CLOSING, "pending") if totals[name] or name == "delivered"]
    residue = "" if not totals["residue"] else f"; residue {totals['residue']:,}"
    seen = "nobody observed" if totals["observed"] is None else f"{totals['observed']:,} observed"
    return Text(f"{totals['scheduled'] or 0:,} scheduled = {' + '.join(parts)}{residue}; {seen}")


def _destinations(rows: list[dict[str, Any]], number: int) -> Table:
    """Of so many, those with most discrepancies, and only columns in which anything stands: eighty characters hold so much."""
    kinds = [name for name in FINDINGS if any(row[name] for row in rows)]
    counted = [{**row, "wrong": sum(row[name] for name in FINDINGS)} for row in rows]
    ranked = sorted(counted, key=lambda row: -row["wrong"])[:ROWS]
    names = [*ALWAYS, *(name for name in ("observed", "pending", "dead_lettered") if any(row[name] for row in rows))]
    names += kinds if len(kinds) <= KINDS else ["wrong"]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("Destination", overflow="fold", min_width=12)
    for name in names:
        table.add_column(name.replace("_", " "), justify="right", min_width=max(len(_number(row[name])) for row in ranked) if ranked else 0)
    for row in ranked:
        table.add_row(Text(printable(f"{row['destination_broker']} {row['destination']}")), *(_number(row[name]) for name in names))
    if number > ROWS:
        table.caption = f"and {number - ROWS:,} more destinations"
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _worst(rows: list[dict[str, Any]], found: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("Finding", "Id", "Due", "Lateness"):
        table.add_column(name, overflow="fold", no_wrap=name in {"Finding", "Due"})
    shown = one_of_each_first(rows)[:ROWS]
    for row in shown:
        lateness = "" if row["lateness_ms"] is None else f"{row['lateness_ms']:,} ms"
        occurrence = f" #{row['occurrence']}" if row["occurrence"] != 1 else ""
        table.add_row(row["finding"].replace("_", " "), Text(printable(f"{row['id']}{occurrence}")), row["due_time"], lateness)
    if found > len(shown):
        table.caption = f"and {found - len(shown):,} more"
    return table


def one_of_each_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first row of each finding, then the second ones."""
    seen: dict[str, int] = {}
    turns = []
    for row in rows:
        seen[row["finding"]] = seen.get(row["finding"], 0) + 1
        turns.append(seen[row["finding"]])
    return [row for _, row in sorted(zip(turns, rows, strict=True), key=lambda pair: pair[0])]
