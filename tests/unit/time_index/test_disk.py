"""The time index and its disk: crashes, damage, two processes, and no room."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from brokers.common import wait_until
from contract.stores import HOUR, T0, adds_up, bodies, delivered, give, record, take

from delaybridge.core.store import Answer, Held, StoreClosed, StoreError, StoreFull, StoreLocked, Withdraw
from delaybridge.core.time_index import TimeIndex, database, disk, watermark
from delaybridge.core.time_index import index as module
from delaybridge.core.time_index.disk import Quota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20

# A process that puts ten batches and is gone without a word; the last one was written, and not synced yet.
CRASH = """
import os, sys
from delaybridge.core.message import Message
from delaybridge.core.schedule import Schedule
from delaybridge.core.store import Put, Record
from delaybridge.core.time_index import TimeIndex, database
index = TimeIndex(sys.argv[1], bridge="b", min_free_disk=0, reserve_bytes=0)
for number in range(10):
    if number == 9:
        index._access.sync = lambda: None
    body = b"%d" % number + b"." * 2000
    index.put([Put(Record(message=Message(body), schedule=Schedule(due=0), lane="rabbit", address="a"))], 0)
print("ten", flush=True)
os._exit(9)
"""


def opened(path: Path, **options: int) -> TimeIndex:
    return TimeIndex(path, bridge="b", **({"min_free_disk": 0, "reserve_bytes": 0} | options))  # type: ignore[arg-type]  # numbers only


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """The newest log of a store whose process died."""
    done = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ten\n", 9), done.stderr
    return max((tmp_path / "db").glob("*.log"), key=lambda log: log.stat().st_size)


def firsts(path: Path) -> list[str]:
    index = opened(path)
    found = [body.rstrip(".") for body in bodies(take(index))]
    assert adds_up(index)
    index.close()
    return found


def test_everything_that_was_put_is_there_after_the_process_was_killed(crashed: Path) -> None:
    assert firsts(crashed.parents[1]) == [str(number) for number in range(10)]


@pytest.mark.parametrize("cut", [1, 100, 1_500])
def test_a_torn_end_of_the_log_costs_only_the_write_that_was_torn(crashed: Path, cut: int) -> None:
    os.truncate(crashed, crashed.stat().st_size - cut)

    assert firsts(crashed.parents[1]) == [str(number) for number in range(9)]


def test_zeros_at_the_end_of_the_log_are_no_record(crashed: Path) -> None:
    with crashed.open("ab") as log:
        log.write(bytes(5_000))

    assert firsts(crashed.parents[1]) == [str(number) for number in range(10)]


def test_damage_within_the_log_is_an_error_and_not_a_silent_loss(crashed: Path) -> None:
    raw = bytearray(crashed.read_bytes())
    raw[len(raw) // 2] ^= 1
    crashed.write_bytes(raw)

    with pytest.raises(StoreError, match="Corruption"):
        opened(crashed.parents[1])


def test_whoever_asks_a_store_that_is_closed_is_told_so(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.close()
    with pytest.raises(StoreClosed):
        index.counts()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """Before it looks into what the first one is writing."""
    index = opened(tmp_path)
    with pytest.raises(StoreLocked, match="is open in another process"):
        opened(tmp_path)
    second = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], capture_output=True, text=True, check=False)
    index.close()

    assert "StoreLocked" in second.stderr


def test_a_store_of_another_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index._state.db.write({}, {}, {b"f": b"\x63"})
    index.close()

    for _ in range(2):
        with pytest.raises(StoreError, match="format 99"):
            opened(tmp_path)


def test_intake_stops_below_the_limit_and_begins_again_a_quarter_above_it(tmp_path: Path) -> None:
    free = 1000
    index = TimeIndex(tmp_path, bridge="b", min_free_disk=100, reserve_bytes=0, free_bytes=lambda: free)
    give(index, record("a"))
    for free, room in ((100, True), (99, False), (124, False), (125, True), (100, True)):  # noqa: B007 - the disk reads it
        assert index.room() == room

    free = 99
    with pytest.raises(StoreFull):
        give(index, record("b"))
    delivered(index, take(index))
    assert index.counts().pending == 0
    index.close()


def test_a_store_whose_directory_somebody_has_moved_says_so(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "store", bridge="b", min_free_disk=100)
    (tmp_path / "store").rename(tmp_path / "elsewhere")

    with pytest.raises(StoreError, match="store: No such file or directory"):
        index.room()
    index.close()


def test_a_store_that_finds_no_room_to_start_has_that_of_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in RocksDB's log is written to tables then."""
    opened(tmp_path, reserve_bytes=MIB).close()
    assert (tmp_path / "reserve").exists()
    tries: list[bool] = []

    def on_a_full_disk(folder: Path) -> Any:
        tries.append((tmp_path / "reserve").exists())
        if tries[-1]:
            raise StoreFull("No space left on device")
        return watermark.opened(folder)

    monkeypatch.setattr(module, "opened", on_a_full_disk)
    opened(tmp_path).close()

    assert tries == [True, False]


