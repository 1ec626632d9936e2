"""What several observers of one destination saw at the same time arrived once; what was sent twice is still found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.bridge.ledger.observed import ObservedFiles
from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs import reconcile
from delaybridge.spark_jobs.arguments import parse
from delaybridge.spark_jobs.reading import inputs, marks
from delaybridge.spark_jobs.reading.overlaps import Listener, Overlap, overlaps
from spark.ledgers import QUIET, T0, Bridge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

WINDOW = ("--since", "2025-06-15T15:00Z", "--until", "2025-06-15T16:00Z")
SECOND = 1_000
MINUTE = 60_000
GRACE = 2 * MINUTE


class Arrivals:
    """Ten messages, a second apart, and the observers to which copies of them come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bridge = Bridge()
        for number in range(10):
            self.bridge.both(f"m{number}", T0 + number * SECOND)
        self.bridge.quiet()

    def observer(
        self, name: str, since: int, until: int, saw: dict[str, int], *, copies: bool = True, marked: int | None = None, at: str = "orders"
    ) -> None:
        """It saw these messages so late, in milliseconds; `marked`: its mark lags behind what it saw."""
        files = ObservedFiles(self.folder / "seen", "kafka", at, name, copies=copies)
        for id_, late in saw.items():
            message, _, _ = id_.partition("'")
            due = T0 + int(message[1:]) * SECOND
            files.add({"at": due + late, "address": at, "id": message, "occurrence": 1, "due": due, "body": ""})
        files.seen(T0 + since, T0 + until if marked is None else T0 + marked)
        files.flush()

    def told(self, spark: SparkSession) -> dict[str, Any]:
        """The totals, and the verdict, of the whole command."""
        words = ["--ledger", self.bridge.write(self.folder / "ledger"), "--observed", str(self.folder / "seen")]
        arguments = parse([*words, "--out", str(self.folder / "out"), *WINDOW], now=QUIET)
        told = reconcile.reconcile(spark, arguments, lambda _: None)
        return {**told["totals"], "verdict": told["verdict"]}

    def seen(self, spark: SparkSession) -> dict[str, int]:
        """How often each message counts."""
        place = [str(self.folder / "seen")]
        found = overlaps(marks.observers(spark, place, {}), GRACE)
        seen = inputs.observed(spark, place, T0, {}, {}, found)
        counted, told = (Counter(row["id"] for row in frame.select("id").collect()) for frame in (seen.rows, seen.placed))
        assert counted == told
        return counted


@pytest.fixture
def arrivals(tmp_path: Path) -> Arrivals:
    return Arrivals(tmp_path)


def _all(*numbers: int, late: int = 5) -> dict[str, int]:
    return {f"m{number}": late for number in numbers}


ONCE = dict.fromkeys(_all(*range(10)), 1)


def test_observers_that_overlap_see_each_message_once(spark: SparkSession, arrivals: Arrivals) -> None:
    arrivals.observer("a1", -HOUR_MS, 5 * SECOND + 500, _all(0, 1, 2, 3, 4, 5))
    arrivals.observer("b2", SECOND + 500, 4 * HOUR_MS, _all(5, 6, 7, 8, 9, late=9))

    told = arrivals.told(spark)

    assert [told[name] for name in ("observed", "duplicated", "not_observed", "verdict")] == [10, 0, 0, "clean"]


def test_what_two_observers_saw_all_the_time_is_there_once(spark: SparkSession, arrivals: Arrivals) -> None:
    for name, late in (("a1", 5), ("b2", 40)):
        arrivals.observer(name, -HOUR_MS, 4 * HOUR_MS, _all(*range(10), late=late))

    assert arrivals.seen(spark) == ONCE


@pytest.mark.parametrize("again", ["both", "one"])
def test_what_arrived_twice_before_two_observers_is_there_twice(spark: SparkSession, arrivals: Arrivals, again: str) -> None:
    whole = _all(*range(10))
    twice = {**whole, "m3'": 60}
    arrivals.observer("a1", -HOUR_MS, 4 * HOUR_MS, twice)
    arrivals.observer("b2", -HOUR_MS, 4 * HOUR_MS, twice if again == "both" else whole)

    assert arrivals.seen(spark) == {**ONCE, "m3": 2}


def test_what_one_observer_saw_and_the_next_one_saw_again_arrived_twice(spark: SparkSession, arrivals: Arrivals) -> None:
    arrivals.observer("a1", -HOUR_MS, 5 * SECOND, _all(0, 1, 2, 3, 4))
    arrivals.observer("b2", 5 * SECOND, 4 * HOUR_MS, {**_all(5, 6, 7, 8, 9), "m4": 1_100})

    assert arrivals.seen(spark) == {**ONCE, "m4": 2}


def test_what_arrived_twice_is_there_twice_where_observers_overlap_at_another_destination_only(
    spark: SparkSession, arrivals: Arrivals
) -> None:
    for name in ("a1", "b2"):
        arrivals.observer(name, -HOUR_MS, 4 * HOUR_MS, {}, at="bills")
    arrivals.observer("c3", -HOUR_MS, 5 * SECOND, _all(0, 1, 2, 3, 4))
    arrivals.observer("d4", 5 * SECOND, 4 * HOUR_MS, {**_all(5, 6, 7, 8, 9), "m4": 1_100})

    assert arrivals.seen(spark) == {**ONCE, "m4": 2}


