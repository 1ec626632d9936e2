"""A client in a process of its own: what comes of it when that process ends, or is told to end by somebody else. See also
test_hanging and tests/contract."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from brokers.common import free_port, wait_until
from unit.apart.clients import QUEUE, outgoing, pid_of, setup

from delaybridge.adapters import memory, rabbitmq
from delaybridge.adapters.base import BackOff, NotConnected, Outcome, Received
from delaybridge.bridge.apart import sink as sink_module
from delaybridge.bridge.apart.child import _Publishing, _Reading
from delaybridge.bridge.apart.frames import Kind, failure, frame
from delaybridge.bridge.apart.sink import ApartSink
from delaybridge.bridge.apart.source import ApartSource
from delaybridge.core.message import Message
from delaybridge.core.reasons import Reason


def test_what_is_under_way_when_the_process_is_killed_is_told_as_unknown_and_the_next_connection_has_another(sink: ApartSink) -> None:
    outcomes: list[Outcome] = []
    sink.connect(outcomes.extend)
    first = pid_of(sink)
    os.kill(first, signal.SIGSTOP)
    sink.publish(outgoing(b"a", b"b"))
    os.kill(first, signal.SIGKILL)

    def asked() -> bool:
        sink.publish(())
        return False

    with pytest.raises(NotConnected, match="ended with -9"):
        wait_until(asked, "the end to be noticed")
    wait_until(lambda: len(outcomes) == 2, "outcomes, though nobody has closed it")
    sink.close()

    assert [(tag, type(error)) for tag, error in sorted(outcomes, key=str)] == [(b"a", NotConnected), (b"b", NotConnected)]
    sink.connect(outcomes.extend)
    assert pid_of(sink) != first
    sink.publish(outgoing(b"c"))
    wait_until(lambda: outcomes[-1] == (b"c", None), "a confirm")


def test_a_source_whose_process_is_killed_says_so_and_the_next_connection_has_another(source: ApartSource) -> None:
    source.connect()
    os.kill(first := pid_of(source), signal.SIGKILL)
    with pytest.raises(NotConnected, match="ended with -9"):
        source.receive(1, 10)

    source.connect()

    assert pid_of(source) != first
    assert source.receive(1, 0) is None


@pytest.mark.parametrize(("step", "number"), [("subprocess.Popen", errno.EAGAIN), ("socket.socketpair", errno.EMFILE)])
def test_where_no_process_can_be_started_it_is_tried_again_as_where_a_broker_is_away(
    source: ApartSource, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(step, full)
        with pytest.raises(NotConnected, match=os.strerror(number)):
            source.connect()
    source.connect()


def test_what_lies_where_the_bridge_is_started_is_not_taken_for_a_library(
    source: ApartSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    source.connect()


def test_what_a_client_knows_from_one_connection_to_the_next_it_still_knows(sink: ApartSink, source: ApartSource) -> None:
    """As which batch of Kafka's was damaged before, or which queue of ActiveMQ's was full."""
    sink.connect(print)
    source.connect()
    pids = pid_of(sink), pid_of(source)
    sink.connect(print)
    source.close()
    source.connect()
    assert (pid_of(sink), pid_of(source)) == pids


def test_a_source_that_may_gather_is_told_so_in_its_process() -> None:
    """As Kafka's: tests/unit/kafka/test_gathering.py."""
    told: list[bool] = []
    client: Any = SimpleNamespace(gather=lambda *, calm: told.append(calm), receive=lambda _, __: None)
    bridge: Any = SimpleNamespace(speaks=lambda _: False, say=lambda _: None)
    reading = _Reading(bridge, client)
    source = ApartSource(setup(QUEUE), "test")
    source._process = SimpleNamespace(  # type: ignore[assignment]
        send=lambda data: reading._do(data[0], memoryview(data)[1:]), read=lambda _: (Kind.NOTHING, memoryview(b"")), close=lambda: None
    )

    source.receive(1, 0)
    source.gather(calm=True)
    source.receive(1, 0)

    assert told == [False, True]


