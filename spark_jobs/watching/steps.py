"""The two steps of a round, from the tables that hold to the next ones: a batch is absorbed; the clock is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..completeness import beginnings
from ..frames import keep
from ..question import FOREVER, Question
from ..reading import inputs
from . import alerts, bridges, counting, occurrences, topics
from .bridges import Island

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from ..completeness.reach import Mark, Reach
    from .arguments import Arguments
    from .state import Holds, State
    from .topics import Topics


@dataclass(slots=True)
class Step:
    """What is to be told (`alerts.news`), what holds after that, and the folders of the tables that are written already."""

    news: DataFrame
    holds: Holds
    tables: dict[str, str]


def absorb(state: State, arguments: Arguments, batch: DataFrame, number: int, found: Iterable[Reach], now: int) -> Step:
    """Absorb a batch of the stream at `now`: the tables that follow.

    Sightings that no ledger tells of are given up once all ledgers reach far enough by `found`, their last rows.
    """
    malformed = _set_aside(state, batch, number)
    sound = batch.where("problem is null")
    due = sound.where(f"due_ms >= {arguments.since}")
    tables = state.write({"open": occurrences.still_open(state.table("open"), due)})
    open_ones, unlike = state.read(tables, "open"), state.table("unlike")
    if arguments.watched:
        next_unlike = occurrences.still_unlike(unlike, due, arguments.watched)
        next_unlike = alerts.judged(next_unlike, state.table("alerts"), topics.begins(state.holds.topics, arguments))
        tables |= state.write({"unlike": occurrences.without_strangers(next_unlike, open_ones, _read_until(found, arguments))})
        unlike = state.read(tables, "unlike")
    known = state.table("alerts")
    over = alerts.resolved(known, occurrences.unended(open_ones, unlike), unlike, due)
    news = alerts.late(due, known, arguments.sla).unionByName(over)
    changed = replace(
        _numbers(state.holds, batch, now + arguments.skew),
        batch=number,
        malformed=state.holds.malformed + malformed,
        counts=counting.added(state.holds.counts, occurrences.counted(due)),
    )
    told = (
        [{"event": "alert", "kind": "malformed", "detail": f"rows set aside: {malformed}, see {state.folder.at('malformed')}"}]
        if malformed
        else []
    )
    return Step(_and_also(state, news, told), changed, tables)


def _set_aside(state: State, batch: DataFrame, number: int) -> int:
    """Keep the malformed rows; returns how many."""
    aside = inputs.malformed(batch, "stream")
    count = aside.count()
    if count:
        aside.write.mode("overwrite").parquet(state.folder.at(f"malformed/batch={number}"))
    return count


def _numbers(holds: Holds, batch: DataFrame, latest: int) -> Holds:
    """The numbers of the ledgers' rows that are there, malformed ones included: so what comes after these can be judged.

    Rows that happened later than `latest` were written by a clock that was ahead: of these it is not known when they happened.
    """
    numbered = inputs.numbered(batch, "event_ms").withColumn("event_ms", F.when(F.col("event_ms") <= latest, F.col("event_ms")))
    runs = bridges.islands(numbered).collect()
    islands = bridges.joined(holds.bridges, [(row["bridge"], Island(row["first"], row["last"], row["latest_ms"])) for row in runs])
    times = sorted((row["earliest_ms"], row["bridge"]) for row in runs if row["earliest_ms"] is not None)
    earliest = {bridge: at for at, bridge in reversed(times)}
    question = Question(since=0, until=FOREVER, as_of=FOREVER)  # with the grace of `reconcile`
    begin = bridges.begin(holds.bridges, holds.beginnings, earliest, question.grace)
    cut = {bridge: at for bridge, at in begin.items() if islands[bridge][0].first > 1}
    found = beginnings.begun(numbered, cut, question) if cut else {}
    return replace(holds, bridges=islands, beginnings=bridges.begun(islands, holds.beginnings, found, question.grace))


def reaches(state: State, arguments: Arguments, marks: Mapping[str, Mark], now: int) -> list[Reach]:
    """How far each ledger reaches by the rows that were absorbed; `marks` were read before, at `now`."""
    return bridges.reached(state.holds.bridges, state.holds.beginnings, marks, arguments.ended, now, arguments.skew)


def oldest(found: Iterable[Reach]) -> int:
    """Up to when every ledger was read."""
    return min((reach.reaches_ms for reach in found), default=-1)


def _read_until(found: Iterable[Reach], arguments: Arguments) -> int:
    """The instant before which every sighting is in some ledger by now: clocks of broker and bridge may differ, and a row may come a grace later."""
    return oldest(found) - arguments.skew - arguments.grace


def look(state: State, arguments: Arguments, found: Sequence[Reach], now: int, held: Topics | None = None) -> Step:
    """What is wrong at `now`: all that was there then has been absorbed, of the topics what they `held`."""
    held = state.holds.topics if held is None else held
    known, unlike = state.table("alerts"), state.table("unlike")
    pending = occurrences.unended(state.table("open"), unlike)
    certain = arguments.sla + arguments.grace
    news = alerts.overdue(pending, known, min(oldest(found), now) - certain)
    if arguments.watched:
        judged = alerts.judged(unlike, known, topics.begins(held, arguments))
        news = news.unionByName(alerts.unseen(judged, known, now - certain - arguments.skew, topics.reaches(held, arguments)))
    silent = bridges.silent(found, now, arguments.silent)
    due = pending.where(f"due_ms <= {now - arguments.sla}")
    stuck = topics.stuck(held, arguments, now)
    told = _fallen_silent(state, silent, due) + _heard_again(state, found, silent, now) + _stuck(state, stuck, arguments, now)
    return Step(
        _and_also(state, news, told), replace(state.holds, silent=tuple(sorted(silent)), stuck=tuple(sorted(stuck)), topics=held), {}
    )


def _fallen_silent(state: State, silent: Mapping[str, Reach], due: DataFrame) -> list[dict[str, Any]]:
    fresh = sorted(silent.keys() - set(state.holds.silent))
    overdue = {row["bridge"]: row["count"] for row in due.groupBy("bridge").count().collect()} if fresh else {}
    return [
        {
            "event": "alert",
            "kind": "bridge_silent",
            "bridge": name,
            "overdue": sum(overdue.get(one, 0) for one in (name, *silent[name].former)),
            "reaches_ms": max(0, silent[name].reaches_ms),
            "detail": bridges.why(silent[name]),
        }
        for name in fresh
    ]


def _heard_again(state: State, found: Sequence[Reach], silent: Mapping[str, Reach], now: int) -> list[dict[str, Any]]:
    """Bridges that are silent no more, also under another name."""
    reaches = {one.bridge: one.reaches_ms for one in found}
    return [
        {"event": "resolved", "kind": "bridge_silent", "bridge": name, "reaches_ms": min(reaches.get(name, now), now)}
        for name in sorted(set(state.holds.silent) - silent.keys())
    ]


def _stuck(state: State, stuck: Mapping[str, int], arguments: Arguments, now: int) -> list[dict[str, Any]]:
    """Topics behind an open transaction, told once, and those that are no more."""
    before = set(state.holds.stuck)
    changed = [("alert", place, max(0, stuck[place])) for place in sorted(stuck.keys() - before)]
    changed += [("resolved", place, now) for place in sorted(before - stuck.keys())]
    return [
        {"event": event, "kind": "topic_stuck", "destination_broker": broker, "destination": address, "reaches_ms": reaches}
        for event, place, reaches in changed
        for broker, address in [topics.destination(place, arguments)]
    ]


def _and_also(state: State, news: DataFrame, rows: list[dict[str, Any]]) -> DataFrame:
    return news.unionByName(state.frame(rows, alerts.NEWS)) if rows else news


def take(state: State, step: Step, now: int) -> bool:
    """Write the lines and the open alerts beside the step's other tables; from then on all of it holds. Returns whether there is anything to tell."""
    news = keep(step.news)
    count = news.count()
    if not count and step.holds == state.holds:
        return False
    tables = {**state.holds.tables, **step.tables}
    if count:
        tables |= state.write({"lines": alerts.lines(news, now, state.holds.watch, state.holds.number)})
        left = keep(alerts.carried_on(state.table("alerts"), news, state.read(tables, "open")))
        tables.pop("alerts", None)
        if not left.isEmpty():
            tables |= state.write({"alerts": left})
    state.hold(replace(step.holds, step=state.holds.step + 1, number=state.holds.number + count, tables=tables))
    return bool(count)
