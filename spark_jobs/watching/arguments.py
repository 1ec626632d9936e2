"""The command line of the watch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.durations import HOUR_MS
from ..arguments import alias_option, conf_option, duration, instant, ledger_option, pairs_option, path, sla_option, topic
from ..reading import inputs
from .alerts import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence


_KAFKA_MS = "20000"
_PATIENCE = {
    "kafka.request.timeout.ms": _KAFKA_MS,
    "kafka.default.api.timeout.ms": _KAFKA_MS,  # no less than that, or Kafka's client refuses both
    "kafka.max.block.ms": _KAFKA_MS,
    "kafka.delivery.timeout.ms": "30000",
    "kafkaConsumer.pollTimeoutMs": "30000",
    "fetchOffset.numRetries": "1",  # each takes as long as the above
}
"""How long Kafka may be away until a round ends. Its clients and Spark's source wait for one to two minutes: so long nothing at all would be told."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What was asked for. Times are epoch milliseconds, UTC; durations milliseconds. `alerts` None is standard output.

    `since_given`: it was asked for, and is not the default.
    """

    ledgers: tuple[str, ...]
    checkpoint: str
    since: int
    sla: int = 5_000
    grace: int = 5_000
    skew: int = 100
    silent: int = 120_000
    every: int = 10_000
    once: bool = False
    observed: tuple[str, ...] = ()
    ended: frozenset[str] = frozenset()
    aliases: dict[str, str] = field(default_factory=dict)
    alerts: Path | None = None
    alerts_to: str | None = None
    kafka_options: dict[str, str] = field(default_factory=dict)
    conf: tuple[str, ...] = ()
    since_given: bool = False

    @property
    def needs_kafka(self) -> bool:
        """Whether a topic is read or written."""
        return bool(self.observed or self.alerts_to)

    @property
    def watched(self) -> frozenset[tuple[str, str]]:
        """Broker and address, as the ledger writes it, of each topic that is read. Raises UnusableInput."""
        return inputs.watched(self.observed, self.aliases)


def parse(argv: Sequence[str] | None, now: int) -> Arguments:
    """Read the command line; wrong usage ends the program with exit code 2. `now` in epoch milliseconds."""
    given = _parser().parse_args(argv)
    return Arguments(
        ledgers=tuple(given.ledger),
        checkpoint=given.checkpoint,
        since=now - 24 * HOUR_MS if given.since is None else given.since,
        sla=given.sla,
        grace=given.grace,
        skew=given.skew,
        silent=given.silent,
        every=given.every,
        once=given.once,
        observed=tuple(given.observed),
        ended=frozenset(given.ended),
        aliases=dict(given.alias),
        alerts=given.alerts,
        alerts_to=given.alerts_to,
        kafka_options=_patient(dict(given.kafka_option)),
        conf=tuple(given.conf),
        since_given=given.since is not None,
    )


def _patient(given: dict[str, str]) -> dict[str, str]:
    """With the waits of a watch; where one of Kafka's is given it may not fit the others, and all are Kafka's own."""
    return given if _PATIENCE.keys() & given.keys() else _PATIENCE | given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="delaybridge audit watch",
        description="Watches growing ledgers, and alerts as soon as something due is not delivered within the SLA. "
        "One line of JSON for each alert, and one when it is over.",
        epilog="Exit codes with --once: 0 clean, 1 alerts, 2 cannot say (unreadable or malformed input, wrong usage). Else: 0 when stopped, 2 as above. "
        f"Alerts: {', '.join(KINDS)}. Example: delaybridge audit watch --ledger ./ledger --checkpoint ./watch --alerts ./alerts.jsonl",
    )
    _inputs(parser.add_argument_group("inputs"))
    _judgement(parser.add_argument_group("judgement"))
    _output(parser.add_argument_group("output"))
    return parser


def _inputs(group: argparse._ArgumentGroup) -> None:
    ledger_option(group)
    group.add_argument(
        "--observed",
        action="append",
        type=topic,
        default=[],
        metavar="TOPIC",
        help="where it arrives: kafka://HOST:PORT/TOPIC?broker=NAME; repeatable",
    )
    alias_option(group)
    told = "an option of Spark's Kafka source; those that begin with `kafka.` also hold for --alerts-to"
    pairs_option(group, "--kafka-option", "NAME=VALUE", told)
    group.add_argument(
        "--since", type=instant, metavar="INSTANT", help="due at or after this instant, UTC [default: 24 h before the first start]"
    )
    group.add_argument("--ended", action="append", default=[], metavar="BRIDGE", help="a bridge that has written its last row; repeatable")


def _judgement(group: argparse._ArgumentGroup) -> None:
    sla_option(group)
    group.add_argument(
        "--grace",
        type=duration,
        default=5_000,
        metavar="DURATION",
        help="how much further a ledger must reach before what happened counts as told [default: 5s]",
    )
    group.add_argument(
        "--skew", type=duration, default=100, metavar="DURATION", help="how far clocks of bridges and brokers may differ [default: 100ms]"
    )
    group.add_argument(
        "--silent",
        type=duration,
        default=120_000,
        metavar="DURATION",
        help="alert if nothing is heard of a bridge for longer than this [default: 2m]",
    )


def _output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--checkpoint", type=path, required=True, metavar="PATH", help="folder for what the watch knows: a restart continues from there"
    )
    group.add_argument("--alerts", type=Path, metavar="FILE", help="append alerts to a file [default: standard output]")
    group.add_argument("--alerts-to", type=topic, metavar="TOPIC", help="also publish them: kafka://HOST:PORT/TOPIC")
    group.add_argument("--every", type=duration, default=10_000, metavar="DURATION", help="how often to look [default: 10s]")
    group.add_argument("--once", action="store_true", help="look once, then exit")
    conf_option(group)