def test_what_a_store_may_take_is_measured_again_after_a_second_and_is_never_more_than_the_disk_has(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "ledger").mkdir()
    at, free = 0.0, 5 * MIB
    quota = Quota(tmp_path, 2 * MIB, lambda: free, lambda: at)
    assert quota.free_bytes() > 1.9 * MIB

    for name in ("reserve", "db/1.sst", "db/2.log", "ledger/rows"):
        (tmp_path / name).write_bytes(bytes(MIB))
    at = 0.9
    assert quota.free_bytes() > 1.9 * MIB
    at = 1.0
    assert -1.1 * MIB < quota.free_bytes() <= -MIB, "three of four: the ledger's does not count"
    free = -2 * MIB
    assert quota.free_bytes() == free


def test_a_store_of_its_largest_size_refuses_puts_and_fills_again_when_it_is_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_MEASURED_EVERY", 0)
    largest = 200 * MIB
    index = opened(tmp_path, min_free_disk=32 * MIB, max_bytes=largest)
    for _ in range(2):
        assert fill(index) > 5_000
        assert largest - 32 * MIB < disk.taken(tmp_path) < largest
        assert 0 < index.free_bytes() < 32 * MIB
        while dues := take(index, limit=100):
            delivered(index, dues)
        index.unfiled.forget(1 << 40)
        index.maintain(T0)
        index.maintain(T0 + HOUR)
    assert index.room()
    assert adds_up(index)
    index.close()


