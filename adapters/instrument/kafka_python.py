"""kafka-python 2 and 3: `KafkaProducer` is patched in place, so it does not matter when it was imported or made."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import methods
from .divert import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

MODULE = "kafka.producer.kafka"


def patch(module: ModuleType) -> None:
    """send(topic, value, key, headers, partition, timestamp_ms)."""
    methods.replace(module.KafkaProducer, "send", lambda send: wrapped(send, 3, 4))
    methods.replace(module.KafkaProducer, "_serialize", _serializing)


def restore(module: ModuleType) -> None:
    """See delaybridge.uninstrument."""
    methods.restore(module.KafkaProducer, "send")
    methods.restore(module.KafkaProducer, "_serialize")


def _serializing(serialize: Callable[..., Any]) -> Callable[..., Any]:
    """Serializers are told the topic that was meant: a schema registry knows no other."""

    @functools.wraps(serialize)
    def meant(producer: Any, serializer: Any, topic: Any, *rest: Any) -> Any:
        return serialize(producer, serializer, getattr(topic, "meant", topic), *rest)

    return meant
