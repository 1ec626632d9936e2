"""Recognises a copy of what is here already: the same occurrence of a recurring schedule, come twice. Else the series would be delivered twice for ever.

Copies come about where

- a bridge was killed after the next occurrence was confirmed, and before this one was acknowledged;
- a move from another store was killed before the schedule was forgotten there;
- a hop to the next level, or its publication, was repeated.

A copy cannot be told from the same series sent twice within a millisecond. What the broker gives again is no copy; a broker with a log does not say so.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from ...core.store import Record
    from .envelope import Envelope
    from .passage import Finish


class Copies:
    """What recurs and is in this bridge's memory. Any thread."""

    def __init__(self) -> None:
        self._first: WeakValueDictionary[Record, Finish] = WeakValueDictionary()
        self._lock = threading.Lock()

    def first(self, envelope: Envelope, done: Finish) -> Finish | None:
        """Of what this is a copy; None where it is none: then later copies are copies of this one."""
        record = envelope.record
        if record.schedule.recurrence is None:
            return None
        done.order = envelope.order
        with self._lock:
            first = self._first.get(record)
            if first is not None and first.open and not done.again:
                return first
            self._first[record] = done
            return None
