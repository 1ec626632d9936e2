"""Everything that is known of each message with which something is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..columns import LEDGER
from ..frames import sent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

MESSAGE = ("id", "occurrence")
"""What belongs to one history, whenever it was due: what was replaced, and what replaced it; a dead letter, which is due at once."""

OBSERVED = "observed"
"""The event of what was seen at a destination: no ledger has it."""


SOUGHT = 200
"""Up to so many messages are sought by hash first: every row is compared, and to compare a number takes less than half the time of a join."""


def hashes(asked: DataFrame) -> list[int] | None:
    """Those of all messages that are asked about; None where these are too many."""
    found = asked.select(F.xxhash64(*MESSAGE)).coalesce(1).limit(SOUGHT + 1).collect()
    return None if len(found) > SOUGHT else [one for (one,) in found]


def rows(asked: DataFrame, number: int, sought: Sequence[int] | None, ledger: DataFrame, observed: DataFrame | None) -> DataFrame:
    """All that is known of the messages in `asked`: every row of the ledgers and every observation, also outside the window.

    `asked` has `number` rows, and `sought` are its `hashes`. The result has the ledger's columns, and `place`; nowhere else are all of these read.
    """
    whole = ledger.select(*LEDGER, "place")
    if observed is not None:
        whole = whole.unionByName(_as_ledger(observed))
    if sought is not None:
        whole = whole.where(F.xxhash64(*MESSAGE).isin(*sought))
    # a message may be asked about more than once: a semi join keeps each row once all the same
    return whole.join(sent(asked.select(*MESSAGE), number), on=list(MESSAGE), how="left_semi").select(*LEDGER, "place")


def _as_ledger(observed: DataFrame) -> DataFrame:
    seen = observed.withColumn("event", F.lit(OBSERVED))
    return seen.select(
        *(F.col(name) if name in seen.columns else F.lit(None).cast(kind).alias(name) for name, kind in LEDGER.items()), "place"
    )


def of_ledgers(known: DataFrame) -> DataFrame:
    """Of `rows`, what the ledgers tell."""
    return known.where(F.col("event") != OBSERVED)


def table(found: DataFrame, number: int, known: DataFrame) -> DataFrame:
    """The contract of the histories: of `rows`, those of the messages with a discrepancy, of which there are at most `number`."""
    return known.join(sent(found.select(*MESSAGE), number), on=list(MESSAGE), how="left_semi").select(*LEDGER, "place")
