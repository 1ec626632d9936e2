"""What a watch makes of topics that do not hold any more, or not yet, what was delivered to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from msgspec.structs import replace

from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.frames import of_rows
from delaybridge.spark_jobs.reading import retention
from delaybridge.spark_jobs.watching import alerts, steps, topics
from delaybridge.spark_jobs.watching.arguments import Arguments
from delaybridge.spark_jobs.watching.occurrences import UNLIKE
from delaybridge.spark_jobs.watching.state import State
from delaybridge.spark_jobs.watching.topics import FoundTopic, Topic
from spark.ledgers import T0

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PLACE = "kafka://host:1/orders"
NOW = T0 + 900_000


def _arguments(folder: Path) -> Arguments:
    return Arguments(("ledger",), str(folder), since=0, sla=1_000, grace=500, skew=70, observed=(PLACE,))


def _table(spark: SparkSession, columns: dict[str, str], *rows: dict[str, Any]) -> DataFrame:
    common = {"bridge": "b", "destination_broker": "kafka", "destination": "orders", "occurrence": 1, "due_ms": T0}
    return of_rows(spark, ({**common, **row} for row in rows), columns)


def _delivered(spark: SparkSession, **at: int) -> DataFrame:
    """Deliveries of these ids that nobody saw, each with when it happened."""
    return _table(spark, UNLIKE, *({"id": id_, "delivered": 1, "seen": 0, "latest_ms": when} for id_, when in at.items()))


def _found(end: int, open_ms: int | None = None, id_: str = "one") -> FoundTopic:
    return FoundTopic(retention.Ends({0: end}, {} if open_ms is None else {0: open_ms}), id_)


def _read(monkeypatch: pytest.MonkeyPatch, folder: Path, before: Topic, end: int, first: list[int], open_ms: int | None = None) -> Topic:
    monkeypatch.setattr(retention, "beginnings", lambda *_: first)
    spark: Any = None
    return topics.read(spark, _arguments(folder), {PLACE: before}, {PLACE: _found(end, open_ms)}, NOW)[PLACE]


def test_a_topic_begins_a_grace_and_the_skew_after_the_youngest_beginning_of_what_was_removed_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _read(monkeypatch, tmp_path, Topic({}), 9, [T0, T0 - 5]) == Topic({0: 9}, T0 + 570, id="one")
    assert _read(monkeypatch, tmp_path, Topic({0: 3}, T0), 9, [NOW]) == Topic({0: 9}, NOW + 570, id="one")


def test_a_first_record_whose_time_is_still_to_come_does_not_keep_a_topic_from_being_judged_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _read(monkeypatch, tmp_path, Topic({}), 9, [NOW + HOUR_MS]).begins_ms == NOW + 570


def test_a_topic_stands_since_it_was_first_seen_to_be_read_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stood = Topic({0: 9, 1: 4}, reaches_ms=T0, standing={0: NOW - 7, 1: NOW - 8})

    assert _read(monkeypatch, tmp_path, stood, 9, [], open_ms=T0).standing == {0: NOW - 7}
    assert _read(monkeypatch, tmp_path, stood, 10, [], open_ms=T0 - HOUR_MS).standing == {0: NOW}, "another transaction, with older records"
    assert _read(monkeypatch, tmp_path, stood, 9, []).standing == {}


def test_where_a_topic_begins_stays_while_it_holds_all_that_was_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _read(monkeypatch, tmp_path, Topic({0: 3}, T0), 9, []) == Topic({0: 9}, T0, id="one")
    assert _read(monkeypatch, tmp_path, Topic({}), 9, []) == Topic({0: 9}, id="one")


def test_a_topic_reaches_to_the_transaction_that_is_open_and_to_now_when_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _read(monkeypatch, tmp_path, Topic({0: 3}), 9, [], open_ms=T0)

    assert held == Topic({0: 9}, -1, T0, "one", {0: NOW})
    assert topics.reaches({PLACE: held}, _arguments(tmp_path)) == [("kafka", "orders", T0 - 570)]
    assert _read(monkeypatch, tmp_path, held, 10, []) == Topic({0: 10}, id="one")


def test_a_topic_that_was_made_anew_ends_the_watch_also_where_it_has_grown_beyond_what_was_read() -> None:
    with pytest.raises(UnusableInput, match="topic orders is shorter than what was read of it: if it was made anew"):
        topics.require_same(PLACE, Topic({0: 9}), _found(8))
    with pytest.raises(UnusableInput, match="topic orders was made anew since it was read: give another --checkpoint"):
        topics.require_same(PLACE, Topic({0: 9}, id="one"), _found(10, id_="another"))


def test_a_topic_whose_id_was_or_is_not_told_is_taken_for_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.require_same(PLACE, Topic({0: 9}, id="one"), _found(9, id_=""))
    topics.require_same(PLACE, Topic({0: 9}), _found(9))
    monkeypatch.setattr(retention, "beginnings", lambda *_: [])
    spark: Any = None
    known = topics.read(spark, _arguments(tmp_path), {PLACE: Topic({0: 9}, id="one")}, {PLACE: _found(9, id_="")}, NOW)
    assert known[PLACE].id == "one", "and told of when it is known again"


def test_what_was_delivered_before_a_topic_begins_or_after_it_reaches_is_not_called_unseen_and_what_went_elsewhere_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    arguments, state = _arguments(tmp_path), State(spark, str(tmp_path))
    state.open(arguments.ledgers, arguments.observed, 0)
    unlike = _delivered(spark, first=T0 + 4, second=T0 + 5)
    state.hold(replace(state.holds, tables=state.write({"unlike": unlike})))

    step = steps.look(state, arguments, [], NOW, {PLACE: Topic({}, T0 + 5)})
    behind = steps.look(state, arguments, [], NOW, {PLACE: Topic({}, reaches_ms=T0 + 4 + 570)})
    told = [(row["kind"], row["id"]) for row in behind.news.collect()]

    assert [(row["kind"], row["id"]) for row in step.news.collect()] == [("not_observed", "second")]
    assert [id_ for kind, id_ in told if kind == "not_observed"] == ["first"]
    assert step.holds.topics == {PLACE: Topic({}, T0 + 5)}
    none = _table(spark, alerts.ALERTS)
    assert alerts.judged(unlike, none, [("kafka", "bills", NOW), ("rabbit", "orders", NOW)]).count() == 2


def test_a_topic_behind_an_open_transaction_is_told_once_when_that_lasts_and_when_it_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    arguments, state = _arguments(tmp_path), State(spark, str(tmp_path))
    state.open(arguments.ledgers, arguments.observed, 0)

    def told(topic: Topic) -> list[tuple[str, ...]]:
        step = steps.look(state, arguments, [], NOW, {PLACE: topic})
        steps.take(state, step, NOW)
        return [
            (row["event"], row["kind"], row["destination_broker"], row["destination"], str(row["reaches_ms"]))
            for row in step.news.collect()
        ]

    stuck = Topic({}, reaches_ms=T0, standing={0: NOW, 1: NOW - arguments.silent - 1})
    short = Topic({}, reaches_ms=T0, standing={0: NOW - arguments.silent})
    place = "topic_stuck", "kafka", "orders"
    assert told(short) == []
    assert told(stuck) == [("alert", *place, str(stuck.reaches_ms))]
    assert told(stuck) == []
    assert told(Topic({})) == [("resolved", *place, str(NOW))]


def test_a_topic_that_loses_what_was_told_as_not_observed_does_not_resolve_that(spark: SparkSession) -> None:
    unlike = _delivered(spark, told=T0, removed=T0).unionByName(
        _table(spark, UNLIKE, {"id": "seen", "delivered": 0, "seen": 1, "latest_ms": T0})
    )
    told = _table(spark, alerts.ALERTS, {"id": "told", "kind": "not_observed"})

    left = alerts.judged(unlike, told, [("kafka", "orders", NOW)])

    assert {row["id"] for row in left.collect()} == {"told", "seen"}
