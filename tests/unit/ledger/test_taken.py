"""What an observer takes from a queue is durable before the queue forgets it, and is told once by whoever finds it."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from pyarrow.dataset import dataset

from delaybridge.adapters.base import Batch, Received
from delaybridge.bridge.cli import observe
from delaybridge.bridge.ledger import parquet, taken
from delaybridge.bridge.ledger.observed import SCHEMA, ObservedFiles
from delaybridge.bridge.observing import looks
from delaybridge.core.message import message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T0 = 1_750_000_000_000
HOUR = 3_600_000


class Tap:
    """Gives so many messages, one after the other, and says when one is acknowledged."""

    def __init__(self, count: int, happened: list[str]) -> None:
        self._left = count
        self._happened = happened

    def connect(self) -> None: ...

    def close(self) -> None: ...

    def receive(self, limit: int, timeout: float) -> Batch | None:
        assert limit
        assert timeout
        if not self._left:
            return None
        self._left -= 1
        return Batch([Received(message(b"", {}), "", b"")], lambda: self._happened.append("acknowledged"))


def observing(root: Path, *, copies: bool = False) -> ObservedFiles:
    """An observer whose first file, which comes at once, is behind it."""
    files = ObservedFiles(root, "rabbit", "out", "one", copies=copies)
    files.flush_if_due(T0)
    return files


def write(files: ObservedFiles, happened: list[str], count: int) -> None:
    observe._write(looks(Tap(count, happened), "out", 1, lambda: T0, lambda: 0.0, count), files, None)


def delivery(id_: str, at: int = T0) -> dict[str, object]:
    return {"at": at, "address": "out", "id": id_, "body": ""}


def seen(root: Path) -> list[str]:
    return sorted(dataset(root, SCHEMA, format="parquet", exclude_invalid_files=False).to_table()["id"].to_pylist())


def left(root: Path) -> list[Path]:
    return list((root / "_taken").glob("*"))


def flush_without_a_note(files: ObservedFiles, root: Path) -> None:
    """As where the observer was killed after it had written its files, and before it had noted that."""
    [note] = left(root)
    shutil.copy(note, kept := root / note.name)
    files.flush()
    shutil.move(kept, note)


def killed(root: Path, *ids: str, at: int = T0) -> None:
    """An observer that took these, and is no more: its lock goes with it."""
    files = observing(root)
    files.add(*(delivery(id_, at) for id_ in ids))
    assert files._taken is not None
    os.close(files._taken._file)


def test_what_is_taken_is_durable_before_it_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: happened.append("durable"))

    write(observing(tmp_path), happened, 3)

    assert happened == ["durable", "acknowledged"] * 3
    assert left(tmp_path) == [], "at the end it is in Parquet files"


def test_what_is_a_copy_is_not_made_durable_at_once(tmp_path: Path) -> None:
    files = observing(tmp_path, copies=True)
    files.add(delivery("a"))
    assert left(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_what_cannot_be_made_durable_goes_back_and_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    files, happened = observing(tmp_path), []  # type: tuple[ObservedFiles, list[str]]
    files.add(delivery("before"))

    with monkeypatch.context() as full:
        full.setattr(os, call, Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        with pytest.raises(OSError, match="No space left"):
            write(files, happened, 1)

    assert (happened, seen(tmp_path)) == ([], ["before"])


def test_of_what_could_not_be_made_durable_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written, or a part of it, but not made durable."""
    files = observing(tmp_path)
    files.add(delivery("a"))
    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", Mock(side_effect=OSError("the disk failed")))
        with pytest.raises(OSError, match="the disk failed"):
            files.add(delivery("b"))
    assert files._taken is not None
    os.close(files._taken._file)

    assert (ObservedFiles.recover(tmp_path), seen(tmp_path)) == (1, ["a"])


def test_what_a_killed_observer_has_taken_is_written_once(tmp_path: Path) -> None:
    killed(tmp_path, "a", "b")

    assert ObservedFiles.recover(tmp_path) == 2
    assert (seen(tmp_path), left(tmp_path)) == (["a", "b"], [])
    assert ObservedFiles.recover(tmp_path) == 0


def test_what_a_full_disk_kept_from_some_files_is_written_over_the_same_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There was room for the file of one hour, more of that hour came, and the observer was killed before it had noted what it had written then."""
    files, put = observing(tmp_path), parquet.write
    files.add(delivery("a"), delivery("b", T0 + HOUR))
    with monkeypatch.context() as full:
        full.setattr(parquet, "write", _full_for_the_second(put))
        with pytest.raises(OSError, match="No space left"):
            files.flush()
    files.add(delivery("c"))
    flush_without_a_note(files, tmp_path)

    assert ObservedFiles.recover(tmp_path) == 3
    assert seen(tmp_path) == ["a", "b", "c"]


def _full_for_the_second(write: Callable[..., None]) -> Callable[..., None]:
    room = [True]

    def written(*file: object) -> None:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room.pop()
        write(*file)

    return written


def test_what_is_in_files_already_is_written_over_the_same(tmp_path: Path) -> None:
    """The observer was killed after it had written them, and before it had noted that."""
    files = observing(tmp_path)
    files.add(delivery("first"))
    files.flush()
    files.add(delivery("a"), delivery("b", T0 + HOUR))
    flush_without_a_note(files, tmp_path)

    assert ObservedFiles.recover(tmp_path) == 2
    assert seen(tmp_path) == ["a", "b", "first"]


def test_what_was_not_written_whole_was_not_acknowledged_and_is_not_told(tmp_path: Path) -> None:
    killed(tmp_path, "a", "b")
    [note] = left(tmp_path)
    note.write_bytes(note.read_bytes()[:-5])

    assert (ObservedFiles.recover(tmp_path), seen(tmp_path)) == (1, ["a"])


def test_what_a_living_observer_has_taken_is_left_to_it(tmp_path: Path) -> None:
    files = observing(tmp_path)
    files.add(delivery("a"))

    assert ObservedFiles.recover(tmp_path) == 0
    files.flush()
    assert (seen(tmp_path), left(tmp_path)) == (["a"], [])


def test_after_a_folder_could_not_be_synced_nothing_is_kept_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = Mock(side_effect=[OSError(errno.EIO, "input/output error"), None, None])
    monkeypatch.setattr(taken, "sync_directory", synced)
    kept = taken.Taken(tmp_path, "one")
    with pytest.raises(OSError, match="input/output"):
        kept.keep([delivery("a")], 1)

    kept.keep([delivery("b")], 1)

    assert [each.args[0].name for each in synced.call_args_list] == ["_taken", "_taken", tmp_path.name]
    kept.written()
