"""What has not ended yet, as tables that every batch carries on. What is settled leaves them, so they hold no more than what is pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ...core.ledger import EVENTS
from ..reconciling.sightings import at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

PLACE = ("destination_broker", "destination")
OCCURRENCE = (*PLACE, "id", "occurrence", "due_ms")
"""What names one due message, as in `counts`: without the bridge, for one may take it in, another one deliver it; with the due time, for a message that
is rescheduled is replaced by itself."""

OPEN = {
    "bridge": "string",
    "destination_broker": "string",
    "destination": "string",
    "id": "string",
    "occurrence": "bigint",
    "due_ms": "bigint",
}
OPEN |= {"scheduled": "bigint", "closed": "bigint"}
UNLIKE = {name: OPEN[name] for name in ("bridge", *OCCURRENCE)} | {"delivered": "bigint", "seen": "bigint", "latest_ms": "bigint"}
COUNTED = (*EVENTS, "observed", "closed_early")


def still_open(before: DataFrame, rows: DataFrame) -> DataFrame:
    """The contract of `open`: occurrences that the ledgers scheduled and ended differently often; `rows` are the new ones of the stream.

    `bridge` is the one that took it in, where that is known, else the one that ended it.
    """
    opens = F.col("event") == "scheduled"
    ledger = rows.where("input = 'ledger'")
    signed = ledger.select("bridge", *OCCURRENCE, opens.cast("bigint").alias("scheduled"), (~opens).cast("bigint").alias("closed"))
    added = before.unionByName(signed).groupBy(*OCCURRENCE).agg(
        F.coalesce(F.max(F.when(F.col("scheduled") > 0, F.col("bridge"))), F.max("bridge")).alias("bridge"),
        F.sum("scheduled").alias("scheduled"),
        F.sum("closed").alias("closed"),
    )  # fmt: skip
    return added.where("scheduled <> closed").select(*OPEN)


def still_unlike(before: DataFrame, rows: DataFrame, watched: Iterable[tuple[str, str]]) -> DataFrame:
    """The contract of `unlike`: occurrences that were delivered and seen differently often, at the destinations that are watched."""
    is_seen = F.col("input") == "observed"
    either = rows.where(at(watched)).where(is_seen | (F.col("event") == "delivered"))
    signed = either.select(
        "bridge",
        *OCCURRENCE,
        (~is_seen).cast("bigint").alias("delivered"),
        is_seen.cast("bigint").alias("seen"),
        F.col("event_ms").alias("latest_ms"),
    )
    added = before.unionByName(signed).groupBy(*OCCURRENCE).agg(
        F.max("bridge").alias("bridge"),
        F.sum("delivered").alias("delivered"),
        F.sum("seen").alias("seen"),
        F.max("latest_ms").alias("latest_ms"),
    )  # fmt: skip
    return added.where("delivered <> seen").select(*UNLIKE)


def unended(open_ones: DataFrame, unlike: DataFrame) -> DataFrame:
    """What is pending: by the ledgers, and not seen at its destination either."""
    seen = unlike.where("seen > delivered").select(*OCCURRENCE)
    return open_ones.where("scheduled > closed").join(seen, on=list(OCCURRENCE), how="left_anti").select(*OPEN)


def without_strangers(unlike: DataFrame, open_ones: DataFrame, read_until: int) -> DataFrame:
    """`unlike` less what was seen so long ago that every ledger would tell of it by now. `reconcile` judges that."""
    stranger = (F.col("seen") > F.col("delivered")) & (F.col("latest_ms") < read_until)
    known = open_ones.select(*OCCURRENCE)
    mine = unlike.where(stranger).join(known, on=list(OCCURRENCE), how="left_semi")
    return unlike.where(~stranger).unionByName(mine).select(*UNLIKE)


def counted(rows: DataFrame) -> DataFrame:
    """How often what happened, by destination. `closed_early`: ended before its time, which therefore never comes."""
    early = (F.col("event") != "scheduled") & (F.col("input") == "ledger") & (F.col("event_ms") < F.col("due_ms"))
    kinds = {name: F.col("event") == name for name in (*EVENTS, "observed")} | {"closed_early": early}
    return rows.groupBy(*PLACE).agg(*(F.count_if(kinds[name]).alias(name) for name in COUNTED)).select(*PLACE, *COUNTED)


def waiting(open_ones: DataFrame, now: int) -> DataFrame:
    """How many are pending by destination, and of how many the time has not come."""
    n = F.col("scheduled") - F.col("closed")
    ahead = F.when(F.col("due_ms") > now, n).otherwise(0)
    pending = open_ones.where("scheduled > closed").groupBy(*PLACE).agg(F.sum(n).alias("pending"), F.sum(ahead).alias("ahead"))
    return pending.select(*PLACE, "pending", "ahead")
