"""Timeouts that are nearly all cancelled, beside short delays: RocksDB keeps what is gone until it is compacted, and handing out must not read it each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from contract.stores import HOUR, T0, bodies, delivered, give, record, take

from delaybridge.core.store import Withdraw
from delaybridge.core.time_index import TimeIndex, database, delivery
from delaybridge.core.time_index.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 300
FAR = T0 + HOUR // 2


class Watched:
    """Stands before the index of what is due, and counts the keys of gone records that its iterators are led over, within their bounds."""

    def __init__(self) -> None:
        self.gone: set[bytes] = set()
        self.come_by = 0
        self._end = b""

    def watch(self, database: Database) -> None:
        self._family = database.due
        database.due = self  # type: ignore[assignment]

    def between(self, first: bytes, end: bytes) -> Any:
        self._end = end
        return _between(first, end)

    def written(self, due: dict[bytes, bytes | None]) -> None:
        self.gone |= {key for key, value in due.items() if value is None}
        self.gone -= {key for key, value in due.items() if value is not None}

    def passed(self, first: bytes, end: bytes) -> None:
        self.come_by += sum(first <= key < end for key in self.gone)

    def iter(self, options: Any) -> Walk:
        return Walk(self, self._family.iter(options), self._end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)


class Walk:
    def __init__(self, watched: Watched, records: Any, end: bytes) -> None:
        self._watched = watched
        self._records = records
        self._end = end

    def _stands(self) -> bytes:
        return self._records.key() if self._records.valid() else self._end

    def seek(self, key: bytes) -> None:
        self._records.seek(key)
        self._watched.passed(key, self._stands())

    def next(self) -> None:
        before = self._stands()
        self._records.next()
        self._watched.passed(before, self._stands())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)


_between = database.between


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    one, write = Watched(), Database.write

    def writing(self: Database, due: dict[bytes, bytes | None], *others: Any) -> None:
        write(self, due, *others)
        one.written(due)

    monkeypatch.setattr(Database, "write", writing)
    for module in (database, delivery):
        monkeypatch.setattr(module, "between", one.between)
    return one


@pytest.fixture
def open_watched(open_index: Callable[[], TimeIndex], watched: Watched) -> Callable[[], TimeIndex]:
    def open_it() -> TimeIndex:
        index = open_index()
        watched.watch(index._db)
        return index

    return open_it


@pytest.fixture
def index(open_watched: Callable[[], TimeIndex]) -> TimeIndex:
    return open_watched()


def timeouts(index: TimeIndex, due: int = FAR, now: int = T0) -> list[str]:
    names = [f"{now} {number}" for number in range(MANY)]
    give(index, *(record("timeout", due + number, chosen_id=name) for number, name in enumerate(names)), now=now)
    return names


def short_delays(index: TimeIndex, times: int, now: int) -> None:
    """Messages that are due as they come in, one after the other."""
    for number in range(times):
        give(index, record("short", now + number), now=now + number)
        dues = take(index, now + number)
        assert bodies(dues) == ["short"]
        delivered(index, dues, now + number)
        index.next_due("rabbit")


def cancelled(index: TimeIndex, names: list[str], now: int) -> None:
    index.put([Withdraw(name) for name in names], now)


def replaced(index: TimeIndex, names: list[str], now: int) -> None:
    give(index, *(record("again", now + HOUR, chosen_id=name) for name in names), now=now)


def moved(index: TimeIndex, names: list[str], now: int) -> None:
    for name in names:
        index.reschedule(name, now + HOUR, now)


@pytest.mark.parametrize("gone", [cancelled, replaced, moved])
def test_what_is_gone_ahead_is_come_by_once_however_many_short_delays_come_and_go(
    index: TimeIndex, watched: Watched, gone: Callable[[TimeIndex, list[str], int], None]
) -> None:
    gone(index, timeouts(index), T0)

    short_delays(index, 50, T0 + 1_000)

    assert watched.come_by <= MANY + 2 * 50


def test_timeouts_that_come_in_and_are_cancelled_all_the_time_are_come_by_once(index: TimeIndex, watched: Watched) -> None:
    for second in range(20):
        now = T0 + second * 1_000
        cancelled(index, timeouts(index, now + HOUR // 2, now), now)
        short_delays(index, 3, now)

    assert watched.come_by <= 20 * (MANY + 2 * 3)


def test_short_and_long_delays_in_one_batch_are_told_apart(index: TimeIndex, watched: Watched) -> None:
    cancelled(index, timeouts(index), T0)
    for second in range(1, 20):
        now = T0 + second * 1_000
        give(index, record("in half a minute", now + 30_000), record("long", now + HOUR), record("short", now), now=now)
        dues = take(index, now)
        delivered(index, dues, now)
        assert "short" in bodies(dues)
        index.next_due("rabbit")

    assert watched.come_by <= MANY + 100


def test_what_is_put_back_again_and_again_leads_over_what_is_gone_once(index: TimeIndex, watched: Watched) -> None:
    cancelled(index, timeouts(index), T0)
    give(index, *(record(str(number), T0 + 200 * number) for number in range(3)))
    for _ in range(20):
        dues = take(index, T0 + 1_000)
        assert bodies(dues) == ["0", "1", "2"]
        index.next_due("rabbit")
        index.put_back([due.key for due in dues])

    assert watched.come_by <= MANY


def test_a_restart_leads_over_what_is_gone_once_more(open_watched: Callable[[], TimeIndex], watched: Watched) -> None:
    index = open_watched()
    cancelled(index, timeouts(index), T0)
    short_delays(index, 5, T0 + 1_000)
    index = open_watched()
    watched.come_by = 0

    short_delays(index, 50, T0 + 2_000)

    assert watched.come_by <= MANY + 5 + 2 * 50


def test_what_comes_to_wait_among_what_is_gone_goes_out_in_its_time(index: TimeIndex) -> None:
    cancelled(index, timeouts(index), T0)
    short_delays(index, 5, T0)
    give(index, record("first", T0 + 1_000, chosen_id="moved"), record("last", FAR + HOUR))
    given = [FAR - 60_000, FAR - 5_000, FAR + 1, FAR + 400, FAR + 60_000, FAR + 60_001]
    give(index, *(record(str(due - FAR), due) for due in given), now=T0 + 10)
    index.reschedule("moved", FAR + 30_000, T0 + 20)
    short_delays(index, 5, T0 + 30)

    assert [(index.next_due("rabbit"), bodies(take(index, due))) for due in sorted({*given, FAR + 30_000, FAR + HOUR})] == [
        (FAR - 60_000, ["-60000"]),
        (FAR - 5_000, ["-5000"]),
        (FAR + 1, ["1"]),
        (FAR + 400, ["400"]),
        (FAR + 30_000, ["first"]),
        (FAR + 60_000, ["60000"]),
        (FAR + 60_001, ["60001"]),
        (FAR + HOUR, ["last"]),
    ]
