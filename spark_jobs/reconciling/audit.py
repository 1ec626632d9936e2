"""The audit from its inputs to its tables: counts of everything first, ids only where they disagree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..buckets import PLACE, arrivals, due_hour, occurrences, within
from ..completeness import beginnings, gaps, reach, renames
from ..completeness import rule as completeness
from ..completeness.reach import Block, Mark, Reach
from ..completeness.rule import Complete
from ..frames import keep, none_of
from ..question import FOREVER
from ..reading import inputs
from . import closer, counts, disagreements, summary
from .closer import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Row

    from ..completeness.gaps import Gap, Seen
    from ..question import Question
    from ..reading.inputs import Input
    from .disagreements import Place

    Say = Callable[[str], None]


@dataclass(slots=True)
class Audit:
    """What was found.

    counts          the first look at what is due, see `counts.of_ledger`
    malformed       rows that were set aside, see `inputs.malformed`
    bridges         how far each ledger reaches
    observers       how far what was seen at a destination reaches, where its observer says so
    gaps            when nobody listened at a destination, where observers say so, or a topic lost what arrived, as far as whole hours cannot be judged for it
    watched         the destinations that were compared with what arrived there
    complete        the hours that can be judged
    unrelated       observations that are no bridge's
    unjudged        how often something ended that was taken in before its ledger begins: whether it was scheduled is not known
    undecided       how many rows and arrivals lack their other side that cannot be compared yet, see `completeness.rule`
    """

    question: Question
    counts: DataFrame
    summary: DataFrame
    discrepancies: DataFrame
    histories: DataFrame
    malformed: DataFrame
    bridges: list[Reach]
    complete: Complete
    watched: frozenset[Place]
    unrelated: int = 0
    unjudged: int = 0
    undecided: int = 0
    observers: Sequence[Seen] = ()
    gaps: Sequence[Gap] = ()


def audit(
    ledger: Input,
    observed: Input | None,
    marks: Mapping[str, Mark],
    question: Question,
    say: Say = lambda _: None,
    observers: Iterable[Seen] = (),
    cut: Iterable[Gap] = (),
) -> Audit:
    """Everything; `say` hears what is being done.

    `marks` are those of the bridges, by name; `observers` those of who observed. `cut` tells up to when topics do not hold what arrived.

    Raises UnusableInput where nothing can be said.
    """
    say("Counting the ledgers")
    counted = keep(counts.of_ledger(ledger.rows, question))
    say("How far the ledgers reach")
    names, marks = renames.joined(marks)
    numbers = counts.of_numbers(renames.by_present_name(counted, names)).collect()
    malformed = sum(row["rows"] for row in numbers if row["malformed"])
    bridges = _reaches(renames.by_present_name(ledger.rows, names), numbers, marks, question)
    observers = list(observers)
    furthest = gaps.furthest(observers, question)
    unheard = gaps.of(observers, question, _lacking(cut, counted, question))
    sound, aside = _split(ledger, malformed, "ledger")
    ledgers = Side(sound, occurrences(sound.rows, question), counted.where("what = 'due'"))
    say("Counting what arrived")
    arrived = None if observed is None else keep(counts.of_observed(observed.rows, question))
    say("Where they differ")
    found = disagreements.look(ledgers.counted, arrived)
    seen: Side | None = None
    watched: frozenset[Place] = frozenset()
    malformed_rows = [ledger.rows] if malformed else []
    if observed is not None and arrived is not None:
        disagreements.require_named(found, ledger.rows, question.watched)
        watched = question.watched | disagreements.named(found) | {(one.broker, one.address) for one in furthest}
        found = [one for one in found if one.what != "unlike" or one.place in watched]
        number = disagreements.number(found, "malformed")
        seen, seen_aside = _seen(observed, arrived, number, question)
        aside = aside.unionByName(seen_aside)
        malformed_rows += [_of_bridges(observed.rows)] if number else []
    until = completeness.complete_until(bridges, question, observing=observed is not None, observers=furthest)
    complete = Complete(completeness.begins(bridges), until, _spoilt(malformed_rows, question), unheard)
    closely = closer.look(ledgers, seen, watched, found, complete, question)
    say("What is wrong")
    return Audit(
        question=question,
        counts=ledgers.counted,
        summary=keep(summary.table(ledgers.counted, arrived, closely, watched, complete, question)),
        discrepancies=closely.discrepancies,
        histories=closely.histories,
        malformed=aside,
        bridges=bridges,
        complete=complete,
        watched=watched,
        unrelated=disagreements.number(found, "unrelated"),
        unjudged=closely.unjudged,
        undecided=closely.undecided,
        observers=furthest,
        gaps=[gap for gap in unheard if gaps.unseen(gap, question)],
    )


def _seen(observed: Input, arrived: DataFrame, malformed: int, question: Question) -> tuple[Side, DataFrame]:
    """The observations that can be judged, and the table of those that were set aside."""
    sound, aside = _split(observed, malformed, "observed")
    return Side(sound, arrivals(sound.rows.where("id is not null"), question), arrived), aside


def _of_bridges(observed: DataFrame) -> DataFrame:
    """What certainly came from a bridge. Nobody knows that of a row without a due time, and a stranger's would hide all that is wrong."""
    return observed.where("id is not null").where(inputs.believable("due_time").isNotNull())


