"""How far ledgers reach, and what is said of an hour that they do not reach."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.completeness import gaps
from delaybridge.spark_jobs.completeness.gaps import Gap, Seen, furthest, unseen
from delaybridge.spark_jobs.completeness.reach import Block, Mark, Reach, blocks, counted, reaches, require_once, vanished
from delaybridge.spark_jobs.completeness.rule import Complete, complete_until
from delaybridge.spark_jobs.question import FOREVER
from delaybridge.spark_jobs.reading import inputs, marks
from delaybridge.spark_jobs.reading.uniqueness import destinations_once, files_once, once
from delaybridge.spark_jobs.reconciling.audit import audit
from delaybridge.spark_jobs.reconciling.counts import of_ledger, of_numbers
from delaybridge.spark_jobs.session import readable_errors
from spark.ledgers import QUESTION, T0, Bridge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FIRST = Block("b", 32_767, 32_767, 1, 32_767, T0)
SECOND = Block("b", 10, 10, 32_768, 32_777, T0 + 5)


def _reach(*blocks: Block, marks: dict[str, Mark] | None = None, ended: frozenset[str] = frozenset()) -> int:
    [one] = reaches(blocks, marks or {}, replace(QUESTION, ended=ended))
    return one.reaches_ms


def test_a_ledger_without_holes_reaches_to_its_last_row() -> None:
    assert _reach(SECOND, FIRST) == T0 + 5


HOLED = replace(SECOND, first=32_769, rows=9, different=9)


def test_a_ledger_reaches_to_its_first_hole() -> None:
    assert _reach(FIRST, HOLED) == T0


def test_a_hole_inside_a_block_is_found_to_the_number(spark: SparkSession) -> None:
    rows = [("b", number) for number in (*range(1, 40_001), *range(40_004, 50_001), *range(50_002, 80_001)) if number != 79_000]
    rows += [("c", 1), ("c", 3)]
    at = F.timestamp_millis(F.lit(T0) + F.col("sequence"))
    frame = spark.createDataFrame(rows, "bridge string, sequence bigint").withColumn("event_time", at)

    found = {one.bridge: one for one in reaches(counted(frame), {}, QUESTION)}

    assert found == {"b": Reach("b", len(rows) - 2, 1, 80_000, T0 + 40_000, 40_001), "c": Reach("c", 2, 1, 3, T0 + 1, 2)}


def test_a_bridges_mark_carries_an_idle_ledger_on_and_tells_of_rows_that_are_not_there() -> None:
    assert _reach(FIRST, SECOND, marks={"b": Mark(32_777, T0 + 900)}) == T0 + 900
    assert _reach(FIRST, SECOND, marks={"b": Mark(32_776, T0 + 900)}) == T0 + 900, "files may have come since"
    assert _reach(FIRST, SECOND, marks={"b": Mark(32_776, T0 + 3)}) == T0 + 5
    [short] = reaches([FIRST, SECOND], {"b": Mark(32_778, T0 + 900)}, QUESTION)
    assert (short.reaches_ms, short.hole) == (T0 + 5, 32_778)


def test_a_mark_that_tells_of_all_rows_counts_also_where_a_row_is_later_for_the_clock_was_ahead() -> None:
    ahead = replace(SECOND, latest_ms=T0 + 24 * HOUR_MS)

    assert _reach(FIRST, ahead, marks={"b": Mark(32_777, T0 + 900)}) == T0 + 900


def test_a_mark_that_is_later_than_now_by_more_than_the_grace_does_not_count() -> None:
    asked = replace(QUESTION, now=T0 + 900)
    marks = [Mark(32_777, T0 + 900 + asked.grace + more) for more in (0, 1)]

    reached = [reaches([FIRST, SECOND], {"b": mark}, asked)[0].reaches_ms for mark in marks]

    assert reached == [T0 + 900 + asked.grace, T0 + 5]


def test_rows_of_a_clock_that_was_ahead_do_not_make_a_ledger_reach_further_than_the_others(spark: SparkSession, tmp_path: Path) -> None:
    whole, holed = Bridge("whole"), Bridge("holed")
    for bridge in (whole, holed):
        bridge.both("m", T0)
        bridge.row("scheduled", T0 + 24 * HOUR_MS, "ahead", T0 + 90 * HOUR_MS)
        bridge.both("another", T0 + 1)
        bridge.scheduled("lost", T0)
        bridge.row("scheduled", T0 + 48 * HOUR_MS, "ahead again", T0 + 90 * HOUR_MS)
        bridge.write(tmp_path)
    del holed.rows[5]
    holed.write(tmp_path)

    found = audit(inputs.ledger(spark, [str(tmp_path)]), None, {}, replace(QUESTION, now=T0 + HOUR_MS))

    assert {one.bridge: (one.hole, one.reaches_ms) for one in found.bridges} == {"whole": (None, T0 + 4), "holed": (6, T0 + 4)}


def test_a_bridge_that_has_ended_reaches_to_the_end_unless_rows_are_missing() -> None:
    assert _reach(FIRST, SECOND, ended=frozenset({"b"})) == FOREVER
    assert _reach(FIRST, SECOND, ended=frozenset({"*"})) == FOREVER
    assert _reach(FIRST, HOLED, ended=frozenset({"*"})) == T0


def test_a_bridge_that_has_a_mark_and_no_row_has_lost_all_unless_it_is_named_as_ended() -> None:
    marks = {"north": Mark(3, T0), "south": Mark(7, T0)}
    there = [Reach("north", 3, 1, 3, T0)]

    for ended in (frozenset[str](), frozenset({"*"})):
        assert vanished(there, marks, replace(QUESTION, ended=ended)) == [Reach("south", 0, 1, 7, -1, hole=1)]
    assert vanished(there, marks, replace(QUESTION, ended=frozenset({"south"}))) == [Reach("south", 0, 1, 7, FOREVER)]


@pytest.mark.parametrize("again", [1, 9])
def test_rows_that_stand_twice_make_an_answer_impossible(again: int) -> None:
    with pytest.raises(UnusableInput, match=f"{again} rows from number 32768 to 32777 stand twice"):
        require_once([FIRST, replace(SECOND, rows=10 + again)])


def test_rows_are_counted_by_blocks_of_numbers_with_what_is_missing_and_what_stands_twice(spark: SparkSession) -> None:
    numbers = [*range(1, 65), *range(66, 201), 130, 32_768, 32_769]
    at = datetime.fromtimestamp(T0 / 1000, UTC)
    frame = spark.createDataFrame([("b", number, at) for number in numbers], "bridge string, sequence bigint, event_time timestamp")

    found = {Block(*row) for row in blocks(frame).collect()}

    assert found == {Block("b", 201, 200, 1, 32_768, T0), Block("b", 1, 1, 32_769, 32_769, T0)}


def test_without_looking_at_single_numbers_it_is_seen_whether_each_is_there_once(spark: SparkSession) -> None:
    whole, hole, twice, both = [*range(5, 300)], [1, 2, 4], [1, 2, 2, 3], [7, 8, 8, 10]
    rows = [
        (bridge, number) for bridge, numbers in (("a", whole), ("b", hole), ("c", twice), ("d", both), ("e", [3])) for number in numbers
    ]
    told = {"due_time": F.timestamp_millis(F.lit(T0)), "event_time": F.timestamp_millis(F.lit(T0) + F.col("sequence"))}
    words = ("event", "id", "kind", "dialect", "destination_broker", "destination")
    frame = spark.createDataFrame(rows, "bridge string, sequence bigint").withColumns(
        {**told, "taken_time": told["due_time"], "occurrence": F.lit(1), **{name: F.lit("scheduled") for name in words}}
    )
    wrong = F.when(F.col("bridge") == "e", "id is null")

    found = {row["bridge"]: tuple(row)[1:] for row in of_numbers(of_ledger(frame.withColumn("problem", wrong), QUESTION)).collect()}

    assert found.pop("e") == (True, 1, 3, 3, T0 + 3, True)
    assert found == {
        "a": (False, 295, 5, 299, T0 + 299, True),
        "b": (False, 3, 1, 4, T0 + 4, False),
        "c": (False, 4, 1, 3, T0 + 3, False),
        "d": (False, 4, 7, 10, T0 + 10, False),
    }


def test_the_answer_is_complete_up_to_the_shortest_reach_less_sla_and_grace() -> None:
    found = reaches([FIRST, SECOND, Block("c", 1, 1, 1, 1, T0 + 100_000)], {}, QUESTION)

    assert complete_until(found, QUESTION, observing=False) == T0 + 5 - 61_000
    assert complete_until(found, replace(QUESTION, as_of=T0), observing=True) == T0 - 61_000
    assert complete_until([], QUESTION, observing=False) < 0


SEEN = Seen("a1", "kafka", "orders", T0 + 900_000)


def test_the_answer_is_no_more_complete_than_what_observers_have_seen() -> None:
    asked = replace(QUESTION, ended=frozenset({"b"}))
    found = reaches([FIRST, SECOND], {}, asked)

    assert complete_until(found, asked, observing=True, observers=[SEEN]) == T0 + 900_000 - 61_000
    assert complete_until(found, replace(asked, as_of=T0), observing=True, observers=[SEEN]) == T0 - 61_000


def test_of_observers_at_one_destination_the_latest_counts_and_if_that_has_ended_it_reaches_to_the_end() -> None:
    later, other = replace(SEEN, observer="b2", at_ms=T0 + 950_000), replace(SEEN, observer="c3", address="bills", at_ms=T0)

    def ended(*names: str) -> list[Seen]:
        return furthest([SEEN, other, later], replace(QUESTION, ended=frozenset(names)))

    assert ended() == ended("a1") == [other, later], "the later one may be behind"
    assert ended("b2") == [other, replace(later, at_ms=FOREVER)]
    assert [one.at_ms for one in ended("*")] == [FOREVER, FOREVER]


def test_an_observer_that_is_named_as_ended_does_not_hide_that_the_one_after_it_is_further_behind() -> None:
    """It took over a queue with a backlog, of which the oldest arrived before the first one ended."""
    first, second = replace(SEEN, since_ms=T0), replace(SEEN, observer="b2", since_ms=T0 + 920_000, at_ms=0)

    def ended(*names: str) -> list[Seen]:
        return furthest([second, first], replace(QUESTION, ended=frozenset(names)))

    assert ended() == ended("b2") == [first]
    assert ended("a1") == [replace(second, at_ms=first.at_ms)]
    assert ended("a1", "b2") == ended("*") == [replace(first, at_ms=FOREVER)]


HOUR = T0 // HOUR_MS * HOUR_MS


def _hours(*marks: Seen, **changed: Any) -> list[int]:
    """The hours, counted from the window's begin, in which nobody listened for some of the time."""
    question = replace(QUESTION, since=HOUR, until=HOUR + 4 * HOUR_MS, **changed)
    return sorted({(hour - HOUR) // HOUR_MS for gap in gaps.of(marks, question) for hour in unseen(gap, question)})


def test_hours_in_which_nobody_listened_for_some_of_the_time_are_incomplete() -> None:
    first = replace(SEEN, since_ms=HOUR - 1_000, at_ms=HOUR + 90 * 60_000)
    second = replace(SEEN, observer="b2", since_ms=HOUR + 150 * 60_000, at_ms=HOUR + 5 * HOUR_MS)
    overlapping = replace(SEEN, observer="c3", since_ms=HOUR + 80 * 60_000, at_ms=HOUR + 151 * 60_000)
    brief, third = replace(second, at_ms=second.since_ms), replace(second, observer="d4", since_ms=HOUR + 190 * 60_000)

    assert _hours(first, second) == _hours(second, first) == [1, 2]
    assert _hours(first, second, overlapping) == []
    assert _hours(second) == [0, 1, 2]
    assert _hours(first, replace(second, address="bills")) == [0, 1, 2]
    assert _hours(first, second, ended=frozenset({"*"})) == [1, 2]
    assert _hours(first, second, ended=frozenset({"a1"})) == []
    assert _hours(first, brief, third, ended=frozenset({"a1"})) == [2, 3], "nothing is said of what came after the second one"
    assert _hours(first, replace(second, since_ms=-1)) == []
    assert _hours(replace(first, at_ms=second.at_ms), replace(overlapping, at_ms=HOUR + 85 * 60_000), second) == [], "one may come and go"


def test_what_nobody_observed_for_years_is_told_apart_by_two_instants_and_not_by_each_hour(spark: SparkSession) -> None:
    question = replace(QUESTION, since=HOUR - 40_000 * HOUR_MS)
    gap = Gap("kafka", "orders", "a1", HOUR + 1, since_ms=HOUR - 39_000 * HOUR_MS + 61_000)
    judged = Complete(-1, FOREVER, gaps=[gap]).hour(question)
    hours = spark.range(-40_000, 2).select((F.lit(HOUR) + F.col("id") * HOUR_MS).alias("due_hour"), "id")

    assert len(str(judged)) < 1_000
    assert hours.where(judged).agg(F.count("*"), F.max(F.when(F.col("id") < 0, F.col("id"))), F.max("id")).collect() == [
        (1_001, -39_001, 1)
    ]


def test_what_is_due_in_the_window_may_have_arrived_while_nobody_listened_after_it_but_not_before_it() -> None:
    def until(instant: int) -> list[Gap]:
        begun = replace(SEEN, since_ms=HOUR - 9_000, at_ms=instant - 1_000)
        return gaps.of([begun, replace(SEEN, observer="b2", since_ms=instant, at_ms=HOUR + 90 * HOUR_MS)], replace(QUESTION, since=HOUR))

    assert until(HOUR - QUESTION.skew) == []
    assert [gap.until_ms for gap in until(HOUR - QUESTION.skew + 1)] == [HOUR - QUESTION.skew + 1]
    assert [gap.until_ms for gap in until(QUESTION.until + 50 * HOUR_MS)] == [QUESTION.until + 50 * HOUR_MS]


def test_what_is_due_shortly_before_nobody_listened_may_have_arrived_then() -> None:
    def after(ended: int) -> list[int]:
        begun = replace(SEEN, since_ms=HOUR - 1_000, at_ms=ended)
        return _hours(begun, replace(SEEN, observer="b2", since_ms=ended + 1_000, at_ms=HOUR + 5 * HOUR_MS))

    beyond = QUESTION.sla + QUESTION.grace
    assert after(HOUR + HOUR_MS + beyond) == [1]
    assert after(HOUR + HOUR_MS + beyond - 1) == [0, 1]
    assert after(HOUR + HOUR_MS - 1_000 - QUESTION.skew) == [0]
    assert after(HOUR + HOUR_MS - 1_000) == [0, 1]
    assert after(HOUR - 2_000 - QUESTION.skew) == []


def test_a_second_row_of_what_must_stand_once_ends_the_audit_with_a_sentence(spark: SparkSession) -> None:
    rows = [("m", 1, "x"), ("m", 2, "x"), ("n", 1, "x")]
    frame = spark.createDataFrame(rows, "id string, occurrence bigint, told string")
    twice = spark.createDataFrame([*rows, ("m", 2, "y")], "id string, occurrence bigint, told string")

    assert once(frame, ("id", "occurrence"), "an occurrence").count() == 3
    with pytest.raises(UnusableInput, match="an occurrence stands twice: m 2"), readable_errors():
        once(twice, ("id", "occurrence"), "an occurrence").collect()


def test_an_observation_that_is_given_twice_or_was_copied_is_refused() -> None:
    files_once(
        ["a", "b"], ["file:/a/date=1/observed-x-000000.parquet", "file:/b/date=1/observed-y-000000.parquet", "/a/part-0", "/b/part-0"]
    )

    with pytest.raises(UnusableInput, match="observation a is given twice"):
        files_once(["a", "a"], [])
    with pytest.raises(UnusableInput, match=r"observed-x-000000\.parquet stands in two folders"):
        files_once(["a", "b"], ["file:/a/observed-x-000000.parquet", "file:/b/observed-x-000000.parquet"])


def test_a_destination_that_is_read_as_a_topic_and_was_observed_is_refused() -> None:
    observers = [Seen("a1", "kafka", "orders", T0), Seen("a2", "rabbit", "bills", T0)]
    destinations_once({("kafka", "bills"), ("rabbit", "orders")}, observers)

    with pytest.raises(UnusableInput, match="kafka orders is given as a topic, and observer 'a1' saw it, too"):
        destinations_once({("kafka", "orders")}, observers)


@pytest.mark.parametrize("at_ms", ["999999999999999999", "-1", "Infinity", "NaN", '"7"', "null"])
def test_a_mark_of_an_instant_that_no_date_can_tell_is_no_mark(spark: SparkSession, tmp_path: Path, at_ms: str) -> None:
    (tmp_path / "_reach").mkdir()
    (tmp_path / "_reach" / "b.json").write_text(f'{{"bridge": "b", "sequence": 3, "at_ms": {at_ms}}}')

    with pytest.raises(UnusableInput, match=r"_reach/b.json is no mark of a bridge"):
        marks.read(spark, [str(tmp_path)])


def test_a_ledger_and_an_observation_that_were_mixed_up_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_reach").mkdir()
    mark = tmp_path / "_reach" / "a.json"

    mark.write_text('{"observer": "a", "broker": "kafka", "address": "orders", "at_ms": 7}')
    with pytest.raises(UnusableInput, match="holds what an observer saw: name it by --observed"):
        marks.read(spark, [str(tmp_path)])
    mark.write_text('{"bridge": "a", "sequence": 3, "at_ms": 7}')
    with pytest.raises(UnusableInput, match="holds a ledger: name it by --ledger"):
        marks.observers(spark, [str(tmp_path)], {})


def test_of_two_marks_of_one_bridge_the_one_that_says_more_counts(spark: SparkSession, tmp_path: Path) -> None:
    for place, sequence in (("old", 5), ("new", 9), ("older", 2)):
        (tmp_path / place / "_reach").mkdir(parents=True)
        (tmp_path / place / "_reach" / "b.json").write_text(f'{{"bridge": "b", "sequence": {sequence}, "at_ms": 7}}')

    assert marks.read(spark, [str(tmp_path / place) for place in ("old", "new", "older")]) == {"b": Mark(9, 7)}
