"""What an audit leaves behind, in one folder for each window.

    OUT/2026-11-20T00Z..2026-11-21T00Z/
        report.json                 for machines; names the folder of the tables below
        report.html                 for people
        tables-RUN/summary          Parquet: one row per bucket
                   discrepancies    one row per occurrence and finding
                   histories        all that is known of those
                   malformed        rows that were set aside

A run writes its tables under a name of its own, then replaces report.html, then report.json: that is the moment at which the window's result changes. Then
the tables of the earlier run go, see `runs`. A run that fails before that leaves the earlier report.json as it was, with its tables, and takes its own away;
one that dies leaves these to a later run's cleaning. report.html may be the new one already. How a file is replaced: see `Folder.replace`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..frames import FEW
from ..hadoop import Folder
from ..reconciling.findings import FINDINGS
from ..runs import Run
from . import report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..question import Question
    from ..reconciling.audit import Audit

TABLES = "tables-"
_OCCURRENCE = ("id", "occurrence", "destination_broker", "destination")


def window_name(question: Question) -> str:
    """The folder of a window."""
    return f"{_short(question.since)}..{_short(question.until)}"


def _short(epoch_ms: int) -> str:
    """`2026-11-21T00Z`, and more digits only where they say something. No colons: Hadoop's paths cannot hold them."""
    at = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    if at.minute == at.second == at.microsecond == 0:
        return f"{at:%Y-%m-%dT%H}Z"
    return f"{at:%Y-%m-%dT%H%M%S}.{at.microsecond // 1000:03d}Z"


def in_order(table: DataFrame, few: bool, *by: str) -> DataFrame:
    """Sorted: few rows as one file; more by many tasks, for which Spark computes them a second time to divide them."""
    return table.coalesce(1).sortWithinPartitions(*by) if few else table.orderBy(*by)


def write(spark: SparkSession, audit: Audit, told: dict[str, Any], out: str) -> dict[str, Any]:
    """Write everything; returns what was told with the places added."""
    folder = Folder(spark, f"{out.rstrip('/')}/{window_name(audit.question)}")
    run = Run(folder, "report.json", TABLES)
    few = sum(told["totals"][name] for name in FINDINGS) <= FEW
    tables: dict[str, DataFrame] = {
        "summary": in_order(audit.summary, True, "destination_broker", "destination", "due_hour", "kind", "dialect", "level"),
        "discrepancies": in_order(audit.discrepancies, few, "finding", "due_time", *_OCCURRENCE, "at", "detail"),
        "histories": in_order(audit.histories, few, "id", "occurrence", "event_time", "bridge", "sequence", "place"),
        "malformed": audit.malformed,
    }
    places = {**told, "tables": {name: run.at(name) for name in tables}, "html": folder.at("report.html")}
    with run.writing():
        for name, table in tables.items():
            table.write.mode("errorifexists").parquet(run.at(name))
        folder.replace("report.html", report.page(places))
    run.hold(places)
    return {**places, "json": folder.at("report.json")}
