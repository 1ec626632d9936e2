"""Which transactional id is used while others are busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import Kafka
from delaybridge.adapters.kafka.transactions import identities
from delaybridge.adapters.kafka.transactions.identities import Identities
from delaybridge.adapters.kafka.transactions.markers import Markers

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of ids that the cluster says are busy. Nobody waits for them."""
    names: set[str] = set()

    def recall(markers: Markers) -> AbstractSet[str]:
        return names & {markers.name}

    monkeypatch.setattr(Markers, "recall", recall)
    monkeypatch.setattr(identities, "ENDING", 0)
    return names


@pytest.fixture
def ids() -> Identities:
    return Identities(Kafka(bootstrap_servers="127.0.0.1:1"), "bridge", ["level"])


def test_the_bridges_own_id_is_used_as_long_as_it_is_free(ids: Identities, busy: set[str]) -> None:
    busy.add("somebody else")
    assert ids.free().name == ids.last.name == "bridge"


def test_while_it_is_busy_the_next_one_is_used(ids: Identities, busy: set[str]) -> None:
    busy |= {"bridge", "bridge::1"}
    assert ids.free().name == ids.last.name == "bridge::2"


def test_the_last_one_is_used_again_though_an_earlier_one_is_free_for_something_of_it_may_be_open(ids: Identities, busy: set[str]) -> None:
    busy.add("bridge")
    second = ids.free()
    second.taken = True
    busy.clear()
    assert ids.free() is second


def test_once_its_time_is_over_the_bridges_own_is_used_again_if_it_is_free(ids: Identities, busy: set[str]) -> None:
    busy.add("bridge")
    ids.free().over = True
    assert (ids.free().name, ids.last.over) == ("bridge::1", False)
    ids.last.over = True
    busy.clear()
    assert ids.free().name == ids.last.name == "bridge"


def test_one_that_let_no_producer_in_is_not_insisted_on_once_the_one_before_is_free(ids: Identities, busy: set[str]) -> None:
    """Where its use is not allowed, for one: then nothing would be moved any more."""
    busy.add("bridge")
    assert ids.free().name == ids.free().name == "bridge::1"
    busy.clear()
    assert ids.free().name == "bridge"


@pytest.mark.parametrize("name", ["bridge.1", "bridge:1"])
def test_another_bridge_or_route_may_be_called_like_that(ids: Identities, busy: set[str], name: str) -> None:
    busy.add("bridge")
    assert ids.free().name != name


def test_there_is_an_end_to_them(ids: Identities, busy: set[str]) -> None:
    busy |= {"bridge"} | {f"bridge::{number}" for number in range(100)}
    with pytest.raises(NotConnected, match="8 producers"):
        ids.free()
