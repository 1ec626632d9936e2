"""The command line of the audit."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..core.durations import HOUR_MS, LATEST_INSTANT, parse_duration
from .columns import UnusableInput
from .question import MARKED_MS, Question
from .reading.places import address_of, is_topic
from .reconciling.findings import FINDINGS
from .reconciling.verdict import Allowance, allowance
from .reconciling.verdict import instant as written

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 36_525 * 24 * HOUR_MS
"""A hundred years: added to any instant, and waited for, without an overflow."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What was asked for."""

    question: Question
    ledgers: tuple[str, ...]
    observed: tuple[str, ...]
    out: str
    allowed: dict[str, Allowance]
    kafka_options: dict[str, str]
    conf: tuple[str, ...]
    json: bool

    @property
    def reads_kafka(self) -> bool:
        """Whether a topic is among the inputs."""
        return any(is_topic(place) for place in self.observed)


def parse(argv: Sequence[str] | None, now: int) -> Arguments:
    """Read the command line; wrong usage ends the program with exit code 2. `now` in epoch milliseconds."""
    parser = _parser()
    given = parser.parse_args(argv)
    as_of = now if given.as_of is None else given.as_of
    until = _judged(as_of, given.sla + given.grace) if given.until is None else given.until
    since = max(0, until - 24 * HOUR_MS) if given.since is None else given.since
    if since >= until:
        why = "; without --until only full hours are judged that every input may reach" if given.until is None else ""
        parser.error(f"the window is empty: --since {written(since)} must be before --until {written(until)}{why}")
    if given.watched and not given.observed:
        parser.error("--watched names a destination of what was observed: give --observed, too")
    question = Question(
        since=since,
        until=until,
        as_of=as_of,
        now=now,
        sla=given.sla,
        skew=given.skew,
        grace=given.grace,
        ended=frozenset({"*"} if given.all_ended else given.ended),
        watched=frozenset(given.watched),
        aliases=dict(given.alias),
    )
    return Arguments(
        question,
        tuple(given.ledger),
        tuple(given.observed),
        given.out,
        dict(given.allow),
        dict(given.kafka_option),
        tuple(given.conf),
        given.json,
    )


def _judged(as_of: int, beyond: int) -> int:
    """The end of the last full hour that can be judged: inputs must reach so far beyond it."""
    return (as_of - beyond - MARKED_MS) // HOUR_MS * HOUR_MS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="delaybridge audit reconcile",
        description="Did everything that was scheduled arrive, once, on time? Compares the ledgers with themselves, and with what really arrived.",
        epilog="Exit codes: 0 clean, 1 discrepancies beyond what is tolerated, 2 cannot say (incomplete or unreadable input, wrong usage). "
        f"Findings: {', '.join(FINDINGS)}. Example: delaybridge audit reconcile --ledger ./ledger --since 2026-11-20 --until 2026-11-21",
    )
    _inputs(parser.add_argument_group("inputs"))
    _window(parser.add_argument_group("window, UTC"))
    _judgement(parser.add_argument_group("judgement"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", type=path, default="delaybridge-audit", metavar="PATH", help="folder for the results [default: ./delaybridge-audit]"
    )
    output.add_argument("--json", action="store_true", help="print the report as JSON instead of a summary")
    conf_option(output)
    return parser


def ledger_option(group: argparse._ArgumentGroup) -> None:
    """`--ledger`."""
    group.add_argument(
        "--ledger",
        action="append",
        type=path,
        required=True,
        metavar="PATH",
        help="a bridge's ledger, any URL that Spark reads; repeatable",
    )


def alias_option(group: argparse._ArgumentGroup) -> None:
    """`--alias`."""
    told = "an observed address, at any broker or at this one, and the ledger's name for it"
    pairs_option(group, "--alias", "[BROKER:]OBSERVED=LEDGER", told)


def sla_option(group: argparse._ArgumentGroup) -> None:
    """`--sla`."""
    group.add_argument("--sla", type=duration, default=5_000, metavar="DURATION", help="a later delivery is late [default: 5s]")


def conf_option(group: argparse._ArgumentGroup) -> None:
    """`--conf`."""
    group.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting; repeatable")


def pairs_option(group: argparse._ArgumentGroup, name: str, metavar: str, help_: str) -> None:
    """A repeatable option whose values are pairs."""
    group.add_argument(name, action="append", type=pair, default=[], metavar=metavar, help=help_)


def _inputs(group: argparse._ArgumentGroup) -> None:
    ledger_option(group)
    group.add_argument(
        "--observed",
        action="append",
        type=_place,
        default=[],
        metavar="PLACE",
        help="what arrived: files of `delaybridge observe`, or kafka://HOST:PORT/TOPIC?broker=NAME; repeatable",
    )
    pairs_option(group, "--watched", "BROKER=ADDRESS", "a destination that was observed even if nothing arrived")
    alias_option(group)
    pairs_option(group, "--kafka-option", "NAME=VALUE", "an option of Spark's Kafka source, such as kafka.security.protocol=SSL")


def _window(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--since", type=instant, metavar="INSTANT", help="due at or after this instant [default: 24 h before --until]")
    judged = "the last full hour that can be judged, which ends --sla, --grace and 2 min before --as-of"
    group.add_argument("--until", type=instant, metavar="INSTANT", help=f"due before this instant [default: {judged}]")
    group.add_argument("--as-of", type=instant, metavar="INSTANT", help="when the inputs were written [default: now]")


def _judgement(group: argparse._ArgumentGroup) -> None:
    sla_option(group)
    group.add_argument(
        "--skew", type=duration, default=100, metavar="DURATION", help="how far clocks of bridges and observers may differ [default: 100ms]"
    )
    group.add_argument(
        "--grace", type=duration, default=120_000, metavar="DURATION", help="how long after an event it must be in the files [default: 2m]"
    )
    group.add_argument(
        "--ended", action="append", default=[], metavar="NAME", help="a bridge or an observer that has written its last row; repeatable"
    )
    group.add_argument("--all-ended", action="store_true", help="all bridges and observers have")
    group.add_argument(
        "--allow",
        action="append",
        type=_allowance,
        default=[],
        metavar="FINDING=NUMBER[%]",
        help="tolerate this many, or this percentage of what was scheduled; repeatable",
    )


def instant(text: str) -> int:
    """Epoch milliseconds of `2026-11-21`, `2026-11-21T10:30` or any ISO 8601 instant; UTC where it names no zone."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an instant; write it as 2026-11-21 or 2026-11-21T10:30Z") from error
    at = round((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= at <= LATEST_INSTANT:
        raise argparse.ArgumentTypeError(f"{text!r} is before 1970, or after 9999: nothing can be due then")
    return at


def duration(text: str) -> int:
    """Milliseconds of `500ms`, `1m30s`, `PT5S`, or of their number."""
    try:
        told = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not 0 <= told <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is negative, or longer than a hundred years")
    return told


def topic(text: str) -> str:
    """`kafka://HOST:PORT/TOPIC`, perhaps with `?broker=NAME`."""
    try:
        address_of(text)
    except UnusableInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def path(text: str) -> str:
    """Any but an empty one, which Hadoop would take for the root in some places, and refuse in others."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def _place(text: str) -> str:
    """A folder, or a topic."""
    return topic(text) if is_topic(text) else path(text)


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} has no `=`")
    return name, value


def _allowance(text: str) -> tuple[str, Allowance]:
    try:
        return allowance(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
