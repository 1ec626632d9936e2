"""What the API takes and answers, as types: requests are validated against them, and the OpenAPI document is made from them.

Times are epoch milliseconds, UTC. Values that are not text travel as `{"base64": ...}`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ...core.ledger import Event, Kind
from ...core.message import Properties
from ...core.schedule import Misfire
from ..views import Check


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are not text, or a nested table or array in AMQP 0-9-1 encoding."""

    base64: bytes


HeaderValue = None | bool | int | float | str | Base64
ShortText = Annotated[str, msgspec.Meta(max_length=255)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""As large as brokers, and the store, can keep."""
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000, description="At most this many; a page may be shorter before the end.")]


class PropertiesView(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Message properties by their AMQP 0-9-1 names. `timestamp` is in seconds, `expiration` a decimal text of milliseconds. The last four: not AMQP's own."""

    content_type: ShortText | None = None
    content_encoding: ShortText | None = None
    delivery_mode: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    correlation_id: ShortText | None = None
    reply_to: ShortText | None = None
    expiration: ShortText | None = None
    message_id: ShortText | None = None
    timestamp: Count | None = None
    type: ShortText | None = None
    user_id: ShortText | None = None
    app_id: ShortText | None = None
    cluster_id: ShortText | None = None
    timestamp_ms: Count | None = None
    partition: Count | None = None
    text: bool | None = None
    copies: bool | None = None


assert PropertiesView.__struct_fields__ == Properties.__struct_fields__


class ReadyQuery(msgspec.Struct, frozen=True):
    """`verbose`, with or without a value, asks for the single checks."""

    verbose: str | None = None


class Alive(msgspec.Struct, frozen=True):
    """The process works. It says nothing of brokers."""

    alive: bool


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether messages flow, and with `?verbose` what that depends on."""

    ready: bool
    checks: list[Check] | None = None


class MessagesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter on pending messages: due from (inclusive) to (exclusive), written as for reschedule; `cursor` is that of the page before."""

    broker: str = ""
    address: str = ""
    id_prefix: str = ""
    due_from: str | None = None
    due_to: str | None = None
    limit: Limit = 100
    cursor: str = ""


class Place(msgspec.Struct, frozen=True):
    """An address on a broker."""

    broker: str
    address: str


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One pending message. `size` is bytes of body and headers; the body itself is never shown."""

    id: str
    occurrence: int
    due: int
    kind: Kind
    dialect: str
    route: str
    source: Place
    destination: Place
    state: Literal["waiting", "in_flight", "held"]
    attempts: int
    error: str
    size: int


class RecurrenceView(msgspec.Struct, frozen=True):
    """How a schedule goes on after its first occurrence."""

    start: int
    delay: int
    period: int
    repeat: int
    cron: str
    zone: str


class MessageDetail(MessageView, frozen=True, kw_only=True):
    """Everything about one pending message but its body. `next` are the next due times, this occurrence first, at most five.

    `waits_for` says what keeps it from going out, once it is due; empty where nothing does.
    """

    taken: int
    headers: dict[str, HeaderValue]
    properties: PropertiesView
    recurrence: RecurrenceView | None
    ends: int | None
    misfire: Misfire
    next: list[int]
    waits_for: str


class MessagePage(msgspec.Struct, frozen=True):
    """`cursor` asks for the next page, and is empty at the end."""

    items: list[MessageView]
    cursor: str


class SendRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to publish to a route's source as a producer would; `body` is text, `body_base64` anything.

    `address` is where the producer would send it; without it, the source itself. What would be dead-lettered is sent with `force` only.
    """

    route: str | None = None
    body: str | None = None
    body_base64: bytes | None = None
    headers: dict[str, HeaderValue] = {}
    address: str = ""
    properties: PropertiesView = PropertiesView()
    force: bool = False


class CancelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ids of messages to cancel, as they are: nothing in them is percent-encoded."""

    ids: Annotated[list[str], msgspec.Meta(max_length=100)]


class CancelAnswer(msgspec.Struct, frozen=True):
    """What became of one id: `event` happened to it `at`; where it was refused, the `code` and `message` that it would have got alone."""

    id: str
    outcome: Literal["done", "too_late", "in_flight", "unknown", "refused"]
    event: Event | None = None
    at: int | None = None
    code: str | None = None
    message: str | None = None


class CancelAnswers(msgspec.Struct, frozen=True):
    """One for each id, in the order in which they were given."""

    answers: list[CancelAnswer]


class RescheduleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`due` is epoch milliseconds, an RFC 3339 instant, or a duration from now (`90s`, `PT15M`)."""

    due: int | str


class Done(msgspec.Struct, frozen=True):
    """What was asked for is done; `event` and `at` where that closed a message."""

    outcome: Literal["done"] = "done"
    event: Event | None = None
    at: int | None = None


class Moved(Done, frozen=True):
    """It has another instant now. `waits_for` says what keeps it from going out, if it is due; empty where nothing does."""

    waits_for: str = ""


class DeadLettersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shelf after number `after`."""

    limit: Limit = 100
    after: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """One message on the shelf: `reason` is a stable code, `detail` a sentence, `at` when it was given up."""

    number: int
    id: str
    occurrence: int
    due: int
    kind: Kind
    dialect: str
    route: str
    source: Place
    destination: Place
    reason: str
    detail: str
    at: int
    attempts: int
    size: int


class DeadLetterPage(msgspec.Struct, frozen=True):
    """The oldest first; the last one's number continues as `after`."""

    items: list[DeadLetterView]


class Destination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to listen: a broker's name, and an address as `x-delay-to` would name it."""

    broker: str
    address: str


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of an observation: what arrived, and when (`at`, this machine's clock). `id` to `lateness_ms` only where the bridge delivered it."""

    at: int
    address: str
    id: str | None = None
    occurrence: int | None = None
    due: int | None = None
    lateness_ms: int | None = None
    body: str | None = None
    body_base64: bytes | None = None
    headers: dict[str, HeaderValue]
