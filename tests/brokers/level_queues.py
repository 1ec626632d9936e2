"""Level queues that a test leaves behind are taken away, whatever is in them: `delaybridge apply --undo` would leave what holds a message."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pika

from brokers.kafka import admin
from delaybridge.bridge.level_queues.build import dead_letters, queues
from delaybridge.core.durations import parse_levels
from delaybridge.core.levels import Levels

if TYPE_CHECKING:
    from collections.abc import Mapping


def remove(broker: Mapping[str, Any], prefix: str, levels: str) -> None:
    """Of this broker, as it stands in a configuration. ActiveMQ lets no client delete a queue."""
    if broker["type"] == "rabbitmq":
        names = [each.name for each in (*queues(Levels(parse_levels(levels)), prefix), dead_letters(prefix))]
        _remove_queues(broker["url"], [queue for name in names for queue in (name, f"{name}.out")])
    if broker["type"] == "kafka":
        _remove_topics(broker["bootstrap_servers"], prefix)


def _remove_queues(url: str, names: list[str]) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for name in names:
            connection.channel().queue_delete(name)


def _remove_topics(servers: str, prefix: str) -> None:
    with contextlib.closing(admin(servers)) as client:
        client.delete_topics([name for name in client.list_topics() if name.startswith(f"{prefix}.")])
