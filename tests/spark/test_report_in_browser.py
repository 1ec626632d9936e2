"""The report as people see it: in a real browser, on a desk and on a phone, light and dark."""

from __future__ import annotations

import html
from itertools import product
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.core.durations import HOUR_MS
from delaybridge.spark_jobs.question import Question
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.reconciling import verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from delaybridge.spark_jobs.reporting import report
from spark import browser
from spark.ledgers import T0, Bridge, Observer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession

DAY = Question(since=T0, until=T0 + 24 * HOUR_MS, as_of=T0 + 72 * HOUR_MS, sla=1_000, skew=50, grace=60_000)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=//example.com/x onerror=alert(2)>',
    'it\'s & "quoted" &lt;',
    "verylongid" * 30,
)
LONG = "</title><script>alert(3)</script>" + "europe.payments.reminders." * 9

Written = tuple[Bridge, Observer]


def _clean() -> Written:
    """Three destinations over a day, one of them busy."""
    bridge, seen = Bridge(), Observer()
    for number in range(240):
        bridge.destination = ("orders", "orders", "bills", "mails")[number % 4]
        bridge.both(f"m-{number}", T0 + number * 360_000, (3, 8, 40, 700)[number % 3])
    seen.saw_all(bridge)
    bridge.quiet(T0 + 30 * HOUR_MS)
    return bridge, seen


def _many() -> Written:
    """Five hundred are missing, 300 of them in the first hour and 200 in the second."""
    bridge, seen = Bridge(), Observer()
    for number in range(500):
        bridge.scheduled(f"lost-{number}", T0 + (number >= 300) * HOUR_MS + number)
        bridge.both(f"m-{number}", T0 + (number >= 400) * HOUR_MS + number)
    seen.saw_all(bridge)
    bridge.quiet(T0 + 30 * HOUR_MS)
    return bridge, seen


def _hostile() -> Written:
    """Everything at once, under names that are long, or markup."""
    bridge, seen = Bridge('<b title="x">' + "north" * 20, LONG), Observer(LONG)
    for number, id_ in enumerate(HOSTILE):
        bridge.scheduled(id_, T0 + number)
        bridge.both(f"late {id_}", T0 + number * HOUR_MS, 100_000 * 30**number)
        bridge.both(f"early {id_}", T0 + number, -7)
        bridge.scheduled(f"cancelled {id_}", T0 + number * HOUR_MS)
        bridge.row("cancelled", T0, f"cancelled {id_}", T0 + number * HOUR_MS)
        bridge.delivered(f"unknown {id_}", T0 + number)
    seen.saw_all(bridge)
    seen.rows = [row for row in seen.rows if row["id"] != f"late {HOSTILE[0]}"]
    seen.saw(f"early {HOSTILE[1]}", T0 + 1, destination=LONG)
    seen.saw(f"cancelled {HOSTILE[2]}", T0 + 2 * HOUR_MS, destination=LONG)
    seen.saw(HOSTILE[3], T0 + 3, destination=LONG)
    bridge.quiet(T0 + 30 * HOUR_MS)
    return bridge, seen


def _incomplete() -> Written:
    """The ledger ends at noon."""
    bridge, seen = _clean()
    bridge.rows = [row for row in bridge.rows if row.due_time < T0 + 12 * HOUR_MS]
    return bridge, seen


WORLDS = {"clean": _clean, "many": _many, "hostile": _hostile, "incomplete": _incomplete}


