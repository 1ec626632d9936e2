"""The audit from its inputs to its tables: counts of everything first, ids only where they disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from . import closer, completeness, counts, disagreements, inputs, summary
from .buckets import arrivals, occurrences
from .closer import Side
from .completeness import Block, Mark, Reach, Seen
from .frames import keep, none_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from .inputs import Input
    from .question import Question

    Say = Callable[[str], None]


@dataclass(slots=True)
class Audit:
    """What was found.

    counts          the first look at what is due, see `counts.of_ledger`
    malformed       rows that were set aside, see `inputs.malformed`
    bridges         how far each ledger reaches
    observers       how far what was seen at a destination reaches, where its observer says so
    watched         the destinations that were compared with what arrived there
    unrelated       observations that are no bridge's
    """

    question: Question
    counts: DataFrame
    summary: DataFrame
    discrepancies: DataFrame
    histories: DataFrame
    malformed: DataFrame
    bridges: list[Reach]
    complete_until: int
    watched: frozenset[tuple[str, str]]
    unrelated: int = 0
    observers: Sequence[Seen] = ()


def audit(
    ledger: Input,
    observed: Input | None,
    marks: Mapping[str, Mark],
    question: Question,
    say: Say = lambda _: None,
    observers: Iterable[Seen] = (),
) -> Audit:
    """Everything; `say` hears what is being done.

    `marks` are those of the bridges, by name; `observers` those of who observed.

    Raises UnusableInput where nothing can be said.
    """
    say("Counting the ledgers")
    counted = keep(counts.of_ledger(ledger.rows, question))
    say("How far the ledgers reach")
    blocks, malformed = _blocks(ledger, counted)
    bridges = completeness.reaches(blocks, marks, question)
    furthest = completeness.furthest(observers, question)
    complete_until = completeness.complete_until(bridges, question, observing=observed is not None, observers=furthest)
    sound, aside = _split(ledger, malformed, "ledger")
    ledgers = Side(sound, occurrences(sound.rows, question), counted.where("what = 'due'"))
    say("Counting what arrived")
    arrived = None if observed is None else keep(counts.of_observed(observed.rows, question))
    say("Where they differ")
    found = disagreements.look(ledgers.counted, arrived)
    watched: frozenset[tuple[str, str]] = frozenset()
    seen = None
    if observed is not None and arrived is not None:
        watched = question.watched | disagreements.named(found) | {(one.broker, one.address) for one in furthest}
        found = [one for one in found if one.what != "unlike" or one.place in watched]
        sound, also_aside = _split(observed, disagreements.number(found, "malformed"), "observed")
        seen = Side(sound, arrivals(sound.rows.where("id is not null"), question), arrived)
        aside = aside.unionByName(also_aside)
    closely = closer.look(ledgers, seen, watched, found, complete_until, question)
    say("What is wrong")
    return Audit(
        question=question,
        counts=ledgers.counted,
        summary=keep(summary.table(ledgers.counted, closely.unsettled, closely.discrepancies, watched, complete_until, question)),
        discrepancies=closely.discrepancies,
        histories=closely.histories,
        malformed=aside,
        bridges=bridges,
        complete_until=complete_until,
        watched=watched,
        unrelated=disagreements.number(found, "unrelated"),
        observers=furthest,
    )


def _blocks(ledger: Input, counted: DataFrame) -> tuple[list[Block], int]:
    """The numbers that there are, and how many rows are malformed. Only where numbers are missing or stand twice the ledgers are read for them."""
    rows = counts.of_numbers(counted).collect()
    sound = [row for row in rows if not row["malformed"]]
    blocks = [Block(row["bridge"], row["rows"], row["rows"], row["first"], row["last"], row["latest_ms"]) for row in sound if row["whole"]]
    if broken := [row["bridge"] for row in sound if not row["whole"]]:
        there = inputs.sound(ledger.rows).where(F.col("bridge").isin(broken))
        blocks += [Block(*row) for row in completeness.blocks(there).collect()]
    return blocks, sum(row["rows"] for row in rows if row["malformed"])


def _split(whole: Input, malformed: int, what: str) -> tuple[Input, DataFrame]:
    """The sound rows, and the table of the others. Where there are none of these, no row is asked again."""
    if malformed:
        return whole.each(inputs.sound), keep(inputs.malformed(whole.placed, what))
    return whole.each(lambda frame: frame.drop("problem")), none_of(inputs.malformed(whole.placed, what))
