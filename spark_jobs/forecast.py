"""The command `delaybridge audit forecast`: how many deliveries to expect, by destination and minute, from what is pending.

Exit codes: 0 told, 2 cannot say (input that cannot be read, or wrong usage).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..core.durations import HOUR_MS, LATEST_INSTANT
from .arguments import conf_option, instant, path
from .command import printed, told_by
from .forecasting import minutes, occurrences, pending, screen, told
from .forecasting.minutes import MINUTE_MS
from .frames import keep
from .hadoop import Folder
from .reconciling.verdict import EXIT_CODES
from .reporting.terminal import shown
from .runs import Run
from .session import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from .reconciling.audit import Say

TABLES, MINUTES = "tables-", "minutes"


@dataclass(frozen=True, slots=True)
class Arguments:
    """What was asked for."""

    exports: tuple[str, ...]
    span: told.Span
    out: str
    conf: tuple[str, ...]
    json: bool


def parse(argv: Sequence[str] | None, now: int) -> Arguments:
    """Read the command line; wrong usage ends the program with exit code 2. `now` in epoch milliseconds."""
    parser = argparse.ArgumentParser(
        prog="delaybridge audit forecast",
        description="How many deliveries to expect, by destination and minute, from what is pending; repeats and crons expanded.",
        epilog="Exit codes: 0 ok, 2 cannot say (unreadable input, wrong usage). "
        "Example: delaybridge audit forecast --export pending.parquet",
    )
    parser.add_argument(
        "--export",
        action="append",
        type=path,
        required=True,
        metavar="PATH",
        help="what `delaybridge export` wrote, any URL that Spark reads; repeatable",
    )
    parser.add_argument(
        "--from", dest="since", type=instant, default=now, metavar="INSTANT", help="from this minute on, UTC [default: now]"
    )
    parser.add_argument("--hours", type=_positive, default=24, metavar="N", help="for this many hours [default: 24]")
    parser.add_argument(
        "--peak", type=_positive, default=3.0, metavar="TIMES", help="a minute with this many times the average is a peak [default: 3]"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", type=path, default="delaybridge-forecast", metavar="PATH", help="folder for the results [default: ./delaybridge-forecast]"
    )
    output.add_argument("--json", action="store_true", help="print the report as JSON instead of a summary")
    conf_option(output)
    given = parser.parse_args(argv)
    since = given.since // MINUTE_MS * MINUTE_MS
    span = told.Span(since, since + max(1, round(given.hours * HOUR_MS / MINUTE_MS)) * MINUTE_MS, given.peak)
    if span.until > LATEST_INSTANT:
        parser.error("the span ends after the year 9999: give fewer --hours")
    return Arguments(tuple(given.export), span, given.out, tuple(given.conf), given.json)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run with these arguments; returns the exit code."""
    arguments = parse(argv, now=time.time_ns() // 1_000_000)
    report = told_by(lambda spark, say: forecast(spark, arguments, say), kafka=False, conf=arguments.conf)
    if report is None or not printed(_text(report, arguments)):
        return EXIT_CODES["cannot_say"]
    return 0


def _text(report: dict[str, Any], arguments: Arguments) -> str:
    if arguments.json:
        return json.dumps(report, indent=2) + "\n"
    return shown(Console(highlight=False), screen.screen(report), screen.places(report))


def forecast(spark: SparkSession, arguments: Arguments, say: Say = lambda _: None) -> dict[str, Any]:
    """Read, expand, count, write; returns the report. Raises UnusableInput."""
    span = arguments.span
    say("Reading the exports")
    waiting = pending.read(spark, arguments.exports)
    with named(f"--out {arguments.out}"):
        Folder(spark, arguments.out).require_writable()
    exports = pending.exports(waiting)
    say("Expanding repeats and crons")
    expected = occurrences.expected(pending.latest(waiting), span.since, span.until)
    table = keep(minutes.table(expected, span.since, span.until, span.peak))
    say("Adding up")
    return _write(spark, table, told.report(table, exports, span), arguments.out)


def _write(spark: SparkSession, table: DataFrame, report: dict[str, Any], out: str) -> dict[str, Any]:
    """The table under a name of its own; then `forecast.json`, which names it, at once; then the earlier table goes. See `runs`."""
    run = Run(Folder(spark, out.rstrip("/")), "forecast.json", TABLES)
    with run.writing():
        table.orderBy(*minutes.DESTINATION, "minute").write.mode("errorifexists").parquet(run.at(MINUTES))
    report = {**report, "tables": {MINUTES: run.at(MINUTES)}}
    run.hold(report)
    return {**report, "json": run.folder.at("forecast.json")}


if __name__ == "__main__":
    sys.exit(main())
