"""What is wrong, what was wrong, and the lines that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from .occurrences import OCCURRENCE, OPEN, SIGHTING, due_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

KINDS = {
    "not_delivered": "due, the SLA has passed, and its bridge's ledger, which reaches beyond that, has no end of it",
    "late": "delivered later than the SLA allows, and not told before",
    "not_observed": "delivered by the ledger, and not seen at its destination",
    "bridge_silent": "its ledger reaches no further",
    "malformed": "rows that cannot be judged were set aside",
}
"""Kind and meaning. `late` and `malformed` are told once and never resolved."""

ALERTS = {"kind": "string"} | {name: OPEN[name] for name in OCCURRENCE}
NEWS = {"event": "string", **ALERTS, "lateness_ms": "bigint", "overdue": "bigint", "reaches_ms": "bigint", "detail": "string"}
LINES = {"number": "bigint", "event": "string", "line": "string"}
MILLIS = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def news(frame: DataFrame, event: str, kind: str) -> DataFrame:
    """The contract of what is to be told; what a frame does not have becomes null."""
    told = frame.withColumn("event", F.lit(event)).withColumn("kind", F.lit(kind))
    return told.select(*((F.col(name) if name in told.columns else F.lit(None)).cast(of).alias(name) for name, of in NEWS.items()))


def overdue(pending: DataFrame, alerts: DataFrame, horizons: Mapping[str, int]) -> DataFrame:
    """`pending` (see `occurrences.unended`) of which nobody was told and that is due by its bridge's horizon."""
    due = pending.where(due_by(horizons))
    return news(due.join(of_kind(alerts, "not_delivered"), on=list(OCCURRENCE), how="left_anti"), "alert", "not_delivered")


def unseen(unlike: DataFrame, alerts: DataFrame, until: int) -> DataFrame:
    """What was delivered up to an instant, was not seen, and nobody was told."""
    lacking = unlike.where("delivered > seen").where(F.col("latest_ms") <= until)
    return news(lacking.join(of_kind(alerts, "not_observed").drop("bridge"), on=list(SIGHTING), how="left_anti"), "alert", "not_observed")


def late(rows: DataFrame, alerts: DataFrame, sla: int) -> DataFrame:
    """Deliveries beyond the SLA of which nobody was told that they are missing."""
    tardy = rows.where((F.col("event") == "delivered") & (F.col("lateness_ms") > sla))
    return news(tardy.join(of_kind(alerts, "not_delivered"), on=list(OCCURRENCE), how="left_anti"), "alert", "late")


def resolved(alerts: DataFrame, pending: DataFrame, unlike: DataFrame, rows: DataFrame) -> DataFrame:
    """Alerts whose cause has gone, with what the new rows tell of its end."""
    closing = rows.where("input = 'ledger' and event <> 'scheduled'").groupBy(*OCCURRENCE)
    ends = closing.agg(F.max_by("event", "sequence").alias("detail"), F.max("lateness_ms").alias("lateness_ms"))
    ended = of_kind(alerts, "not_delivered").join(pending.select(*OCCURRENCE), on=list(OCCURRENCE), how="left_anti")
    told = ended.join(ends, on=list(OCCURRENCE), how="left").withColumn("detail", F.coalesce("detail", F.lit("observed")))
    lacking = unlike.where("delivered > seen").select(*SIGHTING)
    found = of_kind(alerts, "not_observed").join(lacking, on=list(SIGHTING), how="left_anti")
    return news(told, "resolved", "not_delivered").unionByName(news(found, "resolved", "not_observed"))


def carried_on(alerts: DataFrame, told: DataFrame) -> DataFrame:
    """The contract of the open alerts: those before, and what is told now."""
    lasting = told.where("event = 'alert' and kind in ('not_delivered', 'not_observed')").select(*ALERTS)
    over = told.where("event = 'resolved'").select("kind", *SIGHTING)
    return alerts.join(over, on=["kind", *SIGHTING], how="left_anti").unionByName(lasting).select(*ALERTS)


def of_kind(alerts: DataFrame, kind: str) -> DataFrame:
    """The occurrences that open alerts of a kind name."""
    return alerts.where(F.col("kind") == kind).select(*OCCURRENCE)


def lines(told: DataFrame, now: int, after: int) -> DataFrame:
    """The contract of what goes out: lines of JSON, numbered from `after` on, earliest due first. Nulls are left out."""
    order = Window.orderBy(F.col("due_ms").asc_nulls_first(), "kind", "event", *OCCURRENCE)
    number = (F.row_number().over(order) + F.lit(after)).cast("bigint")
    numbered = told.withColumn("number", number)
    line = F.struct(
        "number",
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
