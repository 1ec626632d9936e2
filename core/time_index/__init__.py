"""The time index: messages wait on local disk, in RocksDB, in order of due time. See docs/store.md for the drawing of the keys."""

from .index import TimeIndex

__all__ = ["TimeIndex"]