def test_why_a_broker_takes_no_messages_is_told_from_its_process_and_that_it_does_again() -> None:
    """As RabbitMQ under an alarm: /readyz and `status` tell it."""
    whys = iter(["alarm: memory", "alarm: memory", ""])
    said: list[bytes] = []

    class Alarmed:
        blocked = ""

        def connect(self, _: object) -> None:
            pass

        def publish(self, _: object) -> None:
            self.blocked = next(whys)

    class Ended(Exception):
        pass

    alarmed: Any = Alarmed()

    def speaks(_: float) -> bool:
        if said[1:] and not alarmed.blocked:
            raise Ended
        return False

    bridge: Any = SimpleNamespace(
        read=lambda: (Kind.CONNECT, memoryview(b"")), speaks=speaks, say=lambda kind, content=None: said.append(frame(kind, content))
    )
    with pytest.raises(Ended):
        _Publishing(bridge, alarmed).serve()

    heard = sink_module._Session.__new__(sink_module._Session)
    states = []
    for data in said[1:]:
        heard._heard(data[0], memoryview(data)[1:])
        states.append(heard.blocked)
    assert states == ["alarm: memory", ""]


def test_that_a_broker_takes_messages_again_is_told_before_a_client_is_closed() -> None:
    """What comes behind that is the answer to the next connection."""
    said: list[Kind] = []
    kinds = iter([Kind.CONNECT, Kind.CLOSE])
    sink: Any = SimpleNamespace(connect=lambda _: None, close=lambda: None, blocked="alarm: memory")
    bridge: Any = SimpleNamespace(
        read=lambda: (next(kinds), memoryview(b"")), speaks=lambda _: True, say=lambda *frame: said.append(frame[0])
    )
    with pytest.raises(StopIteration):
        _Publishing(bridge, sink).serve()

    assert said == [Kind.CONNECTED, Kind.BLOCKED, Kind.BLOCKED, Kind.CLOSED]


def test_a_lost_connection_is_told_by_its_own_reason_also_once_its_client_is_closed() -> None:
    said = iter([(Kind.LOST, frame(Kind.LOST, "it went away")[1:]), (Kind.CLOSED, b"")])
    session = sink_module._Session(SimpleNamespace(read=lambda _: next(said)), lambda _: None)  # type: ignore[arg-type]  # what it hears
    session._thread.join(10)

    with pytest.raises(NotConnected, match="it went away"):
        session.publish(())


@pytest.mark.parametrize("first", [True, False], ids=["by the thread that hears", "by the one that sends"])
def test_what_its_process_does_not_get_any_more_has_one_outcome_whoever_notices_the_end(first: bool) -> None:
    outcomes: list[Outcome] = []
    ended = threading.Event()

    def read(_: float | None) -> None:
        ended.wait(10)
        raise NotConnected("gone")

    def send(_: bytes) -> None:
        if first:
            ended.set()
            session._thread.join(10)
        raise NotConnected("gone")

    session = sink_module._Session(SimpleNamespace(read=read, send=send), outcomes.extend)  # type: ignore[arg-type]  # what it uses
    with contextlib.nullcontext() if first else pytest.raises(NotConnected):
        session.publish(outgoing(b"a"))
    ended.set()
    session._thread.join(10)

    assert [(tag, type(error)) for tag, error in outcomes] == ([(b"a", NotConnected)] if first else [])


def test_what_cannot_be_understood_ends_the_connection_and_is_raised_in_the_thread_that_publishes() -> None:
    """As where a newer version was installed under a running bridge, and a client's process started anew since."""
    outcomes: list[Outcome] = []
    published = threading.Event()
    said = frame(Kind.FAILED, [(b"a", "BackOff", "A_REASON_OF_LATER", "", 0)])

    def read(_: float | None) -> tuple[int, memoryview]:
        assert published.wait(10)
        return said[0], memoryview(said)[1:]

    session = sink_module._Session(SimpleNamespace(read=read, send=lambda _: None), outcomes.extend)  # type: ignore[arg-type]  # what it uses
    session.publish(outgoing(b"a"))
    published.set()
    session._thread.join(10)

    assert [(tag, type(error)) for tag, error in outcomes] == [(b"a", NotConnected)]
    with pytest.raises(KeyError, match="A_REASON_OF_LATER"):
        session.publish(outgoing(b"b"))


