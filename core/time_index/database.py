"""RocksDB as the time index uses it: opened, written, synced; its errors told in the store's words.

Writing is two steps, `write` and `sync`, because rocksdict keeps Python's global lock during a write but not while it syncs the log: an fsync
stops no other thread this way, and one fsync serves all writes before it.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, cast

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    CompactOptions,
    DbClosedError,
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
ROOM_TO_OPEN = _LOG_LIMIT
"""Opening writes tables of what the log holds."""
_OPEN_FILES = 512
_STALL_SECONDS = 0.002
_WORTH_COLLECTING = 64 * _MIB
_COLLECTED_AT_ONCE = 512 * _MIB
_BLOB_FILE = 64 * _MIB
_FAMILIES = {"due": 16 * _MIB, "ids": 8 * _MIB, "meta": 8 * _MIB}
_BLOB_FROM = {"due": 512, "ids": 0, "meta": 4096}
"""Values from this size on live in blob files, which compaction does not copy; 0 for none. Measured: see docs/store.md."""


def _common() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    # A crash leaves a torn end of the log; damage before that has another cause, and must not silently drop what was acknowledged.
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
    # Tables are small, because bodies are elsewhere: so more of them may gather before they are merged into the index of all that waits.
    options.set_level_zero_file_num_compaction_trigger(8)
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(60)
    options.set_compression_type(DBCompressionType.lz4())
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # In pieces: a large table's whole index or filter is larger than a share of the cache, and was read anew for each key (measured: see docs/store.md).
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_format_version(5)
    if name == "ids":
        table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    if _BLOB_FROM[name]:
        options.set_enable_blob_files(True)
        options.set_min_blob_size(_BLOB_FROM[name])
        options.set_blob_file_size(_BLOB_FILE)
        options.set_enable_blob_gc(False)  # every compaction would copy the oldest quarter of all bodies: see `collect`
    return options


def _compaction() -> CompactOptions:
    options = CompactOptions()
    options.set_exclusive_manual_compaction(False)  # or flushed tables would pile up meanwhile, and writes stall
    return options


def store_error(error: Exception) -> StoreError:
    """RocksDB's error in the store's words."""
    text = str(error)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return StoreFull(text)
    if "lock" in text.lower() and ("temporarily unavailable" in text or "current process" in text):
        return StoreLocked(text)
    return StoreError(text)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Tell RocksDB's errors in the store's words."""
    try:
        yield
    except DbClosedError as error:
        raise StoreError("a full disk had it closed, and did not let it be opened again: make room and start anew") from error
    except Exception as error:
        if type(error) is not Exception:  # rocksdict raises plain Exception, and nothing else does
            raise
        raise store_error(error) from error


def recovered(path: Path, wanted: dict[str, bytes]) -> dict[str, bytes | None]:
    """The value of one key of each of these families as a start would find it, with the log replayed in memory and no file changed.

    None where there is no such key, family or database. It takes no lock: nobody else may have the database open.
    """
    found: dict[str, bytes | None] = dict.fromkeys(wanted)
    if not (path / "CURRENT").exists():
        return found
    with translated():
        present = [name for name in Rdict.list_cf(str(path), _common()) if name in wanted]
        cache = Cache(_BLOCK_CACHE)
        root = Rdict(str(path), _common(), {name: _family(name, cache) for name in present}, AccessType.read_only())
        try:
            for name in present:
                family = root.get_column_family(name)
                found[name] = family.get(wanted[name])
                family.close()
        finally:
            root.close()
    return found


