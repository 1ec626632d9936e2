"""Where a time index goes on after a restart, and how much it reads until then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from contract.stores import HOUR, T0, bodies, delivered, give, record, take

from delaybridge.core.ledger import BridgeNames
from delaybridge.core.store import Held, Put, SourceProgress, Withdraw
from delaybridge.core.time_index import TimeIndex, database, delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_a_restart_begins_near_the_first_record_that_waits_and_finds_what_came_before_it_since(
    open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_CURSOR_EVERY", 2)
    index = open_index()
    give(index, record("1"), record("2"), record("last", T0 + HOUR))
    delivered(index, take(index))
    (track,) = index._state.lanes.by_name["rabbit"].tracks
    assert track.cursor > track.start
    give(index, record("between", T0 + 5))

    index = open_index()

    assert bodies(take(index, T0 + HOUR)) == ["between", "last"]


def test_a_restart_begins_near_the_first_record_that_waits_also_where_messages_come_and_go_one_by_one(
    open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_CURSOR_EVERY", 10)
    index = open_index()
    for number in range(30):
        give(index, record(), now=T0 + number)
        delivered(index, take(index, T0 + number), T0 + number)

    index = open_index()

    assert index._state.lanes.by_name["rabbit"].tracks[0].at > T0 + 15


@pytest.mark.parametrize("addresses", [1, 200])
def test_a_restart_reads_little_of_what_is_held_back_and_loses_none_of_it(
    open_index: Callable[[], TimeIndex], monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    """Else the time from start to ready would grow with what waits for a destination that is gone."""
    monkeypatch.setattr(delivery, "_CURSOR_EVERY", 10)
    read: list[bytes] = []
    look = database.scan

    def noting(*arguments: Any, **more: Any) -> Iterator[tuple[bytes, bytes]]:
        for key, value in look(*arguments, **more):
            read.append(key)
            yield key, value

    monkeypatch.setattr(delivery, "scan", noting)
    index = open_index()
    sent = [record(f"{number:03}", T0 + number, address=f"gone-{number % addresses}") for number in range(200)]
    give(index, *sent, record("flying", T0 + 300), record("later", T0 + HOUR))
    while index.counts().held < 200:
        index.hold([Held(due.key, 1, "unroutable") for due in take(index, T0 + 200, limit=30)], T0 + 200)
    assert bodies(take(index, T0 + 300)) == ["flying"]

    index = open_index()
    read.clear()
    assert index.lanes() == ["rabbit"]

    assert len(read) < 30
    assert bodies(take(index, T0 + 300)) == ["flying"]
    held = [bodies(take(index, T0 + 300, held=f"gone-{number}")) for number in range(addresses)]
    assert sorted(body for some in held for body in some) == [(one.message.body or b"").decode() for one in sent]
    assert bodies(take(index, T0 + HOUR)) == ["later"]


def test_what_is_held_back_is_not_what_falls_due_next_after_a_restart_either(open_index: Callable[[], TimeIndex]) -> None:
    """Else a lane would wake for it again and again."""
    index = open_index()
    give(index, record("held"), record("later", T0 + HOUR))
    index.hold([Held(due.key, 1, "full") for due in take(index)], T0)

    assert open_index().next_due("rabbit") == T0 + HOUR


def test_what_was_held_back_and_is_delivered_is_not_in_the_way_of_the_rest_after_a_restart(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    give(index, record("a"), record("b"))
    index.hold([Held(due.key, 1, "full") for due in take(index)], T0)
    delivered(index, take(index, limit=1, held="orders"))

    assert bodies(take(open_index(), held="orders")) == ["b"]


def test_an_address_that_held_records_back_and_is_free_again_is_so_after_a_restart(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    give(index, record("a"))
    index.hold([Held(due.key, 1, "full") for due in take(index)], T0)
    delivered(index, take(index, held="orders"))

    index = open_index()

    assert (index.held("rabbit"), index.lanes()) == ({}, [])


def test_rows_that_are_forgotten_are_counted_no_more_before_a_restart_either(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    give(index, record("a"), record("b"), record("c"))

    index.unfiled.forget(2)
    assert (index.unfiled.first(), index.unfiled.count()) == (3, 1)
    index.unfiled.forget(99)
    assert (index.unfiled.first(), index.unfiled.count()) == (4, 0)


def test_what_was_withdrawn_in_flight_and_delivered_leaves_nothing_behind(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    give(index, record("made"), record("chosen", chosen_id="a"))
    due = take(index)
    index.put([Withdraw(one.record.id) for one in due], T0)

    delivered(index, due)

    assert index._state.doomed == {}
    assert open_index()._state.doomed == {}


def test_rows_of_a_bridge_that_gets_another_name_begin_where_those_of_the_old_one_end(tmp_path: Path) -> None:
    def opened(bridge: str, rows: int = 1) -> tuple[BridgeNames, list[tuple[str, int]]]:
        index = TimeIndex(tmp_path, bridge=bridge, min_free_disk=0, reserve_bytes=0)
        give(index, *(record() for _ in range(rows)))
        told = index.unfiled.named, [(row.bridge, row.sequence) for row in index.unfiled.rows(10)]
        index.close()
        return told

    old, new = BridgeNames("old"), BridgeNames("new", 3, BridgeNames("old"))
    assert opened("old") == (old, [("old", 1)])
    assert opened("old") == (old, [("old", 1), ("old", 2)])
    assert opened("wrong", rows=0)[0] == BridgeNames("wrong", 3, old)
    assert opened("new", rows=0)[0] == new, "a name that no row bears leaves no trace"
    assert opened("old", rows=0)[0] == old
    assert opened("new") == (new, [("old", 1), ("old", 2), ("new", 3)])
    assert opened("new")[0] == new
    assert opened("newer")[0] == BridgeNames("newer", 5, new)


def test_rows_begin_with_the_name_that_a_bridge_has_when_it_writes_the_first(tmp_path: Path) -> None:
    for bridge in ("wrong", "right"):
        index = TimeIndex(tmp_path, bridge=bridge, min_free_disk=0, reserve_bytes=0)
        assert index.unfiled.named == BridgeNames(bridge)
        index.close()


def test_what_is_remembered_of_a_source_can_be_forgotten_and_begins_anew(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    for source in ("a", "b"):
        index.put([Put(record())], T0, SourceProgress(source, [b"before"]))
    index.forget("a")
    index.forget("never seen")
    assert index.came("a") == SourceProgress("a", [])

    index.put([Put(record())], T0, SourceProgress("a", [b"after"]))
    assert (index.came("a").tokens, index.came("b").tokens) == ([b"after"], [b"before"])

    index = open_index()
    assert (index.came("a").tokens, index.came("b").tokens) == ([b"after"], [b"before"])
