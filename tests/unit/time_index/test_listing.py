"""How a time index lists: in pages of bounded work, whatever the filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import HOUR, T0, give, record

from delaybridge.core.store import Page, Query
from delaybridge.core.time_index import lanes, listing

if TYPE_CHECKING:
    from delaybridge.core.time_index import TimeIndex


def test_a_page_of_a_listing_looks_at_a_bounded_number_of_records(index: TimeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_EXAMINED", 10)
    monkeypatch.setattr(lanes, "_TRACKS", 1)
    give(index, *(record(str(number), address="rare" if number == 15 else "common") for number in range(25)))

    pages: list[Page] = []
    cursor = ""
    while cursor or not pages:
        pages.append(index.list(Query(address="rare"), 5, cursor))
        cursor = pages[-1].cursor

    assert [len(page.items) for page in pages] == [0, 1, 0]


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
