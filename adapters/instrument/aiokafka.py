"""aiokafka: `AIOKafkaProducer` is patched in place. `send_and_wait` calls `send`; batches are diverted as a whole."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from . import methods
from .divert import Current, explain, keeps_partition, plainly, topic_of, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

MODULE = "aiokafka.producer.producer"
_COUNT = "_delaybridge_delayed"


def sender(module: ModuleType) -> Any:
    """The class that sends."""
    return module.AIOKafkaProducer


def patch(module: ModuleType) -> None:
    """send(topic, value, key, partition, timestamp_ms, headers)."""
    methods.replace(sender(module), "send", _sending)
    methods.replace(sender(module), "send_batch", _batch)
    methods.replace(_builder(module), "append", _counting)


def restore(module: ModuleType) -> None:
    """See delaybridge.uninstrument."""
    methods.restore(sender(module), "send")
    methods.restore(sender(module), "send_batch")
    methods.restore(_builder(module), "append")


def _sending(send: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine function, as `send` is: mocks and frameworks ask, and what is refused is refused where it is awaited."""
    diverting = wrapped(send, 5, 3, _explaining(send))

    @functools.wraps(send)
    async def divert(producer: Any, *args: Any, **kwargs: Any) -> Any:
        return await diverting(producer, *args, **kwargs)

    return divert


def _explaining(send: Callable[..., Any], place: int = 0) -> Callable[..., Any]:
    """What it raises comes while it is awaited. `place`: where the topic stands among its arguments."""

    @functools.wraps(send)
    async def explained(producer: Any, *args: Any, **kwargs: Any) -> Any:
        topic = topic_of(args, kwargs, place)
        args, kwargs = plainly(args, kwargs)
        try:
            return await send(producer, *args, **kwargs)
        except Exception as error:
            explain(error, topic)
            raise

    return explained


def _builder(module: ModuleType) -> type:
    """The class of the batches that `create_batch` makes."""
    builder: type = sys.modules[module.MessageAccumulator.__module__].BatchBuilder
    return builder


def _counting(append: Callable[..., Any]) -> Callable[..., Any]:
    """A batch is encoded as it grows, and cannot be taken apart later: it counts its delayed records."""
    from .headers import delayed  # noqa: PLC0415 - the core's tables, once a client is there

    @functools.wraps(append)
    def count(batch: Any, **kwargs: Any) -> Any:
        added = append(batch, **kwargs)
        headers = kwargs.get("headers")
        if headers and added is not None and delayed(headers):
            setattr(batch, _COUNT, getattr(batch, _COUNT, 0) + 1)
        return added

    return count


def _batch(send_batch: Callable[..., Any]) -> Callable[..., Any]:
    """Raises ValueError where only some of the records are delayed."""
    sending = _explaining(send_batch, 1)

    @functools.wraps(send_batch)
    async def divert(producer: Any, batch: Any, topic: str, *, partition: int) -> Any:
        return await sending(producer, batch, _ingress(batch, topic, partition) or topic, partition=partition)

    return divert


def _ingress(batch: Any, topic: str, partition: int) -> str | None:
    rule, delayed = Current.rule, getattr(batch, _COUNT, 0)
    ingress = rule.topic(topic) if rule is not None and delayed else None
    if rule is None or ingress is None:
        return None
    keeps_partition(rule, topic, partition)
    if delayed < batch.record_count():
        raise ValueError(f"{delayed} of the {batch.record_count()} records of this batch are delayed: put them into a batch of their own")
    return ingress
