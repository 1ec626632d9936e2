"""The level queues of one broker, and its log of ids, as one end of a move."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...adapters.base import AdapterError, NotConnected
from ...adapters.id_log import IdLogging
from ...adapters.levelled import Trimmable
from ...core.levels import Levels
from ...core.time_index.made import is_made
from ..level_queues.build import ids, levelled, places, queues
from ..level_queues.ids.known import Ids
from ..level_queues.ids.register import Claiming, claims_of_moved, mark_of
from ..level_queues.ids.replica import read_all
from ..outlet import Outlet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.base import Sink
    from ...adapters.id_log import IdLog
    from ...adapters.levelled import Level, Levelled
    from ...core.store import Record
    from ..config import Config
    from ..level_queues.ids.lines import Claim
    from ..level_queues.places import Places

Tell = Callable[[int], None]
"""Hears how many records have moved so far: now and then, also while nothing comes."""

CONFIRM = 30.0
"""Seconds within which a broker confirms a batch."""


class Place(NamedTuple):
    """The level queues of one broker, and its log of ids, if it has one, as one end of a move."""

    broker: str
    adapter: Levelled
    options: object
    sink: Sink
    queues: list[Level]
    places: Places
    log: IdLog | None

    def outlet(self) -> Outlet:
        """Connects when it is entered."""
        return Outlet(self.sink, CONFIRM, "the level queues")

    def known(self) -> Ids:
        """What the log of ids says. Raises NotConnected."""
        return Ids() if self.log is None else read_all(self.log)

    def claimed(self, records: Sequence[Record], known: Ids, now: int) -> list[Claim | None]:
        """Claims for those records that would have claimed an id if they had come from a source. Raises AdapterError."""
        found = [self.log is not None and _claims(each) for each in records]
        if self.log is None or not any(found):
            return [None] * len(records)
        entries = [Claiming(each.id, each.schedule.due, _mark(each)) for each, wanted in zip(records, found, strict=True) if wanted]
        left = iter(claims_of_moved(self.log, known, entries, now))
        return [next(left) if wanted else None for wanted in found]

    def depths(self) -> list[int] | None:
        """See levelled.LevelDeclaration; None where the broker does not say. Raises NotConnected."""
        try:
            return self.adapter.level_queues(self.options, self.queues).depths()
        except NotConnected:
            raise
        except AdapterError:
            return None

    @property
    def held_after_a_kill(self) -> float:
        """See levelled.LevelDeclaration."""
        return self.adapter.level_queues(self.options, self.queues).held_after_a_kill

    def trim(self) -> None:
        """Delete what was moved out, where the broker keeps and lets us delete it: else it might deliver it again some day."""
        queues = self.adapter.level_queues(self.options, self.queues)
        if isinstance(queues, Trimmable):
            with contextlib.suppress(AdapterError):
                queues.trim()


def _claims(record: Record) -> bool:
    """Whether a record claims an id: its producer chose that, or it is a series. See `Claims.needed`."""
    return not record.is_carrier and (record.schedule.recurrence is not None or not is_made(record.id))


def _mark(record: Record) -> bytes:
    """A mark for the log of ids: the same whenever this record is moved, and another one for whatever else is sent under its id for the same instant."""
    return mark_of(record.id, struct.pack(">qq", record.schedule.due, record.taken) + (record.message.body or b""))


def place(config: Config, broker: str, prefix: str) -> Place:
    """Raises plugins.UnusableAdapter where this broker cannot hold level queues."""
    adapter, options = levelled(config, broker)
    levels = Levels(config.limits.levels)
    log = adapter.id_log(options, ids(prefix)) if isinstance(adapter, IdLogging) else None
    return Place(broker, adapter, options, adapter.sink(options), queues(levels, prefix), places(adapter, options, levels, prefix), log)
