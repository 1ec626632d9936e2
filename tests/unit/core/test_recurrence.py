from datetime import datetime
from itertools import pairwise

import pytest
from msgspec.structs import replace

from delaybridge.core.cron import parse_cron
from delaybridge.core.downtimes import Downtimes
from delaybridge.core.durations import LATEST_INSTANT
from delaybridge.core.recurrence import crowded, decision, expired, first, following, moved
from delaybridge.core.schedule import Misfire, Recurrence, Schedule

START = int(datetime.fromisoformat("2027-01-01T09:00:00+00:00").timestamp() * 1000)
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def begun(recurrence: Recurrence, *, misfire: Misfire = "fire", ends: int | None = None) -> Schedule:
    due = first(recurrence)
    assert due is not None
    return Schedule(due=due, recurrence=recurrence, misfire=misfire, ends=ends)


def from_then(started: int) -> Downtimes:
    """As a bridge has it of which no earlier run is known."""
    return Downtimes(((0, started),))


def run(schedule: Schedule, most: int = 100) -> list[tuple[int, int]]:
    """(occurrence, due - START) of this occurrence and those that follow, each delivered on time."""
    seen: list[tuple[int, int]] = []
    upcoming: Schedule | None = schedule
    while upcoming is not None and len(seen) < most:
        seen.append((upcoming.occurrence, upcoming.due - START))
        upcoming = following(upcoming, upcoming.due, from_then(START))
    return seen


def series(cron: str, delay: int = 0, period: int = 0, repeat: int = 0) -> Recurrence:
    return Recurrence(start=START, delay=delay, period=period, repeat=repeat, cron=parse_cron(cron))


def test_a_single_message_has_no_following_occurrence() -> None:
    assert following(Schedule(due=START), START, from_then(START)) is None


def test_n_repeats_are_n_plus_one_deliveries_a_period_apart() -> None:
    assert run(begun(Recurrence(start=START, delay=500, period=1000, repeat=3))) == [(1, 500), (2, 1500), (3, 2500), (4, 3500)]


def test_late_deliveries_do_not_make_a_period_drift() -> None:
    schedule = begun(Recurrence(start=START, period=1000, repeat=5))
    after = following(schedule, schedule.due + 700, from_then(START))
    assert after is not None
    assert after.due == START + 1000


def test_a_cron_goes_on_with_every_match() -> None:
    assert run(begun(series("*/10 * * * *")), 3) == [(1, 10 * MINUTE), (2, 20 * MINUTE), (3, 30 * MINUTE)]


def test_under_a_cron_the_delay_follows_each_match() -> None:
    assert run(begun(series("@hourly", delay=5000)), 2) == [(1, HOUR + 5000), (2, 2 * HOUR + 5000)]


def test_every_match_of_a_cron_starts_a_series() -> None:
    plan = series("@hourly", delay=1000, period=1000, repeat=2)
    assert [due for _, due in run(begun(plan), 6)] == [
        HOUR + 1000,
        HOUR + 2000,
        HOUR + 3000,
        2 * HOUR + 1000,
        2 * HOUR + 2000,
        2 * HOUR + 3000,
    ]


@pytest.mark.parametrize(
    ("period", "repeat", "delay"), [(90_000, 3, 0), (60_000, 4, 30_000), (20_000, 10, 1), (61_000, 7, 90_000), (30_000, 1, 3 * HOUR)]
)
def test_overlapping_series_are_merged_in_order_with_none_lost_and_none_twice(period: int, repeat: int, delay: int) -> None:
    """Compared with each series written out in full."""
    wanted = sorted(match * MINUTE + delay + k * period for match in range(1, 40) for k in range(repeat + 1))
    got = run(begun(series("* * * * *", delay, period, repeat)), 60)
    assert [due for _, due in got] == wanted[:60]
    assert [occurrence for occurrence, _ in got] == list(range(1, 61))


def test_more_than_a_hundred_series_at_once_are_crowded() -> None:
    assert crowded(series("* * * * *", period=MINUTE, repeat=100))
    assert not crowded(series("* * * * *", period=MINUTE, repeat=99))
    assert not crowded(series("@yearly", period=MINUTE, repeat=10_000))


def test_a_crowd_that_gathers_only_after_a_pause_is_seen() -> None:
    minutes_of_the_first = series("* * 1 * *", period=MINUTE, repeat=1200)
    an_hour_before_its_end = START + 14 * HOUR
    assert crowded(replace(minutes_of_the_first, start=an_hour_before_its_end))


def test_nothing_follows_after_the_end() -> None:
    plan = Recurrence(start=START, period=1000, repeat=9)
    assert run(begun(plan, ends=START + 2000)) == [(1, 0), (2, 1000), (3, 2000)]


def test_nothing_follows_beyond_the_year_9999() -> None:
    """What is moved by hand again and again would get there: a store ends in the year 10889, calendars do before."""
    thousand_years = 1000 * 366 * DAY
    dues = [START + due for _, due in run(begun(Recurrence(start=START, period=thousand_years, repeat=99)))]
    assert len(dues) == 8
    assert max(dues) <= LATEST_INSTANT < max(dues) + thousand_years


def test_once_the_end_has_passed_nothing_follows_even_if_it_was_due_before() -> None:
    schedule = begun(Recurrence(start=START, period=1000, repeat=9), ends=START + 5000)
    assert following(schedule, START + 5001, from_then(START)) is None


def test_a_schedule_has_expired_only_after_its_end() -> None:
    schedule = Schedule(due=START, ends=START + 10)
    assert (expired(schedule, START + 10), expired(schedule, START + 11), expired(Schedule(due=START), START + DAY)) == (False, True, False)


