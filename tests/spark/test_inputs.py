"""What comes through the door, and what is set aside there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from delaybridge.bridge.observed import ObservedFiles
from delaybridge.spark_jobs import inputs, marks, verdict
from delaybridge.spark_jobs.audit import audit
from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.completeness import Seen
from delaybridge.spark_jobs.question import HOUR_MS
from spark.ledgers import QUESTION, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_missing_columns_and_those_of_another_type_are_named(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"event": ["scheduled"], "id": [7]}), tmp_path / "a.parquet")

    with pytest.raises(UnusableInput, match=r"event_time is missing; .*sequence is missing; id is bigint, not string"):
        inputs.ledger(spark, [str(tmp_path)])


def test_the_name_of_the_file_is_read_only_where_it_is_told(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.both("fine", T0)
    ledger = inputs.ledger(spark, [bridge.write(tmp_path / "one"), bridge.write(tmp_path / "two")])

    counted, told = (frame.groupBy("id").count()._jdf.queryExecution().toString() for frame in (ledger.rows, ledger.placed))

    assert "file_path" not in counted.partition("== Physical Plan ==")[2]
    assert "file_path" in told
    assert counted.partition("== Physical Plan ==")[2].count("FileScan") == 1  # both ledgers
    assert {row["place"].split("/")[-4] for row in ledger.placed.collect()} == {"one", "two"}


def test_a_malformed_row_is_set_aside_with_its_file_and_reason_and_nothing_certain_is_said(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.both("fine", T0)
    bridge.quiet()
    bridge.row("eaten", T0, "odd", T0)  # type: ignore[arg-type]

    found = audit(inputs.ledger(spark, [bridge.write(tmp_path)]), None, {}, QUESTION)
    [row] = found.malformed.collect()

    assert (row["input"], row["problem"]) == ("ledger", "unknown event eaten")
    assert str(tmp_path) in row["place"]
    assert '"id":"odd"' in row["row"]
    assert verdict.report(found, {})["exit_code"] == 2


def test_an_hour_that_a_ledger_does_not_reach_is_incomplete_and_nothing_is_called_missing_in_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    bridge, seen = Bridge(), Observer()
    bridge.both("fine", T0 + 1)
    bridge.scheduled("on its way", T0 + 2)
    seen.saw_all(bridge)
    ledger = inputs.ledger(spark, [bridge.write(tmp_path / "ledger")])
    observed = inputs.observed(spark, [seen.write(tmp_path / "seen")], T0, {}, {})

    early = audit(ledger, observed, {}, QUESTION)
    told = verdict.report(early, {})
    ended = verdict.report(audit(ledger, observed, {}, replace(QUESTION, ended=frozenset({"*"}))), {})

    assert (told["verdict"], told["totals"]["missing"], told["totals"]["pending"]) == ("cannot_say", 0, 1)
    assert {row["complete"] for row in told["hours"]} == {False}
    assert (ended["verdict"], ended["totals"]["missing"]) == ("discrepancies", 1)


def _record(spark: SparkSession, headers: list[tuple[str, bytes | None]]) -> dict[str, Any]:
    kafka = "topic string, partition int, offset bigint, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    row = ("reminders", 2, 7, datetime.fromtimestamp(T0 / 1000, UTC), headers)
    [read] = inputs.from_kafka(spark.createDataFrame([row], kafka), "k").collect()
    return {name: value for name, value in read.asDict().items() if name != "event_time"}


def test_a_kafka_record_is_read_by_its_delivery_headers(spark: SparkSession) -> None:
    told = _record(spark, [("x-delay-id", b"m"), ("x", None), ("x-delay-occurrence", b"3"), ("x-delay-due", str(T0).encode())])
    due = told.pop("due_time").replace(tzinfo=UTC)

    place = {"destination_broker": "k", "destination": "reminders", "place": "reminders/2@7"}
    assert told == {"id": "m", "occurrence": 3, "problem": None, **place}
    assert due.timestamp() * 1000 == T0


def test_a_kafka_record_whose_headers_are_no_numbers_is_malformed_and_one_without_an_id_is_nobodys(spark: SparkSession) -> None:
    assert _record(spark, [("x-delay-id", b"m"), ("x-delay-occurrence", b"x")])["problem"] == "occurrence is null, or no number"
    assert _record(spark, [])["problem"] is None


def test_what_an_observer_has_not_seen_yet_is_incomplete_and_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.both("seen", T0 + 1)
    bridge.both("still on its way to the observer", T0 + HOUR_MS + 1)
    bridge.quiet()
    ledger = inputs.ledger(spark, [bridge.write(tmp_path / "ledger")])
    files = ObservedFiles(tmp_path / "seen", "kafka", "alias", "a1")
    files.add({"at": T0 + 5, "address": "alias", "id": "seen", "occurrence": 1, "due": T0 + 1, "body": "x"})

    def told(caught_up: int) -> dict[str, Any]:
        files.caught_up(caught_up)
        files.flush()
        aliases = {"alias": "orders"}
        observers = marks.observers(spark, [str(tmp_path / "seen"), "kafka://b/t"], aliases)
        observed = inputs.observed(spark, [str(tmp_path / "seen")], T0, aliases, {})
        return verdict.report(audit(ledger, observed, {}, QUESTION, observers=observers), {})

    behind, done = told(T0 + HOUR_MS + 70_000), told(QUESTION.until + 70_000)

    assert (behind["verdict"], behind["totals"]["not_observed"]) == ("cannot_say", 0)
    assert [row["complete"] for row in behind["hours"]] == [True, False]
    assert "observer 'a1' of kafka orders has seen what arrived up to" in behind["cannot_say"][-1]
    assert (done["verdict"], done["totals"]["not_observed"]) == ("discrepancies", 1)


def test_a_destination_that_is_observed_and_at_which_nothing_arrives_is_compared(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.both("lost", T0 + 1)
    bridge.quiet()
    elsewhere = Observer("bills")
    elsewhere.saw("n", T0)
    observed = inputs.observed(spark, [elsewhere.write(tmp_path / "seen")], T0, {}, {})
    mark = Seen("a1", "kafka", "orders", QUESTION.as_of)

    found = audit(inputs.ledger(spark, [bridge.write(tmp_path / "ledger")]), observed, {}, QUESTION, observers=[mark])

    assert verdict.report(found, {})["totals"]["not_observed"] == 1
