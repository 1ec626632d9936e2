"""One round of a watch: absorb everything that is there, then look at the clock. See the package for why."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from ..columns import UnusableInput
from ..completeness.ended import tell_of_nobody
from ..reading import marks
from ..reconciling.verdict import instant
from ..session import cause
from . import alerts, counting, sessions, steps, streams, topics
from .state import ANEW, State
from .telling import Teller

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from ..completeness.reach import Reach
    from .arguments import Arguments
    from .steps import Step

_FRAME = re.compile(r"^\[STREAM_FAILED\].*? terminated with exception: | SQLSTATE: \w+")
"""What Spark says around the reason why a stream ended."""


class Rounds:
    """Carries the state from round to round. One thread; Spark calls back from another one, for which `run` waits."""

    def __init__(self, spark: SparkSession, arguments: Arguments, clock: Callable[[], int]) -> None:
        self._spark = spark
        self._clock = clock
        self.state = State(spark, arguments.checkpoint)
        streams.door(spark, arguments)  # before a checkpoint belongs to places that are misspelt
        self.teller = Teller(spark, self.state, arguments.alerts, arguments.alerts_to, arguments.kafka_options)
        self.state.open(arguments.ledgers, arguments.observed, arguments.since, arguments.aliases)
        self.teller.require_older()
        _tell_of_since(arguments, self.state)
        self._arguments = replace(arguments, since=self.state.holds.since)
        self._happened = streams.happened(spark, self._arguments)
        self._failure: Exception | None = None
        self.reaches: list[Reach] = []
        self._untold = arguments.ended

    def run(self) -> None:
        """One round; on return everything is told. Raises UnusableInput, OSError where that fails, and Spark's errors."""
        self.state.require_own()
        now = self._clock()
        found = marks.read(self._spark, self._arguments.ledgers)
        self.teller.tell()
        before = self.state.holds.topics
        there = topics.find(self._spark, self._arguments, before)
        self._absorb_all()
        held = topics.read(self._spark, self._arguments, before, there, now)  # now: what was removed while that ran was perhaps not read
        self.reaches = steps.reaches(self.state, self._arguments, found, now)
        tell_of_nobody(self._untold, self.reaches, found)
        self._untold = frozenset()
        self._take(steps.look(self.state, self._arguments, self.reaches, now, held), now)
        told = counting.told(self.state, self.reaches, self._arguments, now)
        self.state.folder.replace("counts.json", msgspec.json.encode(told).decode() + "\n")

    def open_alerts(self) -> int:
        """How many occurrences are wrong now, bridges silent, and topics stuck."""
        wrong = self.state.table("alerts").where(f"kind <> '{alerts.SEEN}'").count()
        return wrong + len(self.state.holds.silent) + len(self.state.holds.stuck)

    def _absorb_all(self) -> None:
        """Everything that is in the files and topics now. Spark forgets no batch and may repeat the last one."""
        self._failure = None
        writer = self._happened.writeStream.foreachBatch(self._absorb).option("checkpointLocation", self.state.folder.at("stream"))
        try:
            query = writer.trigger(availableNow=True).start()
        except (PySparkException, Py4JJavaError) as error:
            raise self._no_stream(error) from None
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise self._failure or self._no_stream(error) from None
        finally:
            query.stop()
            sessions.let_go(self._spark, lambda: sessions.of_query(query))

    def _no_stream(self, error: PySparkException | Py4JJavaError) -> UnusableInput:
        """Of damaged notes Spark has a dozen exceptions, some of which speak of other things: what may be is said with all of them."""
        what = _FRAME.sub("", cause(error))
        return UnusableInput(
            f"the stream of {self.state.folder.url} ended: {what}; if it does at each start, with inputs that can be read and room on the disk, "
            f"what Spark noted in {self.state.folder.at('stream')} is damaged: {ANEW}"
        )

    def _absorb(self, batch: DataFrame, number: int) -> None:
        """Carry the state on by a batch, unless that was done before a crash. Spark hands on only the text of what is raised here."""
        if number == self.state.holds.batch:
            return
        kept = sessions.kept(batch)
        now = self._clock()
        try:
            self._require_next(number)
            self._take(steps.absorb(self.state, self._arguments, kept, number, self.reaches, now), now)
        except Exception as error:
            self._failure = error
            raise
        finally:
            kept.unpersist()

    def _require_next(self, number: int) -> None:
        """Raises UnusableInput where Spark counts its batches anew: it may have passed over files, and what is in this batch would count as absorbed.

        And where batches are lacking, as in a checkpoint that was copied while a watch was at work: what was seen at a topic would count as never seen.
        """
        if number == self.state.holds.batch + 1:
            return
        self.state.require_own()  # another watch may have gone on
        if number < self.state.holds.batch:
            raise UnusableInput(f"{self.state.folder.at('stream')} has lost notes of what was read: {ANEW}")
        raise UnusableInput(f"{self.state.folder.at('state.json')} is older than the stream beside it, and lacks what that read: {ANEW}")

    def _take(self, step: Step, now: int) -> None:
        """The step holds from now on; tell what it tells."""
        if steps.take(self.state, step, now):
            self.teller.tell()


def _tell_of_since(arguments: Arguments, state: State) -> None:
    """A checkpoint goes on from where it began. Who asks for something else waits for alerts that do not come."""
    if arguments.since_given and arguments.since != state.holds.since:
        asked, held = instant(arguments.since), instant(state.holds.since)
        sys.stderr.write(
            f"--since {asked} is ignored: {state.folder.url} is a watch since {held}; for another one give a new --checkpoint\n"
        )
