"""What is kept for targets, and found by the records that are for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .targets import Partition, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .store import Record

PartitionOf = Callable[["Record", int], int | None]
"""The number of the partition that a record goes to where its destination has so many; None where that cannot be told. Always the same for the same record."""

_Kept = TypeVar("_Kept")


def unknown_partition(_record: Record, _total: int) -> None:
    """A `PartitionOf` that can tell of none."""


class ByTarget(dict[Target, _Kept]):
    """What is kept for targets, and found by record. Only `targets[target] = …` and `del targets[target]` change it, on one thread."""

    def __init__(self, partition_of: PartitionOf = unknown_partition) -> None:
        super().__init__()
        self._partition_of = partition_of
        self._partitions: defaultdict[str, dict[int, set[Partition]]] = defaultdict(dict)

    def __setitem__(self, target: Target, kept: _Kept) -> None:
        super().__setitem__(target, kept)
        if isinstance(target, Partition):
            self._partitions[target.address].setdefault(target.total, set()).add(target)

    def __delitem__(self, target: Target) -> None:
        super().__delitem__(target)
        if isinstance(target, Partition):
            by_total = self._partitions[target.address]
            by_total[target.total].discard(target)
            if not by_total[target.total]:
                del by_total[target.total]
            if not by_total:
                del self._partitions[target.address]

    def target(self, record: Record, total: int) -> Target:
        """The record's partition of so many; its destination where that cannot be told, or where it has no partitions (a total of 0)."""
        number = self._partition_of(record, total) if total else None
        return record.address if number is None else Partition(record.address, number, total)

    def of(self, record: Record) -> Iterator[tuple[Target, _Kept]]:
        """The targets that this record is for: its destination, then its partition; where that cannot be told, any that it may be. Any thread."""
        address = record.address
        whole = self.get(address)
        if whole is not None:
            yield address, whole
        for total, partitions in list(self._partitions.get(address, {}).items()):
            mine = self.target(record, total)
            for target in list(partitions) if mine == address else (mine,):
                kept = self.get(target)
                if kept is not None:
                    yield target, kept
