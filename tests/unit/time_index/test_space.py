"""The time index gives the disk's space back when what waited is gone."""

from __future__ import annotations

import os
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from contract.stores import HOUR, T0, bodies, delivered, give, record, take

from delaybridge.core.store import Settled, StoreFull, Withdraw
from delaybridge.core.time_index import TimeIndex, database, disk

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def opened(path: Path) -> TimeIndex:
    return TimeIndex(path, bridge="b", min_free_disk=0, reserve_bytes=0)


def drained(index: TimeIndex, now: int = T0) -> None:
    """All that is due goes out, and its ledger rows into a file."""
    while dues := take(index, now):
        delivered(index, dues, now)
    index.unfiled.forget(1 << 40)


def quiet(index: TimeIndex, first: int, last: int) -> list[bool]:
    """Hours in which nothing goes, and whether each gave space back."""
    return [index.maintain(T0 + hour * HOUR) for hour in range(first, last)]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of few megabytes is treated as one of many."""
    for bound in ("_WORTH_COLLECTING", "_COLLECTED_AT_ONCE", "_BLOB_FILE"):
        monkeypatch.setattr(database, bound, MIB)


def with_one_left_of_ten(index: TimeIndex) -> int:
    """What waits on lies between what was delivered; returns the size before that."""
    for _ in range(10):
        give(index, *(record(os.urandom(1_000).hex(), T0 if number % 10 else T0 + HOUR) for number in range(1_500)))
        index._state.db.flush()
    full = index.size_bytes()
    drained(index)
    return full


@pytest.mark.usefixtures("small_parts")
def test_disk_space_comes_back_although_what_waits_on_lay_between_what_was_delivered(tmp_path: Path) -> None:
    """Intake may have stopped for want of it, and then nothing more comes or goes."""
    index = opened(tmp_path)
    full = with_one_left_of_ten(index)

    parts = sum(quiet(index, 0, 20))

    assert 1 < parts < 20
    assert index.counts().pending == 1_500
    assert index.size_bytes() < full / 3
    assert len(take(index, T0 + HOUR, limit=2_000)) == 1_500
    index.close()


@pytest.mark.usefixtures("small_parts")
def test_what_waits_on_is_copied_only_where_there_is_room_for_copies(tmp_path: Path) -> None:
    free = 0
    index = TimeIndex(tmp_path, bridge="b", min_free_disk=0, reserve_bytes=0, free_bytes=lambda: free)
    full = with_one_left_of_ten(index)

    assert quiet(index, 0, 3) == [False, True, False]
    assert index.size_bytes() > full / 4
    free = 10 * MIB
    assert index.maintain(T0 + 3 * HOUR)
    index.close()


def test_disk_space_comes_back_when_dead_letters_are_dropped_or_retried(tmp_path: Path) -> None:
    index = opened(tmp_path)
    for _ in range(20):
        give(index, *(record(os.urandom(3_000).hex()) for _ in range(100)))
        index.settle([Settled(due.key, "dead_lettered", T0, "rejected_by_broker") for due in take(index)], T0)
    index.unfiled.forget(1 << 40)
    quiet(index, 0, 3)
    full = index.size_bytes()
    assert full > 10 * MIB

    while letters := index.dead_letters(2_000):
        for letter in letters:
            if letter.number % 2:
                index.drop_dead_letter(letter.number, T0)
            else:
                index.retry_dead_letter(letter.number, T0)
                delivered(index, take(index))
    index.unfiled.forget(1 << 40)
    quiet(index, 3, 6)

    assert index.size_bytes() < full / 10
    index.close()


def test_disk_space_comes_back_when_what_is_due_another_day_is_cancelled(tmp_path: Path) -> None:
    """What is due before it waits on, and what is due behind it."""
    index = opened(tmp_path)
    give(index, record("before", T0 + HOUR), record("behind", T0 + 3 * HOUR))
    give(index, *(record(os.urandom(1_000).hex(), T0 + 2 * HOUR, chosen_id=str(number)) for number in range(10_000)))
    index._state.db.flush()
    full = index.size_bytes()
    assert index.next_due("rabbit") == T0 + HOUR

    for start in range(0, 10_000, 100):
        index.put([Withdraw(str(start + number)) for number in range(100)], T0)
    index.unfiled.forget(1 << 40)
    quiet(index, 0, 3)

    assert index.size_bytes() < full / 10
    assert bodies(take(index, T0 + 3 * HOUR)) == ["before", "behind"]
    index.close()


def test_disk_space_comes_back_also_where_the_disk_was_full_when_it_should_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then intake stands still, nothing else goes that would have it tried again, and no write finds out that RocksDB reads only."""
    free = 0
    index = TimeIndex(tmp_path, bridge="b", min_free_disk=0, reserve_bytes=0, free_bytes=lambda: free)
    opened_again = Mock(wraps=index._db.reopen)
    monkeypatch.setattr(index._db, "reopen", opened_again)
    give(index, *(record(os.urandom(1_000).hex()) for _ in range(10_000)))
    index._state.db.flush()
    full = index.size_bytes()
    drained(index)

    with monkeypatch.context() as no_room:
        no_room.setattr(database.Database, "flush", Mock(side_effect=StoreFull("no space left")))
        assert quiet(index, 0, 4) == [False, True, True, True]
    assert index.size_bytes() > full / 2
    assert not opened_again.called, "it needs room"
    free = 100 * MIB
    assert quiet(index, 4, 6) == [True, False]
    assert opened_again.call_count == 1

    assert index.size_bytes() < full / 10
    index.close()


