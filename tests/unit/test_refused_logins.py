"""A login that a broker refuses is tried again less and less often, for it may lock the account; a broker that was away is found again within seconds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pika import exceptions

from delaybridge.adapters.activemq.link import Link, _refusal
from delaybridge.adapters.activemq.transport import Target, Times
from delaybridge.adapters.base import AdapterError, LoginRefused, NotConnected
from delaybridge.adapters.rabbitmq.link import not_connected
from delaybridge.bridge.apart.child import _Publishing, _Reading
from delaybridge.bridge.apart.frames import Kind, frame
from delaybridge.bridge.apart.process import Process
from delaybridge.bridge.level_queues.depths import AFTER_REFUSAL, EVERY, DepthWorker
from delaybridge.bridge.metrics import Metrics
from delaybridge.bridge.workers import ClientWorker

if TYPE_CHECKING:
    from collections.abc import Callable


class Worker(ClientWorker):
    """One that does not run."""

    def run(self) -> None: ...


def waits(monkeypatch: pytest.MonkeyPatch, *failures: NotConnected) -> list[float]:
    """How long a worker waits after each of these failures. Chance is taken out: each wait is as long as it can be."""
    worker, waited, left = Worker("lane b", "b", Metrics("test"), lambda *_: None), [], list(failures)  # type: tuple[Worker, list[float], list[NotConnected]]
    monkeypatch.setattr("random.uniform", lambda _, most: most)

    def wait(timeout: float) -> None:
        waited.append(timeout)

    monkeypatch.setattr(worker.stopping, "wait", wait)

    def connect() -> None:
        if left:
            raise left.pop(0)

    assert worker._connect(connect)
    return waited


REFUSED, AWAY = LoginRefused("ACCESS_REFUSED"), NotConnected("connection refused")


def test_a_login_that_is_refused_is_tried_again_after_waits_that_grow_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, *[REFUSED] * 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_broker_that_was_away_is_found_within_seconds_whatever_it_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, *[REFUSED] * 7, AWAY, AWAY)[7:] == [5, 5]
    assert waits(monkeypatch, *[AWAY] * 9, REFUSED, AWAY)[9:] == [1, 5], "it may not know its users yet"


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (exceptions.ProbableAuthenticationError("ConnectionClosedByBroker: (403) 'ACCESS_REFUSED - Login was refused'"), True),
        (exceptions.ProbableAuthenticationError("StreamLostError: ('Stream connection lost: ConnectionResetError()',)"), False),
        (exceptions.ProbableAccessDeniedError("ConnectionClosedByBroker: (530) 'NOT_ALLOWED - vhost shop is down'"), False),
        (ConnectionRefusedError(111, "Connection refused"), False),
    ],
)
def test_rabbitmq_refuses_a_login_by_saying_so(error: Exception, refused: bool) -> None:
    assert isinstance(not_connected(error), LoginRefused) is refused


@pytest.mark.parametrize(
    ("told", "refused"),
    [("User name [bridge] or password is invalid.", True), ("Exceeded the maximum number of allowed client connections: 5", False)],
)
def test_activemq_refuses_a_login_by_saying_so(told: str, refused: bool) -> None:
    assert isinstance(_refusal(told), LoginRefused) is refused


@pytest.mark.parametrize("told", [(REFUSED, AWAY), (AWAY, REFUSED)])
def test_activemq_refuses_a_login_also_where_another_host_is_away(told: tuple[NotConnected, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [Target("127.0.0.1", number, None, None, None) for number in range(2)]
    link = Link(targets, SimpleNamespace(), Times(1, 0, 1), "test")

    def connect(target: Target) -> None:
        raise told[target.port]

    monkeypatch.setattr(link, "_connect", connect)
    with pytest.raises(LoginRefused, match=f"{REFUSED} .at 127.0.0.1:{told.index(REFUSED)}"):
        link.start()


@pytest.mark.parametrize("error", [REFUSED, AWAY])
@pytest.mark.parametrize("serve", [lambda *told: _Publishing(*told).serve(), lambda *told: _Reading(*told).serve()], ids=["sink", "source"])
def test_a_refused_login_is_one_also_if_the_client_has_a_process_of_its_own(
    serve: Callable[..., None], error: NotConnected, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bytes] = []
    asked = iter([(Kind.CONNECT, memoryview(b""))])

    def connect(*_: object) -> None:
        raise error

    bridge: Any = SimpleNamespace(read=lambda: next(asked), say=lambda kind, content: said.append(frame(kind, content)))
    with pytest.raises(StopIteration):
        serve(bridge, SimpleNamespace(connect=connect))
    process = Process.__new__(Process)
    monkeypatch.setattr(process, "send", lambda _: None)
    monkeypatch.setattr(process, "read", lambda: (said[0][0], memoryview(said[0])[1:]))

    with pytest.raises(NotConnected, match=str(error)) as told:
        process.connect()
    assert type(told.value) is type(error)


@pytest.mark.parametrize(
    ("error", "wait"), [(REFUSED, AFTER_REFUSAL), (AWAY, EVERY), (AdapterError("no right to ask"), EVERY), (None, EVERY)]
)
def test_a_broker_that_refuses_the_login_is_asked_once_a_minute_how_much_waits(error: AdapterError | None, wait: float) -> None:
    def depths() -> list[int]:
        if error is not None:
            raise error
        return [0]

    queues: Any = SimpleNamespace(depths=depths)
    assert DepthWorker(queues, lambda *_: None)._ask() == wait
