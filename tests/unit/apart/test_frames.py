"""What the two sides say to each other comes out as it went in."""

from __future__ import annotations

import pytest

from delaybridge.adapters.base import BackOff, NotConnected, Received, Rejected
from delaybridge.bridge.apart import frames
from delaybridge.bridge.apart.frames import Kind, failure, failures, frame
from delaybridge.core.message import Message
from delaybridge.core.reasons import Reason


@pytest.mark.parametrize(
    "error",
    [
        NotConnected("gone"),
        BackOff(Reason.UNROUTABLE, "no queue"),
        BackOff(Reason.REFUSED_BY_BROKER, "no leader", 3),
        Rejected(Reason.TOO_LARGE, "5 GiB"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_on_the_other_side(error: NotConnected | BackOff | Rejected) -> None:
    content = memoryview(frame(Kind.FAILED, [failure(b"tag", error)]))[1:]

    ((tag, told),) = failures(content)

    assert (tag, type(told), str(told), vars(told)) == (b"tag", type(error), str(error), vars(error))


def test_a_message_that_could_not_be_carried_faithfully_says_so_on_the_other_side() -> None:
    damaged = Received(Message(b"x"), "a", b"t", sent=5, defect=Rejected(Reason.HEADER_DAMAGED, "cut off"), log=b"l")

    number, (told,) = frames.batch(memoryview(frame(Kind.BATCH, (7, [damaged])))[1:])

    assert number == 7
    assert told.defect is not None
    assert (told.defect.reason, told.defect.detail) == (Reason.HEADER_DAMAGED, "cut off")
    assert (told.message, told.address, told.token, told.sent, told.log) == (Message(b"x"), "a", b"t", 5, b"l")
