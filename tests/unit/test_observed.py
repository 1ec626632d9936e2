"""What an observer says of itself: from when to when it has seen everything, and when it saw the last."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from delaybridge.bridge.cli import observe
from delaybridge.bridge.ledger import observed as observed_files
from delaybridge.bridge.ledger.observed import AGAIN_MS, INTERVAL_MS, QUIET_MS, Look, ObservedFiles, Reach
from delaybridge.bridge.ledger.parquet import mark_of

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_750_000_000_000


class FullDisk:
    """In place of `parquet`."""

    @staticmethod
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_was_known_to_be_seen_stays_so_where_late_messages_come_next() -> None:
    reach = Reach()
    reach.looked(Look(T0, T0 + QUIET_MS, (), full=False))
    assert (reach.since, reach.until) == (T0, T0)

    overdue = {"at": T0 + QUIET_MS, "due": T0 - 60_000}
    reach.looked(Look(T0 + QUIET_MS, T0 + 3 * QUIET_MS, [overdue], full=False))

    assert (reach.since, reach.until) == (T0, T0)


HOUR = 3_600_000


def test_nothing_counts_as_seen_that_arrives_after_the_clock_was_set_back_from_there() -> None:
    """Else what arrives in that hour and was not recorded would be taken for lost."""
    reach = Reach()
    reach.looked(Look(T0, T0 + QUIET_MS, (), full=False))
    reach.looked(Look(T0 + HOUR, T0 + HOUR + QUIET_MS, (), full=False))
    assert reach.until == T0 + HOUR

    reach.looked(Look(T0 + 3 * QUIET_MS, T0 + 4 * QUIET_MS, (), full=True))

    assert (reach.since, reach.until) == (T0, T0 + 2 * QUIET_MS)


def test_of_a_look_in_which_the_clock_was_set_back_no_time_to_come_was_seen() -> None:
    reach = Reach()
    reach.looked(Look(T0, T0 + QUIET_MS, (), full=False))
    reach.looked(Look(T0 + HOUR, T0 + 2 * QUIET_MS, (), full=False))
    assert reach.until is not None
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


def test_where_the_disk_is_still_full_at_the_end_it_is_told_how_much_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_files, "parquet", FullDisk)
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    monkeypatch.setattr(files, "flush_if_due", lambda _: None)  # it is not time yet
    looks = [Look(T0, T0, ({"at": T0, "address": "orders"},) * 3, full=False)]

    with pytest.raises(OSError, match=r"^\S+: 3 of 3 messages are in no file: .*No space left"):
        observe._write(looks, files)


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
