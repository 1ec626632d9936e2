"""What the report is made of, without a browser."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError
from rich.console import Console, Group

from delaybridge.core.durations import HOUR_MS
from delaybridge.core.ledger import CLOSING
from delaybridge.spark_jobs.forecasting import screen
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling import tallies, verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from delaybridge.spark_jobs.reconciling.findings import FINDINGS
from delaybridge.spark_jobs.reporting import charts, markup, report, terminal, timelines
from delaybridge.spark_jobs.reporting.timelines import COLUMNS, TICKS, Axis
from spark.ledgers import QUESTION, T0, Bridge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DAY = 24 * HOUR_MS
MIDNIGHT = T0 // (24 * HOUR_MS) * 24 * HOUR_MS


def test_a_delivery_at_exactly_the_sla_is_on_time_in_the_histogram_and_one_beside_it_is_not() -> None:
    bars = charts.lateness_bars([(-3, 2, "early"), (1_000, 5, "on_time"), (1_000, 1, "late")])

    assert [bar for bar in bars if bar.filled] == [charts.Bar(-1, 0, 0, 2), charts.Bar(1_000, 2_000, 5, 1)]


def test_empty_bars_between_others_are_folded_into_one_and_those_at_the_ends_are_left_out() -> None:
    drawn = charts.histogram([(3, 7, "on_time"), (400, 1, "on_time")])

    assert [label in drawn for label in ("2 ms to 5 ms", "5 ms to 200 ms", "200 ms to 500 ms", "1 ms to 2 ms", "500 ms")] == [True] * 3 + [
        False,
        True,
    ]
    assert drawn.count("<svg") == 3


@pytest.mark.parametrize(
    ("watched", "number", "observed", "said"),
    [
        ([], 2, 0, "By the ledgers alone: nobody observed what arrived."),
        (["orders"], 2, 1, "Compared with what arrived at 1 of 2 destinations."),
        (["orders", "elsewhere"], 1, 1, "Compared with what arrived at 1 of 1 destination."),
    ],
)
def test_a_clean_report_says_with_what_the_ledgers_were_compared(watched: list[str], number: int, observed: int, said: str) -> None:
    """Else their own word looks like that of those who saw it arrive."""
    assert verdict.coverage({"watched": watched, "counted": {"destinations": number, "observed": observed}}) == said


def test_one_among_a_million_can_be_seen_and_the_bar_is_as_long_as_it_should() -> None:
    widths = charts._widths([1_000_000, 1, 0], 0)

    assert widths[1] > 0.3
    assert widths[2] == 0
    assert sum(widths) == pytest.approx(100)


@pytest.mark.parametrize("hours", [1, 2, 24, 168, 24 * 31, 24 * 365, 24 * 365 * 8_000])
def test_a_timeline_has_few_columns_and_few_labels_however_long_the_window_is(hours: int) -> None:
    axis = Axis(MIDNIGHT, MIDNIGHT + hours * HOUR_MS, 0)

    assert min(hours, COLUMNS // 3) <= axis.count <= COLUMNS
    assert 1 <= len(axis.ticks()) <= TICKS + 1
    assert all(0 <= at < 100 for at, _ in axis.ticks())


@pytest.mark.parametrize(("years", "label", "tick"), [(1, "15 Jun 00:00", "3 Jul"), (2, "15 Jun 2025 00:00", "23 Oct 2025")])
def test_the_labels_of_a_timeline_have_the_year_where_a_day_would_stand_there_twice(years: int, label: str, tick: str) -> None:
    axis = Axis(MIDNIGHT, MIDNIGHT + years * 365 * DAY, 0)

    assert (axis.columns([])[0].label, axis.ticks()[0][1]) == (label, tick)


def test_what_hides_or_turns_the_text_around_is_written_out_and_what_is_very_long_says_how_long() -> None:
    assert markup.text("a\x00\u202eb<i>") == r"<bdi>a\x00\u202eb&lt;i&gt;</bdi>"
    assert markup.text("x" * 500).endswith("xxx</bdi> … (500 characters)")


def test_what_turns_the_text_around_is_written_out_in_the_tooltip_of_a_chart_too() -> None:
    row = {"destination_broker": "kafka", "destination": "\u202e<b>" + "x" * 500, **dict.fromkeys(tallies.NUMBERS, 0)}
    window = {"since": "2026-11-20T00:00:00Z", "until": "2026-11-20T01:00:00Z"}
    hour = {**row, "due_hour": window["since"], "complete": True}

    told = timelines.section(
        {"destinations": [row], "hours": [hour], "window": window, "complete_until": "the end", "counted": {"destinations": 1}}
    )

    assert told.count(r"\u202e&lt;b&gt;") == 3
    assert [hostile in told for hostile in ("\u202e", "<b>", "x" * markup.LONGEST)] == [False] * 3


def test_on_a_terminal_too_what_moves_the_cursor_or_turns_the_text_around_is_written_out() -> None:
    place = {"destination_broker": "kafka", "destination": "or\x1b[2Jders\u202e"}
    row = place | dict.fromkeys(("scheduled", "delivered", "observed", "pending", "dead_lettered", *FINDINGS), 1)
    offender = {"finding": "late", "id": "m\x1b]0;title\x07", "occurrence": 1, "due_time": "2026-11-20T00:00:00.000Z", "lateness_ms": 9}
    told = io.StringIO()
    console = Console(file=told, width=200)

    console.print(terminal._destinations([row], 1))
    console.print(terminal._worst([offender], 1))
    console.print(screen._place(place))

    assert told.getvalue().count(r"kafka or\x1b[2Jders\u202e") == 2
    assert r"m\x1b]0;title\x07" in told.getvalue()
    assert "\x1b" not in told.getvalue()


@pytest.mark.parametrize(("found", "said"), [(8, False), (100, True)])
def test_the_screen_says_how_many_more_were_found_than_it_shows(found: int, said: bool) -> None:
    rows = [
        {"finding": "missing", "id": f"m{number}", "occurrence": 1, "due_time": "2026-11-20T00:00:00.000Z", "lateness_ms": None}
        for number in range(20)
    ]
    told = io.StringIO()

    Console(file=told, width=100).print(terminal._worst(rows, found))

    assert ("and 92 more" in told.getvalue()) == said


def test_a_path_stands_in_one_line_however_narrow_the_output_is() -> None:
    folder = "/var/lib/delaybridge/" + "audits/" * 20
    lines = terminal.places({"html": f"{folder}report.html", "tables": {"summary": f"{folder}run-1/summary"}})

    told = terminal.shown(Console(width=80), Group(), lines)

    assert told.splitlines() == [f"Report: {folder}report.html", f"Tables: {folder}run-1"]


def test_a_summary_is_made_without_a_word_to_the_output() -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError

    told = terminal.shown(Console(file=Full()), Group("summary"), ["line"])

    assert told == "summary\nline\n"


@pytest.mark.parametrize(
    ("ms", "told"),
    [(0, "0 ms"), (59_960, "60 s"), (-1_500, "-1.5 s"), (998 * DAY, "998 d"), (1_000 * DAY, "1,000 d"), (20_412 * DAY, "20,412 d")],
)
def test_a_duration_is_written_in_figures_however_long_it_is(ms: int, told: str) -> None:
    assert markup.duration(ms) == told


def test_a_window_in_which_nothing_was_due_is_clean_and_has_a_report(spark: SparkSession, tmp_path: Path) -> None:
    bridge = Bridge()
    bridge.quiet()

    told = verdict.report(audit(inputs.ledger(spark, [bridge.write(tmp_path)]), None, {}, QUESTION), {})

    assert (told["exit_code"], told["totals"]["scheduled"], told["totals"]["observed"]) == (0, 0, None)
    assert "Nothing was due." in report.page(told | {"tables": {"discrepancies": "there"}})


def test_of_an_offender_the_broker_stands_before_the_address() -> None:
    row = dict.fromkeys(("due_time", "at", "bridge", "lateness_ms"), None) | {"id": "m", "occurrence": 1, "detail": "why"}

    cells = report._offender(row | {"destination_broker": "rabbit", "destination": "orders"})

    assert cells[1] == ("<bdi>rabbit</bdi> <bdi>orders</bdi>", "")


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ({"delivered": 1_200}, "All 1,200 scheduled messages ended once: 1,200 delivered on time."),
        (
            {"delivered": 7, "dead_lettered": 2, "expired": 1},
            "All 10 scheduled messages ended once: 7 delivered on time, 1 expired, 2 dead-lettered.",
        ),
        ({"dead_lettered": 3}, "All 3 scheduled messages ended once: 3 dead-lettered."),
        ({"delivered": 9, "late": 2}, "All 9 scheduled messages ended once: 9 delivered; but for what is tolerated: 2 late."),
        ({}, "Nothing was due."),
        ({"delivered": 1, "never_scheduled": 1}, "Nothing was scheduled, and what was found is tolerated: 1 never scheduled."),
    ],
)
def test_a_clean_audit_tells_how_everything_ended_and_calls_nothing_on_time_that_was_not_delivered(
    ended: dict[str, int], told: str
) -> None:
    totals = dict.fromkeys(tallies.NUMBERS, 0) | ended
    totals["scheduled"] = sum(totals[name] for name in CLOSING) - totals["never_scheduled"]
    clean = {"verdict": "clean", "totals": totals, "beyond_tolerance": [], "cannot_say": [], "window": {"since": "a", "until": "b"}}
    clean |= {"watched": [], "destinations": []}

    assert report._sentence(clean) == f"{told} By the ledgers alone: nobody observed what arrived."
    assert terminal.headline(clean | {"sla_ms": 5}).plain.startswith(f"Clean: {told}\n")


@pytest.mark.parametrize(("late", "told"), [(0, "Nothing is wrong as far"), (1, "Nothing is wrong beyond what is tolerated as far")])
def test_what_is_tolerated_is_not_called_nothing_where_a_part_cannot_be_judged(late: int, told: str) -> None:
    incomplete: dict[str, Any] = {"verdict": "cannot_say", "totals": dict.fromkeys(tallies.NUMBERS, 0) | {"late": late}}
    incomplete |= {"beyond_tolerance": [], "cannot_say": [], "window": {"since": "a", "until": "b"}, "sla_ms": 5}

    assert report._sentence(incomplete) == f"{told} as can be seen, but a part of the window cannot be judged yet."
    assert terminal.headline(incomplete).plain.startswith(f"Cannot say: {report._sentence(incomplete)}\n")


class Gone:
    """A session, and what it is asked for, of which Java has ended; an event that nobody sets."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.sparkContext = self

    def statusTracker(self) -> Gone:  # noqa: N802 - Spark's name
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - as above
        raise self._error

    def wait(self, _: float) -> bool:
        return False


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()])
def test_where_java_has_ended_progress_ends_too_and_says_nothing(error: Exception) -> None:
    gone: Any = Gone(error)

    terminal._watch(gone, gone, [""], gone)


@pytest.mark.parametrize("wrong", [(), ("missing",), tuple(FINDINGS)])
def test_no_number_is_cut_off_on_a_terminal_of_eighty_characters(wrong: tuple[str, ...]) -> None:
    names = ("scheduled", "delivered", "observed", "pending", "dead_lettered")
    row = dict.fromkeys(names, 1234567) | {name: 7_654 * (name in wrong) for name in FINDINGS}
    told = io.StringIO()

    Console(file=told, width=80).print(terminal._destinations([{"destination_broker": "kafka", "destination": "reminders" * 9, **row}], 1))

    assert told.getvalue().count("1,234,567") == 5
    assert "…" not in told.getvalue()
    assert ("7,654" in told.getvalue(), "61,232" in told.getvalue()) == (len(wrong) == 1, len(wrong) > 1)
