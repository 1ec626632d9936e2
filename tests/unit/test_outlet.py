"""Publishing a batch and waiting until each message of it is answered."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until

from delaybridge.adapters.base import BackOff, NotConnected, Rejected
from delaybridge.bridge.outlet import Outlet
from delaybridge.core.message import Message
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaybridge.adapters.base import AdapterError, Confirm, Outgoing

PATIENCE = 10.0
BATCH = [("a", Message(b"%d" % number)) for number in range(12)]


class Mute:
    """A sink that keeps what was published until the test answers."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.closed = False

    def connect(self, confirm: Confirm) -> None:
        self.confirm = confirm

    def publish(self, messages: Sequence[Outgoing]) -> None:
        self.sent = [*messages]

    def close(self) -> None:
        self.closed = True


def test_errors_are_told_in_the_order_of_their_messages_whatever_order_the_answers_come_in() -> None:
    """Whoever raises or prints the first of them tells of the first message."""
    full, large = BackOff(Reason.REFUSED_BY_BROKER, "full"), Rejected(Reason.TOO_LARGE, "large")
    wrong: dict[int, AdapterError] = {2: full, 10: large, 11: full}

    class Backwards(Mute):
        def publish(self, messages: Sequence[Outgoing]) -> None:
            self.confirm([(sent.tag, wrong.get(number)) for number, sent in reversed([*enumerate(messages)])])

    with Outlet(Backwards(), PATIENCE, "the broker") as outlet:
        assert list(outlet.publish(BATCH).items()) == list(wrong.items())


def test_whoever_waits_for_a_batch_goes_on_with_its_last_answer() -> None:
    sink = Mute()
    with Outlet(sink, 3_600.0, "the broker") as outlet:
        waiting = threading.Thread(target=outlet.publish, args=[BATCH], daemon=True)
        waiting.start()
        wait_until(lambda: len(sink.sent) == len(BATCH), "the batch")
        for sent in sink.sent:
            assert waiting.is_alive()
            sink.confirm([(sent.tag, None)])
        waiting.join(PATIENCE)
        assert not waiting.is_alive()


def test_answers_that_come_too_late_do_not_count_for_the_next_batch() -> None:
    sink = Mute()
    with Outlet(sink, 0.0, "the broker") as outlet:
        with pytest.raises(NotConnected, match="the broker did not confirm within 0 s"):
            outlet.publish(BATCH)
        sink.confirm([(sent.tag, None) for sent in sink.sent])
        with pytest.raises(NotConnected):
            outlet.publish(BATCH)


def test_the_connection_ends_with_the_block_whatever_happens_in_it() -> None:
    sink = Mute()
    with pytest.raises(NotConnected), Outlet(sink, 0.0, "the broker") as outlet:
        outlet.publish(BATCH)
    assert sink.closed
