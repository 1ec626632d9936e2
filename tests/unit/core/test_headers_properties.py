"""Whatever a producer sends: one outcome, never an error, never early, and never delayed twice."""

import struct
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from delaybridge.core import fields, headers
from delaybridge.core.downtimes import Downtimes
from delaybridge.core.explain import explain
from delaybridge.core.reasons import Reason
from delaybridge.core.recurrence import following
from delaybridge.core.schedule import Cancel, Limits, PassThrough, Reading, Refused, Request

LIMITS = Limits()
INSTANTS = st.integers(1_000_000_000_000, 4_000_000_000_000)
ABSOLUTE = {
    b"TIMER_DELIVER_MS",
    b"__STARTDELIVERTIME",
    b"deliverAt",
    b"_AMQ_SCHED_DELIVERY",
    b"x-opt-delivery-time",
    b"x-delay-until",
    b"x_delay_until",
}
unhurried = settings(deadline=None)
"""Sparse crons with crowded series take 80 ms, and on a busy machine more: no failure."""

names = st.sampled_from(sorted(headers.CONTROL_NAMES)) | st.binary(max_size=20)
words = st.sampled_from(
    ["5s", "PT15M", "1d12h", "@daily", "@hourly", "*/5 * * * *", "30 2 * * *", "0 0 29 2 *", "Europe/Berlin", "America/New_York", "fire", "skip", "all",
     "2030-01-01T00:00:00Z", '"5000"', "", "-1", "1798794000000", "nan"]
)  # fmt: skip
texts = words | st.text(max_size=30) | st.from_regex(r"[0-9*/,\-?#LW ]{1,30}", fullmatch=True)
numbers = (
    st.sampled_from([0, 1, -1, 5, 1000, 60_000, 2**31, 2**32, 2**63 - 1, -(2**63)])
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 100_000)
)
values = (
    st.none()
    | st.booleans()
    | numbers
    | numbers.map(str)
    | st.floats()
    | texts
    | texts.map(str.encode)
    | st.binary(max_size=12)
    | numbers.map(lambda number: struct.pack(">q", number))
)
tables = st.lists(st.tuples(names, values), max_size=8).map(fields.table)


def outcome(table: bytes, now: int) -> Reading:
    reading = headers.read(table, now, LIMITS)
    assert type(reading) in {Request, PassThrough, Cancel, Refused}
    return reading


@given(st.binary(max_size=200), INSTANTS)
def test_any_bytes_have_an_outcome(table: bytes, now: int) -> None:
    outcome(table, now)
    explain(table, now, LIMITS)


@unhurried
@given(tables, INSTANTS)
def test_any_headers_have_an_outcome_that_the_page_knows(table: bytes, now: int) -> None:
    reading = outcome(table, now)
    if isinstance(reading, Refused):
        assert reading.reason in set(Reason)
        assert reading.detail


@unhurried
@given(tables, INSTANTS)
def test_nothing_is_due_before_now_unless_an_instant_in_the_past_was_asked_for(table: bytes, now: int) -> None:
    reading = outcome(table, now)
    if isinstance(reading, Request):
        asked = {field.name for field in fields.fields(table)} & ABSOLUTE
        assert reading.schedule.due >= now or asked
        assert reading.schedule.due - now <= LIMITS.max_delay


@given(
    st.integers(1, LIMITS.max_delay),
    st.sampled_from(["x-delay", "x_delay", "AMQ_SCHEDULED_DELAY", "deliverAfter", "TIMER_DELAY_MS"]),
    INSTANTS,
)
def test_a_relative_delay_is_kept_to_the_millisecond(delay: int, name: str, now: int) -> None:
    for value in (delay, str(delay), struct.pack(">q", delay)):
        reading = outcome(fields.entry(name, value), now)
        assert isinstance(reading, Request)
        assert reading.schedule.due == now + delay


@unhurried
@given(tables, INSTANTS, st.integers(0, 10**9))
def test_a_delivered_message_read_again_passes_through_and_is_never_delayed_twice(table: bytes, now: int, later: int) -> None:
    reading = outcome(table, now)
    if isinstance(reading, Request | PassThrough):
        left = reading.headers
        again = outcome(headers.delivered(left, reading.id or "i", 1, now), now + later)
        assert isinstance(again, PassThrough)
        assert (again.headers, again.id, again.to) == (left, "", "")


@unhurried
@given(tables, INSTANTS)
def test_what_is_left_is_what_was_there_less_the_control_headers(table: bytes, now: int) -> None:
    reading = outcome(table, now)
    if isinstance(reading, Request | PassThrough):
        before = [field[:3] for field in fields.fields(table) if field.name not in headers.CONTROL_NAMES]
        after = [field[:3] for field in fields.fields(reading.headers)]
        assert [field for field in after if field[0] != b"x-delay"] == before


@unhurried
@given(tables, INSTANTS, st.integers(0, 10**10))
def test_occurrences_rise_in_number_and_never_go_back_in_time(table: bytes, now: int, started: int) -> None:
    reading = outcome(table, now)
    if isinstance(reading, Request):
        seen = [reading.schedule]
        while len(seen) < 6 and (upcoming := following(seen[-1], seen[-1].due, Downtimes(((0, now + started),)))) is not None:
            seen.append(upcoming)
        assert all((a.due, a.tie) < (b.due, b.tie) and a.occurrence < b.occurrence for a, b in pairwise(seen))
        assert all(schedule.ends is None or schedule.due <= schedule.ends for schedule in seen)
