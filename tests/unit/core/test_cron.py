from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from delaybridge.core.cron import _next_match as searched
from delaybridge.core.cron import matches, next_match, parse_cron, parse_zone


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def fires(expression: str, zone: str, after: str, count: int) -> list[str]:
    """The next matches as local times with their offset."""
    found = islice(matches(parse_cron(expression), zone, at(after)), count)
    return [datetime.fromtimestamp(instant / 1000, ZoneInfo(zone)).isoformat(timespec="minutes") for instant in found]


def test_a_match_is_strictly_after_the_given_instant() -> None:
    assert next_match("0 9 * * *", "UTC", at("2027-01-01T09:00:00Z")) == at("2027-01-02T09:00:00Z")
    assert next_match("0 9 * * *", "UTC", at("2027-01-01T08:59:59.999Z")) == at("2027-01-01T09:00:00Z")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
@pytest.mark.parametrize("expression", ["* * * * *", "*/7 1-3 * * *", "30 2 * * *", "15 * * * 6,0"])
def test_what_is_asked_within_a_minute_is_searched_for_once_and_the_answer_is_right_around_changes_of_the_clock(
    expression: str, zone: str
) -> None:
    for hour in range(0, 24 * 3, 3):
        minute = at("2026-10-31T22:59:00Z") + hour * 3_600_000
        before = searched.cache_info().misses
        for after in (minute, minute + 1, minute + 59_999):
            assert next_match(expression, zone, after) == next(matches(expression, zone, after), None)
        assert searched.cache_info().misses - before <= 1


@pytest.mark.parametrize(
    ("alias", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("0 9 ? * ?", "0 9 * * *"),
        ("  0\t9  * * * ", "0 9 * * *"),
    ],
)
def test_aliases_question_marks_and_blanks_become_five_plain_fields(alias: str, fields: str) -> None:
    assert parse_cron(alias) == fields


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "@reboot",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "10-5 * * * *",
        "-1 * * * *",
        "0 0 30 2 *",
        "H * * * *",
        "R * * * *",
        "\u0661 * * * *",
        "* " * 200,
        "* * * * *" + " " * 300,
        ",".join("0" * 65) + " * * * *",
    ],
)
def test_what_cron_does_not_know_or_can_never_match_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_cron(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0 0 31 2,4 *", "it never matches, because none of its months has such a day"),
        ("0 0 32 2 *", "Bad day-of-month"),
        ("0 0 31 13 *", "Bad month"),
    ],
)
def test_a_day_that_is_in_none_of_the_months_is_not_called_a_bad_one(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=f": {told}$"):
        parse_cron(text)


def test_sixty_four_items_in_a_field_are_read() -> None:
    assert parse_cron(",".join("0" * 64) + " * * * *")


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "Europe", "a\0b", "x" * 5000])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not an IANA time zone"):
        parse_zone(name)


def test_with_both_day_fields_set_either_is_enough() -> None:
    assert fires("0 0 13 * FRI", "UTC", "2027-01-01T12:00:00Z", 3) == [
        "2027-01-08T00:00+00:00",
        "2027-01-13T00:00+00:00",
        "2027-01-15T00:00+00:00",
    ]


@pytest.mark.parametrize("minutes", ["30-30/2", "30-30/1,30", "030-30/2", "30-030/02", "30"])
def test_a_range_of_one_has_one_item_whatever_its_step(minutes: str) -> None:
    assert fires(f"{minutes} 9-9/3 * * *", "UTC", "2027-01-01T00:00:00Z", 2) == ["2027-01-01T09:30+00:00", "2027-01-02T09:30+00:00"]


def test_an_hour_begins_with_its_first_minute_also_where_it_is_asked_for_within_a_minute() -> None:
    assert fires("*/15 9 * * *", "Europe/Berlin", "2027-01-01T08:10:30.500+01:00", 1) == ["2027-01-01T09:00+01:00"]


def test_leap_days_are_waited_for() -> None:
    assert fires("0 0 29 2 *", "UTC", "2027-01-01T00:00:00Z", 1) == ["2028-02-29T00:00+00:00"]


def test_a_cron_ends_with_the_calendar_rather_than_with_an_error() -> None:
    assert next_match(parse_cron("@yearly"), "UTC", at("9999-06-01T00:00:00Z")) is None
    assert next_match(parse_cron("@yearly"), "America/New_York", 10**18) is None


