"""RocksDB as the time index uses it: opened, written, synced; its errors told in the store's words.

Writing is two steps, `write` and `sync`, because rocksdict keeps Python's global lock during a write but not while it syncs the log: an fsync
stops no other thread this way, and one fsync serves all writes before it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from ..store import StoreError, StoreFull, StoreLocked
from .keys import after

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Puts = dict[bytes, bytes | None]
"""Keys with their new values; None deletes."""

_MIB = 1 << 20
_BLOCK_CACHE = 32 * _MIB
_LOG_LIMIT = 48 * _MIB
"""Bounds the write-ahead log, and with it the time that a restart takes."""
_OPEN_FILES = 512
_FAMILIES = {"due": 16 * _MIB, "ids": 8 * _MIB, "meta": 8 * _MIB}
_BLOB_FROM = {"due": 512, "ids": 0, "meta": 4096}
"""Values from this size on live in blob files, which compaction does not copy; 0 for none. Measured: see docs/store.md."""


def _common() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    # A torn end of the log is what a crash leaves; damage before it is not, and must not silently drop what was acknowledged.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_max_total_wal_size(_LOG_LIMIT)
    options.set_max_open_files(_OPEN_FILES)
    options.set_max_background_jobs(2)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MIB)
    return options


def _family(name: str, cache: Cache) -> Options:
    options = Options(raw_mode=True)
    options.set_write_buffer_size(_FAMILIES[name])
    options.set_max_write_buffer_number(4)
    options.set_compression_type(DBCompressionType.lz4())
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_format_version(5)
    if name == "ids":
        table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    if _BLOB_FROM[name]:
        options.set_enable_blob_files(True)
        options.set_min_blob_size(_BLOB_FROM[name])
        options.set_blob_file_size(64 * _MIB)
        options.set_enable_blob_gc(True)
    return options


def translated(error: Exception) -> StoreError:
    """RocksDB's error in the store's words."""
    text = str(error)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return StoreFull(text)
    if "lock" in text.lower() and ("temporarily unavailable" in text or "current process" in text):
        return StoreLocked(text)
    return StoreError(text)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Tell RocksDB's errors in the store's words."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:  # rocksdict raises plain Exception, and nothing else does
            raise
        raise translated(error) from error


class Database:
    """An open database with its three column families. Opening one that another process has open raises StoreLocked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._write_options = WriteOptions()
        self._write_options.no_slowdown = True
        self._open()

    def _open(self) -> None:
        cache = Cache(_BLOCK_CACHE)
        with told():
            self._root = Rdict(str(self.path), _common(), {name: _family(name, cache) for name in _FAMILIES})
            self.due, self.ids, self.meta = (self._root.get_column_family(name) for name in _FAMILIES)
            self._handles = [self._root.get_column_family_handle(name) for name in _FAMILIES]

    def _batch(self, families: Sequence[Puts]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        for handle, puts in zip(self._handles, families, strict=True):
            if puts:
                batch.set_default_column_family(handle)  # four times as fast as naming the family at each put
                put, delete = batch.put, batch.delete
                for key, value in puts.items():
                    if value is None:
                        delete(key)
                    else:
                        put(key, value)
        return batch

    def write(self, due: Puts, ids: Puts, meta: Puts) -> None:
        """Write atomically; it survives the process at once, and a loss of power after `sync`. Raises StoreFull where the disk is."""
        with told():
            while True:
                try:
                    self._root.write(self._batch((due, ids, meta)), self._write_options)
                except Exception as error:
                    if "Write stall" not in str(error):
                        raise
                    self.due.flush(True)  # waits for the flush without Python's global lock, which a stalled write would keep
                else:
                    return

    @staticmethod
    def get_many(family: Rdict, wanted: list[bytes]) -> list[bytes | None]:
        """The values of many keys in one call."""
        return cast("list[bytes | None]", family.get(cast("list[Any]", wanted))) if wanted else []

    def sync(self) -> None:
        """Make everything written so far survive a loss of power."""
        with told():
            self._root.flush_wal(True)

    def flush(self) -> None:
        """Write what is in memory to table files, so that the log can be dropped."""
        with told():
            for family in (self.due, self.ids, self.meta):
                family.flush(True)

    def reopen(self) -> None:
        """Close and open: the only way out of RocksDB's read-only state after a failed write."""
        with told():
            self.close()
        self._open()

    def close(self) -> None:
        """Release the files and the lock."""
        self._handles.clear()  # a handle that is still held keeps the database, and its lock, open
        self.due.close()
        self.ids.close()
        self.meta.close()
        self._root.close()


def between(first: bytes, end: bytes) -> ReadOptions:
    """Read options for the keys from `first` to before `end`."""
    options = ReadOptions()
    options.set_iterate_lower_bound(first)
    options.set_iterate_upper_bound(end)
    return options


def scan(family: Rdict, first: bytes, end: bytes, *, values: bool = True) -> Iterator[tuple[bytes, bytes]]:
    """The keys from `first` to before `end` with their values (empty where they are not wanted). A read error raises; it is not an end."""
    found = family.iter(between(first, end))
    found.seek(first)
    while found.valid():
        yield found.key(), found.value() if values else b""
        found.next()
    found.status()


def scan_prefix(family: Rdict, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All keys that start with `prefix`, and their values."""
    return scan(family, prefix, after(prefix))
