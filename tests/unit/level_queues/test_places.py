"""Where a record goes in the level queues, and as what."""

from __future__ import annotations

import msgspec
import pytest
from contract.stores import T0, record
from msgspec.structs import replace

from delaybridge.bridge.level_queues.envelope import LONGEST_LINE, Envelope, pack, unpack
from delaybridge.bridge.level_queues.places import Places
from delaybridge.core.fields import plain, table
from delaybridge.core.levels import Levels
from delaybridge.core.message import Message, Properties

MINUTE = 60_000


@pytest.fixture
def places() -> Places:
    return Places(Levels((1_000, MINUTE, 60 * MINUTE)), ["0", "1s", "1m", "1h"], "shelf")


def test_what_comes_in_goes_to_the_largest_level_that_fits_behind_all_that_came_before(places: Places) -> None:
    first, second = (places.enter(record("a", T0 + 90 * MINUTE), None, T0) for _ in range(2))
    assert (first[0], second[0]) == ("1h", "1h")
    assert unpack(first[1]).since == T0
    assert unpack(first[1]).order < unpack(second[1]).order


def test_a_hop_counts_and_there_is_none_where_no_level_fits(places: Places) -> None:
    there = places.hop(Envelope(record("a", T0 + 5_000), T0 - MINUTE, hops=3), T0)
    assert there is not None
    assert (there[0], unpack(there[1]).hops, unpack(there[1]).since) == ("1s", 4, T0)
    assert places.hop(Envelope(record("a", T0 + 500), T0 - MINUTE), T0) is None
    again = places.round(Envelope(record("a", T0 + 500), T0 - MINUTE, hops=3), T0)
    assert (again[0], unpack(again[1]).hops, unpack(again[1]).since) == ("1s", 4, T0)


def test_what_could_not_go_there_in_time_goes_where_it_belongs_by_now_in_its_old_order(places: Places) -> None:
    place = places.enter(record("a", T0 + 61 * MINUTE), None, T0)
    later = places.anew(place, T0 + 59 * MINUTE)
    assert (later[0], unpack(later[1]).since, unpack(later[1]).hops) == ("1m", T0 + 59 * MINUTE, 0)
    assert unpack(later[1]).order == unpack(place[1]).order
    assert places.anew(place, T0 + 70 * MINUTE)[0] == "0"


def test_a_dead_letter_goes_on_to_its_destination_or_to_the_shelf_whenever_that_is_tried(places: Places) -> None:
    forwarded = places.dead(record("a", chosen_id="order-7"), record("", T0), T0, "rejected_by_broker", "")
    assert (forwarded[0], unpack(forwarded[1]).record.id) == ("0", "order-7")
    shelved = places.dead(record("a", T0), None, T0, "rejected_by_broker", "")
    assert shelved[0] == "shelf"
    assert places.anew(shelved, T0 + MINUTE) == shelved
    assert places.anew(("elsewhere", Message(b"x")), T0) == ("elsewhere", Message(b"x"))


def test_a_dead_letter_whose_body_is_that_of_a_message_in_a_level_goes_to_the_shelf_all_the_same(places: Places) -> None:
    """Anybody can write such a body, and would choose its destination."""
    written = pack(Envelope(record("a", T0 + 5_000), T0))
    assert places.anew(("shelf", written), T0) == ("shelf", written)


def test_whoever_looks_into_a_level_sees_in_one_line_what_waits_there() -> None:
    one = record("a", T0 + MINUTE, chosen_id="a", address="orders", lane="rabbit")
    headers = plain(pack(Envelope(one, T0, hops=2)).headers)
    assert headers == {"delaybridge-since": T0, "delaybridge-record": f"id=a due={T0 + MINUTE} hops=2 to=rabbit orders"}
    headers = plain(pack(Envelope(replace(one, address="x" * 20_000), T0)).headers)
    assert len(str(headers["delaybridge-record"])) == LONGEST_LINE


def test_a_dead_letter_that_the_shelf_rejects_is_enclosed_whole_in_the_body_of_one_that_has_only_the_reason(places: Places) -> None:
    letter = record("a", T0)
    letter = replace(letter, message=Message(b"hello", table([("large", "x" * 2_000)]), Properties(type=b"order"), b"key"))
    shelved = places.dead(letter, None, T0, "rejected_by_broker", "why")
    address, message = places.enclosed(shelved)
    assert (address, plain(message.headers)) == ("shelf", {"x-delay-reason": "rejected_by_broker", "x-delay-detail": "why"})
    assert msgspec.msgpack.decode(message.body or b"", type=Message) == shelved[1]
    waiting = places.enter(letter, None, T0)
    assert places.enclosed(waiting) == waiting
