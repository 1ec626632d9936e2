"""Compares the ledgers with what really arrived: every delivery must be seen once, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..buckets import ARRIVAL, KIND, OCCURRENCE, OCCURRENCE_AT, level
from ..frames import sent
from ..reading.uniqueness import once
from .findings import names, table
from .fingerprints import SUMS, suspects, with_sign
from .histories import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from ..completeness.rule import Complete
    from ..question import Question

UNDECIDED = "undecided"
"""No finding: a difference that later events may explain, see `completeness.rule`."""


def at(places: Iterable[tuple[str, str]]) -> Column:
    """Whether a row belongs to one of these destinations (broker, address). One set: thousands of comparisons in a row are too deep for Spark."""
    return F.concat("destination_broker", F.lit("\0"), "destination").isin([f"{broker}\0{address}" for broker, address in places])


def signed(occurrences: DataFrame, arrivals: DataFrame) -> DataFrame:
    """Deliveries and arrivals with a sign: they add up to zero where they are the same."""
    common = [*ARRIVAL, *OCCURRENCE, "due_ms", "event_ms"]
    delivered = occurrences.where("event = 'delivered'").select(*common, "bridge", *KIND)
    seen = arrivals.select(*common, *(F.lit(None).cast("string").alias(name) for name in ("bridge", *KIND)))
    both = with_sign(delivered, 1, *OCCURRENCE).unionByName(with_sign(seen, -1, *OCCURRENCE))
    return both.select(*common, "bridge", *KIND, *SUMS, "part")


def differences(both: DataFrame, parts: DataFrame, buckets: int, complete: Complete, question: Question) -> DataFrame:
    """The occurrences of `signed`, in these parts of so many buckets, that were not seen as often as they were delivered: one row for each, at its destination.

    Only of hours that can be judged. `undecided`: how much of the difference cannot be judged yet, because so many deliveries or arrivals are too young, or
    were made while nobody listened.
    """
    is_delivery = F.col("rows") > 0
    lacking = F.col("delivered") - F.col("observed")
    by_occurrence = suspects(both, parts, buckets, ARRIVAL).groupBy(*ARRIVAL, *OCCURRENCE).agg(
        F.count_if(is_delivery).alias("delivered"),
        F.count_if(~is_delivery).alias("observed"),
        F.max("due_ms").alias("due_ms"),
        F.max("event_ms").alias("event_ms"),
        F.count_if(is_delivery & (complete.doubtful(question) | complete.unheard(question))).alias("unsure"),
        F.count_if(~is_delivery & complete.doubtful(question)).alias("unsurely_seen"),
        names("bridge").alias("bridge"),
        *(F.max(name).alias(name) for name in KIND),
    )  # fmt: skip
    undecided = F.when(lacking > 0, F.least(lacking, "unsure")).otherwise(F.least(-lacking, "unsurely_seen"))
    differing = by_occurrence.where("delivered <> observed").where(complete.hour(question)).withColumn("undecided", undecided)
    return differing.select(*ARRIVAL, *OCCURRENCE, "due_ms", "event_ms", "delivered", "observed", "undecided", "bridge", *KIND)


def known(ledger: DataFrame) -> DataFrame:
    """What the ledgers tell of each occurrence at its destination, in one row."""
    is_opening = F.col("event") == "scheduled"
    wait = F.unix_millis("due_time") - F.unix_millis("taken_time")
    told = ledger.groupBy(*OCCURRENCE_AT).agg(
        F.count_if(is_opening).alias("scheduled"),
        F.count_if(~is_opening).alias("closed"),
        F.max_by("event", F.struct("event_time", "bridge", "sequence")).alias("last_event"),
        names("bridge").alias("ledger_bridge"),
        F.max("kind").alias("ledger_kind"),
        F.max("dialect").alias("ledger_dialect"),
        F.max(level(wait)).alias("ledger_level"),
    )
    return told.select(*OCCURRENCE_AT, "scheduled", "closed", "last_event", "ledger_bridge", *(f"ledger_{name}" for name in KIND))


def dead(ledger: DataFrame) -> DataFrame:
    """Where each occurrence went that was dead-lettered, by the ledgers, in one row. A dead letter bears a due time of its own."""
    told = ledger.groupBy(*MESSAGE).agg(
        F.count_if(F.col("event") == "dead_lettered").alias("dead_lettered"), F.collect_set("destination").alias("ledger_destinations")
    )
    return told.where("dead_lettered > 0").select(*MESSAGE, "ledger_destinations")


def discrepancies(differing: DataFrame, ledger: DataFrame, number: int) -> DataFrame:
    """The findings that follow from the differences and the ledgers' rows. A dead letter that arrives where dead letters go is as it should be.

    The rows are of at most `number` messages. What they tell of an occurrence (see `known`) stands once: a second row would double what is found, and raises.
    """
    as_it_should = F.coalesce((F.col("delivered") == 0) & ~F.array_contains("ledger_destinations", F.col("destination")), F.lit(False))
    detail = F.format_string("seen %d times, delivered %d times by the ledger", "observed", "delivered")
    told = once(known(ledger), OCCURRENCE_AT, "what the ledgers tell of an occurrence")
    letters = once(dead(ledger), MESSAGE, "what the ledgers tell of a dead letter")
    compared = differing.join(sent(told, number), on=list(OCCURRENCE_AT), how="left")
    unlike = compared.join(sent(letters, number), on=list(MESSAGE), how="left").where(~as_it_should)
    named = unlike.withColumn("part", F.explode(_parts())).withColumns(
        {
            "finding": F.col("part.finding"),
            "surplus": F.col("part.surplus"),
            "count": F.abs("part.surplus"),
            "bridge": F.coalesce(F.when(F.col("part.finding").isin("not_observed", "duplicated"), F.col("bridge")), "ledger_bridge"),
            "detail": F.concat(
                detail, F.coalesce(F.when(F.col("delivered") == 0, F.concat(F.lit("; last there: "), "last_event")), F.lit(""))
            ),
            **{name: F.coalesce(name, f"ledger_{name}", F.lit("")) for name in KIND},
        }
    )
    return table(named)


def _parts() -> Column:
    """The findings of which the difference at one occurrence is made, and the surplus of each.

    Of what was seen and not delivered, as much as is still pending is unrecorded. The rest is more than should have come.
    """
    scheduled, surplus, nothing = F.col("scheduled"), F.col("observed") - F.col("delivered"), F.lit(0)
    undecided = F.signum(surplus).cast("bigint") * F.col("undecided")
    certain = surplus - undecided
    too_many = F.greatest(certain, nothing)
    unrecorded = F.least(too_many, F.greatest(F.coalesce(scheduled - F.col("closed"), nothing), nothing))
    rest = (
        F.when(scheduled.isNull(), "never_scheduled")
        .when((F.col("delivered") > 0) & (F.col("delivered") + certain > scheduled), "duplicated")
        .otherwise("unwanted")
    )
    parts = (
        _part(F.lit(UNDECIDED), undecided),
        _part(F.lit("not_observed"), F.least(certain, nothing)),
        _part(F.lit("unrecorded"), unrecorded),
        _part(rest, too_many - unrecorded),
    )
    return F.filter(F.array(*parts), lambda part: part["surplus"] != 0)


def _part(finding: Column, surplus: Column) -> Column:
    return F.struct(finding.alias("finding"), surplus.cast("bigint").alias("surplus"))


def untimely(arrivals: DataFrame, question: Question) -> DataFrame:
    """Arrivals before their time and beyond the SLA by the observer's clock."""
    lateness = F.col("lateness_ms")
    wrong = arrivals.where((lateness < -question.skew) | (lateness > question.sla + question.skew))
    return wrong.select(*ARRIVAL, *OCCURRENCE, "due_ms", "event_ms", "lateness_ms")


