"""What leaves a level on RabbitMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .level_queues import OTHERS, queues
from .link import DIFFERS, NOT_FOUND
from .source import Declared, RabbitSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pika.connection import Parameters

    from ..levelled import Level

_HINTS = {NOT_FOUND: "`delaybridge apply` makes it, where it is run by a user who may", DIFFERS: OTHERS}


class LevelSource(RabbitSource):
    """What leaves one level. Declares the queues where the user may; where not, takes them as they are.

    Connecting raises NotConnected as well where a queue is there and is not ours: its messages would never come, or too late.
    """

    def __init__(self, parameters: Callable[[], Sequence[Parameters]], level: Level, *, prefetch: int, timeout: float) -> None:
        wanted = queues(level)
        super().__init__(
            parameters,
            Declared(wanted[-1].name, tuple((queue.name, queue.arguments) for queue in wanted)),
            prefetch=prefetch,
            timeout=timeout,
            hints=_HINTS,
        )
