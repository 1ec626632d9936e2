"""Which due times the audit can judge: how far each bridge's ledger reaches, where it begins, and when nobody listened. See "Completeness" in docs/audit.md.

A bridge numbers its rows without holes, so a number that is missing tells of rows that are not in the input.

Reach
    A ledger reaches to the latest `event_time` before its first missing number. If none is missing, it reaches to its last row, or as far as the bridge's
    own mark says (`_reach/BRIDGE.json` in the ledger: all rows up to a number are in files, and nothing else happened until then). The ledger of a bridge
    that has `ended` reaches to the end of time, unless a number is missing. Due times are judged up to the earliest reach, less the SLA and the grace.

Clocks that were ahead
    Their rows tell of a time to come. A mark that covers all rows counts instead of what they say. Without one, no row counts that is later than now; nor
    does a mark that is later than now by more than the grace.

Observers
    An observer's mark says from when to when it has seen what arrived at a destination. Nothing is judged beyond that: what it has not seen yet is not
    lost, nor what arrived while nobody listened (a `Gap`), nor what a topic does not hold any more (see `retention`).

Young rows
    A backlog is delivered long after the hours in which it is due, which may be complete by then. What happened later than the earliest reach, less the
    grace, stands in one input and perhaps not yet in another: such deliveries and arrivals are not compared, nor deliveries that were made while nobody
    listened. So it is between ledgers, too: what one bridge takes in after its due time another one may deliver.

Beginning
    A ledger whose first number is not 1 has lost its oldest rows: old days were removed, or not copied. It begins a grace after the first event that is
    there. What was due before that is not judged; nor, of what was taken in before that, whether it was scheduled.

Seam
    Files hold hours of events, not ranges of numbers: around the beginning some numbers are there, and some between them are not. Up to the seam, the last
    number from before the beginning, a missing number is not taken for a hole. One that is missing right behind the seam is, if the row before it happened
    more than half a grace after the first row: none of the removed rows stands behind one that is so much younger.

Malformed rows
    Such a row is there, so it leaves no hole, but what it says is not known: the hour in which it is due is not judged. So it is with a malformed arrival
    that has an id and a due time.

Nothing at all can be said where a row stands twice, because then a file does; and where a bridge has a mark, so that it has written rows, and none is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..core.durations import HOUR_MS
from .columns import UnusableInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from .question import Question

FOREVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring numbers of one bridge: how many rows, how many different numbers, and their extremes."""

    bridge: str
    rows: int
    different: int
    first: int
    last: int
    latest_ms: int


@dataclass(frozen=True, slots=True)
class Mark:
    """What a bridge says of its ledger: the rows up to `sequence` are in files, and that is all that happened until `at_ms`.

    It got its name with row `first`; those before bear `earlier` names, the latest first, each with the row with which it began. See `renames`.
    """

    sequence: int
    at_ms: int
    first: int = 1
    earlier: tuple[tuple[str, int], ...] = ()

    def names(self, own: str) -> tuple[tuple[str, int], ...]:
        """All of them, `own` being the latest."""
        return ((own, self.first), *self.earlier)


@dataclass(frozen=True, slots=True)
class Seen:
    """What an observer says: it has seen what arrived at its destination from `since_ms` (-1: from the beginning) to `at_ms`, and that is in files.

    Without an `observer`: the destination is a topic, and is read so far.
    """

    observer: str | None
    broker: str
    address: str
    at_ms: int
    since_ms: int = -1


@dataclass(frozen=True, slots=True)
class Gap:
    """Nobody listened at a destination until `observer` began, at `until_ms`: since `before` had ended, at `since_ms`; or ever, where these two say nothing.

    Without an `observer`: the destination is a topic, which holds what arrived from then on.
    """

    broker: str
    address: str
    observer: str | None
    until_ms: int
    before: str | None = None
    since_ms: int = -1


