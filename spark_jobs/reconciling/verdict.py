"""What an audit means: a few numbers, a word and an exit code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ...core.durations import LATEST_INSTANT
from ...core.ledger import CLOSING
from ..buckets import BUCKET
from ..question import MARKED_MS
from .findings import FINDINGS
from .summary import QUANTILES
from .tallies import tallies, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from ..completeness.gaps import Gap, Seen
    from ..completeness.reach import Reach
    from .audit import Audit

Word = Literal["clean", "discrepancies", "cannot_say"]
EXIT_CODES: dict[Word, int] = {"clean": 0, "discrepancies": 1, "cannot_say": 2}
WORST = 10
"""How many discrepancies of each finding stand in the report itself; the table has all of them."""
SHOWN = 5
"""How many hours a sentence names, and how many sentences say when nobody listened."""

_ALLOWANCE = re.compile(r"(?P<finding>[a-z_]+)=(?P<number>\d+(\.\d+)?)(?P<percent>%?)")


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much of a finding is tolerated: so many, or so many percent of what was scheduled. Exact: 57 of 10,000 are not more than 0.57%."""

    number: Decimal
    percent: bool = False

    def covers(self, found: int, scheduled: int) -> bool:
        """Whether so many are within it."""
        return found * 100 <= self.number * scheduled if self.percent else found <= self.number

    def __str__(self) -> str:
        return f"{self.number:g}{'%' if self.percent else ''}"


NOTHING = Allowance(Decimal(0))


def allowance(text: str) -> tuple[str, Allowance]:
    """`late=10` or `late=0.1%`. Raises ValueError."""
    read = _ALLOWANCE.fullmatch(text)
    if read is None or read["finding"] not in FINDINGS:
        raise ValueError(f"write it as FINDING=NUMBER or FINDING=NUMBER%; findings are: {', '.join(FINDINGS)}")
    return read["finding"], Allowance(Decimal(read["number"]), bool(read["percent"]))


def report(audit: Audit, allowed: Mapping[str, Allowance]) -> dict[str, Any]:
    """Everything that people and machines are told, but for the tables: plain values, ready for JSON."""
    question = audit.question
    counted = tallies(audit.summary)
    totals = {name: 0 if value is None and name != "observed" else value for name, value in counted.totals.items()}  # where nothing was due
    findings = {
        name: {"count": totals[name], "allowed": str(allowed.get(name, NOTHING)), "meaning": meaning} for name, meaning in FINDINGS.items()
    }
    beyond = [name for name in FINDINGS if not allowed.get(name, NOTHING).covers(totals[name], totals["scheduled"])]
    malformed = {row["input"]: row["count"] for row in audit.malformed.groupBy("input").count().collect()}
    reasons = _why_not(audit, malformed, totals)
    word: Word = "discrepancies" if beyond else "cannot_say" if reasons else "clean"
    return {
        "verdict": word,
        "exit_code": EXIT_CODES[word],
        "beyond_tolerance": beyond,
        "cannot_say": reasons,
        "window": {"since": instant(question.since), "until": instant(question.until)},
        "as_of": instant(question.as_of),
        "complete_until": instant(audit.complete.until),
        "sla_ms": question.sla,
        "skew_ms": question.skew,
        "grace_ms": question.grace,
        "totals": totals,
        "findings": findings,
        "lateness": _lateness(audit),
        "malformed": malformed,
        "observed_unrelated": audit.unrelated,
        "watched": [{"destination_broker": broker, "destination": address} for broker, address in sorted(audit.watched)],
        "bridges": [
            {
                "bridge": one.bridge,
                "rows": one.rows,
                "first": one.first,
                "last": one.last,
                "hole": one.hole,
                "begins": None if one.begins_ms < 0 else instant(one.begins_ms),
                "reaches": instant(one.reaches_ms),
            }
            for one in audit.bridges
        ],
        "observers": [
            {"observer": one.observer, "destination_broker": one.broker, "destination": one.address, "reaches": instant(one.at_ms)}
            for one in audit.observers
        ],
        "counted": {"destinations": counted.number, "observed": counted.observed},
        "destinations": counted.rows,
        "hours": counted.hours,
        "worst": _worst(audit.discrepancies) if any(totals[name] for name in FINDINGS) else [],
    }


