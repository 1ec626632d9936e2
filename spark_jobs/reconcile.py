"""The command `delaybridge audit reconcile`: did everything that was scheduled arrive, once, on time.

Exit codes: 0 clean, 1 discrepancies beyond what is tolerated, 2 cannot say (input that is incomplete or cannot be read, or wrong usage).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.console import Console

from .arguments import Arguments, parse
from .command import printed, told_by
from .completeness.ended import tell_of_nobody
from .hadoop import Folder
from .reading import far_times, inputs, kafka_client, marks, retention
from .reading.overlaps import overlaps
from .reading.uniqueness import destinations_once, files_once
from .reconciling.audit import audit
from .reconciling.verdict import EXIT_CODES, report
from .reporting import outputs, terminal
from .session import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from .reconciling.audit import Say


def main(argv: Sequence[str] | None = None) -> int:
    """Run with these arguments; returns the exit code."""
    arguments = parse(argv, now=time.time_ns() // 1_000_000)

    def look(spark: SparkSession, say: Say) -> dict[str, Any]:
        with far_times.named(spark, arguments.observed, arguments.kafka_options):
            return reconcile(spark, _now(arguments), say)

    told = told_by(look, kafka=arguments.reads_kafka, conf=arguments.conf)
    if told is None or not printed(_text(told, arguments)):
        return EXIT_CODES["cannot_say"]
    return int(told["exit_code"])


def reconcile(spark: SparkSession, arguments: Arguments, say: Say) -> dict[str, Any]:
    """Read, audit, write; returns the report. Raises UnusableInput."""
    asked = arguments.question
    inputs.require_listed(spark, "--ledger", arguments.ledgers)
    inputs.require_listed(spark, "--observed", arguments.observed)
    inputs.require_apart(spark, "--out", arguments.out, arguments.ledgers + arguments.observed)
    topics = inputs.watched(arguments.observed, asked.aliases)
    kafka_client.require_there(spark, arguments.observed, arguments.kafka_options)
    question = replace(asked, watched=asked.watched | topics)
    said = marks.read(spark, arguments.ledgers)  # before the files that marks tell of
    observers = marks.observers(spark, arguments.observed, question.aliases)  # as above
    marks.require_written(spark, arguments.observed, question)
    destinations_once(topics, observers)
    ledger = inputs.ledger(spark, arguments.ledgers)
    observed = (
        inputs.observed(
            spark,
            arguments.observed,
            question.since,
            question.aliases,
            arguments.kafka_options,
            overlaps(observers, question.grace),
        )
        if arguments.observed
        else None
    )
    if observed is not None:
        files_once(arguments.observed, inputs.files(spark, observed.rows))
    with named(f"--out {arguments.out}"):
        Folder(spark, arguments.out).require_writable()
    cut = retention.gaps(spark, arguments.observed, arguments.kafka_options, question)
    unfinished = retention.unfinished(spark, arguments.observed, arguments.kafka_options, question.aliases)
    found = audit(ledger, observed, said, question, say, chain(observers, unfinished), cut)
    tell_of_nobody(question.ended, found.bridges, said, observers)
    say("Adding up")
    told = report(found, arguments.allowed)
    say("Writing")
    return outputs.write(spark, found, told, arguments.out)


def _now(arguments: Arguments) -> Arguments:
    """Marks have been renewed while Spark started: they are not from the future."""
    return replace(arguments, question=replace(arguments.question, now=time.time_ns() // 1_000_000))


def _text(told: dict[str, Any], arguments: Arguments) -> str:
    if arguments.json:
        return json.dumps(told, indent=2) + "\n"
    return terminal.shown(Console(highlight=False), terminal.screen(told), terminal.places(told))


if __name__ == "__main__":
    sys.exit(main())
