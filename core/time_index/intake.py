"""What comes in: puts, withdrawals and refusals of one intake batch."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from .. import store
from ..durations import HOUR_MS
from ..schedule import Schedule
from ..store import Answer, Put, Refuse, SourceProgress, Withdraw
from . import keys
from .change import Change, ledger_row
from .ids import Known
from .locate import Located, became, locate
from .state import State, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Encoded = tuple[store.Change, bytes]
"""A change, and its record as it goes to disk where it is a put."""


def encoded(changes: Sequence[store.Change]) -> list[Encoded]:
    """Encode the records of all puts; done before the store's lock is taken."""
    return [(change, encode(change.record) if type(change) is Put else b"") for change in changes]


def _unnamed(item: Encoded) -> bool:
    change = item[0]
    return type(change) is Put and not change.record.id


def _waits(found: Located | Known | None) -> bool:
    """Whether a cancellation that came first waits for the schedule of that id."""
    return isinstance(found, Known) and found.event is None


class Intake:
    """Applies intake batches."""

    def __init__(self, state: State) -> None:
        self._state = state

    def put(self, items: list[Encoded], now: int, came: SourceProgress | None) -> list[Answer]:
        """See `Store.put`."""
        change = self._state.change()
        self._state.ids.read_ahead(change, [one.record.id for one, _ in items if type(one) is Put and one.record.id])
        answers: list[Answer] = []
        for unnamed, run in groupby(items, _unnamed):
            if unnamed:
                self._put_unnamed(change, cast("Iterable[tuple[Put, bytes]]", run), now)
                continue
            for one, raw in run:
                if isinstance(one, Put):
                    self._put_named(change, one, raw, now)
                elif isinstance(one, Withdraw):
                    answers.append(self._withdraw(change, one.id, now))
                else:
                    self._refuse(change, one, now)
        if came:
            self._state.recent.stage(change, came)
        self._state.commit(change, spend_reserve=False)
        return answers

    def _put_unnamed(self, change: Change, run: Iterable[tuple[Put, bytes]], now: int) -> None:
        """Records that get their id from the bridge: most of what comes, so this loop calls only what it must."""
        lanes, due_key, made_id = self._state.lanes, keys.due_key, self._state.made.of
        tracks = lanes.by_address
        due, rows, by_address, by_hour, arrived = change.due, change.rows, change.by_address, change.by_hour, change.arrived
        first = arrival = change.numbers.arrival
        for put, raw in run:
            record = put.record
            where, at = (record.lane, record.address), record.schedule.due
            track = tracks.get(where) or lanes.track(*where)
            key = due_key(track.base | (at if now <= at < keys.INSTANT_LIMIT else keys.checked(max(at, now))), arrival)
            arrival += 1
            due[key] = raw
            rows.append(ledger_row("scheduled", now, record, made_id(key)))
            by_address[where] += 1
            by_hour[at // HOUR_MS] += 1
            arrived[track].append(key)
        change.numbers.arrival = arrival
        change.totals["scheduled"] += arrival - first
        change.totals["pending"] += arrival - first

    def _put_named(self, change: Change, put: Put, raw: bytes, now: int) -> None:
        state, record = self._state, put.record
        found = locate(state, record.id, change)
        if _waits(found):
            change.event("scheduled", now, record, record.id)
            change.event("cancelled", now, record, record.id)
            state.ids.ended(change, record.id, "cancelled", now)
            return
        if isinstance(found, Located):
            if put.sent is not None and found.record.taken >= put.sent:
                record = replace(record, id=state.made.of(state.next_key(change, record, now)))
                raw = encode(record)
            else:
                self._replace(change, found, now)
        key = state.schedule(change, record, raw, now)
        change.fresh[key] = record

    def _replace(self, change: Change, found: Located, now: int) -> None:
        state = self._state
        if found.key in state.lanes.claimed:
            state.doom(change, found.key, "replaced")
        elif found.key in state.doomed:
            state.bury(change, found.key, found.record, now)
        else:
            state.remove(change, found.key, found.record)
            change.event("replaced", now, found.record, found.record.id)

    def _withdraw(self, change: Change, record_id: str, now: int) -> Answer:
        state = self._state
        found = locate(state, record_id, change)
        if isinstance(found, Located):
            if found.key in state.lanes.claimed:
                state.doom(change, found.key, "cancelled")
                return Answer("in_flight")
            state.cancel(change, found.key, found.record, now)
            return Answer("done")
        answer = became(state, record_id, found)
        if answer.outcome == "unknown":
            state.ids.withdrawn(change, record_id, now)
        return answer

    def _refuse(self, change: Change, refuse: Refuse, now: int) -> None:
        state = self._state
        record_id = refuse.record.id or state.made.of(keys.due_key(keys.track_base(keys.NO_TRACK) | now, change.numbers.arrival))
        change.numbers.arrival += 1
        record = replace(refuse.record, id=record_id, kind="refused", schedule=Schedule(due=now))
        change.event("scheduled", now, record, record_id)
        change.event("dead_lettered", now, record, record_id, reason=refuse.reason)
        if refuse.record.id:
            found = locate(state, record_id, change)
            if not isinstance(found, Located) and not _waits(found):
                state.ids.ended(change, record_id, "dead_lettered", now)
        if refuse.forward is None:
            state.shelf.add(change, record, refuse.reason, refuse.detail, now, 0)
        else:
            state.carry(change, replace(refuse.forward, id=refuse.forward.id or record_id), now)
