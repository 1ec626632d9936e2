"""What `delaybridge status` says of each level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from contract.stores import T0

from delaybridge.bridge.config import Config
from delaybridge.bridge.engine import open_journal
from delaybridge.bridge.level_queues.build import Assembled, assembled
from delaybridge.bridge.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Seen:
    """A level source that lets nothing go yet, and sees when the first may."""

    def __init__(self, first_leaves: int | None) -> None:
        self.first_leaves = first_leaves


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[Assembled]:
    memory = {"type": "memory", "name": str(tmp_path)}
    config = Config.model_validate({
        "store": {"kind": "level_queues", "broker": "here", "path": tmp_path},
        "limits": {"levels": "1s 1m"},
        "brokers": {"here": memory},
        "routes": [{"name": "jobs", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here"}}],
    })  # fmt: skip
    journal = open_journal(config)
    yield assembled(config, journal, lambda: T0, Metrics("0"), lambda *_: None, lambda *_: None)
    journal.close()


def test_a_level_of_which_nothing_is_seen_does_not_say_when_its_first_message_leaves(queues: Assembled) -> None:
    assert [each.first_leaves for each in queues.status()] == [None] * 3


def test_a_level_whose_broker_keeps_messages_until_they_leave_says_what_its_source_sees(queues: Assembled) -> None:
    seen: list[Any] = [Seen(None), Seen(T0 + 900), Seen(T0 + 5)]
    assert [each.first_leaves for each in queues._replace(leaving=seen).status()] == [None, T0 + 900, T0 + 5]
