"""Which records of a partition are finished, in any order, and how a committed offset says so.

Kafka keeps one offset for each partition, and a text beside it. The offset is that of the first record that is not finished; the text says which
of the later ones are (as Confluent's Parallel Consumer does), so that the next owner of the partition does not handle them again.

With both stands the epoch of the last leader from whom anything was read. Where a log has lost its end, as by an unclean election, others get the offsets of
what was lost: they bear a later epoch than all that was finished there.
"""

from __future__ import annotations

import base64
import copy
import itertools
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

OUT = 800
"""Records of one partition that are given out and not finished, at most: so few that the text has room to name them, wherever they are."""

SPAN = 1_000_000
"""Offsets from the first record that is not finished to the last one given out, at most."""

LIMIT = 4096
"""Characters that a broker takes beside an offset (`offset.metadata.max.bytes`)."""


class Finished:
    """Which records of one partition are finished.

    It begins with what was committed: all records below the offset `base` are finished, and those that `text` names, up to the leaders' `epoch`; -1 where
    that is not known.
    """

    def __init__(self, base: int = 0, text: str = "", epoch: int = -1) -> None:
        self._reached = base
        self._open: dict[int, bool] = {}  # rising; True where it is given out
        self._out = 0
        self._told = base  # all that is given out, or was finished when it came, is before this
        self._known, self._bits = base, _decoded(text)
        self.epoch = epoch

    @property
    def base(self) -> int:
        """The first offset that may not be finished."""
        return next(iter(self._open), self._reached)

    @property
    def out(self) -> int:
        """How many records are given out and not finished."""
        return self._out

    @property
    def room(self) -> int:
        """How many more may be given out."""
        return OUT - self._out if self._reached - self.base < SPAN else 0

    def includes(self, offset: int) -> bool:
        """Whether what was committed says that it is finished."""
        return offset < self.base or self._was_finished(offset)

    def follow(self, offset: int, epoch: int) -> bool:
        """The next record is the first of a later `epoch`, to be admitted then. True where what was committed is of records that had its offset, or later ones.

        These are lost, and nothing is finished from here on.
        """
        lost = self.epoch >= 0 and (offset < self._reached or self._was_finished_from(offset))
        if lost:
            self._bits &= (1 << max(0, offset - self._known)) - 1
            self._known, self._reached = min(self._known, offset), min(self._reached, offset)
            self._told = min(self._told, offset)
        self.epoch = epoch
        return lost

    def admit(self, offset: int) -> bool:
        """The next record of the partition was fetched; False if it is finished already."""
        if offset < self._reached:
            return False
        self._reached = offset + 1
        if self._was_finished(offset):
            self._told = offset + 1
            return False
        self._open[offset] = False
        return True

    def reach(self, offset: int, epoch: int = -1) -> None:
        """All records below this offset were fetched: between the last one and this there are only markers of transactions, and what was aborted."""
        self._reached = max(self._reached, offset)
        self.epoch = max(self.epoch, epoch)

    def give(self, offset: int) -> None:
        """It is given out."""
        self._open[offset] = True
        self._out += 1
        self._told = max(self._told, offset + 1)

    def finish(self, offset: int) -> None:
        """It need not come again."""
        if self._open.pop(offset, False):
            self._out -= 1

    def after(self, offsets: AbstractSet[int]) -> Finished:
        """What this will be when these are finished, too."""
        later = copy.copy(self)
        later._open = {offset: out for offset, out in self._open.items() if offset not in offsets}  # noqa: SLF001 - our own
        return later

    def text(self) -> str:
        """What to commit beside `base`: empty where nothing after it is finished.

        Of what has come and is not given out nothing need be said, nor of the markers between: they would take characters that others need.
        """
        base, known = self.base, self._bits >> max(0, self._reached - self._known)
        told = max(base, self._told)
        bits = bytearray(b"\xff") * ((told - base + 7) // 8)
        for offset in itertools.takewhile(told.__gt__, self._open):
            bits[(offset - base) // 8] &= ~(1 << (offset - base) % 8)
        seen = int.from_bytes(bits, "little") & ((1 << told - base) - 1)
        return _encoded(seen | known << max(self._reached, self._known) - base)

    def _was_finished(self, offset: int) -> bool:
        """By what was committed before."""
        return offset >= self._known and bool(self._bits >> offset - self._known & 1)

    def _was_finished_from(self, offset: int) -> bool:
        return bool(self._bits >> max(0, offset - self._known))


def finished_behind(text: str, span: int) -> int:
    """How many records in the first `span` offsets from a committed one on are finished, by the text beside it; 0 where the text is not ours."""
    return (_decoded(text) & ((1 << max(0, span)) - 1)).bit_count()


def _encoded(bits: int) -> str:
    if not bits:
        return ""
    packed = zlib.compress(bits.to_bytes((bits.bit_length() + 7) // 8, "little"))
    return base64.b64encode(packed).decode()


def _decoded(text: str) -> int:
    """Whatever stands there that is not ours says nothing."""
    try:
        return int.from_bytes(zlib.decompress(base64.b64decode(text, validate=True)), "little") if text else 0
    except (ValueError, zlib.error):
        return 0
