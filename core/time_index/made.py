"""Ids that a store gives to records that come without one."""

from __future__ import annotations

import re

_MADE = re.compile(r"db[0-9a-f]{32}(?:[0-9a-f]{8})?")
_KEY_DIGITS = 32
TAG_BYTES = 4


class MadeIds:
    """`db`, the store's tag and the due key, in hexadecimal: an id says where its record is, and needs no entry.

    The tag is random, so that no two stores give one id to different messages: whoever drops duplicates by id may get both. Stores of an earlier state
    have none, and go on without.
    """

    def __init__(self, tag: bytes) -> None:
        self._start = "db" + tag.hex()
        self._length = len(self._start) + _KEY_DIGITS

    def of(self, key: bytes) -> str:
        """The id of the record that came to lie under a due key."""
        return self._start + key.hex()

    def key(self, record_id: str) -> bytes | None:
        """The due key that an id of this store tells of, or None for any other one."""
        if len(record_id) != self._length or not record_id.startswith(self._start) or not is_made(record_id):
            return None
        return bytes.fromhex(record_id[-_KEY_DIGITS:])


def is_made(record_id: str) -> bool:
    """Whether any store has made this id, or a producer one that looks like it."""
    return _MADE.fullmatch(record_id) is not None
