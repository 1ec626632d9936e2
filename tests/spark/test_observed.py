"""What was observed, as the command reads it: nothing at all, or under another name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from delaybridge.bridge.ledger.observed import ObservedFiles
from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs import reconcile
from delaybridge.spark_jobs.arguments import parse
from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.reading import inputs, kafka_client, retention
from spark.ledgers import QUESTION, QUIET, T0, Bridge, Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RECORDS = "topic string, partition int, offset bigint, headers array<struct<key:string,value:binary>>"
WINDOW = ("--since", "2025-06-15T15:00Z", "--until", "2025-06-15T16:00Z")


def _told(spark: SparkSession, folder: Path, bridge: Bridge, *more: str) -> dict[str, Any]:
    words = ["--ledger", bridge.write(folder / "ledger"), "--out", str(folder / "out"), *WINDOW, *more]
    return reconcile.reconcile(spark, parse(words, now=QUIET), lambda _: None)


def test_an_observer_to_which_nothing_arrived_tells_that_all_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    bridge, seen = Bridge(), tmp_path / "seen"
    bridge.both("one", T0 + 1)
    bridge.both("two", T0 + 2)
    bridge.quiet()
    files = ObservedFiles(seen, "kafka", "orders", "a1")
    files.seen(T0 - HOUR_MS, QUIET)
    files.flush()

    told = _told(spark, tmp_path, bridge, "--observed", str(seen))

    assert (told["verdict"], told["totals"]["not_observed"], told["totals"]["observed"]) == ("discrepancies", 2, 0)


def test_a_folder_without_files_and_without_an_observers_mark_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    bridge, seen = Bridge(), tmp_path / "seen"
    bridge.both("one", T0 + 1)
    seen.mkdir()

    with pytest.raises(UnusableInput, match="no Parquet files can be read there"):
        _told(spark, tmp_path, bridge, "--observed", str(seen))


def test_a_malformed_arrival_spoils_the_hour_in_which_it_is_due_and_one_without_an_id_spoils_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    bridge, seen = Bridge(), Observer()
    for due in (T0 + 1, T0 + HOUR_MS):
        bridge.both("seen, perhaps", due)
        bridge.both("lost", due + 1)
    bridge.quiet()
    seen.saw("seen, perhaps", T0 + 1, occurrence=None)
    seen.saw("seen, perhaps", T0 + HOUR_MS)
    seen.saw(None, None, late=9_000_000_000_000_000)

    told = _told(spark, tmp_path, bridge, "--observed", seen.write(tmp_path / "seen"), "--until", "2025-06-15T17:00Z")

    assert ([row["complete"] for row in told["hours"]], told["totals"]["not_observed"], told["exit_code"]) == ([False, True], 1, 1)
    assert (told["malformed"], told["cannot_say"][1]) == (
        {"observed": 2},
        "hours in which malformed rows are due cannot be judged, 1: 2025-06-15T15:00:00Z",
    )


def test_a_ledger_that_is_given_as_an_observation_tells_nothing_of_what_arrived(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.both("one", T0 + 1)
    bridge.quiet()

    told = _told(spark, tmp_path, bridge, "--observed", bridge.write(tmp_path / "ledger"))

    assert (told["exit_code"], told["watched"], told["totals"]["observed"], told["malformed"]) == (2, [], None, {"observed": 3})


def test_of_two_brokers_with_one_address_only_the_one_that_is_named_is_renamed(spark: SparkSession, tmp_path: Path) -> None:
    bridge, named = Bridge(), ("orders=nobodys", "rabbit:orders=/exchanges/orders", "kafka:orders=orders", "queue=mails")
    aliases = [word for one in named for word in ("--alias", one)]
    for broker, address in (("rabbit", "/exchanges/orders"), ("kafka", "orders"), ("rabbit", "mails")):
        bridge.both(f"to {address}", T0 + 1, destination_broker=broker, destination=address)
    bridge.quiet()
    for broker, address, id_ in (
        ("rabbit", "orders", "to /exchanges/orders"),
        ("kafka", "orders", "to orders"),
        ("rabbit", "queue", "to mails"),
    ):
        files = ObservedFiles(tmp_path / "seen", broker, address, f"{broker}-{address}")
        files.add({"at": T0 + 5, "address": address, "id": id_, "occurrence": 1, "due": T0 + 1, "body": "x"})
        files.seen(T0 - HOUR_MS, QUIET)
        files.flush()

    told = _told(spark, tmp_path, bridge, "--observed", str(tmp_path / "seen"), *aliases)

    assert (told["verdict"], told["totals"]["observed"], len(told["watched"])) == ("clean", 3, 3)
    assert [(one["destination_broker"], one["destination"]) for one in told["observers"]] == [
        ("kafka", "orders"),
        ("rabbit", "/exchanges/orders"),
        ("rabbit", "mails"),
    ]


def test_a_topic_in_which_nothing_is_tells_that_all_is_lost_also_under_another_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _of_a_topic(spark, tmp_path, monkeypatch, [])

    assert (told["verdict"], told["totals"]["not_observed"], told["totals"]["observed"]) == ("discrepancies", 1, 0)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_topic_whose_broker_the_ledgers_know_by_another_name_only_is_refused_with_that_name(
    arrived: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would be compared with it, and the audit be clean, or all that arrived never have been scheduled."""
    bridge = Bridge()
    bridge.both("one", T0 + 1, destination_broker="main")
    headers = [("x-delay-id", b"one"), ("x-delay-occurrence", b"1"), ("x-delay-due", b"2025-06-15T15:00:00.001Z")]
    records = [("orders", 0, 0, headers)] if arrived else []
    with pytest.raises(UnusableInput, match=r"^no ledger knows a broker 'kafka', and orders is a destination of 'main' there"):
        _of_a_topic(spark, tmp_path, monkeypatch, [], bridge=bridge, records=records)

    bridge.both("two", T0 + 2, destination="mails", destination_broker="kafka")
    told = _of_a_topic(spark, tmp_path, monkeypatch, [], bridge=bridge)
    assert told["totals"]["not_observed"] == 0, "two clusters may have topics of one name"