def all_ended(totals: Mapping[str, Any]) -> str:
    """What a clean audit says in one sentence: how everything ended, and what was found and is tolerated."""
    tolerated = ", ".join(f"{totals[name]:,} {name.replace('_', ' ')}" for name in FINDINGS if totals[name])
    if not totals["scheduled"]:
        return f"Nothing was scheduled, and what was found is tolerated: {tolerated}." if tolerated else "Nothing was due."
    timely = "" if totals["early"] or totals["late"] else " on time"
    ends = [f"{totals['delivered']:,} delivered{timely}"] if totals["delivered"] else []
    ends += [f"{totals[name]:,} {name.replace('_', '-')}" for name in CLOSING if name != "delivered" and totals[name]]
    but = f"; but for what is tolerated: {tolerated}" if tolerated else ""
    return f"All {totals['scheduled']:,} scheduled messages ended once{': ' if ends else ''}{', '.join(ends)}{but}."


def undecided(totals: Mapping[str, Any]) -> str:
    """What an audit that cannot say says in one sentence."""
    wrong = "Nothing is wrong beyond what is tolerated" if any(totals[name] for name in FINDINGS) else "Nothing is wrong"
    return f"{wrong} as far as can be seen, but a part of the window cannot be judged yet."


def coverage(told: Mapping[str, Any]) -> str:
    """What the ledgers were compared with, in one sentence: of a clean audit without observations there is only the bridges' own word."""
    if not told["watched"]:
        return "By the ledgers alone: nobody observed what arrived."
    number, seen = told["counted"]["destinations"], told["counted"]["observed"]
    return f"Compared with what arrived at {seen:,} of {number:,} destination{'' if number == 1 else 's'}."


def _why_not(audit: Audit, malformed: Mapping[str, int], totals: Mapping[str, Any]) -> list[str]:
    """Why nothing certain can be said of a part of the window; empty where everything can."""
    since, until = audit.question.since, audit.question.until
    reasons = [f"malformed rows of the {name} input, set aside in the table `malformed`: {count}" for name, count in malformed.items()]
    if audit.complete.spoilt is None:
        reasons.append("no hour can be judged: when a malformed row is due is not known")
    elif audit.complete.spoilt:
        hours = ", ".join(map(instant, sorted(audit.complete.spoilt)[:SHOWN]))
        reasons.append(f"hours in which malformed rows are due cannot be judged, {len(audit.complete.spoilt)}: {hours}")
    reasons += [_cut(one) for one in audit.bridges if one.begins_ms > since]
    reasons += [_unseen(one) for one in audit.gaps[-SHOWN:]]
    if audit.unjudged:
        reasons.append(f"{audit.unjudged} ended that were taken in before their ledgers begin: whether they were scheduled is not known")
    if audit.undecided:
        reasons.append(_undecided(audit))
    if not audit.bridges:
        reasons.append("the ledgers hold no row")
    elif audit.complete.until < until:
        complete = "nowhere" if audit.complete.until < 0 else f"up to {instant(audit.complete.until)} only"
        reasons.append(f"the inputs are complete {complete}, the window ends at {instant(until)}")
        as_of, enough = audit.question.as_of, until + audit.question.sla + audit.question.grace
        marked = min(enough, as_of - MARKED_MS)
        reasons += [_short(one) for one in audit.bridges if one.hole or one.reaches_ms < marked]
        reasons += [_behind(one) for one in audit.observers if one.at_ms < marked]
        if as_of < enough + MARKED_MS:
            told = f"bridges and observers that run have told of the whole window by {instant(enough + MARKED_MS)}"
            reasons.append(f"{instant(as_of)} (--as-of, by default now) is too early: {told}")
    if totals["residue"] and not any(totals[name] for name in ("never_scheduled", "duplicated")):
        reasons.append(f"the equation has a residue of {totals['residue']}")
    return reasons


def _undecided(audit: Audit) -> str:
    happened = instant(audit.complete.happened(audit.question))
    unheard = ", or delivered while nobody listened" if audit.complete.gaps else ""
    what = f"{audit.undecided} were taken in, ended or seen after {happened}{unheard}"
    return f"{what}: not every input tells of that, so that they cannot be compared yet"


