"""The command `delaybridge audit watch`: tells at once when something that was due is not delivered.

Exit codes with --once: 0 clean, 1 alerts, 2 cannot say (input that is malformed or cannot be read, or wrong usage). Without it: 0 when it is stopped.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from .command import told_by
from .reading import far_times
from .reconciling.verdict import EXIT_CODES
from .watching.arguments import Arguments, parse
from .watching.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from .reconciling.audit import Say


def main(argv: Sequence[str] | None = None) -> int:
    """Run with these arguments; returns the exit code. SIGTERM and SIGINT let a round end; a killed one is taken up at the next start.

    If they end Java, too, which only SIGTERM does, the round is as good as killed.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs what is raised in a batch; we tell it in a sentence
    arguments = parse(argv, _now())

    def look(spark: SparkSession, say: Say) -> int:
        rounds = Rounds(spark, arguments, _now)
        with far_times.named(spark, arguments.observed, arguments.kafka_options):
            return _once(rounds, say) if arguments.once else _watch(rounds, arguments, say)

    code = told_by(look, kafka=arguments.needs_kafka, conf=arguments.conf)
    return EXIT_CODES["cannot_say"] if code is None else code


def _now() -> int:
    return time.time_ns() // 1_000_000


def _once(rounds: Rounds, say: Say) -> int:
    say("Looking")
    rounds.run()
    if rounds.teller.alerted or rounds.open_alerts():
        return EXIT_CODES["discrepancies"]
    holds = rounds.state.holds
    return EXIT_CODES["cannot_say" if holds.malformed or not holds.bridges else "clean"]


def _watch(rounds: Rounds, arguments: Arguments, say: Say) -> int:
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    while not stopping.is_set():
        begun = time.monotonic()
        try:
            say("Looking")
            rounds.run()
            say(f"{len(rounds.reaches)} bridges, {rounds.open_alerts()} open alerts")
        except Exception:
            if not stopping.is_set():
                raise
            break  # who stops us has stopped Java with us, as systemd does
        stopping.wait(max(0.0, arguments.every / 1000 - (time.monotonic() - begun)))
    return EXIT_CODES["clean"]


if __name__ == "__main__":
    sys.exit(main())