@pytest.fixture(scope="module")
def pages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of a real audit of each world."""
    folder: Path = tmp_path_factory.mktemp("reports")
    written = {}
    for name, world in WORLDS.items():
        bridge, seen = world()
        ledger = inputs.ledger(spark, [bridge.write(folder / name / "ledger")])
        observed = inputs.observed(spark, [seen.write(folder / name / "seen")], T0, {}, {})
        told = verdict.report(audit(ledger, observed, {}, DAY), {}) | {"tables": {"discrepancies": f"file:{folder}/discrepancies"}}
        written[name] = folder / f"{name}.html"
        written[name].write_text(report.page(told))
    return written


@pytest.fixture(scope="module")
def window(chromium: str) -> Iterator[Browser]:
    with browser.running(chromium) as running:
        yield running


@pytest.mark.parametrize(("width", "scheme"), list(product((1280, 400), ("light", "dark"))))
@pytest.mark.parametrize("name", WORLDS)
def test_all_of_it_can_be_read_and_nothing_is_asked_of_the_network(
    window: Browser, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    with browser.looking(window, pages[name], width, scheme) as seen:
        assert seen.page.locator("#verdict").is_visible()
        assert seen.page.locator("svg[role=img] rect").count() > 3
        assert seen.problems() == []
        assert seen.asked == [pages[name].as_uri()]
        assert seen.complaints == []


SIZES = "[...document.querySelectorAll('*')].map(one => parseFloat(getComputedStyle(one).fontSize))"


@pytest.mark.parametrize(
    ("name", "told"),
    [("clean", "Clean"), ("many", "500 discrepancies"), ("hostile", "19 discrepancies"), ("incomplete", "Cannot say")],
)
def test_the_verdict_stands_at_the_top_and_is_what_is_read_first(window: Browser, pages: dict[str, Path], name: str, told: str) -> None:
    with browser.looking(window, pages[name], 400) as seen:
        headline = seen.page.locator("h1")
        box, largest = headline.bounding_box(), headline.evaluate("one => parseFloat(getComputedStyle(one).fontSize)")

        assert headline.inner_text() == told
        assert box is not None
        assert box["y"] + box["height"] < 300
        assert max(seen.page.evaluate(SIZES)) == largest


DRAWN = """[...document.querySelectorAll('.place svg g')].map(column =>
    [...column.querySelectorAll('rect')].map(mark => [mark.getAttribute('class'), mark.getBoundingClientRect().height]))"""


def test_bars_are_as_long_as_their_numbers(window: Browser, pages: dict[str, Path]) -> None:
    with browser.looking(window, pages["many"]) as seen:
        drawn = seen.page.evaluate(DRAWN)

    assert len(drawn) == 24
    assert [[kind for kind, _ in column] for column in drawn[:3]] == [["done", "open", "wrong"], ["done", "open", "wrong"], []]
    (done, pending, wrong), (done_later, pending_later, wrong_later) = ([height for _, height in column] for column in drawn[:2])
    assert done / pending == pytest.approx(400 / 300, rel=0.02)
    assert done_later / done == pytest.approx(100 / 400, rel=0.02)
    assert pending_later / pending == pytest.approx(200 / 300, rel=0.02)
    assert wrong_later / wrong == pytest.approx(200 / 300, rel=0.02)


def test_ids_and_names_are_shown_as_they_are_and_none_is_markup(window: Browser, pages: dict[str, Path]) -> None:
    with browser.looking(window, pages["hostile"]) as seen:
        ids = seen.page.locator("td code").all_text_contents()
        names = seen.page.locator("h3 bdi").all_text_contents()

        assert set(HOSTILE) <= set(ids)
        assert LONG in names
        assert seen.page.locator("script, img, b[title]").count() == 0
        assert seen.page.title() == "Discrepancies: delaybridge audit"


def test_only_some_of_many_offenders_are_shown_and_the_page_says_of_how_many(window: Browser, pages: dict[str, Path]) -> None:
    with browser.looking(window, pages["many"]) as seen:
        rows = seen.page.locator("h3.bad + table tr:has(td)")

        assert seen.page.locator("h3.bad").inner_text() == "missing: 10 of 500"
        assert (rows.count(), seen.page.locator("summary").inner_text()) == (report.AT_ONCE, "7 more")


def test_what_is_incomplete_says_why_and_is_marked_in_the_timelines(window: Browser, pages: dict[str, Path]) -> None:
    with browser.looking(window, pages["incomplete"]) as seen:
        marked = [chart.locator("rect.dim").count() for chart in seen.page.locator(".place svg").all()]

        assert "the ledger of bridge 'b' reaches to" in seen.page.locator("header li").last.inner_text()
        assert marked == [13] * len(marked)


FAULTS = {
    "<p style='font-size:10px'>small": "small",
    "<p style='color:#999;background:#fff'>faint": "faint",
    "<p style='white-space:nowrap'>" + "wide " * 400: "cut off",
    "<p style='position:absolute;top:3px'>one</p><p style='position:absolute;top:8px'>two": "overlap",
    "<div style='width:40px;overflow:hidden'>unbreakableword</div>": "cut off",
    "<svg role=img viewBox='0 0 1000 50' width=300><text y=20 font-size=16>shrunk</text></svg>": "small",
    "<svg role=img height=50><rect width=0 height=5 /></svg>": "no size",
    "<svg role=img height=50><rect width=5 height=5 fill='#eee' /></svg>": "faint",
}


@pytest.mark.parametrize("fault", FAULTS, ids=html.escape)
def test_who_looks_sees_what_is_wrong(window: Browser, tmp_path: Path, fault: str) -> None:
    (tmp_path / "page.html").write_text(f"<!doctype html><body style='color:#000;background:#fff'>{fault}")

    with browser.looking(window, tmp_path / "page.html", 400) as seen:
        assert any(FAULTS[fault] in problem for problem in seen.problems())


def test_who_looks_sees_requests_and_complaints(window: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<img src=other.png><script>console.log('hm'); alert('look'); throw Error('oh')</script>")

    with browser.looking(window, tmp_path / "page.html") as seen:
        assert seen.asked == [(tmp_path / "page.html").as_uri(), (tmp_path / "other.png").as_uri()]
        assert {"hm", "look", "oh"} <= set(seen.complaints)
