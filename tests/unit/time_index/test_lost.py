"""A time index that lost what was durable is refused before RocksDB deletes the files that it no longer knows; what a crash leaves is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, adds_up, bodies, delivered, give, record, take

from delaybridge.core.store import Settled, StoreError
from delaybridge.core.time_index import TimeIndex, keys
from delaybridge.core.time_index.watermark import Watermark

if TYPE_CHECKING:
    from pathlib import Path

# A process that fills several logs and tables with 200 batches, each of them durable, and is gone without a word.
KILLED = """
import os, sys
from contract.stores import give, record
from delaybridge.core.time_index import TimeIndex
index = TimeIndex(sys.argv[1], bridge="b", min_free_disk=0, reserve_bytes=0)
for number in range(200):
    give(index, *(record(os.urandom(4).hex() * 1_000, chosen_id=f"{number}-{each}") for each in range(20)))
    if number in (50, 100, 150):
        index._state.db.flush()
print("done", flush=True)
os._exit(9)
"""


def opened(path: Path) -> TimeIndex:
    return TimeIndex(path, bridge="b", min_free_disk=0, reserve_bytes=0)


def record_ends(file: Path) -> list[int]:
    """Where a manifest can be cut and be a valid one, of a smaller store: each record has a checksum, its length and its type before it."""
    raw, at, ends = file.read_bytes(), 0, []
    while at + 7 <= len(raw):
        at += 7 + int.from_bytes(raw[at + 4 : at + 6], "little")
        ends.append(at)
    assert ends.pop() == len(raw) < 32_768, "one block of the log's format"
    return ends


def cut(file: Path, percent: int) -> None:
    os.truncate(file, file.stat().st_size * percent // 100)


def manifest(path: Path) -> Path:
    return path / "db" / (path / "db" / "CURRENT").read_text().strip()


def contents(path: Path) -> dict[str, int]:
    """What a start could delete or write to."""
    return {file.name: file.stat().st_size for file in (path / "db").iterdir() if not file.name.startswith(("LOG", "WRITTEN"))}


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("killed")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, check=False, env=_with_tests())
    assert (done.stdout, done.returncode) == ("done\n", 9), done.stderr
    return path


def _with_tests() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    """A store of 4,000 messages whose process died: tables, bodies, and logs whose tables were not written yet."""
    return shutil.copytree(killed_once, tmp_path / "killed")


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A store of 1,500 messages that was stopped; all of it is in tables and bodies."""
    path = filled(tmp_path / "stopped")
    opened(path).close()
    return path


def filled(path: Path) -> Path:
    index = opened(path)
    give(index, *(record("." * 900, chosen_id=f"id-{number}") for number in range(1_500)))
    index._state.db.flush()
    index.close()
    return path


def refused(path: Path) -> str:
    """Why it is not opened; twice, and nothing is deleted or written meanwhile."""
    before = contents(path)
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            opened(path)
    assert contents(path) == before
    return str(caught.value)


def lost_nothing(path: Path, messages: int) -> bool:
    index = opened(path)
    found = len(take(index, limit=messages + 1))
    fine = found == index.counts().pending == messages and adds_up(index)
    index.close()
    return fine


def cut_at_each_record_it_is_refused(path: Path, least: int) -> None:
    """The manifest, from its end on; it has more records than `least`."""
    ends = record_ends(manifest(path))
    assert len(ends) > least
    for end in reversed(ends):
        os.truncate(manifest(path), end)

        assert "has lost what was durable" in refused(path)


def test_a_manifest_that_was_cut_is_refused_and_no_message_is_deleted(stopped: Path) -> None:
    cut_at_each_record_it_is_refused(stopped, 3)


def test_a_store_that_is_refused_says_what_is_missing_and_what_to_do_and_opens_when_it_is_back(stopped: Path) -> None:
    whole = manifest(stopped).read_bytes()
    cut(manifest(stopped), 70)

    why = refused(stopped)

    mark = stopped / "db" / "WRITTEN"
    for words in (f" bytes, and had {len(whole)}", "Nothing was changed or deleted", "backup or snapshot", f"remove {mark}"):
        assert words in why
    manifest(stopped).write_bytes(whole)
    assert lost_nothing(stopped, 1_500)


def test_a_manifest_that_was_cut_after_a_kill_is_refused(killed: Path) -> None:
    """Its log still reaches up to the last write: what is gone is what was in tables before."""
    cut_at_each_record_it_is_refused(killed, 10)


def test_a_log_that_is_gone_is_missed_also_where_only_one_family_needed_it(tmp_path: Path) -> None:
    index = opened(tmp_path)
    give(index, record("a"))
    index._state.db.meta.flush(True)
    index._state.db.ids.flush(True)
    index._state._watermark.note(index._state.numbers.write)
    shutil.copytree(tmp_path / "db", tmp_path / "copy" / "db")
    index.close()
    for log in (tmp_path / "copy" / "db").glob("*.log"):
        log.unlink()

    assert "0 in due, 2 in ids, 2 in meta" in refused(tmp_path / "copy")


