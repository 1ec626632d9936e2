"""Finds the one message over which RabbitMQ itself fails, and closes the whole connection: as where a header is a decimal, and a stream of RabbitMQ 3 takes it.

RabbitMQ does not say which message it was, and would fail again over the next connection, for ever. So what was on the wire then goes one at a time. Of a
message that was alone there when RabbitMQ failed, and not only once, it is known.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pika.exceptions import ConnectionClosedByBroker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base import NotConnected

_FRAME_ERROR, _SYNTAX_ERROR, _INTERNAL_ERROR = 501, 502, 541
TIMES = 3
"""How often RabbitMQ fails over a message that is alone until it is rejected: a node in trouble may fail over any."""

_MOST = 1000  # messages that are remembered


def failed(reason: NotConnected) -> bool:
    """Whether RabbitMQ closed the connection because of something that it was sent."""
    cause = reason.__cause__
    return isinstance(cause, ConnectionClosedByBroker) and cause.reply_code in {_FRAME_ERROR, _SYNTAX_ERROR, _INTERNAL_ERROR}


class Suspects:
    """What one connection knows from those before it. `left`: how many messages are still to go one at a time. One thread at a time."""

    def __init__(self) -> None:
        self.left = 0
        self._alone: Counter[bytes] = Counter()

    def answered(self, tag: bytes) -> None:
        """RabbitMQ has said something of this message, and did not fail over it."""
        if self.left:
            self.left -= 1
            del self._alone[tag]

    def culprit(self, flying: Sequence[bytes]) -> bytes | None:
        """RabbitMQ failed while these were on the wire. The one that will never be taken, if that is known."""
        self.left = max(self.left, len(flying))
        if len(flying) != 1:
            return None
        if len(self._alone) >= _MOST:
            self._alone.clear()
        (tag,) = flying
        self._alone[tag] += 1
        if self._alone[tag] < TIMES:
            return None
        self.left = 0
        del self._alone[tag]
        return tag
