"""What is wrong, what was wrong, and the lines that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from .occurrences import OCCURRENCE, OPEN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import Column, DataFrame

KINDS = {
    "not_delivered": "due, the SLA has passed, and the ledgers, which all reach beyond that, have no end of it",
    "late": "delivered later than the SLA allows, and not told before",
    "not_observed": "delivered by the ledger, and not seen at its destination",
    "bridge_silent": "its ledger reaches no further",
    "topic_stuck": "a transaction is open in it, and nothing behind that can be seen",
    "malformed": "rows that cannot be judged were set aside",
}
"""Kind and meaning. `late` and `malformed` are told once and never resolved."""

SEEN = "seen_since"
"""In the table of open alerts, and no alert: told as not delivered, then seen, so that it is over, and its ledger has not told yet that it was delivered."""

ALERTS = {"kind": "string"} | {name: OPEN[name] for name in ("bridge", *OCCURRENCE)}
NEWS = {"event": "string", **ALERTS, "lateness_ms": "bigint", "overdue": "bigint", "reaches_ms": "bigint", "detail": "string"}
LINES = {"number": "bigint", "event": "string", "line": "string"}
MILLIS = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def news(frame: DataFrame, event: str, kind: str) -> DataFrame:
    """The contract of what is to be told; columns that a frame does not have become null."""
    told = frame.withColumn("event", F.lit(event)).withColumn("kind", F.lit(kind))
    return told.select(*((F.col(name) if name in told.columns else F.lit(None)).cast(of).alias(name) for name, of in NEWS.items()))


def overdue(pending: DataFrame, alerts: DataFrame, until: int) -> DataFrame:
    """`pending` (see `occurrences.unended`) of which nobody was told and that is due by an instant."""
    due = pending.where(F.col("due_ms") <= until)
    return news(due.join(of_kind(alerts, "not_delivered"), on=list(OCCURRENCE), how="left_anti"), "alert", "not_delivered")


def unseen(unlike: DataFrame, alerts: DataFrame, until: int, reaches: Iterable[tuple[str, str, int]] = ()) -> DataFrame:
    """What was delivered up to an instant, was not seen, and nobody was told. `reaches` has topics (broker, address) that were read up to another instant."""
    lacking = unlike.where("delivered > seen").where(F.col("latest_ms") <= until)
    for broker, address, at_ms in reaches:
        lacking = lacking.where((F.col("destination_broker") != broker) | (F.col("destination") != address) | (F.col("latest_ms") <= at_ms))
    return news(lacking.join(of_kind(alerts, "not_observed"), on=list(OCCURRENCE), how="left_anti"), "alert", "not_observed")


def judged(unlike: DataFrame, alerts: DataFrame, begins: Collection[tuple[str, str, int]]) -> DataFrame:
    """`unlike` less what was delivered to a topic (broker, address) before that begins: it may have arrived. What was told already stays until it is seen."""
    if not begins:
        return unlike
    lost = F.lit(False)
    for broker, address, at_ms in begins:
        lost |= (F.col("destination_broker") == broker) & (F.col("destination") == address) & (F.col("latest_ms") < at_ms)
    unknown = unlike.where(lost & (F.col("delivered") > F.col("seen")))
    told = unknown.join(of_kind(alerts, "not_observed"), on=list(OCCURRENCE), how="left_semi")
    return unlike.where(~lost | (F.col("delivered") <= F.col("seen"))).unionByName(told.select(*unlike.columns))


def late(rows: DataFrame, alerts: DataFrame, sla: int) -> DataFrame:
    """Deliveries beyond the SLA of which nobody was told that they are missing."""
    tardy = rows.where((F.col("event") == "delivered") & (F.col("lateness_ms") > sla))
    told = of_kind(alerts, "not_delivered").unionByName(of_kind(alerts, SEEN))
    return news(tardy.join(told, on=list(OCCURRENCE), how="left_anti"), "alert", "late")


def resolved(alerts: DataFrame, pending: DataFrame, unlike: DataFrame, rows: DataFrame) -> DataFrame:
    """Alerts whose cause has gone, with what the new rows tell of its end."""
    closing = rows.where("input = 'ledger' and event <> 'scheduled'").groupBy(*OCCURRENCE)
    latest = F.struct("event_ms", "bridge", "sequence")
    ends = closing.agg(F.max_by("event", latest).alias("detail"), F.max("lateness_ms").alias("lateness_ms"))
    ended = told_of(alerts, "not_delivered").join(pending.select(*OCCURRENCE), on=list(OCCURRENCE), how="left_anti")
    told = ended.join(ends, on=list(OCCURRENCE), how="left").withColumn("detail", F.coalesce("detail", F.lit("observed")))
    lacking = unlike.where("delivered > seen").select(*OCCURRENCE)
    found = told_of(alerts, "not_observed").join(lacking, on=list(OCCURRENCE), how="left_anti")
    return news(told, "resolved", "not_delivered").unionByName(news(found, "resolved", "not_observed"))


def carried_on(alerts: DataFrame, told: DataFrame, open_ones: DataFrame) -> DataFrame:
    """The contract of the open alerts: the earlier ones, and what is told now; and what was `SEEN`, as long as the ledgers leave it open."""
    lasting = told.where("event = 'alert' and kind in ('not_delivered', 'not_observed')").select(*ALERTS)
    over = told.where("event = 'resolved'")
    seen = over.where("kind = 'not_delivered'").withColumn("kind", F.lit(SEEN)).select(*ALERTS)
    left = alerts.join(over.select("kind", *OCCURRENCE), on=["kind", *OCCURRENCE], how="left_anti")
    every = left.unionByName(lasting).unionByName(seen)
    unended = every.where(F.col("kind") == SEEN).join(open_ones.select(*OCCURRENCE), on=list(OCCURRENCE), how="left_semi")
    return every.where(F.col("kind") != SEEN).unionByName(unended.select(*ALERTS)).select(*ALERTS)


def told_of(alerts: DataFrame, kind: str) -> DataFrame:
    """The occurrences that open alerts of a kind name, each with its bridge."""
    return alerts.where(F.col("kind") == kind).select("bridge", *OCCURRENCE)


def of_kind(alerts: DataFrame, kind: str) -> DataFrame:
    """The same without their bridges, to be compared."""
    return told_of(alerts, kind).drop("bridge")


def lines(told: DataFrame, now: int, watch: str, after: int) -> DataFrame:
    """The contract of what goes out: lines of JSON, numbered from `after` on, earliest due first. Nulls are left out, and so is a `watch` without a name."""
    order = Window.orderBy(F.col("due_ms").asc_nulls_first(), "kind", "event", *OCCURRENCE, "bridge")
    number = (F.row_number().over(order) + F.lit(after)).cast("bigint")
    numbered = told.withColumn("number", number)
    line = F.struct(
        "number",
        F.lit(watch or None).alias("watch"),
        "event",
        "kind",
        _instant(F.lit(now)).alias("at"),
        "bridge",
        "destination_broker",
        "destination",
        "id",
        "occurrence",
        _instant(F.col("due_ms")).alias("due_time"),
        "lateness_ms",
        "overdue",
        _instant(F.col("reaches_ms")).alias("reaches"),
        "detail",
    )
    return numbered.select("number", "event", F.to_json(line).alias("line"))


def _instant(epoch_ms: Column) -> Column:
    return F.date_format(F.timestamp_millis(epoch_ms), MILLIS)
