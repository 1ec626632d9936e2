"""What is to be expected of what is pending: each rule in a sentence, and all of them against the bridge's own code."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from spark.java import needs_java

pytest.importorskip("pyspark")

from integration.daemon import COMMAND, Daemon

from delaybridge.core.downtimes import NONE
from delaybridge.core.explain import explain
from delaybridge.core.recurrence import first, following, moved
from delaybridge.core.schedule import Limits, Misfire, Recurrence, Schedule
from delaybridge.spark_jobs import forecast
from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.forecasting import occurrences, pending
from delaybridge.spark_jobs.forecasting.screen import line, screen
from spark.exports import NOW, STARTED, Exported, by_the_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delaybridge.core.fields import Value

MINUTE, HOUR = 60_000, 3_600_000
FROM = NOW + 5 * MINUTE

Minutes = dict[str, Counter[int]]


def _told(spark: SparkSession, folder: Path, *paths: str, since: int = FROM, hours: float = 24) -> dict[str, Any]:
    start = datetime.fromtimestamp(since / 1000, UTC).isoformat()
    options = [word for path in paths for word in ("--export", path)]
    arguments = forecast.parse([*options, "--from", start, "--hours", str(hours), "--out", str(folder / "out")], NOW)
    return forecast.forecast(spark, arguments)


def _minutes(told: dict[str, Any]) -> Minutes:
    found: Minutes = {}
    for row in pq.read_table(told["tables"]["minutes"].removeprefix("file:")).to_pylist():
        found.setdefault(row["destination"], Counter())[round(row["minute"].timestamp() * 1000)] = row["deliveries"]
    return found


@pytest.fixture(scope="module")
def rules(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("rules")
    one = Exported()
    one.add(Schedule(due=FROM + 90_000), "once")
    one.add(Schedule(due=NOW - 1), "overdue")
    one.add(Schedule(due=NOW + MINUTE), "before the forecast begins")
    one.add(Schedule(due=FROM + 24 * HOUR), "after it ends")
    one.add(Schedule(due=FROM, recurrence=Recurrence(start=FROM, period=MINUTE, repeat=4)), "repeat")
    one.add(Schedule(due=FROM, ends=FROM + 2 * MINUTE, recurrence=Recurrence(start=FROM, period=MINUTE, repeat=4)), "ends")
    one.add(Schedule(due=NOW - MINUTE, ends=NOW - 1), "expired")
    hourly = Recurrence(start=NOW, cron="0 * * * *")
    one.add(Schedule(due=first(hourly) or 0, recurrence=hourly), "cron")
    twice = Recurrence(start=NOW, cron="0 * * * *", period=MINUTE, repeat=1)
    one.add(Schedule(due=first(twice) or 0, recurrence=twice), "cron with a series")
    missed = Recurrence(start=STARTED - 10 * MINUTE, period=MINUTE, repeat=1_000)
    for misfire in ("fire", "skip", "all"):
        one.add(Schedule(due=STARTED - 5 * MINUTE, occurrence=6, recurrence=missed, misfire=misfire), f"missed, {misfire}")
    again = Recurrence(start=NOW - MINUTE, period=MINUTE, repeat=9)
    one.add(Schedule(due=NOW, occurrence=2, recurrence=again), "delivered meanwhile", "again")
    one.add(Schedule(due=NOW + MINUTE, occurrence=3, recurrence=again), "delivered meanwhile", "again")
    for number in range(2_880):
        one.add(Schedule(due=FROM + number * 30_000 + 7), "steady", size=10)
    for number in range(9):
        one.add(Schedule(due=FROM + 3 * HOUR), "nine at once", id_=f"nine {number}")
    for number in range(200):
        one.add(Schedule(due=FROM + 3 * HOUR + number), "burst", id_=f"burst {number}")
    report = _told(spark, folder, one.write(folder))
    return {**report, "found": _minutes(report), "by_name": {row["destination"]: row for row in report["destinations"]}}


def test_what_is_due_once_stands_in_its_minute(rules: dict[str, Any]) -> None:
    assert rules["found"]["once"] == {FROM + MINUTE: 1}


def test_what_was_due_when_it_was_exported_stands_in_the_first_minute_as_overdue(rules: dict[str, Any]) -> None:
    assert rules["found"]["overdue"] == {FROM: 1}
    assert rules["by_name"]["overdue"]["overdue"] == 1
    assert rules["by_name"]["once"]["overdue"] == 0


def test_what_falls_due_between_export_and_forecast_is_taken_to_be_delivered_and_what_is_due_later_is_not_told(
    rules: dict[str, Any],
) -> None:
    assert not {"before the forecast begins", "after it ends"} & rules["found"].keys()


def test_a_repeat_stands_for_all_its_deliveries_and_ends_where_it_says(rules: dict[str, Any]) -> None:
    assert rules["found"]["repeat"] == {FROM + n * MINUTE: 1 for n in range(5)}
    assert rules["found"]["ends"] == {FROM + n * MINUTE: 1 for n in range(3)}
    assert "expired" not in rules["found"]


def test_a_cron_stands_for_every_match_and_its_series(rules: dict[str, Any]) -> None:
    hours = [at for at in range(FROM // HOUR * HOUR, FROM + 24 * HOUR, HOUR) if at >= FROM]

    assert rules["found"]["cron"] == dict.fromkeys(hours, 1)
    assert rules["found"]["cron with a series"] == dict.fromkeys([at + n * MINUTE for at in hours for n in range(2)], 1)


def test_what_the_bridge_was_not_there_for_counts_as_its_misfire_rule_says(rules: dict[str, Any]) -> None:
    # Due a minute apart since an hour before the export: 60 are overdue, with those from before the bridge began 65.
    overdue = {name: row["overdue"] for name, row in rules["by_name"].items() if name.startswith("missed")}

    assert overdue == {"missed, fire": 61, "missed, skip": 60, "missed, all": 65}


def test_a_message_that_was_delivered_while_the_export_ran_counts_as_its_later_occurrence(rules: dict[str, Any]) -> None:
    assert rules["found"]["delivered meanwhile"] == {NOW + n * MINUTE: 1 for n in range(5, 9)}


def test_a_peak_is_a_minute_far_above_the_average_and_not_a_handful(rules: dict[str, Any]) -> None:
    peaks = {name: row["peaks"] for name, row in rules["by_name"].items() if row["peaks"]}

    assert peaks == {"burst": 1, "missed, fire": 1, "missed, skip": 1, "missed, all": 1}
    assert rules["peaks"][0] == {
        "destination_broker": "kafka",
        "destination": "burst",
        "minute": datetime.fromtimestamp((FROM + 3 * HOUR) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "deliveries": 200,
        "overdue": 0,
        "times_average": 1440.0,
    }


def test_totals_averages_and_bytes_are_told_by_destination(rules: dict[str, Any]) -> None:
    steady = rules["by_name"]["steady"]

    assert (steady["deliveries"], steady["bytes"], steady["average_per_minute"]) == (2_880, 28_800, 2.0)
    assert steady["profile"] == [2] * 48
    assert rules["totals"]["deliveries"] == sum(sum(found.values()) for found in rules["found"].values())
    assert rules["exports"] == [{"bridge": "b", "exported": "2025-06-15T15:06:00Z", "pending": 3_103}]


def test_two_bridges_add_up_and_one_bridge_twice_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    paths = []
    for name in ("north", "south"):
        bridge = Exported(name)
        bridge.add(Schedule(due=FROM))
        paths.append(bridge.write(tmp_path))

    assert _minutes(_told(spark, tmp_path, *paths)) == {"orders": {FROM: 2}}
    copy = tmp_path / "copy.parquet"
    copy.write_bytes((tmp_path / "north.parquet").read_bytes())
    with pytest.raises(UnusableInput, match="bridge 'north' stands in 2 files"):
        _told(spark, tmp_path, *paths, str(copy))


@pytest.mark.parametrize("again", ["b.parquet", "../exports/b.parquet", "."])
def test_an_export_that_is_given_twice_by_its_name_or_with_its_folder_is_refused(spark: SparkSession, tmp_path: Path, again: str) -> None:
    folder, bridge = tmp_path / "exports", Exported()
    folder.mkdir()
    bridge.add(Schedule(due=FROM))
    path = bridge.write(folder)

    with pytest.raises(UnusableInput, match=r"export file:.*/exports/b\.parquet is given twice"):
        _told(spark, tmp_path, path, str(folder / again))


def test_a_repeat_that_comes_every_second_takes_a_row_for_each_minute_and_not_one_for_each_delivery(
    spark: SparkSession, tmp_path: Path
) -> None:
    bridge = Exported()
    often = Schedule(due=NOW - HOUR, recurrence=Recurrence(start=NOW - HOUR, period=1_000, repeat=10_000))
    bridge.add(often, "often", size=10)
    waiting = pending.read(spark, [bridge.write(tmp_path)])

    rows = occurrences.expected(waiting, FROM, FROM + 24 * HOUR).collect()

    assert len(rows) < 2 * 10_000 / 60
    assert (sum(row["deliveries"] for row in rows), sum(row["bytes"] for row in rows)) == (9_701, 97_010)
    assert sum(row["deliveries"] for row in rows if row["overdue"]) == 3_600


def test_an_export_that_lacks_what_recurs_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "due": [7]}), tmp_path / "old.parquet")

    with pytest.raises(UnusableInput, match=r"bridge is missing; .*cron is missing; .*due is bigint, not timestamp"):
        _told(spark, tmp_path, str(tmp_path / "old.parquet"))


def test_of_an_export_that_was_cut_off_the_cause_is_told_and_not_javas_stack(spark: SparkSession, tmp_path: Path) -> None:
    path = Path(Exported().write(tmp_path))
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(UnusableInput, match=r"^export .*: no Parquet file can be read there: .* is not a Parquet file") as told:
        _told(spark, tmp_path, str(path))

    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("_b.parquet", "Spark passes over names that begin with a dot or an underscore"),
        ("b-2026-11-29T12:00.parquet", "Hadoop reads no file whose name has a colon: give it another name"),
    ],
)
def test_of_an_export_that_cannot_be_read_under_its_name_that_is_told(spark: SparkSession, tmp_path: Path, name: str, why: str) -> None:
    path = Path(Exported().write(tmp_path)).rename(tmp_path / name)

    with pytest.raises(UnusableInput) as told:
        _told(spark, tmp_path, str(path))

    assert str(told.value) == f"export {path}: no Parquet file can be read there: {why}"


def test_an_export_without_a_byte_is_not_taken_for_one_in_which_nothing_is_pending(spark: SparkSession, tmp_path: Path) -> None:
    Exported().write(tmp_path)
    (tmp_path / "south.parquet").touch()

    with pytest.raises(UnusableInput, match=r"^export .*: file:.*/south\.parquet is empty: was it copied whole\?$"):
        _told(spark, tmp_path, str(tmp_path))


def test_nothing_pending_is_a_forecast_of_nothing(spark: SparkSession, tmp_path: Path) -> None:
    told = _told(spark, tmp_path, Exported().write(tmp_path))

    assert (told["totals"]["deliveries"], told["destinations"], told["peaks"]) == (0, [], [])


@pytest.mark.parametrize(("number", "shown"), [(0, "0 deliveries"), (1, "1 delivery")])
def test_a_forecast_of_nothing_says_so_and_draws_no_empty_tables(number: int, shown: str) -> None:
    totals = {"deliveries": number, "overdue": 0, "bytes": 0}
    told = {
        "from": "2026-11-28T18:11:00Z",
        "until": "2026-11-28T20:11:00Z",
        "exports": [],
        "totals": totals,
        "destinations": [],
        "peaks": [],
    }
    console = Console(width=80)

    with console.capture() as printed:
        console.print(screen(told))

    assert printed.get() == f"{shown} at 0 destinations\n2026-11-28 18:11 to 2026-11-28 20:11, from exports of nothing\n"


def test_a_line_of_marks_is_as_high_as_the_highest_and_red_at_peaks() -> None:
    marks = line([0, 1, 4, 8], peak=8)

    assert marks.plain == " ▁▄█"
    assert [str(span.style) for span in marks.spans] == ["red"]


CRONS = ("* * * * *", "*/7 * * * *", "0 9 * * 1-5", "30 2 * * *", "5,35 */3 * * *", "0 0 29 2 *")
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns")
RULES: tuple[Misfire, ...] = ("fire", "skip", "all")


def _anything(dice: random.Random) -> Schedule:
    """A schedule at some occurrence of its life, around the bridge's start, the export and the forecast."""
    start = NOW + dice.randrange(-3 * HOUR, 12 * HOUR)
    ends = dice.choice([None, None, start + dice.randrange(20 * HOUR)])
    period, repeat = dice.choice([(1_000, 40), (700, 9_000), (7_000, 500), (MINUTE, 90), (20 * MINUTE, 12), (HOUR, 30)])
    delay = dice.choice([0, 5_000, 90_000, 2 * HOUR])
    if dice.random() < 0.5:
        recurrence = Recurrence(start=start, delay=delay, period=period, repeat=repeat)
    else:
        series = dice.choice([(0, 0), (MINUTE, 3), (MINUTE, 20), (7 * MINUTE, 4), (7 * MINUTE, 9), (30 * MINUTE, 5)])
        # Many series at once take the bridge's code, which counts them match by match, minutes of computing.
        cron, zone = dice.choice(CRONS[1:] if series[1] else CRONS), dice.choice(ZONES)
        recurrence = Recurrence(start=start, delay=delay, period=series[0], repeat=series[1], cron=cron, zone=zone)
    schedule = Schedule(due=first(recurrence) or 0, recurrence=recurrence, ends=ends, misfire=dice.choice(RULES))
    for _ in range(dice.choice([0, 0, 1, 5, 30])):
        schedule = following(schedule, schedule.due, NONE) or schedule
    return moved(schedule, schedule.due + dice.randrange(-HOUR, HOUR)) if dice.random() < 0.2 else schedule


