"""The tables of the watch, each function by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.completeness.beginnings import Beginning
from delaybridge.spark_jobs.completeness.reach import Mark, Reach
from delaybridge.spark_jobs.frames import of_rows
from delaybridge.spark_jobs.question import FOREVER
from delaybridge.spark_jobs.watching import alerts, bridges, occurrences, steps
from delaybridge.spark_jobs.watching.arguments import Arguments, parse
from delaybridge.spark_jobs.watching.bridges import Island
from delaybridge.spark_jobs.watching.rounds import Rounds
from delaybridge.spark_jobs.watching.state import State
from delaybridge.spark_jobs.watching.telling import Teller
from spark.ledgers import T0, Bridge

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ORDERS = {"destination_broker": "kafka", "destination": "orders"}
WATCHED = {("kafka", "orders")}
STREAM = dict.fromkeys(("input", "event", "id", "destination_broker", "destination", "bridge"), "string")
STREAM |= dict.fromkeys(("event_ms", "occurrence", "due_ms", "lateness_ms", "sequence"), "bigint")


def _table(spark: SparkSession, columns: dict[str, str], *rows: dict[str, Any]) -> DataFrame:
    return of_rows(spark, ({"bridge": "b", **ORDERS, "occurrence": 1, "due_ms": T0, **row} for row in rows), columns)


def _open(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return _table(spark, occurrences.OPEN, *({"scheduled": 1, "closed": 0, **row} for row in rows))


def _unlike(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return _table(spark, occurrences.UNLIKE, *({"delivered": 0, "seen": 0, "latest_ms": T0, **row} for row in rows))


def _alerts(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return _table(spark, alerts.ALERTS, *rows)


def _stream(spark: SparkSession, *rows: tuple[str, str]) -> DataFrame:
    """Event and id; observed ones come from the topic."""
    told = [
        {"input": "observed" if event == "observed" else "ledger", "event": event, "event_ms": T0 + 5, "id": id_, "occurrence": 1, "due_ms": T0,
         **ORDERS, "bridge": None if event == "observed" else "b", "sequence": number}
        for number, (event, id_) in enumerate(rows, 1)
    ]  # fmt: skip
    return of_rows(spark, told, STREAM)


def _ids(rows: DataFrame) -> set[str]:
    return {row["id"] for row in rows.collect()}


def test_what_ends_as_often_as_it_was_scheduled_is_no_longer_open_in_whatever_order_the_files_come(spark: SparkSession) -> None:
    before = _open(spark, {"id": "ends now"}, {"id": "end came first", "scheduled": 0, "closed": 1}, {"id": "waits"})
    rows = _stream(
        spark, ("delivered", "ends now"), ("scheduled", "end came first"), ("scheduled", "new"), ("cancelled", "start is on its way")
    )

    assert _ids(occurrences.still_open(before, rows)) == {"waits", "new", "start is on its way"}


def test_what_one_bridge_took_in_and_another_one_ended_is_no_longer_open_and_what_is_open_names_who_took_it_in(spark: SparkSession) -> None:
    before = _open(spark, {"id": "ends now", "bridge": "a"}, {"id": "ended twice", "bridge": "z", "scheduled": 0, "closed": 2})
    rows = _stream(spark, ("delivered", "ends now"), ("scheduled", "ended twice"))
    [left] = occurrences.still_open(before, rows).collect()

    assert (left["id"], left["bridge"], left["scheduled"], left["closed"]) == ("ended twice", "b", 1, 2)


def test_what_was_seen_as_often_as_delivered_is_forgotten_and_only_watched_destinations_count(spark: SparkSession) -> None:
    before = _unlike(spark, {"id": "seen first", "seen": 1, "bridge": None}, {"id": "not yet seen", "delivered": 1})
    rows = _stream(spark, ("delivered", "seen first"), ("observed", "not yet seen"), ("delivered", "lost"), ("observed", "stranger"))

    assert _ids(occurrences.still_unlike(before, rows, WATCHED)) == {"lost", "stranger"}
    assert _ids(occurrences.still_unlike(before, rows, {("kafka", "bills")})) == {"seen first", "not yet seen"}


def test_what_was_seen_is_not_pending_although_its_ledger_says_so(spark: SparkSession) -> None:
    pending = occurrences.unended(_open(spark, {"id": "seen"}, {"id": "not seen"}), _unlike(spark, {"id": "seen", "seen": 1}))

    assert _ids(pending) == {"not seen"}


def test_what_no_ledger_tells_of_is_given_up_when_every_ledger_was_read_so_far(spark: SparkSession) -> None:
    unlike = _unlike(
        spark,
        {"id": "stranger", "seen": 1, "latest_ms": T0 - 1},
        {"id": "pending", "seen": 1, "latest_ms": T0 - 1},
        {"id": "fresh", "seen": 1},
        {"id": "lost", "delivered": 1, "latest_ms": T0 - 1},
    )

    assert _ids(occurrences.without_strangers(unlike, _open(spark, {"id": "pending"}), T0)) == {"pending", "fresh", "lost"}


@pytest.mark.parametrize(("further", "left"), [(0, {"m"}), (1, set())])
def test_what_was_seen_is_given_up_when_all_ledgers_reach_beyond_that_by_the_skew_and_the_grace(
    spark: SparkSession, tmp_path: Path, further: int, left: set[str]
) -> None:
    arguments = Arguments(("ledger",), str(tmp_path), since=0, skew=70, grace=500, observed=("kafka://host:1/orders",))
    seen = _stream(spark, ("observed", "m")).selectExpr("*", "'there' AS place", "cast(null AS string) AS problem")  # at T0 + 5
    state = State(spark, arguments.checkpoint)
    state.open(arguments.ledgers, arguments.observed, arguments.since)

    step = steps.absorb(state, arguments, seen, 0, [Reach("b", 1, 1, 1, T0 + 5 + 70 + 500 + further)], T0 + 9_000)

    assert _ids(state.read(step.tables, "unlike")) == left


def test_only_what_is_due_by_then_and_was_not_told_is_an_alert(spark: SparkSession) -> None:
    pending = _open(
        spark, {"id": "due"}, {"id": "told", "bridge": "b"}, {"id": "told", "due_ms": T0 - 1}, {"id": "not due", "due_ms": T0 + 1}
    )
    found = alerts.overdue(pending, _alerts(spark, {"id": "told", "kind": "not_delivered", "bridge": "another"}), T0)

    assert {(row["id"], row["due_ms"]) for row in found.collect()} == {("due", T0), ("told", T0 - 1)}


def test_what_was_delivered_and_not_seen_is_an_alert_once(spark: SparkSession) -> None:
    unlike = _unlike(
        spark, {"id": "lost", "delivered": 1}, {"id": "told", "delivered": 1}, {"id": "young", "delivered": 1, "latest_ms": T0 + 1}
    )
    found = alerts.unseen(unlike, _alerts(spark, {"id": "told", "kind": "not_observed"}), T0)

    assert _ids(found) == {"lost"}


def test_an_alert_is_over_when_its_cause_is_gone_and_then_no_longer_open(spark: SparkSession) -> None:
    known = _alerts(
        spark,
        {"id": "delivered", "kind": "not_delivered"},
        {"id": "still waits", "kind": "not_delivered"},
        {"id": "seen", "kind": "not_observed"},
        {"id": "still lost", "kind": "not_observed"},
    )
    over = alerts.resolved(
        known,
        _open(spark, {"id": "still waits"}),
        _unlike(spark, {"id": "still lost", "delivered": 1}),
        _stream(spark, ("delivered", "delivered")),
    )

    assert {(row["event"], row["kind"], row["id"], row["detail"]) for row in over.collect()} == {
        ("resolved", "not_delivered", "delivered", "delivered"),
        ("resolved", "not_observed", "seen", None),
    }
    assert _ids(alerts.carried_on(known, over, _open(spark, {"id": "still waits"}))) == {"still waits", "still lost"}


def test_what_was_told_as_not_delivered_and_then_seen_is_not_told_again_as_late_when_its_ledger_has_it_at_last(
    spark: SparkSession, tmp_path: Path
) -> None:
    arguments = Arguments(("ledger",), str(tmp_path), since=0, sla=1_000, grace=500, observed=("kafka://host:1/orders",))
    state, reach = State(spark, arguments.checkpoint), [Reach("b", 1, 1, 1, T0 + 1_500)]
    state.open(arguments.ledgers, arguments.observed, arguments.since)

    def told(step: steps.Step) -> list[tuple[str, str, str]]:
        news = [(row["event"], row["kind"], row["id"]) for row in step.news.collect()]
        steps.take(state, step, T0 + 9_000)
        return news

    def batch(number: int, sequence: int, event: str, *ids: str) -> list[tuple[str, str, str]]:
        rows = _stream(spark, *((event, id_) for id_ in ids)).withColumns(
            {
                "sequence": F.col("sequence") + sequence,
                "lateness_ms": F.when(F.lit(event == "delivered"), F.lit(9_000).cast("bigint")),
                "place": F.lit("there"),
                "problem": F.lit(None).cast("string"),
            }
        )
        return told(steps.absorb(state, arguments, rows, number, reach, T0 + 9_000))

    assert batch(0, 0, "scheduled", "told") == []
    assert told(steps.look(state, arguments, reach, T0 + 2_000)) == [("alert", "not_delivered", "told")]
    assert batch(1, 0, "observed", "told") == [("resolved", "not_delivered", "told")]
    assert _ids(state.table("alerts").where(f"kind <> '{alerts.SEEN}'")) == set()
    assert batch(2, 1, "delivered", "told", "not told") == [("alert", "late", "not told")]
    assert _ids(state.table("alerts")) == set()


def test_whose_a_checkpoint_is_is_seen_without_the_counts_of_all_destinations_that_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    state = State(spark, str(tmp_path))
    state.open(("ledger",), (), 0)
    there = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps({**there, "counts": "not looked at"}))

    state.require_own()
    (tmp_path / "state.json").write_text(json.dumps({**there, "step": 7}))
    with pytest.raises(UnusableInput, match="another watch is at work"):
        state.require_own()


def test_what_another_watch_did_meanwhile_is_not_called_a_checkpoint_that_was_put_back(spark: SparkSession, tmp_path: Path) -> None:
    state = State(spark, str(tmp_path))
    state.open(("ledger",), (), 0)
    there = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps({**there, "step": 7}))
    (tmp_path / "told.json").write_text('{"number": 3}')

    with pytest.raises(UnusableInput, match="another watch is at work"):
        Teller(spark, state, None, None, {}).require_older()
    with pytest.raises(UnusableInput, match="another watch is at work"):
        Rounds._require_next(Mock(spec=Rounds, state=state), 5)


def test_the_rows_that_were_read_are_runs_of_numbers_that_grow_together(spark: SparkSession) -> None:
    rows = _stream(spark, *[("scheduled", "m")] * 4)
    with_hole = bridges.joined({}, _islands(rows.where("sequence <> 3")))

    assert with_hole == {"b": [Island(1, 2, T0 + 5), Island(4, 4, T0 + 5)]}
    assert bridges.joined(with_hole, [("b", Island(3, 3, T0 + 9))]) == {"b": [Island(1, 4, T0 + 9)]}
    with pytest.raises(UnusableInput, match="rows from number 2 on stand twice"):
        bridges.joined({}, _islands(rows.unionByName(rows.where("sequence = 2"))))
    with pytest.raises(UnusableInput, match="rows from number 2 on stand twice"):
        bridges.joined(with_hole, [("b", Island(2, 3, T0))])


def test_rows_that_are_missing_where_a_ledger_was_cut_off_are_no_hole_while_its_first_row_is_not_there() -> None:
    """What ends before the seam is passed over, but never all of it."""
    ragged = [Island(*run) for run in ((5, 6, T0), (8, 8, T0), (10, 20, T0), (22, 30, T0 + 9))]

    assert bridges.beyond(ragged, None) == ragged
    assert bridges.beyond(ragged, Beginning(T0, 12)) == ragged[2:]
    assert bridges.beyond(ragged, Beginning(T0, 30)) == ragged[3:]
    assert bridges.beyond([Island(1, 3, T0), *ragged], Beginning(T0, 12)) == [Island(1, 3, T0), *ragged]


def test_where_a_ledger_begins_is_asked_of_new_bridges_and_where_new_rows_are_older_than_that() -> None:
    known = {"whole": [Island(1, 9, T0)], "cut": [Island(5, 9, T0)]}
    before = {"cut": Beginning(T0, 7)}

    assert bridges.begin(known, before, {"new": T0, "whole": T0 - 900, "cut": T0}, 100) == {"new": T0 + 100}
    assert bridges.begin(known, before, {"cut": T0 - 1}, 100) == {"cut": T0}
    assert bridges.begin(known, before, {"cut": T0 - 900}, 100) == {"cut": T0 - 800}


def test_where_a_ledger_begins_moves_with_older_rows_and_is_forgotten_when_the_first_one_comes() -> None:
    known, before = {"cut": [Island(5, 9, T0)]}, {"cut": Beginning(T0, 7)}

    assert bridges.begun(known, before, {}, 100) == before
    assert bridges.begun(known, {}, before, 100) == before
    assert bridges.begun(known, before, {"cut": Beginning(T0, 9)}, 100) == {"cut": Beginning(T0, 9)}
    assert bridges.begun(known, before, {"cut": Beginning(T0 - 99, 3)}, 100) == {"cut": Beginning(T0 - 99, 7)}
    assert bridges.begun(known, before, {"cut": Beginning(T0 - 100, 3)}, 100) == {"cut": Beginning(T0 - 100, 3)}
    assert bridges.begun({"cut": [Island(1, 9, T0)]}, before, before, 100) == {}


def _islands(rows: DataFrame) -> Iterable[tuple[str, Island]]:
    return ((row["bridge"], Island(row["first"], row["last"], row["latest_ms"])) for row in bridges.islands(rows).collect())


def test_a_bridge_is_silent_while_its_ledger_reaches_no_further_and_the_reason_is_told() -> None:
    known = {
        "marked": [Island(1, 9, T0)],
        "dead": [Island(1, 9, T0)],
        "holed": [Island(1, 2, T0), Island(4, 9, T0 + 900)],
        "ended": [Island(1, 9, T0)],
    }
    marks = {"marked": Mark(9, T0 + 900), "holed": Mark(9, T0 + 900), "no file yet": Mark(7, T0 + 900), "removed": Mark(5, T0)}
    found = bridges.reached(known, {}, marks, frozenset({"ended", "removed"}), T0 + 1_000)

    silent = bridges.silent(found, T0 + 1_000, 500)

    reached = {"marked": T0 + 900, "dead": T0, "holed": T0, "ended": FOREVER, "no file yet": -1, "removed": FOREVER}
    assert {reach.bridge: reach.reaches_ms for reach in found} == reached
    assert set(silent) == {"dead", "holed", "no file yet"}
    assert bridges.why(silent["no file yet"]) == "its ledger has no row, and by its mark it wrote 7"
    assert bridges.why(silent["holed"]) == "its ledger lacks rows, number 3 first"


def test_an_alias_may_name_the_broker_at_which_it_holds() -> None:
    place = "kafka://broker:9092/orders?broker=kafka"
    watched = Arguments(ledgers=("l",), checkpoint="c", since=0, observed=(place,), aliases={"kafka:orders": "bills", "rabbit:orders": "x"})
    assert watched.watched == {("kafka", "bills")}


def test_a_checkpoint_belongs_to_the_aliases_with_which_its_topics_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Under another name what was delivered would not be found, and what is delivered from now on not be looked for."""
    ledgers, observed, begun = ("ledger",), ("kafka://host:1/orders",), {"orders": "bills"}

    def opened(aliases: dict[str, str]) -> dict[str, str] | None:
        state = State(spark, str(tmp_path))
        state.open(ledgers, observed, 0, aliases)
        return state.holds.aliases

    assert opened(begun) == opened(begun) == begun
    with pytest.raises(UnusableInput, match="belongs to a watch that was begun with --alias orders=bills: say so again, or give another"):
        opened({})
    there = tmp_path / "state.json"
    there.write_text(json.dumps({name: value for name, value in json.loads(there.read_text()).items() if name != "aliases"}))
    assert opened({}) == {}, "what an earlier version began is taken as it is"


