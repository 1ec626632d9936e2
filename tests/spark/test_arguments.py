"""What is asked for on the command line, before Spark starts: what could not be done, or would be passed over, is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.core.durations import HOUR_MS, LATEST_INSTANT
from delaybridge.spark_jobs import arguments, forecast
from delaybridge.spark_jobs.reconciling.verdict import allowance, instant
from delaybridge.spark_jobs.watching import arguments as watching
from delaybridge.spark_jobs.watching import telling
from delaybridge.spark_jobs.watching.telling import Teller

NOW = 1_750_000_000_000


def test_a_destination_is_watched_only_where_something_was_observed(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--ledger", "ledger", "--watched", "kafka=orders"]
    with pytest.raises(SystemExit, match="2"):
        arguments.parse(asked, NOW)

    assert "give --observed, too" in capsys.readouterr().err
    assert arguments.parse([*asked, "--observed", "seen"], NOW).question.watched == {("kafka", "orders")}


@pytest.mark.parametrize("told", ["1969-12-31T23:59:59.999Z", "0001-01-01", "9999-12-31T23:59:59-12:00"])
def test_an_instant_at_which_nothing_can_be_due_is_refused(told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments.parse(["--ledger", "ledger", "--since", told, "--until", told], NOW)

    assert f"'{told}' is before 1970, or after 9999" in capsys.readouterr().err


@pytest.mark.parametrize(("until", "why"), [(["--until", "2025-06-15T15:00"], "\n"), ([], "; without --until only full hours are judged")])
def test_an_empty_window_is_told_with_its_ends(until: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At 15:06."""
    with pytest.raises(SystemExit, match="2"):
        arguments.parse(["--ledger", "ledger", "--since", "2025-06-15T15:00", *until], NOW)

    told = "the window is empty: --since 2025-06-15T15:00:00Z must be before --until 2025-06-15T15:00:00Z"
    assert f"{told}{why}" in capsys.readouterr().err


def test_a_duration_that_no_date_can_bear_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments.duration("36525d") == arguments.LONGEST
    with pytest.raises(SystemExit, match="2"):
        arguments.parse(["--ledger", "ledger", "--sla", "99999999999999d"], NOW)

    assert "'99999999999999d' is negative, or longer than a hundred years" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [("500ms", 500), ("1m30s", 90_000), ("PT5S", 5_000), ("1d12h", 36 * HOUR_MS), ("250", 250), ("0", 0), ("1w", 168 * HOUR_MS)],
)
def test_a_duration_is_written_as_everywhere(text: str, told: int) -> None:
    assert arguments.parse(["--ledger", "ledger", "--sla", text], NOW).question.sla == told


@pytest.mark.parametrize("text", ["-5", "5 s", "soon", "", "1.5s"])
def test_what_is_no_duration_or_a_negative_one_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments.parse(["--ledger", "ledger", f"--sla={text}"], NOW)

    assert f"argument --sla: {text!r} is " in capsys.readouterr().err


def test_an_instant_after_9999_is_told_as_the_end() -> None:
    assert [instant(LATEST_INSTANT + more) for more in (-999, 1)] == ["9999-12-31T23:59:59Z", "the end"]


def test_a_window_without_a_begin_is_a_day_but_begins_no_earlier_than_1970() -> None:
    windows = [arguments.parse(["--ledger", "ledger", "--until", told], NOW).question for told in ("1970-01-01T10:00", "1970-01-03")]

    assert [(one.since, one.until) for one in windows] == [(0, 10 * HOUR_MS), (24 * HOUR_MS, 48 * HOUR_MS)]


