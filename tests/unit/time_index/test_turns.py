"""The store's lock goes round in turns."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until

from delaybridge.core.time_index.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator


class Interrupted(Exception):
    """What Ctrl-C raises in the thread that waits."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def waiting(turns: Turns, count: int) -> None:
    wait_until(lambda: len(turns._waiting) == count, f"{count} threads wait")


def test_whoever_has_waited_longest_is_next() -> None:
    turns, order = Turns(), list[int]()

    def take(number: int) -> None:
        with turns:
            order.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(5)]
    with turns:
        for number, thread in enumerate(threads):
            thread.start()
            waiting(turns, number + 1)
    for thread in threads:
        thread.join()

    assert order == list(range(5))


def test_who_takes_it_again_and_again_keeps_nobody_out() -> None:
    turns, had = Turns(), threading.Event()

    def take() -> None:
        with turns:
            had.set()

    turns.acquire()
    thread = threading.Thread(target=take)
    thread.start()
    waiting(turns, 1)

    turns.release()
    turns.acquire()

    assert had.is_set()
    thread.join()


def test_who_does_not_want_to_wait_does_not_get_it_while_anybody_has_it() -> None:
    turns = Turns()

    assert turns.acquire(blocking=False)
    assert not turns.acquire(blocking=False)
    turns.release()
    assert turns.acquire(blocking=False)


@pytest.mark.usefixtures("interruptible")
def test_nobody_waits_for_one_who_was_interrupted_while_waiting() -> None:
    turns = Turns()
    me = threading.get_ident()

    def interrupt() -> None:
        waiting(turns, 1)
        signal.pthread_kill(me, signal.SIGUSR1)

    turns.acquire()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted):
        turns.acquire()
    thread.join()
    turns.release()

    assert turns.acquire(blocking=False)
