"""Why a message was not delivered: stable codes, listed in docs/headers.md. They are API: a code is never renamed or given another meaning."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A code, what it says (`meaning`), and what to do about it (`remedy`)."""

    meaning: str
    remedy: str

    def __new__(cls, code: str, meaning: str, remedy: str) -> Self:
        """A code that is its own text."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.remedy = remedy
        return member

    # What a producer wrote.
    WRONG_TYPE = "wrong_type", "The header's wire type cannot hold such a value.", "Send a number or text, as the header's section says."
    BAD_NUMBER = "bad_number", "The value is not a whole number.", "Send decimal digits, at most 19, with no blanks or separators."
    BAD_DURATION = "bad_duration", "The value is not a duration.", "Send milliseconds, or text such as `90s` or `PT15M`."
    BAD_INSTANT = "bad_instant", "The value is not an instant.", "Send epoch milliseconds, or RFC 3339 with an offset."
    NEGATIVE_VALUE = "negative_value", "This header's system refuses negative values.", "Send zero or more."
    DELAY_TOO_LONG = "delay_too_long", "A due time or period lies beyond `max_delay`.", "Shorten it, or have the operator raise the limit."
    PERIOD_TOO_SHORT = "period_too_short", "The period is below `min_period`.", "Lengthen it, or have the operator lower the limit."
    REPEAT_TOO_LARGE = (
        "repeat_too_large",
        "There are more repeats than `max_repeat`.",
        "Lower it, use a cron, or have the operator raise the limit.",
    )
    BAD_CRON = "bad_cron", "The cron expression cannot be read, or never matches.", "Send five fields, or `@daily` and the like."
    BAD_TIMEZONE = "bad_timezone", "The time zone is not known.", "Send an IANA name such as `Europe/Berlin`."
    BAD_MISFIRE = "bad_misfire", "The misfire rule is not known.", "Send `fire`, `skip` or `all`."
    BAD_ID = "bad_id", "The id is empty, longer than 255 bytes, or holds control characters.", "Send 1 to 255 bytes of UTF-8 text."
    BAD_DESTINATION = "bad_destination", "The destination is empty, longer than 512 bytes, or holds control characters.", "Send an address."
    INCOMPLETE_SCHEDULE = (
        "incomplete_schedule",
        "A header stands without the one that it belongs to.",
        "Add that one, or leave this one out.",
    )
    AMBIGUOUS_SCHEDULE = "ambiguous_schedule", "Two headers ask for different schedules.", "Keep one of them."
    OVERLAPPING_SERIES = (
        "overlapping_series",
        "More than 100 series of a cron would run at once.",
        "Shorten the series, or thin out the cron.",
    )
    ENDS_BEFORE_DUE = "ends_before_due", "`x-delay-ends` lies before the first delivery.", "Move it after the first delivery."
    HEADER_DAMAGED = (
        "header_damaged",
        "The header table is cut off or holds an unknown type.",
        "Look for the client or proxy that damages it.",
    )
    # What happened on the way.
    NO_DESTINATION = "no_destination", "Nothing says where the message goes.", "Send `x-delay-to`, or give the route an address."
    DESTINATION_NOT_ALLOWED = "destination_not_allowed", "The route does not allow this `x-delay-to`.", "Extend the route's `allow_to`."
    UNROUTABLE = (
        "unroutable",
        "Nothing is bound where the message was published, or there is no such place.",
        "Declare it: the message is tried again until `retry.give_up_after`.",
    )
    DELIVERY_FAILED = (
        "delivery_failed",
        "The destination refused the message for `retry.give_up_after`.",
        "Mend what the detail names, then retry the dead letter.",
    )
    REFUSED_BY_BROKER = (
        "refused_by_broker",
        "The destination does not take messages now: full, or access denied.",
        "Mend it: the message is tried again until `retry.give_up_after`.",
    )
    REJECTED_BY_BROKER = (
        "rejected_by_broker",
        "The destination's broker will never take this message.",
        "Read the detail: it holds the broker's own words.",
    )
    TOO_LARGE = "too_large", "The message is larger than the destination, or the bridge, takes.", "Send less, or raise the limit there."
    UNSUPPORTED_BODY = "unsupported_body", "The body cannot be carried without altering it.", "Send text or bytes."
    LOOP = "loop", "The message came back to the bridge too often.", "Take the bridge's own intake out of its destinations."
    UNSUPPORTED_IN_LEVEL_QUEUES = (
        "unsupported_in_level_queues",
        "Level queues on this broker cannot take back what waits in them.",
        "Leave the cancellation out, or let messages wait in level queues on Kafka, or in the time index.",
    )
    # Why an occurrence expired.
    MISFIRE_SKIPPED = (
        "misfire_skipped",
        "It fell due while the bridge was down, and its misfire rule is `skip`.",
        "Nothing: this is what was asked for.",
    )
    ENDED = "ended", "Its `x-delay-ends` had passed before it could be delivered.", "Nothing: this is what was asked for."


class Refusal(Exception):
    """Headers ask for what cannot be honoured. `dialect` is set where it is not the one being read."""

    def __init__(self, reason: Reason, detail: str, dialect: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.dialect = dialect
