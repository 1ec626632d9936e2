"""What comes through the door, and what is set aside there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from delaybridge.bridge.ledger.observed import ObservedFiles
from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs import reconcile
from delaybridge.spark_jobs.arguments import parse
from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.completeness.gaps import Seen
from delaybridge.spark_jobs.reading import inputs, marks
from delaybridge.spark_jobs.reconciling import verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from spark.ledgers import QUESTION, QUIET, T0, Bridge, Observer, write_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delaybridge.spark_jobs.question import Question


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


def _told(spark: SparkSession, folder: Path, bridge: Bridge, question: Question = QUESTION) -> dict[str, Any]:
    """The report of one ledger, to which nobody compares what arrived."""
    found = audit(inputs.ledger(spark, [bridge.write(folder)]), None, {}, question)
    return verdict.report(found, {})


def test_a_malformed_row_leaves_no_hole_and_only_its_hour_cannot_be_judged(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.scheduled("ended, perhaps", T0)
    bridge.row("eaten", T0, "ended, perhaps", T0)  # type: ignore[arg-type]
    bridge.scheduled("lost", T0 + HOUR_MS)
    bridge.quiet()

    told = _told(spark, tmp_path, bridge)

    assert ([row["complete"] for row in told["hours"]], told["totals"]["missing"], told["exit_code"]) == ([False, True], 1, 1)
    assert told["cannot_say"] == [
        "malformed rows of the ledger input, set aside in the table `malformed`: 1",
        "hours in which malformed rows are due cannot be judged, 1: 2025-06-15T15:00:00Z",
    ]


def test_a_malformed_row_of_which_the_due_time_is_not_known_spoils_every_hour(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.scheduled("lost", T0 + HOUR_MS)
    bridge.row("delivered", T0, "odd", 9_000_000_000_000_000, taken=T0)
    bridge.quiet()

    told = _told(spark, tmp_path, bridge)

    assert ([row["complete"] for row in told["hours"]], told["totals"]["missing"], told["exit_code"]) == ([False], 0, 2)
    assert told["cannot_say"][1:] == ["no hour can be judged: when a malformed row is due is not known"]


def test_a_ledger_of_which_only_a_malformed_row_is_there_does_not_reach_the_window(spark: SparkSession, tmp_path: Path) -> None:
    north, south = Bridge("north"), Bridge("south")
    north.scheduled("south delivered it", T0)
    north.quiet()
    south.scheduled("old", T0 - 9 * HOUR_MS, occurrence=0)
    south.write(tmp_path)

    told = _told(spark, tmp_path, north)

    assert ([(one["bridge"], one["reaches"]) for one in told["bridges"]][1], told["exit_code"]) == (("south", "nowhere"), 2)
    assert told["totals"]["missing"] == 0


OLD_DAYS = T0 - 50 * HOUR_MS


def _without_old_days(*, ragged: bool = False) -> Bridge:
    """A ledger of which the files of old events were removed; where it is `ragged`, numbers before and behind midnight alternate."""
    bridge = Bridge()
    bridge.scheduled("old", T0 + 1, taken=OLD_DAYS)
    bridge.row("scheduled", OLD_DAYS, "old", T0 + 1, taken=OLD_DAYS)
    bridge.row("scheduled", T0 - 20 * HOUR_MS, "seam", T0 + 2, taken=T0 - 20 * HOUR_MS)
    bridge.row("scheduled", T0 - 20 * HOUR_MS - 1, "other side of the seam", T0 + 3, taken=T0 - 20 * HOUR_MS - 1)
    for number in range(3):
        bridge.row("scheduled", T0 - 10 * HOUR_MS, f"young-{number}", T0 + HOUR_MS + number, taken=T0 - 10 * HOUR_MS)
        bridge.delivered(f"young-{number}", T0 + HOUR_MS + number, taken=T0 - 10 * HOUR_MS)
    for id_, due, taken in (
        ("old", T0 + 1, OLD_DAYS),
        ("seam", T0 + 2, T0 - 20 * HOUR_MS),
        ("other side of the seam", T0 + 3, T0 - 20 * HOUR_MS - 1),
    ):
        bridge.delivered(id_, due, taken=taken)
    bridge.quiet()
    bridge.rows = bridge.rows[2:3] + bridge.rows[4:] if ragged else bridge.rows[2:]
    return bridge


@pytest.mark.parametrize("ragged", [False, True])
def test_what_was_taken_in_before_a_ledger_begins_is_not_called_never_scheduled(spark: SparkSession, tmp_path: Path, ragged: bool) -> None:
    told = _told(spark, tmp_path, _without_old_days(ragged=ragged))

    assert (told["totals"]["never_scheduled"], told["totals"]["missing"], told["exit_code"]) == (0, 0, 2)
    assert told["bridges"][0]["hole"] is None
    ended = 2 if ragged else 1
    assert told["cannot_say"][0] == f"{ended} ended that were taken in before their ledgers begin: whether they were scheduled is not known"


def test_where_everything_was_taken_in_after_a_ledger_begins_the_answer_is_certain(spark: SparkSession, tmp_path: Path) -> None:
    bridge, second = _without_old_days(), replace(QUESTION, since=T0 + HOUR_MS)
    clean = _told(spark, tmp_path / "clean", bridge, second)
    bridge.rows = [row for row in bridge.rows if row.id != "young-1" or row.event != "scheduled"]
    for number, row in enumerate(bridge.rows):
        bridge.rows[number] = msgspec.structs.replace(row, sequence=100 + number)

    strange = _told(spark, tmp_path / "strange", bridge, second)

    assert (clean["verdict"], clean["totals"]["delivered"]) == ("clean", 3)
    assert (strange["verdict"], strange["totals"]["never_scheduled"]) == ("discrepancies", 1)


def test_hours_before_a_ledger_begins_cannot_be_judged(spark: SparkSession, tmp_path: Path) -> None:
    told = _told(spark, tmp_path, _without_old_days(), replace(QUESTION, since=T0 - 21 * HOUR_MS))

    [reason] = [reason for reason in told["cannot_say"] if "lacks its beginning" in reason]
    assert reason == (
        "the ledger of bridge 'b' lacks its beginning, it has number 3 and later ones: what was due before 2025-06-14T19:00:59.999Z cannot be judged"
    )


def test_the_hour_in_which_a_ledger_begins_is_incomplete_and_the_next_one_is_not(spark: SparkSession, tmp_path: Path) -> None:
    bridge, whole = Bridge(), Bridge("whole")
    for hour in (-1, 0, 1):
        bridge.both("m", T0 + hour * HOUR_MS + 1_000)
        whole.both("n", T0 + hour * HOUR_MS + 1_000)
    bridge.quiet()
    bridge.rows = bridge.rows[2:]
    whole.quiet()
    whole.write(tmp_path)

    told = _told(spark, tmp_path, bridge)

    assert ([row["complete"] for row in told["hours"]], told["exit_code"]) == ([False, True], 2)
    [reason] = told["cannot_say"]
    assert reason.endswith("what was due before 2025-06-15T15:00:51Z cannot be judged")


def test_an_hour_that_a_ledger_does_not_reach_is_incomplete_and_nothing_is_called_missing_in_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    bridge, seen = Bridge(), Observer()
    bridge.both("fine", T0 + 1)
    bridge.scheduled("on its way", T0 + 2)
    seen.saw("elsewhere", T0 - 1)
    ledger = inputs.ledger(spark, [bridge.write(tmp_path / "ledger")])
    observed = inputs.observed(spark, [seen.write(tmp_path / "seen")], T0, {}, {})

    early = audit(ledger, observed, {}, QUESTION)
    told = verdict.report(early, {})
    ended = verdict.report(audit(ledger, observed, {}, replace(QUESTION, ended=frozenset({"*"}))), {})

    assert (told["verdict"], told["totals"]["missing"], told["totals"]["pending"]) == ("cannot_say", 0, 1)
    assert told["totals"]["observed"] == 0
    assert {row["complete"] for row in told["hours"]} == {False}
    assert (ended["verdict"], ended["totals"]["missing"], ended["totals"]["observed"]) == ("discrepancies", 1, 0)


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


@pytest.mark.parametrize("due", [b"99999999999999999", b"9000000000000000", b"-1", b"99999999999999999999", b"tomorrow"])
def test_a_kafka_record_that_is_due_when_nothing_can_be_is_malformed_and_does_not_end_the_job(spark: SparkSession, due: bytes) -> None:
    told = _record(spark, [("x-delay-id", b"m"), ("x-delay-occurrence", b"1"), ("x-delay-due", due)])

    assert (told["due_time"], told["problem"]) == (None, "due_time is null, or no instant up to the year 9999")


def test_an_occurrence_below_one_is_malformed_also_where_it_was_seen(spark: SparkSession) -> None:
    told = _record(spark, [("x-delay-id", b"m"), ("x-delay-occurrence", b"0"), ("x-delay-due", b"1")])

    assert told["problem"] == "occurrence is below 1"


def test_rows_with_absurd_times_are_set_aside_and_the_others_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    bridge, seen, absurd = Bridge(), Observer(), 9_000_000_000_000_000
    bridge.both("fine", T0)
    seen.saw_all(bridge)
    bridge.row("delivered", T0, "odd", absurd, taken=T0)
    bridge.row("delivered", T0, "odd", T0, taken=-absurd)
    seen.saw("odd", absurd)
    ledger, observed = (
        inputs.ledger(spark, [bridge.write(tmp_path / "a")]),
        inputs.observed(spark, [seen.write(tmp_path / "b")], T0, {}, {}),
    )

    told = [
        (row["id"], row["problem"])
        for rows in (ledger.rows, observed.rows)
        for row in rows.where("problem is not null").select("id", "problem").collect()
    ]

    assert told == [
        ("odd", "due_time is before 1970, or after 9999"),
        ("odd", "taken_time is before 1970, or after 9999"),
        ("odd", "event_time is before 1970, or after 9999"),  # five milliseconds later
    ]
    assert inputs.sound(ledger.rows).count() + inputs.sound(observed.rows).count() == 3


class Settings(dict[str, str]):
    """A reader that only keeps what it is told."""

    def option(self, name: str, value: str) -> Settings:
        self[name] = value
        return self

    def options(self, **more: str) -> Settings:
        self.update(more)
        return self

    def format(self, name: str) -> Settings:
        return self.option("format", name)

    def load(self) -> Settings:
        return self


def test_of_a_topic_only_what_was_committed_is_read_unless_the_user_says_otherwise() -> None:
    def isolation(options: dict[str, str]) -> Any:
        read: Any = inputs.topic(Settings(), "kafka://h:1/t", T0, options)  # type: ignore[arg-type]
        return read["kafka.isolation.level"]

    assert isolation({}) == "read_committed"
    assert isolation({"kafka.isolation.level": "read_uncommitted"}) == "read_uncommitted"


def test_a_bridge_that_writes_while_the_inputs_are_read_leaves_no_hole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge, ledger = Bridge(), tmp_path / "ledger"

    def flush() -> None:
        first = len(bridge.rows)
        bridge.both(f"m-{first}", T0 + first)
        write_ledger(ledger, f"b-{first}", bridge.rows[first:])
        (ledger / "_reach").mkdir(exist_ok=True)
        (ledger / "_reach" / "b.json").write_text(f'{{"bridge": "b", "sequence": {len(bridge.rows)}, "at_ms": {QUIET}}}')

    def listed(session: SparkSession, paths: Sequence[str]) -> inputs.Input:
        found = listing(session, paths)
        flush()
        return found

    flush()
    listing = inputs.ledger
    monkeypatch.setattr(inputs, "ledger", listed)
    words = ["--ledger", str(ledger), "--out", str(tmp_path / "out"), "--since", "2025-06-15T15:00Z", "--until", "2025-06-15T16:00Z"]

    told = reconcile.reconcile(spark, parse(words, now=QUIET), lambda _: None)

    assert (told["bridges"][0]["hole"], told["verdict"]) == (None, "clean")


def test_what_an_observer_has_not_seen_yet_is_incomplete_and_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.both("seen", T0 + 1)
    bridge.both("still on its way to the observer", T0 + HOUR_MS + 1)
    bridge.quiet()
    ledger = inputs.ledger(spark, [bridge.write(tmp_path / "ledger")])
    files = ObservedFiles(tmp_path / "seen", "kafka", "alias", "a1")
    files.add({"at": T0 + 5, "address": "alias", "id": "seen", "occurrence": 1, "due": T0 + 1, "body": "x"})

    def told(until: int) -> dict[str, Any]:
        files.seen(T0 - HOUR_MS, until)
        files.flush()
        aliases = {"alias": "orders"}
        observers = marks.observers(spark, [str(tmp_path / "seen"), "kafka://b/t"], aliases)
        observed = inputs.observed(spark, [str(tmp_path / "seen")], T0, aliases, {})
        return verdict.report(audit(ledger, observed, {}, QUESTION, observers=observers), {})

    from_its_beginning, behind, done = told(0), told(T0 + HOUR_MS + 70_000), told(QUESTION.until + 70_000)

    assert (from_its_beginning["verdict"], from_its_beginning["totals"]["not_observed"]) == ("cannot_say", 0)
    assert "observer 'a1' of kafka orders has been behind since it began: is it running" in from_its_beginning["cannot_say"][-1]
    assert (behind["verdict"], behind["totals"]["not_observed"]) == ("cannot_say", 0)
    assert [row["complete"] for row in behind["hours"]] == [True, False]
    assert "observer 'a1' of kafka orders has seen what arrived up to" in behind["cannot_say"][-1]
    assert (done["verdict"], done["totals"]["not_observed"]) == ("discrepancies", 1)


def test_what_arrived_while_nobody_listened_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    bridge, end = Bridge(), QUESTION.until + 70_000
    bridge.both("seen", T0 + 1)
    bridge.both("nobody listened", T0 + HOUR_MS + 90_000)
    bridge.quiet()
    ledger = inputs.ledger(spark, [bridge.write(tmp_path / "ledger")])
    first, second = (ObservedFiles(tmp_path / "seen", "kafka", "orders", name) for name in ("a1", "b2"))
    first.add({"at": T0 + 5, "address": "orders", "id": "seen", "occurrence": 1, "due": T0 + 1, "body": "x"})
    first.seen(T0 - HOUR_MS, T0 + HOUR_MS + 70_000)
    second.seen(T0 + HOUR_MS + 120_000, end)

    def told(ended: frozenset[str] = frozenset()) -> dict[str, Any]:
        first.flush()
        second.flush()
        observers = marks.observers(spark, [str(tmp_path / "seen")], {})
        observed = inputs.observed(spark, [str(tmp_path / "seen")], T0, {}, {})
        return verdict.report(audit(ledger, observed, {}, replace(QUESTION, ended=ended), observers=observers), {})

    gap = told()
    nothing_arrived = told(frozenset({"a1"}))
    second.seen(T0 + HOUR_MS + 70_000, end)
    unbroken = told()

    assert (gap["verdict"], gap["totals"]["not_observed"]) == ("cannot_say", 0)
    assert [row["complete"] for row in gap["hours"]] == [True, False]
    [reason] = gap["cannot_say"]
    assert reason == (
        "observer 'b2' of kafka orders began to listen at 2025-06-15T16:02:00Z, and 'a1' before it reaches to 2025-06-15T16:01:10Z:"
        " what was due in between cannot be judged. If nothing arrived then: --ended a1"
    )
    assert [(one["verdict"], one["totals"]["not_observed"]) for one in (nothing_arrived, unbroken)] == [("discrepancies", 1)] * 2


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
