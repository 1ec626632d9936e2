"""How messages leave a level."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from delaybridge.bridge.level_queues.exits import Exits
from delaybridge.bridge.level_queues.passage import Finish, Taken
from delaybridge.bridge.level_queues.publisher import Item
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence


class Submitted:
    """Keeps what is handed over."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def submit(self, items: Sequence[Item]) -> None:
        self.items += items

    def seek_missing(self) -> None:
        """Nothing is missing."""


@pytest.mark.parametrize("transactional", [False, True])
def test_what_a_message_becomes_is_insisted_on_until_the_broker_gives_that_message_again(*, transactional: bool) -> None:
    submitted, taken = Submitted(), Taken()
    exits = Exits(Submitted(), submitted) if transactional else Exits(submitted)
    exits.leave([("1s", Message(b""))], taken, Finish(Mock(), 0, b""))
    (item,) = submitted.items
    assert item.wanted()
    taken.lost = True
    assert not item.wanted(), "it would stand twice"
