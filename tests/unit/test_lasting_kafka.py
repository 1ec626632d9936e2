"""Which Kafka the next file of tests gets."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from brokers.lasting import FEW, YOUNG, Lasting

if TYPE_CHECKING:
    from collections.abc import Iterator


class Fake:
    """A broker, as far as `Lasting` looks at it."""

    url, restartable, starts, ended = "", True, 1, False


class Shop:
    """Starts brokers, and has a clock and a number of topics that a test sets."""

    def __init__(self) -> None:
        self.now, self.topics = 0.0, 1.0
        self.lasting = Lasting(self._start, lambda: self.now, lambda _: self.topics)

    @contextlib.contextmanager
    def _start(self) -> Iterator[Any]:
        made = Fake()
        yield made
        made.ended = True

    def get(self) -> Any:
        return self.lasting.get()


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_one_that_is_young_and_unharmed_serves_the_next_file_too(shop: Shop) -> None:
    first = shop.get()
    shop.now, shop.topics = YOUNG - 1, FEW - 1
    shop.lasting.spare()
    assert shop.get() is first
    assert not first.ended


def test_one_that_is_old_or_full_or_does_not_answer_is_replaced(shop: Shop) -> None:
    for name, much in (("now", YOUNG), ("topics", FEW), ("topics", float("inf"))):
        shop.topics = 1.0
        first = shop.get()
        setattr(shop, name, much)
        assert shop.get() is not first
        assert first.ended


def test_one_that_a_file_restarted_ends_with_that_file(shop: Shop) -> None:
    first = shop.get()
    first.starts = 2
    shop.lasting.spare()
    assert first.ended
    assert shop.get() is not first


def test_one_that_does_not_count_its_starts_serves_one_file(shop: Shop) -> None:
    first = shop.get()
    first.starts = 0
    assert shop.get() is not first


def test_one_that_is_not_ours_is_never_replaced(shop: Shop) -> None:
    first = shop.get()
    first.restartable, first.starts = False, 0
    shop.now = YOUNG
    assert shop.get() is first