def test_each_message_has_one_outcome_and_what_was_not_answered_when_its_client_was_closed_is_unknown() -> None:
    outcomes: list[Outcome] = []
    published = threading.Event()
    failures = [failure(b"a", NotConnected("later")), failure(b"b", BackOff(Reason.UNROUTABLE, ""))]
    said = iter([frame(Kind.CONFIRMED, [b"a"]), frame(Kind.FAILED, failures), frame(Kind.CLOSED)])

    def read(_: float | None) -> tuple[int, memoryview]:
        assert published.wait(10)
        return (data := next(said))[0], memoryview(data)[1:]

    session = sink_module._Session(SimpleNamespace(read=read, send=lambda _: None), outcomes.extend)  # type: ignore[arg-type]  # what it uses
    session.publish(outgoing(b"a", b"b", b"c"))
    published.set()
    session._thread.join(10)

    assert [(tag, type(error)) for tag, error in outcomes] == [(b"a", type(None)), (b"b", BackOff), (b"c", NotConnected)]


def test_a_source_tells_why_its_connection_was_lost_and_acknowledges_nothing_once_it_is_closed() -> None:
    answers = iter([frame(Kind.BATCH, (1, [Received(Message(b"x"), "a", b"t")])), *[frame(Kind.LOST, "it went away")] * 2])
    sent: list[int] = []
    source = ApartSource(setup(QUEUE), "test")
    source._process = SimpleNamespace(  # type: ignore[assignment]  # what it uses
        send=lambda data: sent.append(data[0]), read=lambda _: ((data := next(answers))[0], memoryview(data)[1:]), close=lambda: None
    )

    batch = source.receive(1, 0)
    assert batch is not None
    for ask in (lambda: source.receive(1, 0), lambda: source.affirm(source.tenure())):
        with pytest.raises(NotConnected, match="it went away"):
            ask()
    batch.ack()
    acknowledged = list(sent)
    source.close()
    batch.ack()

    assert sent == acknowledged == [Kind.RECEIVE, Kind.RECEIVE, Kind.AFFIRM, Kind.ACK]


def test_who_is_not_connected_is_told_so(sink: ApartSink, source: ApartSource) -> None:
    with pytest.raises(NotConnected, match="closed"):
        sink.publish(())
    with pytest.raises(NotConnected, match="closed"):
        source.receive(1, 0)


def test_signals_that_are_meant_for_the_bridge_do_not_end_its_clients(source: ApartSource) -> None:
    """As where a terminal, or systemd, sends them to all processes: the bridge drains first."""
    source.connect()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid_of(source), number)
    assert source.receive(1, 0.01) is None


@pytest.mark.parametrize("endpoint", [None, QUEUE], ids=["sink", "source"])
def test_a_process_ends_when_the_bridge_does(endpoint: memory.Endpoint | None) -> None:
    client: Any = ApartSource(setup(endpoint), "test") if endpoint else ApartSink(setup(), "test")
    client.connect(*([] if endpoint else [print]))
    started = client._place._process

    with socket.socket(fileno=os.dup(started._pipe.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)  # as the system does for a bridge that is killed

    assert started._process.wait(10) == 0
    client.end()


def test_a_client_that_fails_on_its_own_is_no_lost_connection_and_tells_no_secret(capfd: pytest.CaptureFixture[str]) -> None:
    """The daemon ends then, as where it fails in a thread: else it would fail again and again."""
    failing = setup(QUEUE, options={"password": "hunter2hunter2"})._replace(secrets=frozenset({"hunter2hunter2"}))
    broken = ApartSource(failing, "test")

    with pytest.raises(RuntimeError, match="client_failed"):
        broken.connect()

    told = capfd.readouterr().err
    assert "client_failed" in told
    assert "hunter2" not in told

    broken.end()


@pytest.mark.parametrize("endpoint", [None, rabbitmq.Endpoint(queue="in")], ids=["sink", "source"])
def test_while_a_broker_is_away_no_try_to_connect_costs_a_process(endpoint: rabbitmq.Endpoint | None) -> None:
    options = rabbitmq.RabbitMQ(url=f"amqp://127.0.0.1:{free_port()}", connection_timeout=2)  # type: ignore[arg-type]  # pydantic reads it
    made = setup(endpoint, "rabbitmq", options)
    client: Any = ApartSource(made, "test") if endpoint else ApartSink(made, "test")
    pids = set()
    for _ in range(2):
        with pytest.raises(NotConnected, match="refused"):
            client.connect(*([] if endpoint else [print]))
        pids.add(pid_of(client))

    client.end()

    assert len(pids) == 1
    assert not Path(f"/proc/{pids.pop()}").exists()