def _lacking(cut: Iterable[Gap], counted: DataFrame, question: Question) -> list[Gap]:
    """Those of topics at which something was due by the ledgers before they begin: one to which little comes may hold nothing, and lack nothing."""
    if not (found := list(cut)):
        return []
    due = counted.where("what = 'due'").groupBy(*PLACE).agg(F.min("due_hour")).collect()
    first = {(broker, address): hour for broker, address, hour in due}
    return [gap for gap in found if first.get((gap.broker, gap.address), FOREVER) < gap.until_ms + question.skew]


def _reaches(ledger: DataFrame, numbers: Sequence[Row], marks: Mapping[str, Mark], question: Question) -> list[Reach]:
    """How far each ledger reaches. They are read for it only where numbers are missing, stand twice, or stand in malformed rows."""
    sound = [row for row in numbers if not row["malformed"]]
    spoilt = {row["bridge"]: row["last"] for row in numbers if row["malformed"]}
    whole = [row["bridge"] for row in sound if row["whole"] and row["bridge"] not in spoilt]
    blocks = [
        Block(row["bridge"], row["rows"], row["rows"], row["first"], row["last"], row["latest_ms"])
        for row in sound
        if row["bridge"] in whole
    ]
    with_first = {row["bridge"] for row in numbers if row["first"] == 1}
    cut = [row["bridge"] for row in sound if row["bridge"] not in with_first]
    timed = inputs.sound(ledger) if spoilt else ledger
    begun = beginnings.of(timed, cut, question) if cut else {}
    if broken := spoilt | {row["bridge"]: row["last"] for row in sound if row["bridge"] not in whole}:
        seams = {bridge: one for bridge, one in begun.items() if one.seam < broken.get(bridge, -1)}
        there, beyond = inputs.numbered(ledger).where(F.col("bridge").isin(*broken)), beginnings.after(seams)
        blocks += reach.counted(reach.by_now(there, question).where(beyond))
        if seams:  # what is missing there is no hole, but what stands twice is counted twice
            reach.require_once(Block(*row) for row in reach.blocks(there.where(~beyond)).collect())
    found = reach.reaches(blocks, marks, question, begun)
    return sorted(found + reach.vanished(found, marks, question), key=lambda one: one.bridge)


def _spoilt(frames: Sequence[DataFrame], question: Question) -> frozenset[int] | None:
    """The hours of the window in which malformed rows are due; None where that is not known of one."""
    due = [rows.where("problem is not null").select(inputs.believable("due_time").alias("due_time")) for rows in frames]
    if not due:
        return frozenset()
    here = reduce(DataFrame.unionAll, due).where(F.col("due_time").isNull() | within(F.col("due_time"), question))
    hours = {row[0] for row in here.select(due_hour(F.unix_millis("due_time"))).distinct().collect()}
    return None if None in hours else frozenset(hours)


def _split(whole: Input, malformed: int, what: str) -> tuple[Input, DataFrame]:
    """The sound rows, and the table of the others. Where there are none of these, no row is asked again."""
    if malformed:
        return whole.each(inputs.sound), keep(inputs.malformed(whole.placed, what))
    return whole.each(lambda frame: frame.drop("problem")), none_of(inputs.malformed(whole.placed, what))
