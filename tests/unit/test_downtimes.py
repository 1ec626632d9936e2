"""When the bridge was down: what a run learns at its beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock, call

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from delaybridge.bridge.downtimes import AliveWorker, DowntimeFile, at_the_start
from delaybridge.core.downtimes import MOST, NONE, Downtimes

if TYPE_CHECKING:
    from pathlib import Path

TWICE = Downtimes(((10, 20), (30, 40)))


@pytest.mark.parametrize(("instant", "end"), [(9, None), (10, 20), (19, 20), (20, None), (29, None), (30, 40), (40, None), (1000, None)])
def test_an_instant_lies_in_a_downtime_from_its_begin_to_before_its_end(instant: int, end: int | None) -> None:
    assert (TWICE.end_of(instant), NONE.end_of(instant)) == (end, None)


@pytest.mark.parametrize(
    ("begin", "end", "spans"),
    [
        (45, 50, ((10, 20), (30, 40), (45, 50))),
        (40, 50, ((10, 20), (30, 50))),  # the run between them left no mark
        (15, 50, ((10, 50),)),
        (0, 50, ((0, 50),)),
        (35, 35, ((10, 20), (30, 35))),  # the clock was set back
        (60, 50, ((10, 20), (30, 40))),
        (60, 25, ((10, 20),)),
    ],
)
def test_one_more_takes_in_those_that_it_reaches_back_to(begin: int, end: int, spans: tuple[tuple[int, int], ...]) -> None:
    assert TWICE.then(begin, end) == Downtimes(spans)


def test_many_are_told_apart_but_for_the_earliest() -> None:
    many = NONE
    for number in range(MOST + 2):
        many = many.then(number * 10 + 5, number * 10 + 9)

    assert many.spans[:2] == ((5, 29), (35, 39))
    assert len(many.spans) == MOST


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8), st.integers(0, 50))
def test_they_stay_in_order_and_apart_and_hold_just_what_they_were_given(given: list[tuple[int, int]], instant: int) -> None:
    whole, held = NONE, False
    for begin, end in given:
        whole = whole.then(begin, end)
        held = (held and instant < end) or begin <= instant < end
    flat = [edge for span in whole.spans for edge in span]

    assert flat == sorted(set(flat))
    assert (whole.end_of(instant) is not None) == held


class Home:
    """A store's directory, through several runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "downtimes.json"
        self.row = 1

    def start(self, at: int) -> DowntimeFile:
        return at_the_start(self.path, at, self.row)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_all_that_was_before_the_first_run_counts_as_a_downtime(home: Home) -> None:
    assert home.start(100).known == Downtimes(((0, 100),))


def test_a_later_run_was_down_since_the_last_sign_of_life_of_the_one_before(home: Home) -> None:
    home.start(100).alive(200, home.row)

    assert home.start(300).known == Downtimes(((0, 100), (200, 300)))
    home.start(310).alive(400, home.row)
    assert home.start(500).known == Downtimes(((0, 100), (200, 310), (400, 500))), "the run in between was killed at once"


def test_a_store_that_is_older_than_the_last_sign_of_life_was_down_since_ever(home: Home) -> None:
    """It was restored: what it holds was delivered meanwhile, and a minute's cron must not come once for each minute since."""
    home.start(100).alive(200, row=7)
    home.row = 6

    assert home.start(300).known == Downtimes(((0, 300),))


def test_a_copy_of_the_whole_directory_was_down_since_it_was_made(home: Home) -> None:
    home.start(100).alive(200, row=7)
    copy = home.file.read_bytes()
    home.start(300).alive(900, row=99)
    home.file.write_bytes(copy)
    home.row = 7

    assert home.start(1000).known == Downtimes(((0, 100), (200, 1000)))


@pytest.mark.parametrize("content", ["", "{", "[[0, 100]]", '{"downtimes": [["a", 2]], "alive": 1, "row": 1}'])
def test_a_note_that_cannot_be_read_counts_as_none(home: Home, content: str) -> None:
    home.start(100)
    home.file.write_text(content)

    assert home.start(300).known == Downtimes(((0, 300),))


def test_a_run_begins_and_goes_on_though_it_cannot_be_noted_and_says_so_once(home: Home) -> None:
    home.file.mkdir()
    with capture_logs() as logs:
        noted = home.start(100)
        noted.alive(200, home.row)

    assert noted.known == Downtimes(((0, 100),))
    assert [line["event"] for line in logs] == ["downtimes_unreadable", "sign_of_life_not_written"]


def test_a_clock_that_was_ahead_at_the_start_and_is_set_right_leaves_no_downtime_in_the_file(home: Home) -> None:
    """Else the next run would find all that this one lived in a downtime."""
    home.start(100).alive(200, home.row)
    noted = home.start(3_600_000)
    assert noted.known == Downtimes(((0, 100), (200, 3_600_000)))
    noted.alive(300, home.row)
    noted.alive(900, home.row)

    assert noted.known == Downtimes(((0, 100), (200, 300)))
    assert home.start(1000).known == Downtimes(((0, 100), (200, 300), (900, 1000)))


def test_a_sign_of_life_is_given_every_ten_seconds_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, end = 0.0, 35.0
    down = Mock()
    worker = AliveWorker(down, lambda: 7, lambda: int(now), lambda *_: None)

    def wait(seconds: float) -> bool:
        nonlocal now
        now = min(now + seconds, end)
        return now == end

    monkeypatch.setattr(worker.stopping, "wait", wait)

    worker.run()

    assert down.alive.call_args_list == [call(at, 7) for at in (10, 20, 30, 35)]