def test_disk_space_comes_back_when_all_that_waits_moved_to_another_store(tmp_path: Path) -> None:
    index = opened(tmp_path)
    give(index, *(record(os.urandom(1_000).hex()) for _ in range(10_000)))
    index.unfiled.forget(1 << 40)
    quiet(index, 0, 3)
    full = index.size_bytes()

    cursor, more = "", True
    while more:
        moved, cursor = index.migration.waiting(10_000, cursor, T0)
        index.migration.out([due.key for due in moved])
        more = bool(cursor)
    quiet(index, 3, 6)

    assert index.size_bytes() < full / 10
    index.close()


def test_disk_space_comes_back_when_the_backlog_is_drained(tmp_path: Path) -> None:
    index = opened(tmp_path)
    for _ in range(150):
        give(index, *(record(os.urandom(1_000).hex(), T0 + HOUR) for _ in range(100)))
    full = index.size_bytes()
    drained(index, T0 + HOUR)

    assert not index.maintain(T0)
    assert index.maintain(T0 + HOUR)

    assert index.size_bytes() < full / 10
    index.close()


@pytest.mark.parametrize("far_off", [0, 1])
def test_disk_space_comes_back_after_each_burst_not_only_the_first(tmp_path: Path, far_off: int) -> None:
    """Before and after each of them nothing waits at the address but what is due another day, if that."""
    index = opened(tmp_path)
    give(index, *(record("another day", T0 + 100 * HOUR) for _ in range(far_off)))
    for burst in range(3):
        now = T0 + burst * HOUR
        for _ in range(100):
            give(index, *(record(os.urandom(1_000).hex(), now) for _ in range(100)))
        full = index.size_bytes()
        drained(index, now)
        index.maintain(now)
        index.maintain(now + HOUR // 2)

        assert index.size_bytes() < full / 10
    assert index.counts().pending == far_off
    index.close()


def second_by_second(index: TimeIndex, seconds: int, start: int, each: int) -> list[int]:
    """Traffic that goes on, `each` messages of 1 KB a second; returns the seconds in which space was given back."""
    given = []
    for second in range(seconds):
        now = start + second * 1_000
        give(index, *(record(os.urandom(1_000).hex(), now) for _ in range(each)))
        delivered(index, take(index, now), now)
        index.unfiled.forget(1 << 40)
        if index.maintain(now):
            given.append(second)
    return given


def test_disk_space_of_a_burst_comes_back_beside_light_traffic(tmp_path: Path) -> None:
    index = opened(tmp_path)
    for _ in range(150):
        give(index, *(record(os.urandom(1_000).hex(), T0) for _ in range(100)))
    full = index.size_bytes()
    assert not index.maintain(T0 - 10_000)
    drained(index)

    assert second_by_second(index, 40, T0, each=2)

    assert index.size_bytes() < full / 10
    index.close()


def test_steady_traffic_is_compacted_in_large_parts_only(tmp_path: Path) -> None:
    index = opened(tmp_path)

    assert second_by_second(index, 60, T0, each=100) == []
    index.close()


def quota(path: Path) -> TimeIndex:
    return TimeIndex(path, bridge="b", min_free_disk=256 * MIB, max_bytes=512 * MIB)


def filled(index: TimeIndex) -> None:
    with suppress(StoreFull):
        while True:
            give(index, *(record(os.urandom(10_000).hex()) for _ in range(200)))


def test_a_full_store_that_was_drained_takes_more_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much has gone is known in memory only; and a restart is what people do where intake stands still."""
    monkeypatch.setattr(disk, "_MEASURED_EVERY", 0)
    index = quota(tmp_path)
    filled(index)
    drained(index)
    index.close()

    index = quota(tmp_path)
    assert index.maintain(T0)

    assert index.room()
    index.close()


def test_space_that_had_gone_before_a_restart_comes_back_when_nothing_goes(tmp_path: Path) -> None:
    index = opened(tmp_path)
    for _ in range(100):
        give(index, *(record(os.urandom(1_000).hex(), T0) for _ in range(100)))
    full = index.size_bytes()
    drained(index)
    index.close()

    index = opened(tmp_path)
    assert quiet(index, 0, 3).count(True) == 1

    assert index.size_bytes() < full / 10
    index.close()


@pytest.mark.parametrize(
    ("size", "garbage", "room", "copied"),
    [
        (380, 120, 1_000, 0),
        (380, 254, 1_000, 380),
        (380, 254, 32, 64),
        (380, 254, 31, 0),
        (4_000, 3_000, 2_000, 1_000),
        (4_000, 3_000, 100, 200),
    ],
)
def test_copies_of_what_waits_on_take_half_of_what_is_free_or_all_of_it_where_nothing_of_them_is_garbage(
    size: int, garbage: int, room: int, copied: int
) -> None:
    """In MiB. `room` is half of what is free."""
    numbers = {"live-blob-file-size": size * MIB, "live-blob-file-garbage-size": garbage * MIB}
    db = SimpleNamespace(_number=lambda _, name: numbers[name])

    share = database.Database.collected(db, Mock(), room * MIB)  # type: ignore[arg-type]  # all that it asks for

    assert round(share * size) == copied
