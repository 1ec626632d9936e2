"""How messages enter the level queues: what is told of them, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.base import NotConnected
from delaybridge.bridge.level_queues.doors import Doors
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delaybridge.bridge.level_queues.publisher import Item

ITEMS = [("level.1s", Message(b"a")), ("level.5s", Message(b"b"))]


class Journal:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def tell(self, told: Sequence[Any], now: int, source: str = "", tokens: Sequence[bytes] = ()) -> None:
        self.told.append((list(told), now, source, list(tokens)))


class Levels:
    """Takes everything at once, before anything is told of it."""

    def __init__(self, journal: Journal) -> None:
        self.taken: list[str] = []
        self._journal = journal

    def submit(self, items: Sequence[Item]) -> None:
        assert self._journal.told == []
        self.taken += [item.address for item in items]
        for item in items:
            item.landed()


class Topic:
    """A source whose batches are forgotten together with their entry; `works`: or whose broker goes away meanwhile."""

    def __init__(self, *, works: bool = True) -> None:
        self.published: list[str] = []
        self.in_doubt: Callable[[], None] | None = None
        self._works = works

    def publish(self, messages: Sequence[tuple[str, Message]], entered: Callable[[], None]) -> None:
        self.published += [address for address, _ in messages]
        if not self._works:
            self.in_doubt = entered
            raise NotConnected("gone")
        entered()


@pytest.fixture
def journal() -> Journal:
    return Journal()


def doors(journal: Journal, topic: Topic | None = None) -> tuple[Doors, Levels]:
    levels = Levels(journal)
    made = Doors(levels, journal, {"exact", "joined"})  # type: ignore[arg-type]
    if topic is not None:
        made.join("joined", topic)  # type: ignore[arg-type]
    return made, levels


@pytest.mark.parametrize(("route", "tokens"), [("exact", [b"1", b"2"]), ("alike", [])])
def test_rows_are_told_and_exact_tokens_remembered_once_the_levels_have_confirmed(
    journal: Journal, route: str, tokens: list[bytes]
) -> None:
    made, levels = doors(journal)
    made.enter(ITEMS, ["row"], 7, route, [b"1", b"2"])  # type: ignore[list-item]
    assert levels.taken == ["level.1s", "level.5s"]
    assert journal.told == [(["row"], 7, route, tokens)]


def test_a_joined_batch_enters_through_its_source_and_its_tokens_are_not_needed(journal: Journal) -> None:
    topic = Topic()
    made, levels = doors(journal, topic)
    made.enter(ITEMS, ["row"], 7, "joined", [b"1", b"2"])  # type: ignore[list-item]
    assert (topic.published, levels.taken) == (["level.1s", "level.5s"], [])
    assert journal.told == [(["row"], 7, "", [])]


def test_of_a_joined_batch_nothing_is_told_while_it_is_in_doubt(journal: Journal) -> None:
    topic = Topic(works=False)
    made, _ = doors(journal, topic)
    with pytest.raises(NotConnected):
        made.enter(ITEMS, ["row"], 7, "joined", [b"1", b"2"])  # type: ignore[list-item]
    assert journal.told == []
    assert topic.in_doubt is not None
    topic.in_doubt()  # as the next connection finds
    assert journal.told == [(["row"], 7, "", [])]


def test_of_a_joined_batch_that_becomes_nothing_rows_are_told_at_once(journal: Journal) -> None:
    topic = Topic()
    made, _ = doors(journal, topic)
    made.enter([], ["row"], 7, "joined", [b"1"])  # type: ignore[list-item]
    assert (topic.published, journal.told) == ([], [(["row"], 7, "joined", [])])