def test_nobody_waits_while_what_the_store_takes_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one has thousands of files."""
    index = opened(tmp_path, max_bytes=200 * MIB)
    assert index._quota is not None
    free: list[bool] = []

    def taken(_: Path) -> int:
        free.append(index._state.memory_lock.acquire(blocking=False))
        index._state.memory_lock.release()
        return 0

    monkeypatch.setattr(disk, "taken", taken)
    for ask in (index.room, lambda: give(index, record("a"))):
        index._quota._again = 0.0
        ask()
    assert free == [True, True]
    index.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(tmp_path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a file system here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def at_work(index: TimeIndex) -> bool:
    jobs = ("mem-table-flush-pending", "num-running-flushes", "compaction-pending", "num-running-compactions")
    return any(index._db._number(family, each) for family in (index._db.due, index._db.ids, index._db.meta) for each in jobs)


def fill(index: TimeIndex) -> int:
    """Put until the disk is full; returns how many were taken."""
    body, taken = os.urandom(5_000).hex(), 0
    with pytest.raises(StoreFull):  # noqa: PT012 - nobody knows which put it will be
        while True:
            give(index, *(record(body) for _ in range(100)))
            taken += 100
    return taken


def test_a_full_disk_refuses_puts_keeps_all_that_it_took_drains_and_fills_again(small_disk: Path) -> None:
    index = opened(small_disk, reserve_bytes=64 * MIB)
    taken = fill(index)
    assert index.counts().pending == taken

    for _ in range(taken // 200):
        delivered(index, take(index, limit=100))
    index.unfiled.forget(1 << 40)
    index.close()
    index = opened(small_disk, reserve_bytes=64 * MIB)
    assert index.counts().pending == taken - taken // 200 * 100
    while dues := take(index, limit=100):
        delivered(index, dues)
    assert adds_up(index)

    index.unfiled.forget(1 << 40)
    index.maintain(T0)
    index.maintain(T0 + HOUR)
    assert index.room()
    assert index.size_bytes() < MIB
    assert fill(index) > taken / 2  # how much fits depends on how much of the log is just waiting for its tables to be written
    index.close()


def test_a_store_whose_disk_is_full_is_closed_without_complaint_and_gives_its_space_back_when_there_is_room_to_open_it(
    small_disk: Path,
) -> None:
    """The disk was full only when space should have come back, and nobody writes: nothing waits, and intake stands still."""
    index = opened(small_disk / "store")
    for number in range(60):
        give(index, *(record(os.urandom(5_000).hex(), chosen_id=f"{number}-{each}") for each in range(100)))
    while dues := take(index, limit=100):
        delivered(index, dues)
    index.unfiled.forget(1 << 40)
    wait_until(lambda: not at_work(index), "RocksDB's threads, which write as well")
    with (small_disk / "other").open("wb", 0) as other:
        os.posix_fallocate(other.fileno(), 0, index._disk.free_bytes())

        assert [index.maintain(T0 + quiet * HOUR) for quiet in range(3)] == [False, True, True]
        assert index.size_bytes() > 60 * MIB
        other.truncate(os.fstat(other.fileno()).st_size - 60 * MIB)
        assert [index.maintain(T0 + quiet * HOUR) for quiet in range(3, 5)] == [True, False]
        assert index.size_bytes() < MIB

        give(index, record("a", T0 + HOUR))
        os.posix_fallocate(other.fileno(), 0, os.fstat(other.fileno()).st_size + index._disk.free_bytes())
        index._state.gone_bytes = 1 << 30
        index.maintain(T0 + 5 * HOUR)
        index.close()
    (small_disk / "other").unlink()
    index = opened(small_disk / "store")
    assert bodies(take(index, T0 + HOUR)) == ["a"]
    index.close()


def test_a_store_that_a_full_disk_lets_nobody_open_again_says_so_until_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB reads only after a failed write, until it is opened again; that writes, too."""
    index = opened(tmp_path)
    give(index, record("a"))
    with monkeypatch.context() as full:
        full.setattr(database.Database, "write", Mock(side_effect=StoreFull("no space left")))
        full.setattr(database.Database, "_open", Mock(side_effect=StoreFull("no space left")))
        with pytest.raises(StoreFull):
            give(index, record("b"))

    with pytest.raises(StoreError, match="make room and start anew"):
        take(index)
    index.close()

    index = opened(tmp_path)
    assert [due.record.message.body for due in take(index)] == [b"a"]
    index.close()


@pytest.fixture
def full_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the next write find no room."""
    write = database.Database.write

    def full() -> None:
        outcomes = [StoreFull("no space left")]

        def written(self: database.Database, *puts: Any) -> None:
            if outcomes:
                raise outcomes.pop()
            write(self, *puts)

        monkeypatch.setattr(database.Database, "write", written)

    return full


def test_the_reserve_is_spent_when_there_is_no_room_to_set_a_record_aside(tmp_path: Path, full_once: Callable[[], None]) -> None:
    index = opened(tmp_path)
    give(index, record("1", address="down"), record("2", address="up"))
    index.hold([Held(take(index, limit=1)[0].key, 1, "refused")], T0)
    give(index, record("3", address="down"))

    full_once()

    assert bodies(take(index)) == ["2"]
    assert bodies(take(index, held="down")) == ["1", "3"]
    index.close()


def test_the_reserve_is_spent_when_there_is_no_room_to_end_what_was_withdrawn(tmp_path: Path, full_once: Callable[[], None]) -> None:
    index = opened(tmp_path)
    give(index, record("1", chosen_id="a"), record("2"))
    index.hold([Held(due.key, 1, "refused") for due in take(index)], T0)
    assert bodies(take(index, held="orders")) == ["1", "2"]
    index.put([Withdraw("a")], T0)
    index.close()
    index = opened(tmp_path)

    full_once()

    assert bodies(take(index, held="orders", limit=1)) == ["2"]
    assert index.find("a") == Answer("too_late", "cancelled", T0)
    assert adds_up(index)
    index.close()