def _of_a_topic(
    spark: SparkSession,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    begin: list[int],
    destination: str = "orders",
    open_ms: int | None = None,
    bridge: Bridge | None = None,
    records: list[Any] | None = None,
) -> dict[str, Any]:
    """What is told of a message that is not in a topic, which is empty, and of which partitions lost what was before these instants.

    With a `bridge`, of what that did, and with `records`, of a topic that is not empty.

    `open_ms`: since when a transaction is open in it.
    """
    if bridge is None:
        bridge = Bridge()
        bridge.both("one", T0 + 1, destination=destination)
        bridge.quiet()
    there = spark.createDataFrame(records or [], RECORDS).withColumn("timestamp", F.current_timestamp())
    monkeypatch.setattr(kafka_client, "require_there", lambda *_: None)
    monkeypatch.setattr(inputs, "topic", lambda *_: there)
    monkeypatch.setattr(retention, "beginnings", lambda *_: begin)
    monkeypatch.setattr(retention, "ends", lambda *_: retention.Ends({0: 0}, {} if open_ms is None else {0: open_ms}))
    return _told(spark, folder, bridge, "--observed", "kafka://b:1/queue", "--alias", "queue=orders", "--all-ended")


@pytest.mark.parametrize(("begin", "since"), [([T0 - HOUR_MS, T0], "2025-06-15T15:02:00Z"), ([T0, QUIET], "2025-06-15T20:00:00Z")])
def test_what_a_topic_does_not_hold_any_more_is_not_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: list[int], since: str
) -> None:
    told = _of_a_topic(spark, tmp_path, monkeypatch, begin)

    assert (told["verdict"], told["totals"]["not_observed"], [row["complete"] for row in told["hours"]]) == ("cannot_say", 0, [False])
    [reason] = told["cannot_say"]
    assert reason == (
        f"topic orders of kafka holds what arrived since {since} only, its retention has removed older records:"
        " what was due before that cannot be judged"
    )


@pytest.mark.parametrize(("open_ms", "code"), [(T0 + HOUR_MS + 124_999, 2), (T0 + HOUR_MS + 125_000, 1)])
def test_what_may_stand_behind_an_open_transaction_of_a_topic_is_not_lost_even_where_all_have_ended(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_ms: int, code: int
) -> None:
    told = _of_a_topic(spark, tmp_path, monkeypatch, [], open_ms=open_ms)

    assert (told["exit_code"], told["totals"]["not_observed"]) == (code, 2 - code)
    behind = [
        reason for reason in told["cannot_say"] if reason.startswith("topic orders of kafka is read up to 2025-06-15T16:02:04.999Z only")
    ]
    assert len(behind) == code - 1


def test_a_topic_that_lost_only_what_was_before_the_window_lacks_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _of_a_topic(spark, tmp_path, monkeypatch, [T0 - 121_000])

    assert (told["verdict"], told["totals"]["not_observed"]) == ("discrepancies", 1)


def test_a_topic_at_which_nothing_was_due_while_it_lost_what_arrived_spoils_no_hour(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _of_a_topic(spark, tmp_path, monkeypatch, [QUIET], destination="bills")

    assert (told["verdict"], [row["complete"] for row in told["hours"]]) == ("clean", [True])


def test_a_topic_is_given_once_whatever_servers_tell_of_it() -> None:
    with pytest.raises(UnusableInput, match="topic orders of broker kafka is given twice"):
        inputs.watched(["kafka://one:1/orders", "kafka://two:1/orders?broker=kafka"], {})

    assert len(inputs.watched(["kafka://one:1/orders", "kafka://two:1/orders?broker=another", "seen"], {})) == 2


def test_a_topic_that_changes_while_it_is_audited_is_read_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    records = spark.createDataFrame([("orders", 0, 1, [("x-delay-id", b"m")])], RECORDS).withColumn("timestamp", F.current_timestamp())
    monkeypatch.setattr(inputs, "topic", lambda *_: records)

    seen = inputs.observed(spark, ["kafka://b:1/orders"], T0, {"orders": "mails"}, {})
    counted, told, again = ([row["event_time"] for row in frame.collect()] for frame in (seen.rows, seen.placed, seen.rows))

    assert counted == told == again


def test_of_an_old_night_what_a_topic_holds_is_told_by_the_clock_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka removes by that, whatever `--as-of` says: a partition that it emptied holds nothing from before its retention began today."""
    today, kept, spark = T0 + 240 * HOUR_MS, 168 * HOUR_MS, cast("SparkSession", None)
    monkeypatch.setattr(retention, "beginnings", lambda *given: [given[4] - kept])
    asked = replace(QUESTION, as_of=T0 + 30 * HOUR_MS, now=today)

    [gap] = retention.gaps(spark, ["kafka://b:1/orders"], {}, asked)

    assert gap.until_ms == asked.as_of, "nothing of that night is there"
