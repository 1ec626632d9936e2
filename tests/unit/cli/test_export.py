"""`export`: one whole file, or the old one."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import httpx
import pytest
from fake_daemon import Daemon, call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("alone")


def arrow_stream(cut: int = 0) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - slow to import, needed here only

    sink, schema = pa.BufferOutputStream(), pa.schema([("id", pa.string())])
    with pa.ipc.new_stream(sink, schema) as stream:
        for name in ("a", "b"):
            stream.write_batch(pa.record_batch([[name]], schema=schema))
    whole: bytes = sink.getvalue().to_pybytes()
    return whole[: len(whole) - cut]


def test_export_writes_one_whole_file(daemon: Daemon, tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, needed here only

    daemon.on("GET /api/v1/export", arrow_stream())

    assert call("export", "--to", "pending.parquet").stdout == "2 messages written to pending.parquet\n"
    assert pq.read_table("pending.parquet").to_pylist() == [{"id": "a"}, {"id": "b"}]
    assert [path.name for path in tmp_path.iterdir()] == ["pending.parquet"]


def test_export_waits_for_the_daemons_next_piece_but_not_for_ever(daemon: Daemon, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield arrow_stream(cut=8)
        raise httpx.ReadTimeout("timed out")

    daemon.on("GET /api/v1/export", pieces())

    assert call("export", "--to", "pending.parquet").exit_code == 69
    assert 0 < daemon.patience["read"] <= 60
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("directory", [".", "", "/", "there"])
def test_export_to_a_directory_is_wrong_usage_and_asks_the_daemon_for_nothing(daemon: Daemon, tmp_path: Path, directory: str) -> None:
    (tmp_path / "there").mkdir()

    told = call("export", "--to", directory)

    assert (told.exit_code, daemon.asked, list(tmp_path.iterdir())) == (2, [], [tmp_path / "there"])
    assert "is a directory: name a file" in told.stderr


def test_export_into_a_directory_that_is_missing_names_it(daemon: Daemon, tmp_path: Path) -> None:
    told = call("export", "--to", "missing/pending.parquet")

    assert (told.exit_code, daemon.asked, list(tmp_path.iterdir())) == (2, [], [])
    assert "there is no directory missing" in told.stderr


@pytest.mark.parametrize("words", ["export", "observe out"])
def test_standard_output_is_not_a_file_that_is_called_like_its_sign(daemon: Daemon, tmp_path: Path, words: str) -> None:
    told = call(*words.split(), "--to", "-")

    assert (told.exit_code, daemon.asked, list(tmp_path.iterdir())) == (2, [], [])
    assert "not written to standard output" in " ".join(told.stderr.split())


def test_export_does_not_take_the_place_of_a_device(daemon: Daemon, tmp_path: Path) -> None:
    """For root, whatever stands there is replaced."""
    os.mkfifo(tmp_path / "device")

    told = call("export", "--to", "device")

    assert (told.exit_code, daemon.asked, (tmp_path / "device").is_fifo()) == (2, [], True)
    assert "is a device: name a file" in told.stderr


def test_export_of_a_stream_that_broke_off_leaves_the_old_file(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "pending.parquet").write_text("the old one")
    daemon.on("GET /api/v1/export", arrow_stream(cut=60))

    told = call("export", "--to", "pending.parquet")

    assert told.exit_code == 1
    assert told.stderr.startswith("the daemon's stream broke off (")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("pending.parquet", "the old one")]


def test_export_from_a_daemon_that_dies_between_two_batches_leaves_the_old_file(daemon: Daemon, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield arrow_stream(cut=8)
        raise httpx.ReadError("connection reset")

    daemon.on("GET /api/v1/export", pieces())

    told = call("export", "--to", "pending.parquet")

    assert told.exit_code == 69
    assert list(tmp_path.iterdir()) == []


def test_export_that_is_told_to_end_leaves_nothing_half_written(daemon: Daemon, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield arrow_stream(cut=8)
        signal.raise_signal(signal.SIGTERM)
        yield b""

    daemon.on("GET /api/v1/export", pieces())
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        told = call("export", "--to", "pending.parquet")
    finally:
        signal.signal(signal.SIGTERM, before)

    assert told.exit_code == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