@dataclass(frozen=True, slots=True)
class Reach:
    """One bridge's ledger. `hole` is the first number that is missing; `reaches_ms` is -1 where nothing can be relied on.

    `begins_ms` is -1 where the ledger has its first row. `former` are the names that the bridge had before.
    """

    bridge: str
    rows: int
    first: int
    last: int
    reaches_ms: int
    hole: int | None = None
    begins_ms: int = -1
    former: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Complete:
    """The due times that can be judged: from `since` to before `until`, but for the hours that begin at one of `spoilt`, or in which `gaps` may matter.

    `spoilt` are those of malformed rows; None: no hour can be judged. In `gaps` nobody listened.
    """

    since: int
    until: int
    spoilt: frozenset[int] | None = frozenset()
    gaps: Sequence[Gap] = ()

    def hour(self, question: Question) -> Column:
        """Whether a row's `due_hour` (epoch ms), as far as it belongs to the window, can be judged."""
        if self.spoilt is None:
            return F.lit(False)
        begin = F.col("due_hour")
        whole = (F.greatest(begin, F.lit(question.since)) >= self.since) & (F.least(begin + HOUR_MS, F.lit(question.until)) <= self.until)
        for gap in self.gaps:  # by its ends: what nobody observed may be years
            hours = unseen(gap, question)
            whole &= (begin < hours.start) | (begin >= hours.stop)
        return whole & ~begin.isin(*self.spoilt) if self.spoilt else whole

    def happened(self, question: Question) -> int:
        """What happened before this instant stands in every input."""
        return self.until + question.sla

    def doubtful(self, question: Question) -> Column:
        """Whether a row or an arrival (`event_ms`) is so young that it need not stand in every input."""
        return F.col("event_ms") >= self.happened(question)

    def unheard(self, question: Question) -> Column:
        """Whether a delivery may have arrived while nobody listened: it was due before that ended, and made since it began or shortly before or after."""
        told = F.lit(False)
        for gap in self.gaps:
            here = (F.col("destination_broker") == gap.broker) & (F.col("destination") == gap.address)
            made = (F.col("event_ms") >= gap.since_ms - question.grace) & (F.col("event_ms") < gap.until_ms + question.grace)
            told |= here & made & (F.col("due_ms") < gap.until_ms + question.skew)
        return told


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a ledger begins whose first row is not there: at `at_ms`, after number `seam`.

    Numbers up to that may be missing, and those between it and the first one behind it that is there.
    """

    at_ms: int
    seam: int


def beginnings(ledger: DataFrame, bridges: Iterable[str], question: Question) -> dict[str, Beginning]:
    """By name, of bridges whose first row is not there."""
    cut = ledger.where(F.col("bridge").isin(*bridges)).select("bridge", "sequence", F.unix_millis("event_time").alias("event_ms"))
    first = cut.groupBy("bridge").agg(F.min("event_ms").alias("first_ms")).where("first_ms is not null")
    after = max(question.grace, 1)  # the first event is from before that in any case
    return begun(cut, {row["bridge"]: row["first_ms"] + after for row in first.collect()}, question)


def begun(rows: DataFrame, begin: Mapping[str, int], question: Question) -> dict[str, Beginning]:
    """The same of ledgers that begin at these instants, by the rows from before that: `bridge`, `sequence` and `event_ms`."""
    early = F.lit(False)
    for bridge, at_ms in begin.items():
        early |= (F.col("bridge") == bridge) & (F.col("event_ms") < at_ms)
    last = rows.where(early).groupBy("bridge").agg(F.max("sequence").alias("last"), F.max_by("event_ms", "sequence").alias("last_ms"))
    return {
        bridge: Beginning(begin[bridge], _seam(number, begin[bridge] - last_ms, question)) for bridge, number, last_ms in last.collect()
    }


def _seam(last: int, before: int, question: Question) -> int:
    """The seam of a ledger of which row `last` is the last from before it begins, by `before` milliseconds.

    If that row happened more than half a grace after the first one, what is missing right behind it was not removed with the old rows: none of them stands
    behind one that is so much younger. So the last row is told to be beyond the seam.
    """
    return last - 1 if before < question.grace / 2 else last


def after(beginnings: Mapping[str, Beginning]) -> Column:
    """Whether a row's number is beyond the seam of its bridge's ledger, where that has one."""
    beyond = F.lit(True)
    for bridge, beginning in beginnings.items():
        beyond &= (F.col("bridge") != bridge) | (F.col("sequence") > beginning.seam)
    return beyond


def counted(ledger: DataFrame) -> list[Block]:
    """The rows' blocks; of each bridge the first one inside which numbers are missing is cut where they are. Raises UnusableInput where rows stand twice."""
    found = [Block(*row) for row in blocks(ledger).collect()]
    require_once(found)
    torn = {one.bridge: one for one in sorted(found, key=lambda one: -one.first) if one.different != one.last - one.first + 1}
    cut = [Block(*row) for row in runs(ledger, torn.values()).collect()] if torn else []
    return [one for one in found if one != torn.get(one.bridge)] + cut


