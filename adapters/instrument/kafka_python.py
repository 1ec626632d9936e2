"""kafka-python 2 and 3: `KafkaProducer` is patched in place, so it does not matter when it was imported or made."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from . import methods
from .divert import Topic, plainly, topic_of, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

MODULE = "kafka.producer.kafka"
_DIVERTED: ContextVar[Topic | None] = ContextVar("delaybridge_diverted", default=None)
"""Of the message that is being sent: a thread sends one at a time, and so does a greenlet."""


def sender(module: ModuleType) -> Any:
    """The class that sends."""
    return module.KafkaProducer


def patch(module: ModuleType) -> None:
    """send(topic, value, key, headers, partition, timestamp_ms)."""
    methods.replace(sender(module), "send", lambda send: wrapped(send, 3, 4, _remembering(send)))
    methods.replace(sender(module), "_serialize", _serializing)


def restore(module: ModuleType) -> None:
    """See delaybridge.uninstrument."""
    methods.restore(sender(module), "send")
    methods.restore(sender(module), "_serialize")


def _remembering(send: Callable[..., Any]) -> Callable[..., Any]:
    """The client gets the topic as plain text, from which `_serializing` cannot tell which one was meant."""

    @functools.wraps(send)
    def remember(producer: Any, *args: Any, **kwargs: Any) -> Any:
        topic = topic_of(args, kwargs)
        token = _DIVERTED.set(topic if isinstance(topic, Topic) else None)
        args, kwargs = plainly(args, kwargs)
        try:
            return send(producer, *args, **kwargs)
        finally:
            _DIVERTED.reset(token)

    return remember


def _serializing(serialize: Callable[..., Any]) -> Callable[..., Any]:
    """Serializers are told the topic that was meant: a schema registry knows no other.

    The topic is compared, because a serializer may send a message of its own.
    """

    @functools.wraps(serialize)
    def meant(producer: Any, serializer: Any, topic: Any, *rest: Any) -> Any:
        diverted = _DIVERTED.get()
        told = diverted.meant if diverted is not None and topic == diverted else topic
        return serialize(producer, serializer, told, *rest)

    return meant
