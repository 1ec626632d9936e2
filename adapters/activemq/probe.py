"""Messages of our own through a broker and the running bridge. They expire, are not persistent, and go to names that no one else has."""

from __future__ import annotations

import secrets
import threading
import time
from enum import Enum
from typing import TYPE_CHECKING, Self

from ...core.dialects.activemq import DELAY as AMQ_DELAY
from ...core.dialects.activemq import JOB
from ..base import AdapterError, NotConnected
from ..preparing import Finding
from ..probes import DELAY, NAME, PATIENCE, ends, judged
from .address import queue_address
from .frames import ERROR, MESSAGE
from .link import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .frames import Frame
    from .transport import Target, Times

SIBLING = NAME + "gate."
"""How the name of a sibling begins; the intercepted name follows."""

_ANSWER = 5.0  # seconds, for what does not go through the bridge
_OWN = b"delaybridge_doctor"
_EARLY = "set the clocks of broker and bridge by NTP; or see whether something besides the bridge reads the ingress queue"


class Way(Enum):
    """Where a delayed message to a gate goes."""

    STRAIGHT_ON = "straight on"
    TO_THE_BRIDGE = "to the bridge"
    ELSEWHERE = "elsewhere"


class _Post:
    """The session of one connection that subscribes to `destination`, and to `others`, and sends. Nobody else sees what it sends there."""

    def __init__(self, targets: Sequence[Target], times: Times, destination: str, *others: str) -> None:
        self.link = Link(targets, self, times, "activemq doctor")
        self.destination = destination
        self._others = others
        self.id = secrets.token_hex(8).encode()
        self._arrived: list[tuple[Frame, float]] = []
        self._lost: NotConnected | None = None
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        self.link.start()
        own = ((b"ack", b"auto"), (b"selector", b"%b = '%b'" % (_OWN, self.id)), (b"activemq.priority", b"127"))
        try:
            for number, each in enumerate((self.destination, *self._others)):
                self._ask(b"SUBSCRIBE", (b"id", b"%b%d" % (self.link.mark.encode(), number)), (b"destination", each.encode()), *own)
        except AdapterError:
            self.link.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def _ask(self, command: bytes, *headers: tuple[bytes, bytes]) -> None:
        answer = self.link.ask(command, *headers)
        if answer.command == ERROR:
            raise AdapterError(f"ActiveMQ refused: {answer.text(b'message')}")

    def send(self, destination: str, **headers: str | int) -> None:
        """Send a message for ourselves and wait until the broker has it."""
        own = [
            (b"destination", destination.encode()), (_OWN, self.id), (b"persistent", b"false"), (b"expires", b"%d" % ends()),
            (b"content-length", b"0"),  # an empty text may be a map that was emptied: on Artemis it looks like that
        ]  # fmt: skip
        self._ask(b"SEND", *own, *((name.encode(), str(value).encode()) for name, value in headers.items()))

    def first(self, number: int, timeout: float) -> list[tuple[Frame, float]]:
        """The first `number` messages that arrived, each with its monotonic time; fewer where they do not come. Raises NotConnected."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._arrived) >= number or self._lost is not None, timeout)
        if self._lost is not None:
            raise self._lost
        return self._arrived[:number]

    def heard(self, frames: list[Frame]) -> None:
        """See link.Session."""
        now = time.monotonic()
        with self._changed:
            self._arrived += [(frame, now) for frame in frames if frame.command == MESSAGE]
            self._changed.notify()

    def lost(self, reason: NotConnected) -> None:
        """See link.Session."""
        with self._changed:
            self._lost = reason
            self._changed.notify()


class Prober:
    """All methods raise NotConnected, and AdapterError where the broker refuses."""

    def __init__(self, targets: Callable[[], Sequence[Target]], times: Times) -> None:
        self._targets = targets
        self._times = times

    def _post(self, *destinations: str) -> _Post:
        return _Post(self._targets(), self._times, *destinations)

    def scheduler_is_off(self) -> bool:
        """Whether ActiveMQ's own scheduler is off: one that is on keeps back the first of two messages."""
        with self._post("/temp-queue/delaybridge") as post:
            post.send(post.destination, AMQ_SCHEDULED_DELAY=1000)
            post.send(post.destination)
            return any(AMQ_DELAY in frame.headers for frame, _ in post.first(2, 0.5) or post.first(1, _ANSWER))

    def way(self, gate: str, queue: str) -> Way:
        """Where a delayed message to this gate goes, as three show: a cancellation, an undelayed one, and a cancellation straight to the ingress queue.

        The bridge makes nothing of these cancellations. If not even the last message is seen, more waits in the ingress queue than ActiveMQ looks through for
        us: then a cancellation that has left the gate counts as led to the bridge.
        """
        with self._post(sibling(gate), queue_address(queue)) as post:
            cancellation = NAME + post.id.decode()
            post.send(post.destination, x_delay_cancel=cancellation)
            post.send(post.destination)
            post.send(queue_address(queue), x_delay_cancel=cancellation)
            arrived = [frame.headers for frame, _ in post.first(3, _ANSWER)]
        here = [headers for headers in arrived if headers[b"subscription"].endswith(b"0")]
        if all(b"x_delay_cancel" in headers for headers in here):
            raise AdapterError(f"what is sent to {post.destination} does not arrive there")
        if len(here) > 1:
            return Way.STRAIGHT_ON
        there = [b"original-destination" in headers for headers in arrived if headers not in here]
        return Way.TO_THE_BRIDGE if any(there) or not there else Way.ELSEWHERE

    def probe(self, ingress: str) -> Finding:
        """A delayed message through the ingress queue."""
        with self._post(queue_address(NAME + "probe")) as post:
            sent = time.monotonic()
            post.send(ingress, x_delay=DELAY, x_delay_to=post.destination, x_delay_ends=ends())
            return _judged(f"`{ingress}`", sent, post.first(1, PATIENCE))

    def probe_gate(self, gate: str) -> Finding:
        """A delayed message of ActiveMQ's dialect and an undelayed one through an interceptor."""
        with self._post(sibling(gate)) as post:
            sent = time.monotonic()
            post.send(post.destination, AMQ_SCHEDULED_DELAY=DELAY, x_delay_to=post.destination, x_delay_ends=ends())
            post.send(post.destination)
            undelayed = post.first(1, _ANSWER)
            if not undelayed or b"x-delay-id" in undelayed[0][0].headers or AMQ_DELAY in undelayed[0][0].headers:
                return Finding(
                    False, f"an undelayed message to `{gate}` did not come first", "compare activemq.xml with `delaybridge plan`"
                )
            return _judged(f"`{gate}`", sent, post.first(2, PATIENCE)[1:])


def sibling(gate: str) -> str:
    """A destination that the sibling of this gate matches. Always the same one, because ActiveMQ keeps the queues that it makes."""
    parts = ["any" if part in {"*", ">"} else part for part in gate[7:].split(".")]
    return gate[:7] + SIBLING + ".".join(parts)


def _judged(through: str, sent: float, arrived: Sequence[tuple[Frame, float]]) -> Finding:
    if not arrived:
        return judged(through, None, _EARLY)
    ((frame, at),) = arrived
    if JOB in frame.headers:
        return Finding(False, f"a probe through {through} was delayed by ActiveMQ's own scheduler", 'set schedulerSupport="false"')
    return judged(through, (at - sent) * 1000 - DELAY, _EARLY)
