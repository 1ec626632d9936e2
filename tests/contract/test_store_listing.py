"""What a store with an index lists: in which order, page by page, and by which filters."""

from __future__ import annotations

from contract.stores import T0, give, only_an_index, record, take
from delaybridge.core.store import Held, Query, Store

pytestmark = only_an_index


def test_pending_records_are_listed_in_order_of_due_time_over_all_lanes_page_by_page(store: Store) -> None:
    give(store, *(record(str(number), T0 + number, lane="rabbit" if number % 2 else "kafka") for number in range(9)))

    seen, cursor, pages = [], "", 0
    while cursor or not pages:
        page = store.list(Query(), 4, cursor)
        seen += [pending.record.message.body for pending in page.items]
        cursor, pages = page.cursor, pages + 1

    assert seen == [b"%d" % number for number in range(9)]
    assert pages == 3


def test_a_listing_is_filtered_by_lane_address_time_and_id_prefix(store: Store) -> None:
    give(
        store,
        record("1", T0 + 1, lane="kafka", chosen_id="order-2"),
        record("2", T0 + 2, address="bills", chosen_id="order-1"),
        record("3", T0 + 3, chosen_id="bill-1"),
    )

    def listed(query: Query) -> list[bytes | None]:
        return [pending.record.message.body for pending in store.list(query, 10).items]

    assert listed(Query(lane="kafka")) == [b"1"]
    assert listed(Query(address="bills")) == [b"2"]
    assert listed(Query(due_from=T0 + 2, due_to=T0 + 3)) == [b"2"]
    assert listed(Query(id_prefix="order-")) == [b"2", b"1"]
    assert listed(Query(id_prefix="order-", lane="kafka")) == [b"1"]
    assert listed(Query(lane="nobody")) == []


def test_a_listing_shows_what_is_held_and_what_is_in_flight(store: Store) -> None:
    give(store, record("held", T0), record("flying", T0 + 1, address="up"), record("waiting", T0 + 2, address="up"))
    held, _ = take(store, T0 + 1)
    store.hold([Held(held.key, 2, "refused")], T0 + 1)

    states = [(pending.record.message.body, pending.state, pending.attempts) for pending in store.list(Query(), 10).items]

    assert states == [(b"held", "held", 2), (b"flying", "in_flight", 0), (b"waiting", "waiting", 0)]