@pytest.mark.parametrize(
    ("after", "words", "hours"),
    [(245_000, "", 0), (244_999, "", 1), (121_000, "--sla 1s --grace 0s", 0), (120_999, "--sla 1s --grace 0s", 1), (0, "--sla 2h", 3)],
)
def test_a_window_without_an_end_ends_with_the_last_hour_that_can_be_judged(after: int, words: str, hours: int) -> None:
    hour = NOW // HOUR_MS * HOUR_MS

    asked = arguments.parse(["--ledger", "ledger", *words.split()], hour + after).question

    assert (asked.until, asked.since) == (hour - hours * HOUR_MS, hour - (hours + 24) * HOUR_MS)


@pytest.mark.parametrize(
    ("place", "is_one"), [("kafka", False), ("kafka/seen", False), ("./kafka", False), ("KAFKA://b:9092/orders", True)]
)
def test_a_folder_that_is_called_kafka_is_no_topic(place: str, is_one: bool) -> None:
    asked = arguments.parse(["--ledger", "ledger", "--observed", place], NOW)
    assert (asked.observed, asked.reads_kafka) == ((place,), is_one)


def test_a_watch_waits_for_kafka_no_longer_than_a_round_or_two_unless_it_is_told_how_long() -> None:
    def waits(*options: str) -> dict[str, str]:
        words = [word for option in options for word in ("--kafka-option", option)]
        return watching.parse(["--ledger", "ledger", "--checkpoint", "watch", *words], NOW).kafka_options

    usual = waits("kafka.security.protocol=SSL")
    assert usual["kafka.security.protocol"] == "SSL"
    assert {int(value) for name, value in usual.items() if name.lower().endswith("ms")} == {20_000, 30_000}
    assert waits("kafka.request.timeout.ms=90000") == {"kafka.request.timeout.ms": "90000"}, (
        "Kafka's client refuses it beside a shorter one"
    )


@pytest.mark.parametrize(("found", "scheduled", "covered"), [(57, 10_000, True), (58, 10_000, False), (0, 0, True), (1, 0, False)])
def test_so_many_percent_are_tolerated_and_not_one_more(found: int, scheduled: int, covered: bool) -> None:
    name, allowed = allowance("late=0.57%")

    assert (name, str(allowed), allowed.covers(found, scheduled)) == ("late", "0.57%", covered)


@pytest.mark.parametrize(
    ("read", "option", "others"),
    [
        (arguments, "--ledger", []),
        (arguments, "--observed", ["--ledger", "ledger"]),
        (arguments, "--out", ["--ledger", "ledger"]),
        (watching, "--checkpoint", ["--ledger", "ledger"]),
        (forecast, "--export", []),
        (forecast, "--out", ["--export", "export"]),
    ],
)
def test_an_empty_path_as_of_a_variable_that_is_not_set_is_refused(
    read: Any, option: str, others: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        read.parse([*others, option, ""], NOW)

    assert f"argument {option}: the path is empty" in capsys.readouterr().err


def test_a_forecast_beyond_what_a_date_can_tell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        forecast.parse(["--export", "pending.parquet", "--hours", "1e12"], NOW)

    assert "give fewer --hours" in capsys.readouterr().err


def test_a_watch_that_could_tell_nobody_ends_at_the_start_and_not_with_the_first_alert(tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(OSError, match="No such file or directory"):
        Teller(nothing, nothing, tmp_path / "nowhere" / "alerts.jsonl", None, {})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not seekable"):
        Teller(nothing, nothing, tmp_path / "pipe", None, {})


def test_a_watch_whose_alerts_go_to_a_topic_alone_may_write_them_to_dev_null() -> None:
    telling._append(Path("/dev/null"), "mine", [(1, "an alert")])


@pytest.mark.parametrize("option", ["--observed", "--alerts-to"])
def test_a_topic_that_is_written_otherwise_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for parse, asked in ((watching.parse, ["--checkpoint", "known"]), (arguments.parse, [])):
        with pytest.raises(SystemExit, match="2"):
            parse(["--ledger", "ledger", *asked, option if asked else "--observed", "kafka:orders"], NOW)

        assert "kafka:orders: write it as kafka://HOST:PORT/TOPIC" in capsys.readouterr().err
