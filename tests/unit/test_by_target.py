"""Which targets a record is for."""

from __future__ import annotations

import pytest
from contract.stores import partition_of, record

from delaybridge.core.by_target import ByTarget
from delaybridge.core.targets import ANY, Partition, Target, address_of

ONE, THREE, FREE = Partition("orders", 1, 2), Partition("orders", 3, 4), Partition("orders", ANY, 2)


def _all(kept: ByTarget[str]) -> ByTarget[str]:
    for target in (THREE, FREE, ONE, "orders", Partition("others", 1, 2)):
        kept[target] = str(target)
    return kept


@pytest.mark.parametrize(
    ("key", "targets"),
    [(0, ["orders"]), (1, ["orders", ONE]), (3, ["orders", ONE, THREE]), (None, ["orders", FREE])],
    ids=["even", "of two", "of two and of four", "without a key"],
)
def test_a_record_is_for_its_destination_first_and_then_for_its_partition(key: int | None, targets: list[Target]) -> None:
    kept = _all(ByTarget(partition_of))
    found = list(kept.of(record(key=key)))
    assert found[0] == ("orders", "orders")
    assert {target for target, _ in found} == set(targets)
    assert list(kept.of(record(address="none", key=1))) == []


def test_where_its_partition_cannot_be_told_a_record_may_be_for_any() -> None:
    found = {target for target, _ in _all(ByTarget()).of(record(key=0))}
    assert found == {"orders", ONE, THREE, FREE}


def test_what_was_taken_away_is_found_no_more() -> None:
    kept = _all(ByTarget(partition_of))
    for target in list(kept):
        del kept[target]
        assert target not in dict(kept.of(record(address=address_of(target), key=3)))
    assert not kept._partitions
