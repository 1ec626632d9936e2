"""Where messages are held back: a destination, or one of its partitions where these refuse each for itself, as those of a Kafka topic do."""

from __future__ import annotations

from typing import NamedTuple

ANY = -1
"""The number of the partition for messages that are bound for none: their broker's client chooses one for each batch."""


class Partition(NamedTuple):
    """One partition of a destination, of `total` that it had when this one refused."""

    address: str
    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.address} ({'any partition' if self.number == ANY else f'partition {self.number}'})"


Target = str | Partition
"""A whole destination, by its address, or a partition."""


def address_of(target: Target) -> str:
    """The destination that a target is, or is a part of."""
    return target if isinstance(target, str) else target.address
