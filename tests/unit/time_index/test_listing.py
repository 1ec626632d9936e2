"""What a page of a listing reads: deliveries wait for that long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import HOUR, T0, bodies, give, record, take
from msgspec.structs import replace

from delaybridge.core.store import Page, Query, Refuse, Settled
from delaybridge.core.time_index import lanes, listing, migration

if TYPE_CHECKING:
    from delaybridge.core.time_index import TimeIndex

BODY = "x" * 400_000


def _pages(index: TimeIndex, query: Query) -> list[int]:
    """How many were on each page."""
    page = index.list(query, 100)
    found = [len(page.items)]
    while page.cursor:
        page = index.list(query, 100, page.cursor)
        found.append(len(page.items))
    return found


def test_a_page_ends_behind_a_mebibyte_whatever_the_filter(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_TRACKS", 1)
    give(index, *(record(BODY, T0 + number, chosen_id=f"large {number}") for number in range(7)))

    assert _pages(index, Query()) == [3, 3, 1]
    assert _pages(index, Query(id_prefix="large")) == [3, 3, 1]
    assert _pages(index, Query(address="none")) == [0, 0, 0]


def test_a_page_of_the_shelf_ends_behind_a_mebibyte(index: TimeIndex) -> None:
    give(index, *(record(BODY) for _ in range(7)))
    while found := take(index):
        index.settle([Settled(due.key, "dead_lettered", T0, "rejected_by_broker") for due in found], T0)

    first = index.dead_letters(100)

    assert [letter.number for letter in first] == [1, 2, 3]
    assert [letter.number for letter in index.dead_letters(100, after=3)] == [4, 5, 6]


def test_a_dead_letter_on_its_way_is_not_listed(index: TimeIndex) -> None:
    refused = record("bad", chosen_id="order-1")
    index.put([Refuse(refused, "bad_delay", "", replace(refused, address="dead", kind="refused"))], T0)

    assert index.carriers() == 1
    assert _pages(index, Query()) == [0]
    assert _pages(index, Query(id_prefix="order")) == [0]
    assert index.first_due() == T0, "it is late all the same where its destination takes nothing"


def test_a_page_of_a_listing_looks_at_a_bounded_number_of_records(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_EXAMINED", 10)
    monkeypatch.setattr(lanes, "_TRACKS", 1)
    give(index, *(record(str(number), address="rare" if number == 15 else "common") for number in range(25)))

    assert _pages(index, Query(address="rare")) == [0, 1, 0]


def test_a_listing_of_one_address_looks_at_no_others(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_EXAMINED", 10)
    give(index, *(record(str(number), address="common") for number in range(25)), record("rare", T0 + HOUR, address="rare"))

    page = index.list(Query(address="rare"), 5)
    assert ([one.record.message.body for one in page.items], page.cursor) == ([b"rare"], "")
    assert index.list(Query(address="never seen"), 5) == Page(())


def test_a_cursor_that_is_none_is_a_value_error(index: TimeIndex) -> None:
    for query in (Query(), Query(id_prefix="a")):
        with pytest.raises(ValueError, match="the cursor is none that a page ended with"):
            index.list(query, 5, "page two")


def test_large_messages_are_taken_out_a_few_at_a_time_and_each_once(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves to another store at once is in memory, and has to be confirmed within the time that one delivery may take."""
    monkeypatch.setattr(migration, "PAGE", len(BODY) + 1)
    give(index, *(record(BODY + str(number), T0 + number) for number in range(5)), record("small", T0 + 9))
    pages: list[list[str]] = []
    cursor, more = "", True
    while more:
        found, cursor = index.migration.waiting(100, cursor, T0)
        pages.append([body.removeprefix(BODY) for body in bodies(found)])
        more = bool(cursor)
    assert pages == [["0", "1"], ["2", "3"], ["4", "small"]]
