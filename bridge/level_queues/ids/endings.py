"""Remembers messages and cancels that have ended and left the log of ids, for late cancels and redeliveries."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from .lines import DECIDED

if TYPE_CHECKING:
    from ....core.ledger import Event
    from .lines import Claim

REMEMBERED = 10_000
"""Of each kind, the latest."""

Value = TypeVar("Value")


class Ended(NamedTuple):
    """How a message ended, and the place in the log of the line that says so. `claim` is what it bore."""

    event: Event
    at: int
    place: int
    claim: Claim


class _Latest(Generic[Value]):
    """A bounded number of values by key; the one that was put longest ago is dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Value] = OrderedDict()

    def put(self, key: bytes, value: Value) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)

    def get(self, key: bytes) -> Value | None:
        return self._kept.get(key)


class Endings:
    """What is remembered. Not safe for several threads. A mark tells a message, or a cancel, from all others with its id."""

    def __init__(self) -> None:
        self._last: _Latest[Ended] = _Latest()
        self._by_message: _Latest[Ended] = _Latest()
        self._decided: _Latest[Ended] = _Latest()  # apart, or a second of busy deliveries would make them forgotten
        self._cancels: _Latest[bool] = _Latest()
        self._late: _Latest[bool] = _Latest()

    def message(self, id: bytes, ended: Ended) -> None:  # noqa: A002 - the field's own word
        """A message that bore this id has ended."""
        self._last.put(id, ended)
        kept = self._decided if ended.event in DECIDED else self._by_message
        kept.put(ended.claim.mark + id, ended)

    def cancel(self, id: bytes, mark: bytes) -> None:  # noqa: A002 - the field's own word
        """A cancel of this id has done its work."""
        self._cancels.put(mark + id, True)

    def last(self, id: bytes) -> Ended | None:  # noqa: A002 - the field's own word
        """How the last message that bore this id ended."""
        return self._last.get(id)

    def of(self, id: bytes, mark: bytes) -> Ended | None:  # noqa: A002 - the field's own word
        """How this message ended."""
        return self._decided.get(mark + id) or self._by_message.get(mark + id)

    def spent(self, id: bytes, mark: bytes) -> bool:  # noqa: A002 - the field's own word
        """Whether this cancel has done its work."""
        return self._cancels.get(mark + id) is not None

    def late(self, id: bytes, mark: bytes) -> None:  # noqa: A002 - the field's own word
        """A cancel found an earlier one for the same message."""
        self._late.put(mark + id, True)

    def was_late(self, id: bytes, mark: bytes) -> bool:  # noqa: A002 - the field's own word
        """Whether this cancel did."""
        return self._late.get(mark + id) is not None