class Database:
    """An open database with its three column families. Opening one that another process has open raises StoreLocked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._write_options = WriteOptions()
        self._write_options.no_slowdown = True
        self._open()

    def _open(self) -> None:
        cache = Cache(_BLOCK_CACHE)
        with translated():
            self._root = Rdict(str(self.path), _common(), {name: _family(name, cache) for name in _FAMILIES})
            self.due, self.ids, self.meta = (self._root.get_column_family(name) for name in _FAMILIES)
            self._handles = [self._root.get_column_family_handle(name) for name in _FAMILIES]

    def _batch(self, families: Sequence[Puts], dropped: Sequence[tuple[bytes, bytes]]) -> WriteBatch:
        if not self._handles:  # as reading from it says
            raise DbClosedError("closed")
        batch = WriteBatch(raw_mode=True)
        for first, end in dropped:
            batch.delete_range(first, end, self._handles[-1])
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

    def write(self, due: Puts, ids: Puts, meta: Puts, dropped: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Write atomically; it survives the process at once, and a loss of power after `sync`. Raises StoreFull where the disk is.

        `dropped` are ranges of `meta` that go before anything is put.
        """
        with translated():
            while True:
                try:
                    self._root.write(self._batch((due, ids, meta), dropped), self._write_options)
                except Exception as error:
                    if "Write stall" not in str(error):
                        raise
                    time.sleep(_STALL_SECONDS)  # without Python's global lock, which a stalled write would keep, and with it every thread
                else:
                    return

    @staticmethod
    def get_many(family: Rdict, wanted: list[bytes]) -> list[bytes | None]:
        """The values of many keys in one call."""
        return cast("list[bytes | None]", family.get(cast("list[Any]", wanted))) if wanted else []

    def sync(self) -> None:
        """Make everything written so far survive a loss of power."""
        with translated():
            self._root.flush_wal(True)

    def flush(self) -> None:
        """Write what is in memory to table files, so that the log can be dropped."""
        with translated():
            for family in (self.due, self.ids, self.meta):
                family.flush(True)

    def size(self) -> int:
        """Bytes of the table and blob files."""
        return sum(
            self._number(family, name)
            for family in (self.due, self.ids, self.meta)
            for name in ("live-sst-files-size", "live-blob-file-size")
        )

    @staticmethod
    def _number(family: Rdict, name: str) -> int:
        return family.property_int_value(f"rocksdb.{name}") or 0

    def compact(self, family: Rdict, first: bytes, end: bytes) -> None:
        """Drop what was deleted in a range; a blob file goes when nothing in it is wanted any more."""
        with translated():
            family.compact_range(first, end, _compaction())

    def collected(self, family: Rdict, room: int) -> float:
        """Which share of the blob files, the oldest, `collect` would copy; 0 unless a third of them is known to be garbage, and the copies fit in `room`.

        In a large store at most a quarter, because copies need room. Garbage is known only in total: if the oldest files hold none, the copies
        take at most twice that room.
        """
        size, garbage = (self._number(family, f"live-blob-file-{what}") for what in ("size", "garbage-size"))
        if garbage < max(_WORTH_COLLECTING, size // 3):
            return 0.0
        share = 1.0 if size <= _COLLECTED_AT_ONCE else 0.25
        if size - garbage <= room:
            return share
        share = min(share, room / (size - garbage), 2 * room / size)
        return share if share * size >= _BLOB_FILE else 0.0

    def collect(self, family: Rdict, room: int) -> None:
        """Copy what is left in the oldest blob files elsewhere, where that is worth it."""
        with translated():
            share = self.collected(family, room)
            if not share:
                return
            options = _compaction()
            options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
            family.set_options({"enable_blob_garbage_collection": "true", "blob_garbage_collection_age_cutoff": str(share)})
            try:
                family.compact_range(None, None, options)
            finally:
                family.set_options({"enable_blob_garbage_collection": "false"})

    def reopen(self) -> None:
        """Close and open: the only way out of RocksDB's read-only state after a failed write."""
        self.close()
        self._open()

    def close(self) -> None:
        """Release the files and the lock. Idempotent. Errors are ignored: what is synced is in the log, even if an earlier write failed."""
        self._handles.clear()  # a handle keeps the database open
        for family in (self.due, self.ids, self.meta, self._root):
            with contextlib.suppress(Exception):
                family.close()


def between(first: bytes, end: bytes) -> ReadOptions:
    """Read options for the keys from `first` to before `end`. RocksDB copies neither: both must live for as long as what is read with them."""
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


def last_up_to(family: Rdict, key: bytes) -> bytes:
    """The last key up to `key`, empty where there is none. No bounds: beside a lower one, seek_for_prev finds keys below it."""
    found = family.iter(ReadOptions())
    found.seek_for_prev(key)
    found.status()
    return found.key() if found.valid() else b""


def scan_prefix(family: Rdict, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All keys that start with `prefix`, and their values."""
    return scan(family, prefix, after(prefix))