class TestClocksGoForward:
    def test_a_fixed_time_in_the_gap_runs_once_at_the_first_minute_after_it_in_berlin(self) -> None:
        assert fires("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", 2) == ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00"]

    def test_a_fixed_time_in_the_gap_runs_once_at_the_first_minute_after_it_in_new_york(self) -> None:
        assert fires("30 2 * * *", "America/New_York", "2027-03-13T12:00:00Z", 2) == ["2027-03-14T03:00-04:00", "2027-03-15T02:30-04:00"]

    def test_several_fixed_times_in_the_gap_run_once_together(self) -> None:
        assert fires("0,30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", 2) == ["2027-03-28T03:00+02:00", "2027-03-29T02:00+02:00"]

    def test_a_fixed_time_after_the_gap_keeps_its_wall_clock_time(self) -> None:
        assert fires("0 9 * * *", "Europe/Berlin", "2027-03-27T08:00:00Z", 2) == ["2027-03-28T09:00+02:00", "2027-03-29T09:00+02:00"]

    @pytest.mark.parametrize(("zone", "after"), [("Europe/Berlin", "2027-03-28T00:30:00Z"), ("America/New_York", "2027-03-14T06:30:00Z")])
    def test_a_wildcard_runs_every_real_half_hour(self, zone: str, after: str) -> None:
        assert list(islice(matches("*/30 * * * *", zone, at(after)), 4)) == [at(after) + n * 1_800_000 for n in range(1, 5)]

    @pytest.mark.parametrize(
        ("expression", "zone", "after", "first"),
        [
            ("*/40 0 * * 0", "America/Santiago", "2026-09-05T12:00:00Z", "2026-09-13T00:00-03:00"),
            ("*/20 */5 * * 5", "Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-24T05:00+03:00"),
            ("*/30 1 8 * *", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T01:00-04:00"),
            ("*/30 1 29 * *", "Asia/Beirut", "2026-03-28T12:00:00Z", "2026-03-29T01:00+03:00"),
            ("*/30 0 * 10 *", "America/Asuncion", "2023-09-15T12:00:00Z", "2023-10-02T00:00-03:00"),
            ("*/30 1 * 10 *", "America/Asuncion", "2023-09-15T12:00:00Z", "2023-10-01T01:00-03:00"),
        ],
    )
    def test_a_day_or_month_that_begins_in_the_gap_has_no_hour_0_and_its_whole_hour_1(
        self, expression: str, zone: str, after: str, first: str
    ) -> None:
        assert fires(expression, zone, after, 1) == [first]

    def test_a_fixed_time_in_a_gap_at_midnight_runs_once_behind_it(self) -> None:
        assert fires("30 0 * * 0", "America/Santiago", "2026-09-05T12:00:00Z", 2) == ["2026-09-06T01:00-03:00", "2026-09-13T00:30-03:00"]


class TestClocksGoBack:
    def test_a_fixed_time_in_the_repeated_hour_runs_once_in_berlin(self) -> None:
        assert fires("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00:00Z", 2) == ["2027-10-31T02:30+02:00", "2027-11-01T02:30+01:00"]

    def test_a_fixed_time_in_the_repeated_hour_runs_once_in_new_york(self) -> None:
        assert fires("30 1 * * *", "America/New_York", "2027-11-06T12:00:00Z", 2) == ["2027-11-07T01:30-04:00", "2027-11-08T01:30-05:00"]

    def test_asked_in_the_second_round_a_fixed_time_waits_for_the_next_day(self) -> None:
        assert fires("30 2 * * *", "Europe/Berlin", "2027-10-31T02:10:00+01:00", 1) == ["2027-11-01T02:30+01:00"]

    @pytest.mark.parametrize(("zone", "after"), [("Europe/Berlin", "2027-10-30T23:30:00Z"), ("America/New_York", "2027-11-07T04:30:00Z")])
    def test_a_wildcard_runs_every_real_half_hour(self, zone: str, after: str) -> None:
        assert list(islice(matches("*/30 * * * *", zone, at(after)), 6)) == [at(after) + n * 1_800_000 for n in range(1, 7)]

    def test_where_they_go_back_by_less_than_an_hour_a_wildcard_goes_on_behind_the_change(self) -> None:
        """It never came out of Chatham's second quarter to three, or left it out, and began in the middle of the hour on Lord Howe."""
        assert fires("*/44 */3 * * *", "Pacific/Chatham", "2027-04-04T03:40:00+13:45", 2) == [
            "2027-04-04T03:44+13:45",
            "2027-04-04T03:00+12:45",
        ]
        assert fires("*/50 */2 * * *", "Pacific/Chatham", "2027-04-04T03:10:00+13:45", 2) == [
            "2027-04-04T02:50+12:45",
            "2027-04-04T04:00+12:45",
        ]
        assert fires("*/20 */2 * * *", "Australia/Lord_Howe", "2027-04-04T01:50:00+11:00", 2) == [
            "2027-04-04T02:00+10:30",
            "2027-04-04T02:20+10:30",
        ]
