"""What an observer says of itself: from when to when it has seen everything, and when it saw the last; and the files that it writes."""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from pyarrow import parquet
from pyarrow.dataset import dataset

from delaybridge.bridge import durable
from delaybridge.bridge.cli import observe
from delaybridge.bridge.ledger import observed as observed_files
from delaybridge.bridge.ledger.observed import AGAIN_MS, INTERVAL_MS, QUIET_MS, Look, ObservedFiles, Reach
from delaybridge.bridge.ledger.parquet import mark_of
from delaybridge.core.durations import LATEST_INSTANT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T0 = 1_750_000_000_000


class FullDisk:
    """In place of `parquet`."""

    @staticmethod
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_was_known_to_be_seen_stays_so_where_late_messages_come_next() -> None:
    reach = Reach(copies=True)
    reach.looked(Look(T0, T0 + QUIET_MS, (), full=False))
    assert (reach.since, reach.until) == (T0, T0)

    overdue = {"at": T0 + QUIET_MS, "due": T0 - 60_000}
    reach.looked(Look(T0 + QUIET_MS, T0 + 3 * QUIET_MS, [overdue], full=False))

    assert (reach.since, reach.until) == (T0, T0)


def test_where_traffic_never_pauses_it_is_seen_up_to_the_latest_due_time_that_is_a_second_old() -> None:
    """A delivery arrived no earlier than it was due, and behind all that had arrived before."""
    reach, until = Reach(copies=True), []
    for began, ended, due in ((0, 500, 100), (500, 999, 600), (999, 1_000, 700), (1_000, 2_500, 1_050), (2_500, 2_600, 900)):
        reach.looked(Look(T0 + began, T0 + ended, [{"at": T0 + ended, "due": T0 + due}], full=False))
        until.append(reach.until - T0)
    assert until == [0, 0, 0, 1_050, 1_050]


def test_where_more_may_have_arrived_than_came_nothing_more_counts_as_seen_for_a_second() -> None:
    reach, until = Reach(copies=True), []
    for began, ended, full in ((0, 1_000, False), (1_000, 9_000, True), (9_000, 9_999, False), (9_999, 10_000, False)):
        reach.looked(Look(T0 + began, T0 + ended, [{"at": T0 + ended, "due": T0 + began}], full=full))
        until.append(reach.until - T0)
    assert until == [0, 0, 0, 9_000]


@pytest.mark.parametrize("due", [{}, {"due": T0 + 5_001}])
def test_traffic_that_no_bridge_delivered_tells_nothing_of_what_was_seen(due: dict[str, int]) -> None:
    """Nor does one that claims to be due after it arrived."""
    reach = Reach(copies=True)
    reach.looked(Look(T0, T0 + 5_000, [{"at": T0 + 5_000, **due}], full=False))
    assert (reach.since, reach.until) == (T0, T0)


HOUR = 3_600_000


def test_nothing_counts_as_seen_that_arrives_after_the_clock_was_set_back_from_there() -> None:
    """Else what arrives in that hour and was not recorded would be taken for lost."""
    reach = Reach(copies=True)
    reach.looked(Look(T0, T0 + QUIET_MS, (), full=False))
    reach.looked(Look(T0 + HOUR, T0 + HOUR + QUIET_MS, (), full=False))
    assert reach.until == T0 + HOUR

    reach.looked(Look(T0 + 3 * QUIET_MS, T0 + 4 * QUIET_MS, (), full=True))

    assert (reach.since, reach.until) == (T0, T0 + 2 * QUIET_MS)


def test_of_a_look_in_which_the_clock_was_set_back_no_time_to_come_was_seen() -> None:
    reach = Reach(copies=True)
    reach.looked(Look(T0, T0 + QUIET_MS, (), full=False))
    reach.looked(Look(T0 + HOUR, T0 + 2 * QUIET_MS, (), full=False))
    assert reach.until <= T0 + QUIET_MS

    reach.looked(Look(T0 + 2 * QUIET_MS, T0 + 3 * QUIET_MS, (), full=False))
    assert reach.until == T0 + 2 * QUIET_MS


