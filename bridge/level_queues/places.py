"""Where a record goes in the level queues: to the largest level that fits into what is left of its delay, as a message there."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...core.dead_letters import carrier, enclosed
from ...core.message import Message
from .envelope import Envelope, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.levels import Levels
    from ...core.store import Record
    from .ids.lines import Claim

Addressed = tuple[str, Message]

_ORDER_BITS = 20
_ORDER_MASK = (1 << _ORDER_BITS) - 1


class Places:
    """The addresses of the levels, level 0 first, and of the shelf: the queue for dead letters without a destination. Any thread."""

    def __init__(self, levels: Levels, addresses: Sequence[str], shelf: str) -> None:
        self.levels = levels
        self.addresses = addresses
        self.shelf = shelf
        self._orders = itertools.count(secrets.randbelow(1 << _ORDER_BITS))  # two bridges must not give the same

    def enter(self, record: Record, claim: Claim | None, now: int, order: int | None = None) -> Addressed:
        """The place of a record that is not in the level queues yet.

        Where it has no order, it gets one that rises, also from one bridge to the next as far as their clocks agree.
        """
        if order is None:
            order = now << _ORDER_BITS | next(self._orders) & _ORDER_MASK
        return self._at_level(Envelope(record, now, order=order, claim=claim))

    def hop(self, envelope: Envelope, now: int) -> Addressed | None:
        """To the next level; None where none fits any more."""
        if not self.levels.fit(envelope.record.schedule.due - now):
            return None
        return self._at_level(replace(envelope, since=now, hops=envelope.hops + 1))

    def round(self, envelope: Envelope, now: int) -> Addressed:
        """Back to the first level, once more."""
        return self.addresses[1], pack(replace(envelope, since=now, hops=envelope.hops + 1))

    def anew(self, place: Addressed, now: int) -> Addressed:
        """Choose the place again for a message that could not be published in time: less of its delay is left. Dead letters keep their place."""
        if place[0] == self.shelf:  # its body is a producer's, who could write an envelope, too
            return place
        try:
            return self._at_level(replace(unpack(place[1]), since=now))
        except ValueError:
            return place

    def dead(self, record: Record, forward: Record | None, now: int, reason: str, detail: str) -> Addressed:
        """A dead letter on its way to its own destination (`forward`), or to the shelf."""
        if forward is not None:
            return self.enter(replace(forward, id=record.id), None, now)
        return self.shelf, carrier(record, self.shelf, now, reason, detail).message

    def enclosed(self, place: Addressed) -> Addressed:
        """A message that its queue rejected, in the form in which it is tried from then on: a dead letter may have headers that only fit a body."""
        address, message = place
        return (address, enclosed(message)) if address == self.shelf else place

    def _at_level(self, envelope: Envelope) -> Addressed:
        remaining = envelope.record.schedule.due - envelope.since
        return self.addresses[self.levels.fit(remaining)], pack(envelope)
