"""What it costs a broker to be asked about its level queues."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from pika.exceptions import ChannelClosedByBroker

from delaybridge.adapters.levelled import Level
from delaybridge.adapters.rabbitmq import level_queues
from delaybridge.adapters.rabbitmq.level_queues import RabbitLevelQueues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEVELS = [Level(f"level.{number}", 1_000 * number) for number in range(1, 19)]


class Connection:
    """A broker with these queues, all of them empty, that counts open channels. As RabbitMQ does, it closes one that asks for a missing queue."""

    def __init__(self, *queues: str) -> None:
        self.queues = set(queues)
        self.open = self.most = 0

    def channel(self) -> Channel:
        self.open += 1
        self.most = max(self.most, self.open)
        return Channel(self)


class Channel:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self.connection.open -= self._is_open
        self._is_open = False

    def queue_declare(self, name: str, *, passive: bool = False, **_: Any) -> Any:
        if passive and name not in self.connection.queues:
            self._close()
            raise ChannelClosedByBroker(404, "NOT_FOUND")
        self.connection.queues.add(name)
        return SimpleNamespace(method=SimpleNamespace(message_count=0, consumer_count=0))


@pytest.mark.parametrize("ask", [RabbitLevelQueues.plan, RabbitLevelQueues.apply, RabbitLevelQueues.depths])
@pytest.mark.parametrize("there", [True, False])
def test_however_many_levels_there_are_one_channel_is_enough(
    ask: Callable[[RabbitLevelQueues], list[Any]], there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(*(name for level in LEVELS for name in (level.name, level.name + level_queues.OUT) if there))

    @contextlib.contextmanager
    def connected(_: RabbitLevelQueues) -> Iterator[Connection]:
        yield connection

    monkeypatch.setattr(RabbitLevelQueues, "_connection", connected)
    assert ask(RabbitLevelQueues(list, LEVELS))
    assert connection.most == 1