def test_what_was_observed_is_written_within_a_minute_whatever_the_clock_does(tmp_path: Path) -> None:
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    files.flush_if_due(T0 + HOUR)
    files.add({"at": T0 + HOUR, "address": "orders"})
    files.flush_if_due(T0 + HOUR + INTERVAL_MS - 1)
    assert not list(tmp_path.rglob("*.parquet"))

    files.flush_if_due(T0)

    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_what_the_daemon_tells_of_is_written_within_a_minute_also_where_nothing_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an audit that is made meanwhile would miss it. Looks without anything let it be written."""
    ended = Event()

    class Client:
        @contextmanager
        def observe(self, *_: str) -> Iterator[Iterator[str]]:
            yield self.lines()

        def lines(self) -> Iterator[str]:
            yield json.dumps({"at": T0, "address": "out"})
            ended.wait(10)
            yield json.dumps({"at": T0 + HOUR, "address": "out"})

    monkeypatch.setattr(observe, "connect", lambda *_: Client())
    monkeypatch.setattr(observed_files, "QUIET_MS", 1)
    looks = observe._through_daemon(None, None, None, "memory", "out", None)

    first, second = next(look for look in looks if look.deliveries), next(looks)
    ended.set()
    third, *others = (look for look in looks if look.deliveries)

    assert [look.deliveries and look.deliveries[0]["at"] for look in (first, second, third)] == [T0, [], T0 + HOUR]
    assert (second.full, others) == (True, []), "that nothing comes does not tell that nothing waits"


def observed(folder: Path) -> int:
    return sum(parquet.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))


def test_what_is_observed_while_the_disk_is_full_is_written_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was acknowledged: nobody gives it again."""
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    files.flush_if_due(T0)
    with monkeypatch.context() as patched:
        patched.setattr(observed_files, "parquet", FullDisk)
        for number in range(1, 4):
            files.add({"at": T0 + number, "address": "orders"})
            files.flush_if_due(T0 + number * INTERVAL_MS)
            assert "No space left" in files.error

    files.flush_if_due(T0 + 3 * INTERVAL_MS + AGAIN_MS - 1)
    assert observed(tmp_path) == 0
    files.flush_if_due(T0 + 3 * INTERVAL_MS + AGAIN_MS)

    assert (observed(tmp_path), files.error) == (3, "")


def test_a_disk_on_which_nothing_can_be_written_shows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_files, "parquet", FullDisk)
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    files.add({"at": T0, "address": "orders"})
    with pytest.raises(OSError, match="No space left"):
        files.flush_if_due(T0)


def test_what_comes_later_is_in_files_of_its_own_by_hours_and_each_message_in_one(tmp_path: Path) -> None:
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    for ats in ((T0, T0 + 1, T0 + HOUR), (T0 + 2,), ()):
        for at in ats:
            files.add({"at": at, "address": "orders"})
        files.flush()

    folders = [file.parent.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.parquet")]
    first, second = "date=2025-06-15/hour=15", "date=2025-06-15/hour=16"
    assert sorted(folders) == [first, first, second]
    assert (observed(tmp_path), observed(tmp_path / first), files.unwritten) == (4, 3, 0)
    assert not mark_of(tmp_path, "observed-one").exists(), "nobody has said yet how far it has seen"


LAST_NUMBER = (1 << 63) - 1


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"id": "a", "occurrence": 1, "due": 0, "body": "é"}, ("a", 1, 0, 2)),
        ({"id": "a", "occurrence": LAST_NUMBER, "due": LATEST_INSTANT, "body_base64": "AAAA"}, ("a", LAST_NUMBER, LATEST_INSTANT, 3)),
        ({"id": "a", "occurrence": 0, "due": -1, "body": None}, ("a", None, None, 0)),
        ({"id": "a", "occurrence": LAST_NUMBER + 1, "due": LATEST_INSTANT + 1}, ("a", None, None, 0)),
        ({}, (None, None, None, 0)),
    ],
)
def test_of_a_message_it_is_kept_what_a_bridge_may_have_written(tmp_path: Path, told: dict[str, object], kept: tuple[object, ...]) -> None:
    """Anybody else may write headers of these names, with numbers that no column holds."""
    files = ObservedFiles(tmp_path, "rabbit", "eu", "one")
    files.add({"at": T0, "address": "eu", **told})
    files.flush()
    (file,) = tmp_path.rglob("*.parquet")
    table = parquet.ParquetFile(file).read()
    columns = [table[name].cast("int64") if name == "due_time" else table[name] for name in ("id", "occurrence", "due_time", "size_bytes")]
    assert tuple(column[0].as_py() for column in columns) == kept
    assert [table[name][0].as_py() for name in ("event", "destination_broker", "destination")] == ["observed", "rabbit", "eu"]


