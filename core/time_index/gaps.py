"""Stretches ahead of a track's position that hold nothing to hand out.

RocksDB keeps what was cancelled until it is compacted, and an iterator passes all of that. A track that goes back to hand out one earlier record
already knows that nothing lies between that record and its old position. So it reads that record, and goes on at the old position.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KEPT = 16
"""Gaps that a track remembers, the nearest ones. What lies further ahead is read once more when the position gets there."""
_WIDE_MS = 100
"""Narrower gaps save little; and if they were kept, the nearest ones would all be close together."""

Stretch = tuple[bytes, bytes]
"""The due keys from the first to before the second."""


class Gaps:
    """What one track knows of its gaps. At each key in a gap there is no record, or one that is in flight or held back.

    `cut` must be told of every record that comes to wait in one. To forget a gap only costs time; to keep one in which a record waits would lose that record.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: list[Stretch] = []

    def went_back(self, key: bytes, position: bytes) -> None:
        """The position goes back to `key`, and between the two nothing waits, other than what `cut` is told next."""
        gap = key + b"\0", position
        if _wide(*gap):
            self._known.insert(0, gap)
            del self._known[_KEPT:]

    def cut(self, keys: Sequence[bytes]) -> None:
        """Records wait at these keys now, which are in order."""
        kept: list[Stretch] = []
        for gap in self._known:
            inside = keys[bisect_left(keys, gap[0]) : bisect_left(keys, gap[1])]
            kept += _left(gap, inside) if inside else [gap]
        self._known = kept[:_KEPT]

    def went_on(self, position: bytes) -> None:
        """Forget gaps before the position."""
        while self._known and self._known[0][1] <= position:
            del self._known[0]

    def around(self, first: bytes, end: bytes) -> Iterator[Stretch]:
        """What is left to be read from `first` to before `end`, in order."""
        for start, after in self._known:
            if first < start:
                yield first, start
            first = max(first, after)
        if first < end:
            yield first, end


def _left(gap: Stretch, keys: Sequence[bytes]) -> Iterator[Stretch]:
    """The parts of a gap between and around these keys in it, in order, as far as they are wide."""
    if _wide(gap[0], keys[0]):
        yield gap[0], keys[0]
    yield from _apart(keys, 0, len(keys) - 1)
    if _wide(keys[-1], gap[1]):
        yield keys[-1] + b"\0", gap[1]


def _apart(keys: Sequence[bytes], first: int, last: int) -> Iterator[Stretch]:
    """The wide stretches between neighbours; looks at few keys if all lie close together, as those of one batch mostly do."""
    if not _wide(keys[first], keys[last]):
        return
    if last - first == 1:
        yield keys[first] + b"\0", keys[last]
        return
    middle = (first + last) // 2
    yield from _apart(keys, first, middle)
    yield from _apart(keys, middle, last)


def _wide(first: bytes, end: bytes) -> bool:
    return _milliseconds(end) - _milliseconds(first) >= _WIDE_MS


def _milliseconds(key: bytes) -> int:
    """The instant of a due key, preceded by its track's number. The end of a track has none."""
    return int.from_bytes(key[:8].ljust(8, b"\0"), "big")
