"""From the core's values to the API's shapes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ...core import fields
from ...core.durations import EARLIEST_INSTANT, LATEST_INSTANT, parse_duration, parse_instant
from ...core.message import Message, Properties
from .errors import problem
from .shapes import Base64, DeadLetterView, Delivery, HeaderValue, MessageDetail, MessageView, Place, PropertiesView, RecurrenceView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...adapters.base import Received
    from ...core.store import DeadLetter, Pending, Record
    from .shapes import SendRequest

MESSAGE_LIMIT = 64 << 20
"""Bytes of one message's body, at most."""
_MOST_OCCURRENCES = (1 << 63) - 1
_NESTED = frozenset("FADT")


def message_view(pending: Pending) -> MessageView:
    """One line of a listing."""
    return MessageView(**_pending(pending))


def message_detail(pending: Pending, following: Sequence[int], waits_for: str) -> MessageDetail:
    """One message in full; `following` are its next due times, and `waits_for` what keeps it from going out."""
    record = pending.record
    schedule = record.schedule
    return MessageDetail(
        **_pending(pending),
        taken=record.taken,
        headers=header_values(record.message.headers),
        properties=_properties_view(record.message.properties),
        recurrence=None if schedule.recurrence is None else RecurrenceView(**asdict(schedule.recurrence)),
        ends=schedule.ends,
        misfire=schedule.misfire,
        next=list(following),
        waits_for=waits_for,
    )


def dead_letter_view(letter: DeadLetter) -> DeadLetterView:
    """One line of the shelf."""
    return DeadLetterView(
        **_record(letter.record),
        number=letter.number,
        reason=letter.reason,
        detail=letter.detail,
        at=letter.at,
        attempts=letter.attempts,
    )


def _pending(pending: Pending) -> dict[str, Any]:
    return _record(pending.record) | {"state": pending.state, "attempts": pending.attempts, "error": pending.error}


def _record(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "occurrence": record.schedule.occurrence,
        "due": record.schedule.due,
        "kind": record.kind,
        "dialect": record.dialect,
        "route": record.route,
        "source": Place(record.source_broker, record.source),
        "destination": Place(record.lane, record.address),
        "size": record.message.size,
    }


def delivery(received: Received, address: str, at: int) -> Delivery:
    """One observed message, with what the bridge's delivery headers say of it."""
    message = received.message
    headers = header_values(message.headers)
    # A JMS consumer's broker may write `_` where the bridge wrote `-`.
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    due = _integer(told.get("x-delay-due"), EARLIEST_INSTANT, LATEST_INSTANT)
    id_ = told.get("x-delay-id")
    text = _text(message.body or b"")
    return Delivery(
        at=at,
        address=address,
        id=id_ if isinstance(id_, str) else None,
        occurrence=_integer(told.get("x-delay-occurrence"), 1, _MOST_OCCURRENCES),
        due=due,
        lateness_ms=None if due is None else at - due,
        body=text,
        body_base64=message.body if text is None else None,
        headers=headers,
    )


def header_values(table: bytes) -> dict[str, HeaderValue]:
    """Headers for people, the last of duplicates: text as text, numbers as numbers, all else as base64.

    A table that cannot be read to its end shows as one nameless value, the whole of it.
    """
    try:
        return {_text(field.name) or repr(field.name): _header_value(field) for field in fields.fields(table)}
    except fields.MalformedTableError:
        return {"": Base64(table)}


def _header_value(field: fields.Field) -> HeaderValue:
    value = Base64(field.payload) if field.tag in _NESTED else fields.value_of(field)
    if not isinstance(value, bytes):
        return value
    text = _text(value)
    return Base64(value) if text is None else text


def message_of(asked: SendRequest) -> Message:
    """The message that a send request describes. Raises ValueError with a sentence for its author, or Problem where it is too large."""
    if asked.body is not None and asked.body_base64 is not None:
        raise ValueError("give body or body_base64, not both")
    body = asked.body_base64 if asked.body_base64 is not None else (asked.body or "").encode()
    if len(body) > MESSAGE_LIMIT:
        raise problem(413, "too_large", f"the body has {len(body)} bytes, at most {MESSAGE_LIMIT} are taken")
    return Message(body, _table(asked.headers), _properties(asked.properties))


def _table(headers: Mapping[str, HeaderValue]) -> bytes:
    try:
        return fields.table((name, value.base64 if isinstance(value, Base64) else value) for name, value in headers.items())
    except OverflowError as error:
        raise ValueError(str(error)) from error


def _properties(view: PropertiesView) -> Properties:
    encoded: dict[str, Any] = {name: value.encode() if isinstance(value, str) else value for name, value in asdict(view).items()}
    for name, value in encoded.items():
        if isinstance(value, bytes) and len(value) > 255:
            raise ValueError(f"the property {name} has {len(value)} bytes, at most 255 fit")
    return Properties(**encoded)


def _properties_view(properties: Properties) -> PropertiesView:
    return PropertiesView(**{name: _shown(value) for name, value in asdict(properties).items()})


def _shown(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _integer(value: HeaderValue, least: int, most: int) -> int | None:
    """A delivery header's number; brokers without typed headers carry it as text. Anybody writes headers: None where no bridge would write it."""
    try:
        number = int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None
    return number if number is not None and least <= number <= most else None


def epoch_ms(asked: int | str, now: int) -> int:
    """Epoch milliseconds, RFC 3339, or a duration from `now` (`90s`). Raises ValueError with a sentence for its author."""
    due = asked if isinstance(asked, int) else _instant_or_duration(asked, now)
    if not EARLIEST_INSTANT <= due <= LATEST_INSTANT:
        raise ValueError(f"{asked!r:.80} is not an instant between 1973 and 9999 in epoch milliseconds")
    return due


def _instant_or_duration(text: str, now: int) -> int:
    try:
        return parse_instant(text)
    except ValueError:
        try:
            return now + parse_duration(text)
        except ValueError:
            raise ValueError(
                f"{text!r:.80} is neither epoch milliseconds, nor RFC 3339 with an offset, nor a duration such as 90s"
            ) from None