def test_where_the_disk_is_still_full_at_the_end_it_is_told_how_much_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_files, "parquet", FullDisk)
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    monkeypatch.setattr(files, "flush_if_due", lambda _: None)  # it is not time yet
    looks = [Look(T0, T0, ({"at": T0, "address": "orders"},) * 3, full=False)]

    with pytest.raises(OSError, match=r"^\S+: 3 of 3 messages are in no file: .*No space left"):
        observe._write(looks, files, None)


def test_no_more_is_kept_for_a_full_disk_than_goes_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    files.flush_if_due(T0)
    monkeypatch.setattr(observed_files, "parquet", FullDisk)
    monkeypatch.setattr(observed_files, "ROWS_PER_FILE", 2)
    files.add({"at": T0, "address": "orders"})
    files.flush_if_due(T0 + INTERVAL_MS)
    files.add({"at": T0, "address": "orders"})
    with pytest.raises(OSError, match="No space left"):
        files.flush_if_due(T0 + INTERVAL_MS)


def test_the_latest_is_the_latest_in_whatever_order_they_are_told(tmp_path: Path) -> None:
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    for at in (T0 + 5, T0):
        files.add({"at": at, "address": "orders"})
    files.seen(T0, T0 + 10)
    files.flush()

    assert json.loads(mark_of(tmp_path, "observed-one").read_text())["latest_ms"] == T0 + 5


def test_what_anybody_may_write_into_a_header_does_not_make_a_file_that_no_reader_takes(tmp_path: Path) -> None:
    files = ObservedFiles(tmp_path, "rabbit", "out", "a1")
    for occurrence, due in ((1, 5), (0, -1), (10**30, 10**17), (None, None)):
        files.add({"at": 7, "address": "out", "id": "m", "occurrence": occurrence, "due": due, "body": ""})
    files.flush()
    [file] = tmp_path.glob("date=*/hour=*/*.parquet")

    rows = parquet.read_table(file, columns=["occurrence", "due_time"]).to_pylist()

    assert [(row["occurrence"], row["due_time"] and row["due_time"].microsecond) for row in rows] == [(1, 5_000), *[(None, None)] * 3]


def test_rows_of_which_nobody_knows_whether_they_are_in_a_file_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has its name, but its directory could not be synced: the observer keeps the rows, and writes them again."""
    files = ObservedFiles(tmp_path, "rabbit", "out", "a1")
    files.add({"at": T0, "address": "out", "body": "a"})
    with monkeypatch.context() as failing:
        failing.setattr(durable, "sync_directory", Mock(side_effect=OSError("the disk failed")))
        with pytest.raises(OSError, match="the disk failed"):
            files.flush()

    files.add({"at": T0 + 1, "address": "out", "body": "b"})
    files.flush()

    assert sorted(dataset(tmp_path, format="parquet").to_table()["event_time"].cast("int64").to_pylist()) == [T0, T0 + 1]