@pytest.mark.parametrize("how", ["emptied", "removed", "halved"])
def test_a_log_that_was_emptied_or_removed_after_a_kill_is_refused(killed: Path, how: str) -> None:
    for log in (killed / "db").glob("*.log"):
        if how == "removed":
            log.unlink()
        else:
            cut(log, 50 if how == "halved" else 0)

    assert "has lost what was durable" in refused(killed)


def test_a_database_without_its_first_file_is_refused(stopped: Path) -> None:
    """RocksDB would begin a new one in its place."""
    (stopped / "db" / "CURRENT").unlink()

    assert "has lost what was durable" in refused(stopped)


def test_tables_in_which_no_store_is_found_are_refused_without_the_watermark_too(tmp_path: Path) -> None:
    path = filled(tmp_path)
    (path / "db" / "WRITTEN").unlink()
    os.truncate(manifest(path), record_ends(manifest(path))[-4])  # before the table of `meta`, the last of three
    assert "no store is found" in refused(path)

    (path / "db" / "CURRENT").unlink()
    assert "no store is found" in refused(path)


def test_what_was_lost_is_given_up_by_removing_the_watermark(killed: Path) -> None:
    for log in (killed / "db").glob("*.log"):
        log.unlink()
    refused(killed)

    (killed / "db" / "WRITTEN").unlink()

    index = opened(killed)
    assert 0 < (index.counts().pending or 0) < 4_000
    give(index, record("new"))
    index.close()


def test_a_killed_store_lost_nothing(killed: Path) -> None:
    assert lost_nothing(killed, 4_000)


def test_tables_that_a_kill_left_unfinished_or_unused_are_no_loss(killed: Path) -> None:
    """A kill in a flush or a compaction leaves files that the manifest does not know yet, or no longer; RocksDB deletes them."""
    table = next((killed / "db").glob("*.sst")).read_bytes()
    (killed / "db" / "900001.sst").write_bytes(table)
    (killed / "db" / "900002.sst").write_bytes(table[:100])
    (killed / "db" / "900003.blob").write_bytes(b"")

    assert lost_nothing(killed, 4_000)


@pytest.mark.parametrize("left", [b"", b"\0" * 80, b"99999999 MANIFEST-000005 99 00000000\n", b"12", b"\xff"])
def test_a_watermark_that_a_loss_of_power_left_empty_or_that_is_damaged_tells_nothing(stopped: Path, left: bytes) -> None:
    (stopped / "db" / "WRITTEN").write_bytes(left)

    assert lost_nothing(stopped, 1_500)


def test_a_store_of_an_earlier_version_has_no_watermark_and_opens_again_and_again(stopped: Path) -> None:
    index = opened(stopped)
    index._state.db.write({keys.WRITE_KEY: None}, {keys.WRITE_KEY: None}, {})
    index.close()
    (stopped / "db" / "WRITTEN").unlink()

    for _ in range(3):
        assert lost_nothing(stopped, 1_500)
    index = opened(stopped)
    give(index, record("new"))
    index.close()
    assert lost_nothing(stopped, 1_501)


def test_a_store_that_an_earlier_version_wrote_to_meanwhile_lost_nothing(stopped: Path) -> None:
    """It knows nothing of the watermark, and does not put its numbers beside it."""
    index = opened(stopped)
    numbers = index._state.numbers
    numbers.write += 7
    index._state.db.write({}, {}, {keys.NUMBERS_KEY: numbers.packed()})
    numbers.write -= 7
    index.close()

    assert lost_nothing(stopped, 1_500)


def test_only_what_is_durable_is_noted(tmp_path: Path) -> None:
    """What is written and not synced yet a loss of power may take."""
    index = opened(tmp_path)
    give(index, record("a"), record("b"))
    synced = index._state.numbers.write
    dues = take(index)
    index.settle([Settled(dues[0].key, "delivered", T0)], T0)

    assert index._state._watermark.noted.write == synced < index._state.numbers.write
    index.sync()
    assert index._state._watermark.noted.write == index._state.numbers.write
    index.settle([Settled(dues[1].key, "delivered", T0)], T0)
    index.close()
    mark = Watermark(tmp_path / "db")
    assert mark.noted.write == index._state.numbers.write
    mark.close()


def test_a_manifest_that_grew_is_durable_before_its_size_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = opened(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))

    give(index, record("a"))
    assert synced == []
    index._state.db.flush()
    give(index, record("b"))

    assert synced == [manifest(tmp_path).stat().st_ino]
    assert index._state._watermark.noted.size == manifest(tmp_path).stat().st_size
    index.close()


def test_a_watermark_that_cannot_be_written_keeps_nobody_from_putting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = opened(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        give(index, record("a"))
    index.close()

    index = opened(tmp_path)
    assert bodies(take(index)) == ["a"]
    index.close()


def test_a_store_that_was_opened_for_nothing_opens_again(tmp_path: Path) -> None:
    for _ in range(3):
        index = opened(tmp_path)
        delivered(index, take(index))
        index.close()


def test_a_directory_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("not a directory")

    with pytest.raises(StoreError, match="db"):
        opened(tmp_path)
