"""`observe` and `export`: what they print and the files that they write."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fake_daemon import Daemon, alone, call

from delaybridge.bridge.cli import observe
from delaybridge.bridge.observed import ObservedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(tmp_path, monkeypatch)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    return Daemon().instead(monkeypatch)


def deliveries() -> bytes:
    arrived: list[dict[str, Any]] = [
        {
            "at": 1_795_507_200_002,
            "address": "out",
            "id": "a",
            "occurrence": 1,
            "due": 1_795_507_200_000,
            "lateness_ms": 2,
            "body": "hé",
            "headers": {},
        },
        {"at": 1_795_510_800_000, "address": "out", "body_base64": "/wA=", "headers": {}},
    ]
    return b"".join(json.dumps(each).encode() + b"\n" for each in arrived)


def test_observe_tells_what_arrives_and_how_late(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/observe", deliveries())

    first, second = call("observe", "out").stdout.splitlines()

    assert first == "2026-11-24T08:00:00.002Z  2 ms late  a #1  hé"
    assert second == "2026-11-24T09:00:00.000Z  not by a bridge    base64 /wA="
    assert daemon.asked[0][1] == {"broker": "memory", "address": "out"}


def test_observe_stops_after_the_count(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/observe", deliveries())

    assert len(call("observe", "out", "--count", "1", "-o", "ndjson").stdout.splitlines()) == 1


def test_observe_writes_what_arrived_in_the_ledgers_shape(daemon: Daemon, tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, needed here only

    daemon.on("GET /api/v1/observe", deliveries())

    told = call("observe", "out", "--to", "observed")

    assert "2 messages written" in told.stderr
    files = sorted(path.relative_to(tmp_path) for path in (tmp_path / "observed").rglob("*") if path.is_file())
    assert [str(file.parent) for file in files] == ["observed/date=2026-11-24/hour=08", "observed/date=2026-11-24/hour=09"]
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert [
        (row["event"], row["id"], row["occurrence"], row["destination_broker"], row["destination"], row["size_bytes"]) for row in rows
    ] == [
        ("observed", "a", 1, "memory", "out", 3),
        ("observed", None, None, "memory", "out", 2),
    ]


def _batch(count: int, at: int) -> list[dict[str, Any]]:
    return [{"at": at, "address": "out", "id": f"{at}-{n}", "occurrence": 1, "due": at, "body": ""} for n in range(count)]


def _mark(tmp_path: Path, batches: list[list[dict[str, Any]]], count: int | None = None) -> int | None:
    """When the observer of these batches says that it had seen everything."""
    files = ObservedFiles(tmp_path, "rabbit", "out", "a1")
    observe._write(batches, files, count, marks=True)
    file = tmp_path / "_reach" / "observed-a1.json"
    if not file.exists():
        return None
    told = json.loads(file.read_text())
    assert (told["observer"], told["broker"], told["address"]) == ("a1", "rabbit", "out")
    at: int = told["at_ms"]
    return at


def test_an_observer_marks_when_nothing_waited_for_it_also_where_nothing_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(1_000, 10)
    monkeypatch.setattr("delaybridge.bridge.clock.wall_clock", lambda: next(clock))

    assert _mark(tmp_path / "idle", [[]]) == 1_000
    assert _mark(tmp_path / "behind", [_batch(500, 1), _batch(500, 2)]) is None
    # Two readings of the clock for each batch that is not full: for the mark, and whether to write.
    last_seen = next(clock)
    assert _mark(tmp_path / "caught up", [_batch(3, 1)]) == last_seen + 10
    assert _mark(tmp_path / "stopped in the midst of a batch", [_batch(3, 1)], count=2) is None


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
