"""Pending messages from the daemon's Arrow stream into one Parquet file, a batch at a time."""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..durable import put_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class _Pieces(io.RawIOBase):
    """An iterator of bytes as a file to read from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what there is of the next piece; 0 at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        taken = min(len(buffer), len(self._rest))
        buffer[:taken], self._rest = self._rest[:taken], self._rest[taken:]
        return taken


class CutOffError(Exception):
    """The stream ended too early."""


def write_parquet(pieces: Iterator[bytes], target: Path, progress: Callable[[int], None]) -> int:
    """Write the stream to `target`, which appears when it is whole; returns the number of rows.

    `progress` hears the number of rows so far. Raises OSError where the file cannot be written, CutOffError, and what `pieces` raises.
    """
    unfinished = target.with_name(f".{target.name}.tmp")
    try:
        with unfinished.open("wb") as file:
            rows = _copy(pieces, file, progress)
        put_in_place(unfinished, target)
    except pa.ArrowInvalid as error:
        raise CutOffError(f"the daemon's stream broke off ({error}); {target} was not touched") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _copy(pieces: Iterator[bytes], file: IO[bytes], progress: Callable[[int], None]) -> int:
    rows = 0
    with pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(_Pieces(pieces)), "r")) as stream, _writer(file, stream.schema) as writer:
        for batch in stream:
            writer.write_batch(batch)
            rows += batch.num_rows
            progress(rows)
    return rows


def _writer(file: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, schema, compression="zstd")
