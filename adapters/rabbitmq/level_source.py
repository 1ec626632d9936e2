"""What leaves a level on RabbitMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pika.exceptions import ChannelClosedByBroker

from ..base import NotConnected
from .level_queues import DIFFERS, NOT_FOUND, OTHERS, queues
from .source import Declared, RabbitSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pika.connection import Parameters

    from ..base import Level

_HINTS = {NOT_FOUND: "`delaybridge apply` makes it, where it is run by a user who may", DIFFERS: OTHERS}


class LevelSource(RabbitSource):
    """What leaves one level. Declares the queues where the user may; where not, takes them as they are."""

    def __init__(self, parameters: Callable[[], Sequence[Parameters]], level: Level, *, prefetch: int, timeout: float) -> None:
        wanted = queues(level)
        super().__init__(
            parameters,
            Declared(wanted[-1].name, tuple((queue.name, queue.arguments) for queue in wanted)),
            prefetch=prefetch,
            timeout=timeout,
        )

    def connect(self) -> None:
        """See base.Levelled. NotConnected as well where a queue is there and is not ours: its messages would never come, or too late."""
        try:
            super().connect()
        except NotConnected as error:
            cause = error.__cause__
            hint = _HINTS.get(cause.reply_code) if isinstance(cause, ChannelClosedByBroker) else None
            if hint is None:
                raise
            raise NotConnected(f"{error}: {hint}") from cause
