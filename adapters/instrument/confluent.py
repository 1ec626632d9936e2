"""confluent-kafka: its `Producer` is a type of a C extension, which cannot be patched; a subclass takes its place.

It takes it wherever the type is known by name (`confluent_kafka.Producer`, `from confluent_kafka import Producer` in any loaded module) or is a
base class (`SerializingProducer`, classes of the application). Beneath the serializers, so these see the topic that was meant.
"""

from __future__ import annotations

import functools
import gc
import sys
import warnings
from typing import TYPE_CHECKING, Any

from .divert import Current, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

MODULE = "confluent_kafka"
_MARK = "_delaybridge_replaces"


def sender(module: ModuleType) -> Any:
    """The class that sends, or what took its place."""
    return module.cimpl.Producer


def patch(module: ModuleType) -> None:
    """produce(topic, value, key, partition, callback, on_delivery, timestamp, headers); produce_batch(topic, messages, …) sends no headers."""
    producer = sender(module)
    if _MARK not in vars(producer):
        _swap(producer, _subclass(producer))
        if not getattr(module.__spec__, "_initializing", False):  # while it is being imported nobody has made any, and to look takes time
            _tell_of_those_made_before(producer)


def restore(module: ModuleType) -> None:
    """See delaybridge.uninstrument."""
    producer = sender(module)
    if _MARK in vars(producer):
        _swap(producer, vars(producer)[_MARK])


def _subclass(producer: type) -> type:
    """Nothing about it is different but `produce`; it adds no slots, so that classes can change over to it and back."""
    produce = wrapped(producer.produce, 7, 3)  # type: ignore[attr-defined]  # a type of an untyped module
    body: dict[str, Any] = {
        "__slots__": (),
        "__doc__": producer.__doc__,
        "__module__": producer.__module__,
        "produce": produce,
        _MARK: producer,
    }
    if hasattr(producer, "produce_batch"):  # since 2.12
        body["produce_batch"] = _refusing(producer.produce_batch)
    return type(producer.__name__, (producer,), body)


def _refusing(produce_batch: Callable[..., Any]) -> Callable[..., Any]:
    """Raises ValueError for a batch with a delay header: confluent-kafka drops the headers of batches, so all of it would arrive at once."""
    from .headers import delayed  # noqa: PLC0415 - the core's tables, once a client is there

    @functools.wraps(produce_batch)
    def refuse(producer: Any, topic: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        if Current.rule is not None and isinstance(messages, list):
            for one in messages:
                headers = one.get("headers") if isinstance(one, dict) else None
                if headers and delayed(headers):
                    raise ValueError("produce_batch of confluent-kafka sends no headers, so this message would not be delayed: use produce")
        return produce_batch(producer, topic, messages, *args, **kwargs)

    return refuse


def _tell_of_those_made_before(old: type) -> None:
    """An object of a C type cannot change over to another type."""
    count = sum(type(one) is old for one in gc.get_objects())
    if count:
        warnings.warn(
            f"delaybridge.instrument() came too late for {count} of confluent-kafka's producers, which divert nothing: call it before they are made",
            RuntimeWarning,
            stacklevel=7,  # who called instrument()
        )


def _swap(old: type, new: type) -> None:
    """Let `new` be what `old` was, as a base class and by name."""
    subclasses: list[type] = old.__subclasses__()
    for subclass in subclasses:
        if subclass is not new:
            subclass.__bases__ = tuple(new if base is old else base for base in subclass.__bases__)
    for module in list(sys.modules.values()):
        names = _names(module)
        for name in [name for name, value in list(names.items()) if value is old]:
            names[name] = new


def _names(module: Any) -> dict[str, Any]:
    """What a module holds by now: to ask itself would load one that is imported lazily (importlib.util.LazyLoader), and fail where that fails."""
    try:
        names = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return names if isinstance(names, dict) else {}