class TestMisfire:
    plan = Recurrence(start=START, period=1000, repeat=9)

    @pytest.mark.parametrize(("rule", "decided"), [("fire", "deliver"), ("skip", "misfire_skipped"), ("all", "deliver")])
    def test_only_skip_lets_a_missed_occurrence_expire(self, rule: Misfire, decided: str) -> None:
        schedule = Schedule(due=START, misfire=rule)
        assert decision(schedule, from_then(START + 1), START + 2) == decided
        assert decision(schedule, from_then(START), START + 2) == "deliver"

    def test_after_its_end_an_occurrence_expires_whatever_the_rule(self) -> None:
        for rule in ("fire", "skip", "all"):
            assert decision(Schedule(due=START, misfire=rule, ends=START + 10), from_then(START + 1), START + 11) == "ended"

    @pytest.mark.parametrize("rule", ["fire", "skip"])
    def test_fire_and_skip_go_on_in_time_and_what_was_missed_is_used_up(self, rule: Misfire) -> None:
        after = following(begun(self.plan, misfire=rule), START + 3600, from_then(START + 3500))
        assert after is not None
        assert (after.due - START, after.occurrence) == (4000, 5)

    def test_an_occurrence_due_as_the_bridge_begins_is_not_missed(self) -> None:
        after = following(begun(self.plan), START + 3000, from_then(START + 3000))
        assert after is not None
        assert after.due - START == 3000

    def test_all_delivers_each_missed_one(self) -> None:
        after = following(begun(self.plan, misfire="all"), START + 3600, from_then(START + 3500))
        assert after is not None
        assert (after.due - START, after.occurrence) == (1000, 2)

    def test_what_waited_while_the_bridge_ran_was_not_missed(self) -> None:
        """Its destination took nothing; the bridge was restarted meanwhile."""
        down = Downtimes(((0, START), (START + 2500, START + 4500)))
        waited = begun(self.plan)
        second = following(waited, START + 5000, down)
        third = following(second, START + 5000, down) if second else None
        assert second is not None
        assert third is not None
        missed = following(third, START + 5000, down)
        assert missed is not None
        after = following(missed, START + 5000, down)
        assert after is not None
        assert [each.due - START for each in (second, third, missed, after)] == [1000, 2000, 3000, 5000]
        assert [decision(replace(each, misfire="skip"), down, START + 5000) for each in (waited, second, third, missed, after)] == [
            "deliver",
            "deliver",
            "deliver",
            "misfire_skipped",
            "deliver",
        ]

    def test_a_repeat_missed_to_its_end_is_delivered_once(self) -> None:
        assert following(begun(self.plan), START + DAY, from_then(START + DAY)) is None

    def test_years_of_missed_periods_are_jumped_over_at_once(self) -> None:
        long = Recurrence(start=START, period=1000, repeat=10**12)
        after = following(begun(long), START + 3650 * DAY + 1, from_then(START + 3650 * DAY + 1))
        assert after is not None
        assert (after.due - START, after.occurrence) == (3650 * DAY + 1000, 3650 * 86400 + 2)

    def test_a_missed_cron_goes_on_in_time_and_its_number_rises_by_one(self) -> None:
        after = following(begun(series("@hourly")), START + 10 * HOUR + 6, from_then(START + 10 * HOUR + 5))
        assert after is not None
        assert (after.due - START, after.occurrence) == (11 * HOUR, 2)

    @pytest.mark.parametrize("after", [0, 1, 2, 1000])
    def test_what_another_series_had_at_the_missed_instant_is_missed_as_well(self, after: int) -> None:
        """A bridge that began a millisecond later handed it out."""
        plan = series("* * * * *", period=MINUTE, repeat=1)
        second = following(begun(plan), START + MINUTE, from_then(START))
        assert second is not None
        started = second.due + after
        upcoming = following(second, started, from_then(started))
        assert upcoming is not None
        assert (upcoming.due - START, upcoming.tie) == ((2 if after == 0 else 3) * MINUTE, 1 if after == 0 else 0)

    def test_a_missed_series_goes_on_inside_the_series_that_runs(self) -> None:
        plan = series("@hourly", period=10 * MINUTE, repeat=3)
        after = following(begun(plan), START + 5 * HOUR, from_then(START + 5 * HOUR + 15 * MINUTE))
        assert after is not None
        assert after.due - START == 5 * HOUR + 20 * MINUTE


class TestMovedByHand:
    def test_released_early_the_same_occurrence_does_not_come_again(self) -> None:
        for plan in (
            series("@hourly"),
            Recurrence(start=START, delay=HOUR, period=HOUR, repeat=5),
            series("@hourly", period=MINUTE, repeat=1),
        ):
            schedule = begun(plan)
            plainly = following(schedule, schedule.due, from_then(START))
            assert following(moved(schedule, START + 5), START + 5, from_then(START)) == plainly

    def test_moved_later_what_it_was_moved_past_is_left_out(self) -> None:
        for plan in (series("@hourly"), Recurrence(start=START, delay=HOUR, period=HOUR, repeat=5)):
            after = following(moved(begun(plan), START + 3 * HOUR + 1), START + 3 * HOUR + 1, from_then(START))
            assert after is not None
            assert after.due == START + 4 * HOUR

    def test_moved_twice_it_still_knows_its_place(self) -> None:
        schedule = moved(moved(begun(series("@hourly")), START + 5), START + 9)
        after = following(schedule, START + 9, from_then(START))
        assert after is not None
        assert (schedule.due, after.due, after.moved_from) == (START + 9, START + 2 * HOUR, None)


def test_occurrences_never_go_back_in_time() -> None:
    seen = run(begun(series("*/7 * * * *", period=13_000, repeat=50)), 200)
    assert all(earlier[1] <= later[1] for earlier, later in pairwise(seen))