def test_what_came_again_long_after_they_overlapped_arrived_twice(spark: SparkSession, arrivals: Arrivals) -> None:
    arrivals.observer("a1", -HOUR_MS, 5 * SECOND, _all(0, 1, 2, 3, 4))
    arrivals.observer("b2", 3 * SECOND, 4 * HOUR_MS, {**_all(4, 5, 6, 7, 8, 9), "m2": 3 * MINUTE})

    assert arrivals.seen(spark) == {**ONCE, "m2": 2}


def test_what_two_observers_saw_and_two_later_ones_saw_again_arrived_twice(spark: SparkSession, arrivals: Arrivals) -> None:
    for name, since in (("a1", 0), ("b2", 0), ("c3", HOUR_MS), ("d4", HOUR_MS)):
        saw = {"m2": 70 * MINUTE} if since else _all(*range(10))
        arrivals.observer(name, since, since + HOUR_MS // 2, saw)

    assert arrivals.seen(spark) == {**ONCE, "m2": 2}


def test_an_observer_whose_mark_lags_overlaps_as_long_as_it_saw_something(spark: SparkSession, arrivals: Arrivals) -> None:
    """Where traffic never pauses it knows late, or never, that it has seen everything."""
    arrivals.observer("a1", -HOUR_MS, 4 * HOUR_MS, _all(*range(10)), marked=-HOUR_MS // 2)
    arrivals.observer("b2", -HOUR_MS // 2, 4 * HOUR_MS, _all(*range(10)))

    assert arrivals.seen(spark) == ONCE


def test_observers_that_take_messages_away_share_them_so_that_all_of_theirs_count(spark: SparkSession, arrivals: Arrivals) -> None:
    arrivals.observer("a1", -HOUR_MS, 4 * HOUR_MS, _all(0, 1, 2, 3, 4), copies=False)
    arrivals.observer("b2", -HOUR_MS, 4 * HOUR_MS, {**_all(5, 6, 7, 8, 9), "m4": 60}, copies=False)

    assert arrivals.seen(spark) == {**ONCE, "m4": 2}


def test_what_no_bridge_delivered_and_what_cannot_be_judged_is_kept_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a1", "b2"):
        files = ObservedFiles(tmp_path, "kafka", "orders", name)
        for id_, due in ((None, None), ("odd", None), ("mine", T0)):
            files.add({"at": T0, "address": "orders", "id": id_, "occurrence": 1, "due": due, "body": ""})
        files.seen(T0 - HOUR_MS, T0 + HOUR_MS)
        files.flush()
    found = overlaps(marks.observers(spark, [str(tmp_path)], {}), 0)

    seen = inputs.observed(spark, [str(tmp_path)], T0, {}, {}, found)
    rows = sorted((row["id"] or "", row["problem"] is None) for row in seen.rows.collect())

    assert rows == [("", True), ("", True), ("mine", True), ("odd", False)]
    assert seen.rows.columns == [name for name in seen.placed.columns if name != "place"]


def test_the_name_of_the_file_is_asked_for_only_where_observers_overlap(spark: SparkSession, arrivals: Arrivals) -> None:
    arrivals.observer("a1", -HOUR_MS, 5 * SECOND, _all(0))
    seen = inputs.observed(spark, [str(arrivals.folder / "seen")], T0, {}, {}, ())

    plan = seen.rows._jdf.queryExecution().toString().partition("== Physical Plan ==")[2]

    assert "file_path" not in plan
    assert "Exchange" not in plan


def _listener(name: str, since: int, until: int, **more: Any) -> Listener:
    return Listener(name, "kafka", more.pop("address", "orders"), until * MINUTE, since * MINUTE, **more)


@pytest.mark.parametrize(
    ("listeners", "found"),
    [
        ([_listener("a", 0, 10)], []),
        ([_listener("a", 0, 10), _listener("b", 10, 20)], []),
        ([_listener("a", 0, 10), _listener("b", 5, 20, address="bills")], []),
        ([_listener("a", 0, 10), _listener("b", 5, 20, copies=False)], []),
        ([_listener("b", 9, 20), _listener("a", 0, 10)], [(7, 12)]),
        ([_listener("a", 0, 60), _listener("b", 10, 20), _listener("c", 30, 40)], [(8, 22), (28, 42)]),
        ([_listener("a", 0, 60), _listener("b", 10, 20), _listener("c", 22, 40)], [(8, 42)]),
        ([_listener("a", 0, 60), _listener("b", 0, 60), _listener("c", 22, 40)], [(-2, 62)]),
        ([_listener("a", 0, 10, latest_ms=15 * MINUTE), _listener("b", 12, 20)], [(10, 17)]),
    ],
)
def test_observers_overlap_where_two_that_get_copies_listen_at_one_destination(
    listeners: list[Listener], found: list[tuple[int, int]]
) -> None:
    assert overlaps(listeners, GRACE) == [Overlap("kafka", "orders", since * MINUTE, until * MINUTE) for since, until in found]
