"""Each side of a client's process alone: what it makes of what the other side says, and of what its client does. See also test_apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.base import Batch, NotConnected, Outgoing, Received
from delaybridge.bridge.apart import frames
from delaybridge.bridge.apart.child import _Publishing, _Reading
from delaybridge.bridge.apart.frames import Kind, Receive, Setup, failures, frame
from delaybridge.bridge.apart.source import ApartSource
from delaybridge.bridge.config import Logs
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence


class Ended(Exception):
    """The bridge has said all that it has to say."""


class Bridge:
    """Says what it is given, and notes each answer: its kind and its content."""

    def __init__(self, *says: bytes) -> None:
        self._says = list(says)
        self.heard: list[tuple[Kind, object]] = []

    def speaks(self, _: float) -> bool:
        return bool(self._says)

    def read(self) -> tuple[int, memoryview]:
        if not self._says:
            raise Ended
        data = self._says.pop(0)
        return data[0], memoryview(data)[1:]

    def say(self, kind: Kind, content: object = None) -> None:
        if len(self.heard) > 20:
            raise Ended
        self.heard.append((kind, content))

    @property
    def kinds(self) -> list[Kind]:
        return [kind for kind, _ in self.heard]


class Source:
    """Gives a batch each time, or what a test says; notes what is acknowledged."""

    def __init__(self, *gives: str | NotConnected | None) -> None:
        self._gives = list(gives)
        self.did: list[str] = []

    def connect(self) -> None:
        self.did.append("connect")

    def close(self) -> None:
        self.did.append("close")

    def receive(self, _: int, __: float) -> Batch | None:
        given = self._gives.pop(0)
        if isinstance(given, NotConnected):
            raise given
        return None if given is None else Batch([Received(Message(b"x"), "a", b"t")], lambda: self.did.append(f"ack {given}"))


def serve(client: _Publishing | _Reading) -> None:
    with pytest.raises(Ended):
        client.serve()


def receive(timeout: float = 0) -> bytes:
    return frame(Kind.RECEIVE, Receive(1, timeout))


def test_a_sink_that_is_lost_while_it_publishes_tells_what_is_unknown_and_then_that_it_is_lost_once() -> None:
    def publish(_: Sequence[Outgoing]) -> None:
        raise NotConnected("gone")

    bridge: Any = Bridge(frame(Kind.CONNECT), frame(Kind.PUBLISH, [Outgoing(b"1", "a", Message(b"x"))]))
    sink: Any = SimpleNamespace(connect=lambda _: None, publish=publish)

    serve(_Publishing(bridge, sink))

    assert bridge.kinds == [Kind.CONNECTED, Kind.FAILED, Kind.LOST]
    ((tag, error),) = failures(memoryview(frame(*bridge.heard[1]))[1:])
    assert (tag, type(error), bridge.heard[2][1]) == (b"1", NotConnected, "gone")


def test_a_sink_that_is_lost_while_there_is_nothing_to_publish_tells_that_too() -> None:
    """Else the bridge would hear of it with the next message, and that would be late."""

    def publish(messages: Sequence[Outgoing]) -> None:
        assert not messages
        raise NotConnected("gone")

    bridge: Any = Bridge(frame(Kind.CONNECT))
    sink: Any = SimpleNamespace(connect=lambda _: None, publish=publish)

    serve(_Publishing(bridge, sink))

    assert bridge.heard == [(Kind.CONNECTED, None), (Kind.LOST, "gone")]


def test_a_sink_is_closed_before_that_is_told() -> None:
    """What was unconfirmed is told by then."""
    bridge: Any = Bridge(frame(Kind.CONNECT), frame(Kind.CLOSE))
    sink: Any = SimpleNamespace(connect=lambda _: None, close=lambda: bridge.say(Kind.CONFIRMED, [b"1"]))

    serve(_Publishing(bridge, sink))

    assert bridge.kinds == [Kind.CONNECTED, Kind.CONFIRMED, Kind.CLOSED]


def test_a_tenure_is_affirmed_once_the_source_is_sure_of_the_one_that_it_has_now() -> None:
    """What came or went meanwhile began another one."""
    asked: list[int] = []
    tenures = iter([1, 2])

    def affirm(tenure: int) -> bool:
        asked.append(tenure)
        return tenure == 2

    bridge: Any = Bridge(frame(Kind.AFFIRM))
    source: Any = SimpleNamespace(tenure=lambda: next(tenures), affirm=affirm)

    serve(_Reading(bridge, source))

    assert asked == [1, 2]
    assert bridge.kinds == [Kind.AFFIRMED]


def test_while_a_source_waits_acknowledgements_are_made_and_anything_else_ends_the_wait_and_is_done() -> None:
    bridge: Any = Bridge(receive(), receive(60), frame(Kind.ACK, 1), frame(Kind.CLOSE))
    source: Any = Source("first", None)

    serve(_Reading(bridge, source))

    assert source.did == ["ack first", "close"]
    assert bridge.kinds == [Kind.BATCH, Kind.NOTHING, Kind.CLOSED]


@pytest.mark.parametrize("answered", [True, False])
def test_whether_the_broker_answered_the_farewell_is_told_with_it(answered: bool) -> None:
    bridge: Any = Bridge(frame(Kind.CLOSE))
    source: Any = SimpleNamespace(close=lambda: None, parted=answered)

    serve(_Reading(bridge, source))

    assert bridge.heard == [(Kind.CLOSED, answered)]


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "closed"])
def test_a_batch_of_an_earlier_connection_is_not_acknowledged_any_more_and_is_taken_for_no_later_one(lost: bool) -> None:
    """Its number is not used again."""
    end = receive() if lost else frame(Kind.CLOSE)
    bridge: Any = Bridge(receive(), end, frame(Kind.CONNECT), receive(), frame(Kind.ACK, 1), frame(Kind.ACK, 2))
    source: Any = Source("first", *([NotConnected("gone")] if lost else []), "second")

    serve(_Reading(bridge, source))

    assert source.did == [*([] if lost else ["close"]), "connect", "ack second"]
    batches = [frames.batch(frame(kind, content)[1:])[0] for kind, content in bridge.heard if kind == Kind.BATCH]
    assert batches == [1, 2]
    assert ((Kind.LOST, "gone") in bridge.heard) is lost


def test_as_the_bridge_sees_it_only_the_tenure_of_the_latest_batch_of_this_connection_is_affirmed() -> None:
    batch = [Received(Message(b"x"), "a", b"t")]
    answers = iter([frame(Kind.BATCH, (1, batch)), frame(Kind.BATCH, (2, batch)), frame(Kind.AFFIRMED)])
    source = ApartSource(Setup("memory", None, None, Logs(), frozenset()), "test")
    process: Any = SimpleNamespace(
        send=lambda _: None, read=lambda _: ((data := next(answers))[0], memoryview(data)[1:]), close=lambda: None
    )
    source._process = process
    source.receive(1, 0)
    first = source.tenure()
    source.receive(1, 0)
    second = source.tenure()

    assert (source.affirm(first), source.affirm(second)) == (False, True)
    source.close()
    assert source.affirm(second) is False
    with pytest.raises(NotConnected, match="closed"):
        source.tenure()
    source._process = process
    with pytest.raises(NotConnected, match="closed"):
        source.tenure()
