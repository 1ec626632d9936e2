"""How far each bridge's ledger was read, and which bridge is silent. Plain values: there are few bridges.

A ledger reaches as far as `completeness.rule` says, by the rows that were read and the bridge's mark. A bridge is silent while its ledger reaches no further
than `silent` before now, whatever the cause: it is dead, its disk is full, its files do not come, or one of them is missing.

A ledger from which old days were removed before the watch began has lost its beginning: it is ragged there, and that is no hole (see `completeness.rule`).
Whether it has is decided anew with each batch, for files may come in any order. So all islands are kept, and with them where the ledger begins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..columns import UnusableInput
from ..completeness import renames
from ..completeness.beginnings import Beginning
from ..completeness.reach import Block, Mark, Reach, reaches, vanished
from ..question import FOREVER, Question

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame


class Island(msgspec.Struct, frozen=True):
    """Rows of one bridge that were read: neighbouring numbers without a hole, and when the latest of them happened."""

    first: int
    last: int
    latest_ms: int


Islands = dict[str, list[Island]]
"""By bridge, in their order. One for each is as it should be."""

Beginnings = dict[str, Beginning]
"""Where ledgers begin, as far as is known, of which the first row is not there."""


def islands(rows: DataFrame) -> DataFrame:
    """The runs of numbers among the ledgers' new rows: bridge, first, last, latest_ms, earliest_ms. A number that stands twice makes two of them overlap.

    Where no row tells when it happened, latest_ms is -1, and earliest_ms null.
    """
    number = F.col("sequence")
    order = Window.partitionBy("bridge").orderBy("sequence")
    numbered = rows.where("input = 'ledger'").withColumn("run", number - F.row_number().over(order))
    found = numbered.groupBy("bridge", "run").agg(
        F.min(number).alias("first"),
        F.max(number).alias("last"),
        F.coalesce(F.max("event_ms"), F.lit(-1)).alias("latest_ms"),
        F.min("event_ms").alias("earliest_ms"),
    )
    return found.select("bridge", "first", "last", "latest_ms", "earliest_ms")


def joined(known: Islands, found: Iterable[tuple[str, Island]]) -> Islands:
    """Both together. Raises UnusableInput where rows stand twice."""
    every: Islands = {bridge: list(those) for bridge, those in known.items()}
    for bridge, island in found:
        every.setdefault(bridge, []).append(island)
    return {bridge: _joined(bridge, those) for bridge, those in every.items()}


def begin(known: Islands, beginnings: Beginnings, earliest: Mapping[str, int], grace: int) -> dict[str, int]:
    """When ledgers begin whose first row may not be there, if new rows happened before the beginning that is known.

    `earliest` is when the first of the new rows happened; `known` and `beginnings` are from before these.
    """
    fresh = {bridge: at + grace for bridge, at in earliest.items() if bridge not in known}
    earlier = {
        bridge: min(one.at_ms, earliest[bridge] + grace) for bridge, one in beginnings.items() if earliest.get(bridge, FOREVER) < one.at_ms
    }
    return fresh | earlier


def begun(known: Islands, before: Beginnings, found: Beginnings, grace: int) -> Beginnings:
    """What is known of ledgers that lack their first row, with what new rows tell (`found`, see `begin`)."""
    every = before | {bridge: _further(before.get(bridge, one), one, grace) for bridge, one in found.items()}
    return {bridge: one for bridge, one in every.items() if known[bridge][0].first > 1}


def _further(before: Beginning, found: Beginning, grace: int) -> Beginning:
    """A ledger that begins so much earlier that no known row is from before that has the seam of the new rows."""
    return found if found.at_ms <= before.at_ms - grace else Beginning(found.at_ms, max(found.seam, before.seam))


def beyond(found: list[Island], beginning: Beginning | None) -> list[Island]:
    """The islands less those that end at the seam or before it, if the first row is not there; but the last one at least."""
    if beginning is None or found[0].first == 1:
        return found
    return [one for one in found if one.last > beginning.seam] or found[-1:]


def _joined(bridge: str, found: list[Island]) -> list[Island]:
    whole: list[Island] = []
    for one in sorted(found, key=lambda island: island.first):
        before = whole[-1].last if whole else one.first - 2
        if one.first <= before:
            raise UnusableInput(
                f"the ledger of bridge {bridge!r}: rows from number {one.first} on stand twice; was a file copied, or do two bridges have one name?"
            )
        if one.first == before + 1:
            whole[-1] = Island(whole[-1].first, one.last, max(whole[-1].latest_ms, one.latest_ms))
        else:
            whole.append(one)
    return whole


def reached(
    known: Islands, beginnings: Beginnings, marks: Mapping[str, Mark], ended: frozenset[str], now: int, skew: int = 0
) -> list[Reach]:
    """Each bridge's reach, as `reconcile` sees it: also of one that has a mark, and of which no row was read.

    Rows that are from well beyond now were not when they were read: since then the clock of the watch was set back, and they tell nothing.
    """
    question = Question(since=0, until=FOREVER, as_of=now, ended=ended, now=now)
    believed = now + max(question.grace, skew)
    names, marks = renames.joined(marks)
    ledgers: dict[str, list[tuple[Island, Beginning | None]]] = {}
    for bridge, those in known.items():
        ledgers.setdefault(names.get(bridge, bridge), []).extend((one, beginnings.get(bridge)) for one in those)
    blocks = [
        Block(name, size, size, one.first, one.last, one.latest_ms if one.latest_ms <= believed else -1)
        for name, those in ledgers.items()
        for one in _whole(those)
        for size in [one.last - one.first + 1]
    ]
    found = reaches(blocks, marks, question)
    former = {now: tuple(old for old, present in names.items() if present == now) for now in names.values()}
    return [replace(one, former=former.get(one.bridge, ())) for one in (*found, *vanished(found, marks, question))]


def _whole(found: list[tuple[Island, Beginning | None]]) -> list[Island]:
    """All of a ledger's islands, under whichever name; where the ledger begins is told by the first of them."""
    ordered = sorted(found, key=lambda one: one[0].first)
    return beyond([island for island, _ in ordered], ordered[0][1])


def silent(found: Iterable[Reach], now: int, after: int) -> dict[str, Reach]:
    """The bridges of which nothing was heard for longer than that."""
    return {reach.bridge: reach for reach in found if now - reach.reaches_ms > after}


def why(reach: Reach) -> str:
    """What is known of a silent bridge, as a part of a sentence."""
    if not reach.rows:
        return f"its ledger has no row, and by its mark it wrote {reach.last}"
    if reach.hole is not None:
        return f"its ledger lacks rows, number {reach.hole} first"
    if reach.reaches_ms < 0:
        return "neither rows nor a mark of its ledger are from before now: do clocks differ?"
    return "neither rows nor a mark of its ledger are newer"