def runs(ledger: DataFrame, found: Iterable[Block]) -> DataFrame:
    """The rows of these blocks, one of each bridge, as `Block`s without a hole inside."""
    here = reduce(or_, ((F.col("bridge") == one.bridge) & F.col("sequence").between(one.first, one.last) for one in found))
    nth = F.row_number().over(Window.partitionBy("bridge").orderBy("sequence"))
    numbered = ledger.where(here).withColumn("run", F.col("sequence") - nth)
    told = numbered.groupBy("bridge", "run").agg(
        F.count("*").alias("rows"),
        F.count("*").alias("different"),
        F.min("sequence").alias("first"),
        F.max("sequence").alias("last"),
        F.coalesce(F.unix_millis(F.max("event_time")), F.lit(-1)).alias("latest_ms"),
    )
    return told.drop("run")


def blocks(ledger: DataFrame) -> DataFrame:
    """Rows by bridge and block of 32,768 numbers, as `Block`: where a bridge's rows have a hole, or stand twice, this finds it."""
    counted = words(ledger).groupBy("bridge", F.shiftright("word", 9).alias("block")).agg(
        F.sum("rows").alias("rows"),
        F.sum(F.bit_count("numbers")).alias("different"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.coalesce(F.unix_millis(F.max("latest")), F.lit(-1)).alias("latest_ms"),
    )  # fmt: skip
    return counted.select("bridge", "rows", "different", "first", "last", "latest_ms")


def words(ledger: DataFrame) -> DataFrame:
    """The same of 64 neighbouring numbers each, with those that are there as bits: so to group needs no sorting, and leaves a sixty-fourth of the rows."""
    sequence = F.col("sequence")
    counted = ledger.groupBy("bridge", F.shiftright(sequence - 1, 6).alias("word")).agg(
        F.count("*").alias("rows"),
        F.bit_or(F.expr("shiftleft(1L, cast((sequence - 1) & 63 as int))")).alias("numbers"),
        F.min(sequence).alias("first"),
        F.max(sequence).alias("last"),
        F.max("event_time").alias("latest"),
    )
    return counted.select("bridge", "word", "rows", "numbers", "first", "last", "latest")


def reaches(
    found: Iterable[Block], marks: Mapping[str, Mark], question: Question, beginnings: Mapping[str, Beginning] | None = None
) -> list[Reach]:
    """Each bridge's reach, by name; no block before the first hole has one inside."""
    begin = {bridge: one.at_ms for bridge, one in (beginnings or {}).items()}
    by_bridge: dict[str, list[Block]] = {}
    for block in sorted(found, key=lambda one: (one.bridge, one.first)):
        by_bridge.setdefault(block.bridge, []).append(block)
    return [replace(_reach(name, whole, marks.get(name), question), begins_ms=begin.get(name, -1)) for name, whole in by_bridge.items()]


def by_now(rows: DataFrame, question: Question) -> DataFrame:
    """A ledger's rows without the `event_time` of rows from a clock that was ahead: of these it is not known when they happened."""
    return rows.withColumn("event_time", F.when(F.unix_millis("event_time") <= question.now, F.col("event_time")))


def require_once(found: Iterable[Block]) -> None:
    """Raises UnusableInput where rows stand twice."""
    for block in found:
        if block.rows > block.different:
            raise UnusableInput(
                f"the ledger of bridge {block.bridge!r}: {block.rows - block.different} rows from number {block.first} to {block.last} stand twice;"
                " was a file copied, or do two bridges have one name?"
            )


def _reach(bridge: str, found: list[Block], mark: Mark | None, question: Question) -> Reach:
    rows, first, last = sum(block.rows for block in found), found[0].first, found[-1].last
    latest, hole = _unbroken(found)
    if hole is None and mark is not None and mark.sequence > last:
        hole = last + 1
    if hole is None and (bridge in question.ended or "*" in question.ended):
        latest = FOREVER
    elif hole is None and mark is not None and mark.at_ms <= question.now + question.grace:
        latest = mark.at_ms if mark.sequence == last else max(latest, mark.at_ms)
    return Reach(bridge, rows, first, last, latest, hole)


def vanished(found: Iterable[Reach], marks: Mapping[str, Mark], question: Question) -> list[Reach]:
    """Bridges that have a mark, so that they wrote rows, of which none is there: nothing can be relied on. Those named as `ended` reach to the end.

    `--all-ended` does not say that so many rows may be gone.
    """
    gone = [(name, marks[name].sequence) for name in sorted(marks.keys() - {one.bridge for one in found})]
    return [Reach(name, 0, 1, last, FOREVER) if name in question.ended else Reach(name, 0, 1, last, -1, hole=1) for name, last in gone]


def _unbroken(found: list[Block]) -> tuple[int, int | None]:
    """The latest event before the first hole, and the number that is missing there."""
    latest, expected = -1, found[0].first
    for block in found:
        if block.first != expected:
            return latest, expected
        latest, expected = max(latest, block.latest_ms), block.last + 1
    return latest, None


def furthest(marks: Iterable[Seen], question: Question) -> list[Seen]:
    """One mark for each destination: observers of one destination follow each other, so that the latest counts; one that has ended reaches to the end."""
    by_place: dict[tuple[str, str], Seen] = {}
    for mark in marks:
        over = mark.observer is not None and (mark.observer in question.ended or "*" in question.ended)
        reached = replace(mark, at_ms=FOREVER) if over else mark
        place = mark.broker, mark.address
        by_place[place] = max(reached, by_place.get(place, reached), key=lambda one: one.at_ms)
    return [by_place[place] for place in sorted(by_place)]


def gaps(marks: Iterable[Seen], question: Question, cut: Iterable[Gap] = ()) -> list[Gap]:
    """When nobody listened, as far as something that is due in the window may have arrived then, however late. With those of topics that were `cut`.

    After an observer that is named as `ended` nothing arrived until the next one.
    """
    runs: dict[tuple[str, str], list[Seen]] = {}
    for mark in marks:
        runs.setdefault((mark.broker, mark.address), []).append(mark)
    found = list(cut)
    for (broker, address), those in sorted(runs.items()):
        reached, before = -1, None
        for run in sorted(those, key=lambda one: one.since_ms):
            if run.since_ms > reached:
                found.append(Gap(broker, address, run.observer, run.since_ms, before, reached))
            end = FOREVER if run.observer in question.ended else run.at_ms
            if end > reached:
                reached, before = end, run.observer
    return [gap for gap in found if gap.until_ms + question.skew > question.since]


def unseen(gap: Gap, question: Question) -> range:
    """The hours of the window, by their begin, in which something is due that may have arrived in the gap."""
    since = max(question.since, gap.since_ms - question.sla - question.grace)
    until = min(question.until, gap.until_ms + question.skew)
    return range(since // HOUR_MS * HOUR_MS, until if since < until else 0, HOUR_MS)


def complete_until(found: Iterable[Reach], question: Question, *, observing: bool, observers: Iterable[Seen] = ()) -> int:
    """Due times before this instant can be judged. An observer without a mark is taken to be done when the inputs are read, see `Question.as_of`."""
    ends = [*(reach.reaches_ms for reach in found), *(one.at_ms for one in observers)]
    if not ends:
        return -1
    if observing and "*" not in question.ended:
        ends.append(question.as_of)
    return min(ends) - question.sla - question.grace


def begins(found: Iterable[Reach]) -> int:
    """From when on every ledger tells all; -1 where each has its first row."""
    return max((reach.begins_ms for reach in found), default=-1)
