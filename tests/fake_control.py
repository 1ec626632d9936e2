"""A control that remembers what it was asked and answers from plain attributes: the double behind the HTTP tests."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from delaybridge.bridge.views import (
    AddressStatus,
    Check,
    HeldStatus,
    HourStatus,
    LaneStatus,
    NotKnownError,
    RouteStatus,
    Status,
    StoreStatus,
)
from delaybridge.core.downtimes import NONE
from delaybridge.core.message import Message, Properties, message
from delaybridge.core.schedule import Recurrence, Schedule
from delaybridge.core.store import Answer, DeadLetter, Page, Pending, Query, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delaybridge.adapters.base import Received

NOW = 1_750_000_000_000


_TEXT = Properties(content_type=b"text/plain", priority=4)


def pending(id_: str, due: int = NOW + 60_000, body: bytes = b"secret", properties: Properties = _TEXT) -> Pending:
    """One waiting message that recurs every minute."""
    record = Record(
        message=message(body, {"colour": "blue", "weight": 3, "raw": b"\xff\x00"}, properties),
        schedule=Schedule(due=due, recurrence=Recurrence(start=NOW, delay=60_000, period=60_000, repeat=9)),
        lane="rabbit",
        address="orders",
        id=id_,
        kind="period",
        dialect="delaybridge",
        route="main",
        source_broker="rabbit",
        source="delaybridge.in",
        taken=NOW,
    )
    return Pending(record, "waiting")


class FakeControl:
    """Satisfies `ControlPort`. `asked` holds every call in order; `failure`, where set, is raised by all that touch the store or a broker."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As new."""
        self.asked: list[tuple[object, ...]] = []
        self.failure: Exception | None = None
        self.waiting = {"a": pending("a"), "tenant/7/b": pending("tenant/7/b")}
        self.answer = Answer("done", "cancelled", NOW)
        self.check_list = [Check("store", True), Check("broker rabbit", True)]
        self.well = True
        self.sent: list[tuple[str | None, Message, str]] = []
        self.arrivals: list[Sequence[Received]] = []
        self.observing = 0
        self.backlog = 3
        self.downtimes = NONE

    def _ask(self, *call: object) -> None:
        self.asked.append(call)
        if self.failure is not None:
            raise self.failure

    def status(self) -> Status:
        self._ask("status")
        return Status(
            bridge="b1",
            version="0.1.0",
            ready=True,
            started=NOW - 1000,
            now=NOW,
            pending=2,
            held=0,
            shelved=1,
            events={"scheduled": 5, "delivered": 3},
            oldest_overdue_ms=0,
            routes=[RouteStatus(name="main", paused=False, connected=True, received=5, source="rabbit delaybridge.in", to="rabbit")],
            lanes=[LaneStatus("rabbit", True, 1, 3, [HeldStatus("slow", 2, "no-route", NOW + 1000)])],
            by_address=[AddressStatus("rabbit", "orders", 2)],
            by_hour=[HourStatus(NOW, 2)],
            store=StoreStatus(10**9, True),
        )

    def alive(self) -> bool:
        return self.well

    def checks(self) -> Sequence[Check]:
        return self.check_list

    def messages(self, query: Query, limit: int, cursor: str) -> Page:
        self._ask("messages", query, limit, cursor)
        if cursor == "garbage":
            raise ValueError("that is no cursor")
        return Page(tuple(self.waiting.values())[:limit], "more")

    def find(self, id: str) -> Pending | Answer:  # noqa: A002 - the field's own word
        self._ask("find", id)
        return self.waiting.get(id, self.answer)

    def next_dues(self, record: Record, count: int) -> list[int]:
        return [record.schedule.due + 60_000 * n for n in range(count)]

    def waits_for(self, record: Record) -> str:
        return f"route {record.route} is paused"

    def pending(self) -> Iterator[Pending]:
        self._ask("pending")
        yield from (pending(f"m{n}", NOW + n) for n in range(self.backlog))

    def cancel(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        self._ask("cancel", id)
        return self.answer

    def reschedule(self, id: str, due_ms: int) -> Answer:  # noqa: A002 - the field's own word
        self._ask("reschedule", id, due_ms)
        return self.answer

    def release(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        self._ask("release", id)
        return self.answer

    def dead_letters(self, limit: int, after: int) -> Sequence[DeadLetter]:
        self._ask("dead_letters", limit, after)
        return [DeadLetter(7, pending("bad").record, "no_destination", "there is no queue", NOW, 2)]

    def retry_dead_letter(self, number: int) -> bool:
        self._ask("retry", number)
        return number == 7

    def drop_dead_letter(self, number: int) -> bool:
        self._ask("drop", number)
        return number == 7

    def pause(self, route: str) -> bool:
        self._ask("pause", route)
        return route == "main"

    def resume(self, route: str) -> bool:
        self._ask("resume", route)
        return route == "main"

    def send(self, route: str | None, message: Message, address: str, *, force: bool = False) -> None:
        self._ask("send", force)
        self.sent.append((route, message, address))

    @contextmanager
    def observe(self, broker: str, address: str, *, take: bool) -> Iterator[Iterator[Sequence[Received]]]:
        self._ask("observe", broker, address, take)
        if broker != "rabbit":
            raise NotKnownError(f"there is no broker {broker!r}")
        self.observing += 1
        try:
            yield iter(self.arrivals)
        finally:
            self.observing -= 1
