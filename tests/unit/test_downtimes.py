"""When the bridge was down: what a run learns at its beginning."""

from __future__ import annotations

from shutil import copytree, move, rmtree
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaybridge.bridge.config import Config
from delaybridge.bridge.downtimes import at_the_start
from delaybridge.bridge.ledger.files import LedgerFiles
from delaybridge.core.downtimes import MOST, NONE, Downtimes
from delaybridge.core.message import message
from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Put, Record
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """A bridge's directories, through several runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = Config.model_validate({"store": {"path": path / "store"}})
        self.open()

    def open(self) -> None:
        self.journal = TimeIndex(self.config.store.path, bridge=self.config.bridge, min_free_disk=0, reserve_bytes=0)

    def take(self, at: int) -> None:
        """A message, which makes a row of the ledger."""
        record = Record(message=message(b"x"), schedule=Schedule(due=at + 1000), lane="rabbit", address="a", id="m", route="r", taken=at)
        self.journal.put([Put(record)], at)

    def flush(self, at: int) -> None:
        files = LedgerFiles(self.config.ledger_path, self.journal, self.config.bridge)
        files.flush_all()
        files.mark(at)

    def start(self, at: int) -> Downtimes:
        return at_the_start(self.config, self.journal, at)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.journal.close()


def test_all_that_was_before_the_first_run_counts_as_a_downtime(home: Home) -> None:
    assert home.start(100) == Downtimes(((0, 100),))


def test_a_later_run_was_down_since_the_last_mark_of_the_one_before(home: Home) -> None:
    home.start(100)
    home.take(150)
    home.flush(200)

    assert home.start(300) == Downtimes(((0, 100), (200, 300)))
    assert home.start(310) == Downtimes(((0, 100), (200, 310))), "that run left no mark"
    home.flush(400)
    assert home.start(500) == Downtimes(((0, 100), (200, 310), (400, 500)))


def test_a_bridge_of_which_no_beginning_was_noted_was_down_since_ever(home: Home) -> None:
    home.take(150)
    home.flush(200)

    assert home.start(300) == Downtimes(((0, 300),))


def test_a_store_that_is_older_than_the_ledger_was_down_since_ever(home: Home) -> None:
    """It was restored from a copy: what it holds was delivered meanwhile, and a minute's cron must not come once for each minute since."""
    home.start(100)
    home.journal.close()
    copytree(home.config.store.path, home.path / "copy")
    home.open()
    home.take(150)
    home.flush(200)
    home.journal.close()
    move(home.config.ledger_path, home.path / "copy" / "ledger")
    rmtree(home.config.store.path)
    move(home.path / "copy", home.config.store.path)
    home.open()

    assert home.start(300) == Downtimes(((0, 300),))


@pytest.mark.parametrize("content", ["", "{", "[[1]]", '[["a", 2]]'])
def test_a_note_that_cannot_be_read_counts_as_none(home: Home, content: str) -> None:
    home.start(100)
    home.take(150)
    home.flush(200)
    (home.config.store.path / "downtimes.json").write_text(content)

    assert home.start(300) == Downtimes(((0, 300),))


def test_a_run_begins_though_it_cannot_be_noted(home: Home) -> None:
    (home.config.store.path / "downtimes.json").mkdir()

    assert home.start(100) == Downtimes(((0, 100),))
