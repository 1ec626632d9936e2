"""Where a full disk refuses a write for good, what it was about is found again: the daemon ends then, but meanwhile others may write again."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from contract.stores import T0, adds_up, bodies, delivered, give, record, take

from delaybridge.core.store import Answer, Held, StoreFull, Withdraw
from delaybridge.core.time_index import database, delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaybridge.core.time_index import TimeIndex


@pytest.fixture(autouse=True)
def cursors_move_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before a cursor is not looked at after a restart."""
    monkeypatch.setattr(delivery, "_CURSOR_EVERY", 1)


@pytest.fixture
def on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Does something that finds no room, not even that of the reserve."""

    def does(something: Callable[[], object]) -> None:
        with monkeypatch.context() as full:
            full.setattr(database.Database, "write", Mock(side_effect=StoreFull("no space left")))
            with pytest.raises(StoreFull):
                something()

    return does


def test_what_could_not_be_set_aside_is_handed_out_after_a_restart(
    open_index: Callable[[], TimeIndex], on_a_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    index = open_index()
    give(index, record("1", address="down"), record("2", address="up"))
    first, second = take(index)
    index.hold([Held(first.key, 1, "refused")], T0)
    give(index, record("3", address="down"))

    on_a_full_disk(lambda: take(index))
    delivered(index, [second])
    index = open_index()

    take(index)
    assert bodies(take(index, held="down")) == ["1", "3"]
    assert adds_up(index)


def test_what_was_withdrawn_in_flight_and_could_not_be_ended_when_it_came_back_ends_after_a_restart(
    open_index: Callable[[], TimeIndex], on_a_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    index = open_index()
    give(index, record("1", chosen_id="a"), record("2"))
    first, second = take(index)
    index.put([Withdraw("a")], T0)

    on_a_full_disk(lambda: index.put_back([first.key]))
    delivered(index, [second])
    index = open_index()

    assert take(index) == []
    assert index.find("a") == Answer("too_late", "cancelled", T0)
    assert index.counts().pending == 0
    assert adds_up(index)
