"""From a received message to one change of the store: where it goes, when, or why it cannot."""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from zlib import crc32

import msgspec
from msgspec.structs import replace

from ...adapters.base import Received
from ...adapters.probes import NAME
from ...core import fields, headers
from ...core.dead_letters import carrier
from ...core.dialects.base import scalar
from ...core.message import Message
from ...core.reasons import Reason, Refusal
from ...core.schedule import Cancel, Limits, PassThrough, Refused, Request, Schedule
from ...core.store import Change, DeadLetter, Put, Record, Refuse, Withdraw

OUTAGE = 31 * 86_400_000
"""Milliseconds for which a message may have waited for a bridge: a stamp that is older than this, and than the longest delay, is not believed."""

MAX_HOPS = 16
"""How often a message with an earlier delivery's headers may pass the bridge undelayed before that counts as a loop."""

HOPS = b"x-delay-hops"
DEATH = b"x-delay-death"
"""A digest of `x-death` as it was when a hop was counted: where RabbitMQ has dead-lettered the message since, somebody tries it again on purpose."""

_X_DEATH = b"x-death"
_NOT_WHOLE = frozenset({Reason.HEADER_DAMAGED, Reason.UNSUPPORTED_BODY, Reason.TOO_LARGE})
"""Why an adapter keeps less of a message than was sent: see base.Received.defect."""

_CANCEL = (Reason.UNSUPPORTED_IN_LEVEL_QUEUES, "a cancellation: nobody can look for a message in a queue")


class PlannedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A configured route as the planner sees it: where the messages of one source go. `address` and `dead_letter` are empty where the route names none.

    `probes`: how the destinations begin that `delaybridge doctor` makes for itself; they are allowed on every route.
    """

    name: str
    source_broker: str
    source: str
    lane: str
    address: str = ""
    allow_to: tuple[str, ...] = ()
    dead_letter: str = ""
    probes: tuple[str, ...] = ()


class Planner:
    """The rules of one route, applied to one message at a time. Pure: the same message at the same time gives the same change.

    `cancels` says whether the store can find a message by its id; else a cancellation is refused, unless it is `doctor`'s probe, which cancels nothing.
    """

    def __init__(self, route: PlannedRoute, limits: Limits, *, cancels: bool = True) -> None:
        self.route = route
        self.limits = limits
        self.cancels = cancels

    def plan(self, received: Received, now: int) -> Change:
        """The change that this message asks for; never raises, whatever the message bears."""
        if received.defect is not None:
            return self.refuse(received, now, received.defect.reason, received.defect.detail)
        reading = headers.read(received.message.headers, self._sent(received, now), self.limits)
        if type(reading) is Cancel:
            return Withdraw(reading.id) if self.cancels or reading.id.startswith(NAME) else self.refuse(received, now, *_CANCEL)
        if type(reading) is Refused:
            return self.refuse(received, now, reading.reason, reading.detail, reading.dialect)
        assert isinstance(reading, Request | PassThrough)
        address, problem = self._destination(received, reading.to)
        if problem is not None:
            return self.refuse(received, now, *problem, reading.dialect)
        if type(reading) is PassThrough:
            return self._pass_through(received, reading, address, now)
        assert type(reading) is Request
        return Put(
            self._record(received, reading.headers, reading.schedule, address, now, reading.id, kind_of(reading.schedule), reading.dialect)
        )

    def _sent(self, received: Received, now: int) -> int:
        """When the delay began. A stamp from the future, or older than any delay and outage, is not believed: a producer can write one, too."""
        sent = received.sent
        return sent if sent is not None and now - max(self.limits.max_delay, OUTAGE) <= sent <= now else now

    def _destination(self, received: Received, to: str) -> tuple[str, tuple[str, str] | None]:
        if to:
            if to.startswith(self.route.probes) or any(fnmatchcase(to, pattern) for pattern in self.route.allow_to):
                return to, None
            return "", (Reason.DESTINATION_NOT_ALLOWED, f"route {self.route.name!r} does not allow {to!r}; add it to allow_to")
        address = self.route.address or (received.address if self.route.lane == self.route.source_broker else "")
        if address:
            return address, None
        return "", (Reason.NO_DESTINATION, f"neither x-delay-to nor route {self.route.name!r} (to.address) says where this message goes")

    def _pass_through(self, received: Received, reading: PassThrough, address: str, now: int) -> Change:
        table = reading.headers
        if headers.OCCURRENCE in received.message.headers:
            hops, table = _count_hop(table)
            if hops > MAX_HOPS:
                return self.refuse(
                    received, now, Reason.LOOP, f"it came back {hops} times: {address!r} leads into the bridge again", reading.dialect
                )
        return Put(self._record(received, table, Schedule(due=now), address, now, "", "pass_through", reading.dialect))

    def _record(
        self, received: Received, table: bytes, schedule: Schedule, address: str, now: int, id_: str, kind: str, dialect: str
    ) -> Record:
        route, message = self.route, received.message
        properties = message.properties
        chosen = properties.partition is not None or properties.copies
        if chosen and (address, route.lane) != (received.address, route.source_broker):
            # A partition of another topic, also of one of that name on another broker; copies at another exchange, with other rights.
            properties = replace(properties, partition=None, copies=None)
        return Record(
            message=Message(message.body, table, properties, message.key),
            schedule=schedule,
            lane=route.lane,
            address=address,
            id=id_,
            kind=kind,  # type: ignore[arg-type]  # kind_of and the callers give only names of Kind
            dialect=dialect,
            route=route.name,
            source_broker=route.source_broker,
            source=route.source,
            taken=now,
        )

    def refuse(self, received: Received, now: int, reason: str, detail: str, dialect: str = "") -> Refuse:
        """The message as it came, under its producer's id, for the shelf, or for the route's dead-letter destination with the reason in two headers.

        A dead letter that comes back and is refused again goes to the shelf: its destination leads back here, and it would go round for ever.
        """
        table = received.message.headers
        record = self._record(received, table, Schedule(due=now), received.address, now, headers.chosen_id(table), "refused", dialect)
        address = self.route.dead_letter
        if not address or _was_dead(table):
            return Refuse(record, reason, detail)
        bare = replace(record, message=replace(record.message, headers=headers.undelivered(table)))
        return Refuse(record, reason, detail, carrier(bare, address, now, reason, detail))

    def plan_again(self, refused: DeadLetter, now: int) -> Change:
        """What a message on the shelf, kept as it came, asks for under the rules in force now. It did not come round: its hops begin anew.

        If its adapter could not carry it, the shelf does not hold what was sent: then it stays refused.
        """
        received = Received(refused.record.message, refused.record.address, b"")
        if refused.reason in _NOT_WHOLE:
            return self.refuse(received, now, refused.reason, refused.detail)
        return self.plan(_without_hops(received) if refused.reason == Reason.LOOP else received, now)


def _was_dead(table: bytes) -> bool:
    """Whether it bears the reason of a dead letter. One that cannot be read is none: dead letters travel with headers that can."""
    with suppress(fields.MalformedTableError):
        return bool(fields.named(table, {headers.REASON}))
    return False


def _without_hops(received: Received) -> Received:
    table = received.message.headers
    return replace(received, message=replace(received.message, headers=fields.without(table, fields.named(table, {HOPS, DEATH}))))


def kind_of(schedule: Schedule) -> str:
    """The ledger's kind of a schedule."""
    if schedule.recurrence is None:
        return "once"
    return "cron" if schedule.recurrence.cron else "period"


def _count_hop(table: bytes) -> tuple[int, bytes]:
    """Raise the hop counter by one, or begin anew if RabbitMQ has dead-lettered the message since."""
    found = fields.named(table, {HOPS, DEATH, _X_DEATH})
    last = {field.name: field for field in found}
    death = crc32(last[_X_DEATH].payload) if _X_DEATH in last else 0
    hops = 1 + (min(_count(last.get(HOPS)), MAX_HOPS) if _count(last.get(DEATH)) == death else 0)
    counters = fields.entry(HOPS, hops) + (fields.entry(DEATH, death) if death else b"")
    return hops, fields.without(table, [field for field in found if field.name != _X_DEATH]) + counters


def _count(counter: fields.Field | None) -> int:
    """The number that we wrote, as its broker hands it back: a number, or its digits as text (ActiveMQ) or bytes (Kafka).

    A producer can write it as well: anything but a number counts as 0.
    """
    try:
        count = 0 if counter is None else scalar(counter)
    except Refusal:
        return 0
    return max(count, 0) if isinstance(count, int) else 0
