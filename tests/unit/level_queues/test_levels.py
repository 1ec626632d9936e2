"""Delay levels: which one fits, and how any delay is made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaybridge.core.durations import DEFAULT_LEVELS, duration, parse_duration, parse_levels
from delaybridge.core.levels import SLACK, Hops, Levels

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
ROCKET = Levels(parse_levels(DEFAULT_LEVELS))


@pytest.mark.parametrize(
    ("remaining", "level"),
    [(-5, 0), (0, 0), (999 - SLACK, 0), (1_000, 1), (4_999 - SLACK, 1), (5_000, 2), (15 * MINUTE, 14), (2 * HOUR, 18), (365 * DAY, 18)],
)
def test_the_largest_level_that_fits_is_taken(remaining: int, level: int) -> None:
    assert ROCKET.fit(remaining) == level


def test_a_level_still_fits_a_moment_after_the_message_was_sent() -> None:
    assert ROCKET.fit(HOUR - SLACK) == ROCKET.fit(HOUR)
    assert ROCKET.fit(HOUR - SLACK - 1) == ROCKET.fit(30 * MINUTE)


def test_a_quarter_of_an_hour_is_ten_minutes_and_five() -> None:
    assert ROCKET.path(15 * MINUTE) == ((Hops(10 * MINUTE, 1), Hops(5 * MINUTE, 1)), 0)


def test_what_is_left_below_the_smallest_level_is_for_memory() -> None:
    assert ROCKET.path(2_300) == ((Hops(1_000, 2),), 300)


def test_a_year_is_4380_hops_of_two_hours_or_nineteen_with_longer_levels() -> None:
    assert ROCKET.path(365 * DAY) == ((Hops(2 * HOUR, 4_380),), 0)
    longer = Levels(parse_levels(f"{DEFAULT_LEVELS} 1d 7d 30d"))
    assert longer.path(365 * DAY) == ((Hops(30 * DAY, 12), Hops(DAY, 5)), 0)


@given(st.integers(0, 10 * 365 * DAY))
def test_the_hops_of_a_delay_add_up_to_it(delay: int) -> None:
    hops, rest = ROCKET.path(delay)
    total = sum(each.level * each.times for each in hops) + rest
    assert delay <= total <= delay + SLACK
    assert rest < ROCKET.table[0]


@given(st.integers(0, 10 * 365 * DAY))
def test_a_duration_is_read_as_it_was_written(ms: int) -> None:
    assert parse_duration(duration(ms)) == ms


@pytest.mark.parametrize(("ms", "text"), [(0, "0"), (250, "250ms"), (90_000, "90s"), (MINUTE, "1m"), (2 * HOUR, "2h"), (7 * DAY, "7d")])
def test_a_duration_is_written_in_its_largest_unit(ms: int, text: str) -> None:
    assert duration(ms) == text