def _short(one: Reach) -> str:
    ledger = f"the ledger of bridge {one.bridge!r}"
    if not one.rows:
        return f"{ledger} has no row left of {one.last} by its mark: were its files not copied, or lost? If all of them were removed: --ended {one.bridge}"
    if one.hole is not None:
        return f"{ledger} lacks rows, number {one.hole} first: is a file on its way, or lost?"
    return f"{ledger} reaches to {instant(one.reaches_ms)}: is the bridge running? If it has ended: --ended {one.bridge}"


def _cut(one: Reach) -> str:
    return (
        f"the ledger of bridge {one.bridge!r} lacks its beginning, it has number {one.first} and later ones:"
        f" what was due before {instant(one.begins_ms)} cannot be judged"
    )


def _behind(one: Seen) -> str:
    if one.observer is None:
        return (
            f"topic {one.address} of {one.broker} is read up to {instant(one.at_ms)} only, a transaction is open there:"
            " what arrived since can be judged when that has ended"
        )
    far = f"has seen what arrived up to {instant(one.at_ms)}" if one.at_ms > 0 else "has been behind since it began"
    return (
        f"observer {one.observer!r} of {one.broker} {one.address} {far}:"
        f" is it running, and not behind? If it has ended: --ended {one.observer}"
    )


def _unseen(gap: Gap) -> str:
    if gap.observer is None:
        return (
            f"topic {gap.address} of {gap.broker} holds what arrived since {instant(gap.until_ms)} only, its retention has removed older records:"
            " what was due before that cannot be judged"
        )
    began = f"observer {gap.observer!r} of {gap.broker} {gap.address} began to listen at {instant(gap.until_ms)}"
    if gap.before is None:
        return f"{began}, and nobody before it: what was due before that cannot be judged"
    before = f"{gap.before!r} before it reaches to {instant(gap.since_ms)}"
    return f"{began}, and {before}: what was due in between cannot be judged. If nothing arrived then: --ended {gap.before}"


def _lateness(audit: Audit) -> dict[str, Any]:
    """Percentiles over everything, and how many deliveries had which lateness, rounded as `counts.rounded` does, and which timing."""
    by = ("lateness", "timing")
    delivered = audit.counts.where("event = 'delivered'")
    rows = delivered.groupBy(*by).agg(F.sum("n").alias("n"), F.max("worst_ms").alias("worst_ms")).collect()
    values = [(row["lateness"], row["n"], row["timing"]) for row in sorted(rows, key=itemgetter(*by))]
    quantiles = {name: _quantile(values, share) for name, share in QUANTILES.items()}
    return {**quantiles, "max_ms": max((row["worst_ms"] for row in rows), default=None), "values": values}


def _quantile(values: list[tuple[int, int, str]], share: float) -> int | None:
    """The lowest lateness that so many do not exceed; `values` are sorted."""
    total = sum(number for _, number, _ in values)
    passed = 0
    for lateness, number, _ in values:
        passed += number
        if passed >= share * total:
            return lateness
    return None


def _worst(discrepancies: DataFrame) -> list[dict[str, Any]]:
    """Some of each finding, the latest first; always the same ones in the same order, for rows that are equal in that order are shown alike."""
    order = ("due_time", "id", "occurrence", *(name for name in BUCKET if name != "due_hour"), "at", "bridge", "detail")
    rank = F.row_number().over(Window.partitionBy("finding").orderBy(F.abs("lateness_ms").desc_nulls_last(), *order))
    rows = discrepancies.withColumn("rank", rank).where(F.col("rank") <= WORST).collect()
    ranked = sorted(rows, key=itemgetter("finding", "rank"))
    return [{name: told(value) for name, value in row.asDict().items() if name != "rank"} for row in ranked]


def instant(epoch_ms: int) -> str:
    """Epoch milliseconds for people: UTC."""
    if epoch_ms > LATEST_INSTANT:
        return "the end"
    if epoch_ms < 0:
        return "nowhere"
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(".000Z", "Z")