def test_a_since_with_which_a_checkpoint_does_not_begin_is_told_to_be_passed_over(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bridge, checkpoint = Bridge(), tmp_path / "checkpoint"
    bridge.both("m", T0)
    ledger = bridge.write(tmp_path / "ledger")

    def said(*words: str) -> str:
        Rounds(spark, parse(["--ledger", ledger, "--checkpoint", str(checkpoint), *words], T0), lambda: T0)
        return capsys.readouterr().err

    assert [said("--since", "2025-06-01"), said("--since", "2025-06-01"), said()] == ["", "", ""]
    assert said("--since", "2025-06-02") == (
        f"--since 2025-06-02T00:00:00Z is ignored: file:{checkpoint} is a watch since 2025-06-01T00:00:00Z; for another one give a new --checkpoint\n"
    )


def test_a_misspelt_ledger_makes_no_checkpoint_so_that_the_right_one_gets_it(spark: SparkSession, tmp_path: Path) -> None:
    bridge, checkpoint = Bridge(), ["--checkpoint", str(tmp_path / "checkpoint")]
    bridge.both("m", T0)
    ledger = bridge.write(tmp_path / "ledger")

    with pytest.raises(UnusableInput, match="ledgr: no Parquet files can be read there"):
        Rounds(spark, parse(["--ledger", str(tmp_path / "ledgr"), *checkpoint], T0), lambda: T0)

    Rounds(spark, parse(["--ledger", ledger, *checkpoint], T0), lambda: T0)
