"""Which node kafka-python's network client asks, and how long it waits for each: not for one that cannot be reached while others can."""

from __future__ import annotations

import random
import time
from typing import Any

from kafka import errors

_AFTER_REFUSAL = 10.0
"""Seconds for which a broker that refused a login is left alone: kafka-python would try again each second, and a broker may lock the account."""


def choose(manager: Any, unreachable: dict[Any, Exception]) -> None:
    """Make a KafkaConnectionManager choose so. `unreachable` has the nodes, by id, to which the last connection failed, and why; it changes with each."""
    _among_servers(manager, unreachable)
    _among_brokers(manager, unreachable)
    _wait_after_failures(manager, unreachable)


def _among_servers(manager: Any, unreachable: dict[Any, Exception]) -> None:
    servers, connection_of = manager.cluster.bootstrap_brokers, manager.get_connection

    def not_yet_in_vain() -> list[Any]:
        """The bootstrap servers to choose from. kafka-python draws lots, and may draw one that has just failed again and again."""
        return [each for each in servers() if each.node_id not in unreachable] or servers()

    def with_time_for_others(node: Any, timeout_ms: float | None = None, **kwargs: Any) -> Any:
        """kafka-python would wait for a server that hangs until all time is over."""
        if timeout_ms is not None and manager.cluster.is_bootstrap(node) and len(servers()) > 1:
            timeout_ms /= 2
        return connection_of(node, timeout_ms=timeout_ms, **kwargs)

    manager.cluster.bootstrap_brokers = not_yet_in_vain
    manager.get_connection = with_time_for_others


def _among_brokers(manager: Any, unreachable: dict[Any, Exception]) -> None:
    least_loaded = manager.least_loaded_node

    def there(node: Any) -> bool:
        connection = manager._conns.get(node)  # noqa: SLF001 - nothing public tells
        return connection.connected and not connection.paused if connection else node not in unreachable

    def who_is_there() -> Any:
        """Whom to ask what each can answer. kafka-python would rather ask one that has died, and wait for it, than one that it has asked something."""
        node = least_loaded()
        others = [] if there(node) else [each.node_id for each in manager.cluster.brokers() if there(each.node_id)]
        return random.choice(others) if others else node  # noqa: S311 - it keeps no secret

    manager.least_loaded_node = who_is_there


def _wait_after_failures(manager: Any, unreachable: dict[Any, Exception]) -> None:
    reset, update = manager.reset_backoff, manager.update_backoff

    def settled(node: Any) -> None:
        """kafka-python forgets the wait also for a broker that refuses the login, and asks again at once, as long as it takes."""
        (manager.update_backoff if node in unreachable else reset)(node)

    def left_alone(node: Any) -> float:
        wait = float(update(node))
        if isinstance(unreachable.get(node), errors.SaslAuthenticationFailedError):
            failures, _, connect = manager._backoff[node]  # noqa: SLF001 - as above
            manager._backoff[node] = failures, time.monotonic() + _AFTER_REFUSAL, connect  # noqa: SLF001
            wait = _AFTER_REFUSAL * 1000
        return wait

    manager.reset_backoff = settled
    manager.update_backoff = left_alone