def untimely_discrepancies(wrong: DataFrame, occurrences: DataFrame, told: DataFrame, number: int) -> DataFrame:
    """The findings for `untimely` arrivals, with what the ledgers' `occurrences` tell of them, less those that the ledgers tell already (`told`).

    Each has at most `number` rows.
    """
    lateness = F.col("lateness_ms")
    asked = sent(wrong.select(*OCCURRENCE_AT), number)
    told_of = occurrences.join(asked, on=list(OCCURRENCE_AT), how="left_semi")
    kinds = told_of.groupBy(*OCCURRENCE_AT).agg(*(F.max(name).alias(name) for name in KIND))
    # `kinds` holds each place once, by its groupBy: no arrival is doubled.
    named = wrong.join(sent(kinds, number), on=list(OCCURRENCE_AT), how="left").withColumns(
        {
            "finding": F.when(lateness < 0, "early").otherwise("late"),
            "count": F.lit(1),
            "detail": F.lit("by who observed it"),
            **{name: F.coalesce(name, F.lit("")) for name in KIND},
        }
    )
    key = ["finding", *OCCURRENCE_AT]
    return table(named).join(sent(told.select(*key), number), on=key, how="left_anti")


def not_seen_either(settled: DataFrame, seen: DataFrame, number: int) -> DataFrame:
    """The ledgers' findings, but what is missing there and was seen all the same is not missing: it is unrecorded, or will soon be recorded.

    `seen` has at most `number` rows.
    """
    # each occurrence once, by the groupBy: none of `settled` is doubled
    came = seen.where(F.col("finding").isin("unrecorded", UNDECIDED)).where("surplus > 0")
    arrived = came.groupBy(*OCCURRENCE_AT).agg(F.sum("count").alias("seen"))
    missing = settled.where("finding = 'missing'").join(sent(arrived, number), on=list(OCCURRENCE_AT), how="left")
    # one occurrence may be missing in several buckets: what was seen is taken off once
    earlier = Window.partitionBy(*OCCURRENCE_AT).orderBy(*KIND).rowsBetween(Window.unboundedPreceding, -1)
    taken_off = F.greatest(F.coalesce("seen", F.lit(0)) - F.coalesce(F.sum("count").over(earlier), F.lit(0)), F.lit(0))
    left = missing.withColumn("count", F.col("count") - taken_off).where("count > 0")
    return settled.where("finding <> 'missing'").unionByName(left.drop("seen")).select(*settled.columns)