def test_whatever_is_pending_the_forecast_is_what_the_bridges_own_code_would_deliver(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(4)
    schedules = [_anything(dice) for _ in range(200)]
    bridge = Exported()
    for number, schedule in enumerate(schedules):
        bridge.add(schedule, f"to {number}")

    found = _minutes(_told(spark, tmp_path, bridge.write(tmp_path), hours=20))
    expected = {f"to {n}": Counter(by_the_bridge(one, FROM, FROM + 20 * HOUR)) for n, one in enumerate(schedules)}

    assert {name: found.get(name, Counter()) for name in expected} == expected
    assert any(one.tie for one in schedules)


@needs_java
def test_the_command_tells_of_a_running_bridge_what_the_bridge_tells_itself(tmp_path: Path) -> None:
    """Messages of every kind in a daemon; `export` while it runs; `audit forecast` against `core.explain` on the same headers."""
    headers: dict[str, dict[str, Value]] = {
        "once": {"x-delay": "3h"},
        "period": {"x-delay": "10m", "x-delay-period": "13m", "x-delay-repeat": 40},
        "cron": {"x-delay-cron": "*/20 * * * *", "x-delay-timezone": "Europe/Berlin"},
        "series": {"AMQ_SCHEDULED_CRON": "5 * * * *", "AMQ_SCHEDULED_PERIOD": 90_000, "AMQ_SCHEDULED_REPEAT": 3, "AMQ_SCHEDULED_DELAY": 0},
    }
    route = {"name": "jobs", "from": {"broker": "memory", "queue": "in"}, "to": {"broker": "memory"}, "allow_to": ["*"]}
    with Daemon(tmp_path, {"brokers": {"memory": {"type": "memory"}}, "routes": [route]}) as daemon:
        daemon.start()
        for name, asked in headers.items():
            body = {"body": "b", "headers": {**asked, "x-delay-id": name, "x-delay-to": name}}
            daemon.post("/messages", body).raise_for_status()
        daemon.wait_for(lambda: daemon.pending() == len(headers), "all to be pending")
        taken = {name: daemon.get(f"/messages/{name}")["taken"] for name in headers}
        assert daemon.run("export", "--to", "pending.parquet").returncode == 0

    done = subprocess.run(
        [COMMAND, "audit", "forecast", "--export", tmp_path / "pending.parquet", "--out", tmp_path / "out", "--json"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    told = json.loads(done.stdout)
    first_minute, end = (round(datetime.fromisoformat(told[name]).timestamp() * 1000) for name in ("from", "until"))
    explained = {name: explain(asked, taken[name], Limits(), count=500).deliveries for name, asked in headers.items()}

    assert (done.returncode, done.stderr) == (0, "")
    assert _minutes(told) == {
        name: Counter(one.due // MINUTE * MINUTE for one in deliveries if first_minute <= one.due < end)
        for name, deliveries in explained.items()
    }
    assert told["totals"]["deliveries"] > 100


@needs_java
def test_what_cannot_be_read_or_asked_is_told_in_a_sentence_with_exit_code_2(tmp_path: Path) -> None:
    command = [str(COMMAND), "audit", "forecast", "--export", str(tmp_path / "nothing")]
    unreadable = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    usage = subprocess.run([*command, "--hours", "-1"], capture_output=True, text=True, check=False, timeout=300)

    assert unreadable.returncode == usage.returncode == 2
    assert unreadable.stderr.startswith(f"cannot say: export {tmp_path}/nothing: no Parquet file can be read there")
    assert "'-1' is not a number above 0" in usage.stderr
