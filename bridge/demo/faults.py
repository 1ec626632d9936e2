"""What may happen to a message after the ledger says that it was delivered: a consumer that loses it, gets it twice, or gets it late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ...core.fields import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...adapters.base import Received

Fault = Literal["lost", "doubled", "delayed"]

Finding = tuple[str, str, int]
"""Its name, the message's id, the occurrence."""

FINDING: dict[Fault, str] = {"lost": "not_observed", "doubled": "duplicated", "delayed": "late"}
"""What the audit calls it."""

PLAN: dict[tuple[str, int], Fault] = {
    ("own, duration 20", 1): "lost",
    ("RabbitMQ plugin 75", 1): "lost",
    ("repeats (ActiveMQ) 7", 3): "lost",
    ("Pulsar 33", 1): "doubled",
    ("SQS 90", 1): "doubled",
    ("AMQP 1.0 12", 1): "delayed",
    ("Artemis 40", 1): "delayed",
}
"""Body and occurrence."""

DELAY_MS = 7_000
"""Beyond the audit's SLA and skew, and over before the demo is."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault that was done, and to what."""

    fault: Fault
    body: str
    id: str
    occurrence: int

    @property
    def finding(self) -> Finding:
        """How the audit must name it."""
        return FINDING[self.fault], self.id, self.occurrence


@dataclass(slots=True)
class Faults:
    """Stands between a destination and its reader, and loses, doubles or delays a few messages. One thread."""

    planted: list[Planted] = field(default_factory=list)
    held: list[tuple[int, Received]] = field(default_factory=list)
    """What is delayed, and until when (epoch ms)."""

    def through(self, messages: Sequence[Received], now: int) -> list[Received]:
        """Of these messages, and of those that were held, what arrives now."""
        arriving = [received for message in messages for received in self._meet(message, now)]
        arriving += [received for until, received in self.held if until <= now]
        self.held = [(until, received) for until, received in self.held if until > now]
        return arriving

    def _meet(self, received: Received, now: int) -> Iterator[Received]:
        headers, body = plain(received.message.headers), (received.message.body or b"").decode()
        occurrence = headers["x-delay-occurrence"]
        assert isinstance(occurrence, int)
        fault = PLAN.get((body, occurrence))
        if fault:
            self.planted.append(Planted(fault, body, str(headers["x-delay-id"]), occurrence))
        if fault == "delayed":
            self.held.append((now + DELAY_MS, received))
        elif fault != "lost":
            yield received
        if fault == "doubled":
            yield received
