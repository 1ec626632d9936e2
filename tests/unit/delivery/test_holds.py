"""Which groups are held back, and when they are tried again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delaybridge.bridge.delivery.backoff import Backoff
from delaybridge.bridge.delivery.holds import NEVER, Holds


def _holds() -> Holds:
    return Holds(Backoff(first=1.0, cap=4.0))


class Growing(Backoff):
    """A second for each failed attempt, without jitter."""

    def __init__(self) -> None:
        super().__init__(first=1.0, cap=60.0)

    def seconds(self, attempt: int) -> float:
        return float(attempt)


def test_a_failure_holds_its_group_for_a_jittered_wait_and_nobody_else() -> None:
    holds = _holds()

    hold = holds.fail("a", "refused", now=1000)

    assert 1000 < hold.retry_at <= 1000 + 4000
    assert list(holds.targets) == ["a"]


def test_failures_of_what_was_already_on_the_wire_do_not_lengthen_the_wait() -> None:
    holds = _holds()
    first = holds.fail("a", "refused", now=1000)
    retry_at, attempts = first.retry_at, first.attempts

    again = holds.fail("a", "refused", now=1000)

    assert (again.retry_at, again.attempts) == (retry_at, attempts)


def test_waits_stay_under_the_cap_however_often_it_failed() -> None:
    backoff = Backoff(first=1.0, cap=4.0)

    waits = [backoff.seconds(attempt) for attempt in range(1, 200)]

    assert max(waits) <= 4.0
    assert min(waits) >= 0.0
    assert len(set(waits)) > 100


def test_waits_are_short_at_first_and_grow() -> None:
    backoff = Backoff(first=1.0, cap=60.0)

    assert max(backoff.seconds(1) for _ in range(100)) <= 1.0
    assert max(backoff.seconds(5) for _ in range(100)) > 1.0


def test_a_failing_group_is_probed_by_one_message_at_a_time() -> None:
    holds = _holds()
    hold = holds.fail("a", "refused", now=0)
    later = hold.retry_at

    assert [name for name, _ in holds.ready(later)] == ["a"]
    hold.in_flight = 1
    assert holds.ready(later) == []


def test_a_success_lets_the_rest_of_the_group_follow_at_once() -> None:
    holds = _holds()
    hold = holds.fail("a", "refused", now=0)
    hold.in_flight = 1

    holds.works("a", now=5)

    assert not hold.probing
    assert [name for name, _ in holds.ready(5)] == ["a"]


def test_a_paused_group_is_never_ready_until_it_is_resumed() -> None:
    holds = _holds()
    holds.pause("route")

    assert holds.ready(NEVER - 1) == []
    holds.works("route", now=1)
    assert holds.ready(NEVER - 1) == []
    holds.resume()
    assert [name for name, _ in holds.ready(1)] == ["route"]


def test_a_failing_group_that_is_paused_stays_paused() -> None:
    holds = _holds()
    holds.fail("route", "refused", now=0)

    holds.pause("route")

    assert holds.ready(NEVER - 1) == []


def test_the_next_retry_is_the_earliest_of_all_groups() -> None:
    holds = _holds()
    assert holds.next_retry() == NEVER

    first = holds.fail("a", "refused", now=0)
    second = holds.fail("b", "refused", now=100_000)

    assert holds.next_retry() == min(first.retry_at, second.retry_at)


DOINGS = ("fail", "works", "slow", "pause", "resume", "turn", "free", "set_back", "take_off", "land")


@given(st.lists(st.tuples(st.sampled_from(DOINGS), st.sampled_from("abc"), st.integers(0, 3000)), max_size=40))
def test_whatever_happens_ready_are_those_whose_time_has_come_and_there_is_no_waiting_in_vain(steps: list[tuple[str, str, int]]) -> None:
    holds, now = _holds(), 10_000
    for doing, address, later in steps:
        hold = holds.targets.get(address)
        if doing == "set_back":
            holds.set_back(later)
            now -= later
        else:
            now += later
            _do(holds, doing, address, now)
        if doing == "take_off" and hold is not None:
            hold.in_flight += 1
        elif doing == "land" and hold is not None and hold.in_flight:
            hold.in_flight -= 1
        ready = holds.ready(now)
        due = {name: hold for name, hold in holds.targets.items() if hold.retry_at <= now}
        assert dict(ready) == {name: hold for name, hold in due.items() if not (hold.probing and hold.in_flight)}
        assert holds.next_retry() <= min((hold.retry_at for hold in holds.targets.values() if not hold.in_flight), default=NEVER)
        assert any(not hold.in_flight for hold in due.values()) or holds.next_retry() > now


def _do(holds: Holds, doing: str, address: str, now: int) -> None:
    match doing:
        case "fail":
            holds.fail(address, "refused", now)
        case "works":
            holds.works(address, now)
        case "slow":
            holds.slow(address, now + 100)
        case "pause":
            holds.pause(address)
        case "resume":
            holds.resume()
        case "turn":
            holds.turn(address)
        case "free" if address in holds.targets:
            holds.free(address)


def test_what_is_ready_takes_turns() -> None:
    holds = _holds()
    for address in "abc":
        holds.restore(address, 0, "refused", now=0)

    assert [name for name, _ in holds.ready(0)] == ["a", "b", "c"]
    holds.turn("a")
    assert [name for name, _ in holds.ready(0)] == ["b", "c", "a"]


def test_each_failed_try_makes_the_next_wait_longer_and_a_success_begins_anew() -> None:
    holds = Holds(Growing())

    hold = holds.fail("a", "refused", now=0)
    assert hold.retry_at == 1000
    holds.fail("a", "refused", now=1000)
    assert hold.retry_at == 3000
    holds.works("a", now=3000)
    holds.fail("a", "refused", now=3000)
    assert hold.retry_at == 4000


def test_a_group_that_failed_before_a_restart_goes_on_with_its_long_waits() -> None:
    holds = Holds(Growing())
    holds.restore("a", 6, "refused", now=0)

    assert holds.fail("a", "refused", now=0).retry_at == 7000


def test_a_group_has_been_failing_since_the_first_failure_after_its_last_success() -> None:
    """From there on it is counted when the group is given up."""
    holds = Holds(Growing())
    holds.fail("a", "refused", now=0)
    holds.works("a", now=1000)

    hold = holds.fail("a", "refused", now=5000)
    assert hold.since == 5000
    holds.fail("a", "refused", now=6000)
    holds.fail("a", "refused", now=8000)
    assert hold.since == 5000


def test_the_last_error_of_a_group_is_the_one_that_is_told() -> None:
    holds = Holds(Growing())
    holds.fail("a", "no such queue", now=0)

    assert holds.fail("a", "no room", now=1000).error == "no room"


def test_what_falls_due_does_not_pass_a_slow_or_a_paused_group_before_its_time_nor_a_failing_one() -> None:
    holds = _holds()
    holds.slow("slow", until=1100)
    holds.pause("paused")
    holds.restore("failing", 1, "refused", now=0)

    assert [holds.targets["slow"].open(now) for now in (1099, 1100)] == [False, True]
    assert not holds.targets["paused"].open(NEVER - 1)
    assert not holds.targets["failing"].open(NEVER - 1)


def test_a_slow_group_did_not_fail_and_gets_more_than_one_message_at_a_time() -> None:
    holds = _holds()
    holds.slow("a", until=1100)
    holds.targets["a"].in_flight = 1

    assert [name for name, _ in holds.ready(1100)] == ["a"]


def test_a_resume_ends_the_pauses_that_there_are_and_none_that_comes_later() -> None:
    holds = _holds()
    holds.pause("a")
    holds.resume()
    holds.ready(1)

    holds.pause("b")

    assert [name for name, _ in holds.ready(2)] == ["a"]


def test_a_resume_does_not_hurry_what_failed() -> None:
    holds = Holds(Growing())
    holds.fail("a", "refused", now=0)

    holds.resume()

    assert [[name for name, _ in holds.ready(now)] for now in (999, 1000)] == [[], ["a"]]


def test_a_clock_that_is_set_back_ends_no_pause_and_leaves_the_resume_its_effect() -> None:
    holds = _holds()
    holds.pause("a")

    holds.set_back(500)

    assert holds.ready(NEVER - 1) == []
    holds.resume()
    assert [name for name, _ in holds.ready(1)] == ["a"]


def test_how_long_a_group_has_been_failing_stays_the_same_when_the_clock_is_set_back() -> None:
    """Else it would be given up later, or sooner, by as much."""
    holds = Holds(Growing())
    holds.fail("a", "refused", now=10_000)
    hold = holds.fail("a", "refused", now=12_000)

    holds.set_back(4000)

    assert (hold.since, hold.refused_for) == (6000, 2000)


def test_a_group_that_is_held_no_more_leaves_the_others_their_next_try() -> None:
    holds = _holds()
    holds.restore("a", 1, "refused", now=0)
    hold = holds.fail("b", "refused", now=0)

    holds.free("a")

    assert holds.next_retry() <= hold.retry_at
    assert [name for name, _ in holds.ready(hold.retry_at)] == ["b"]


def test_waits_between_refusals_count_as_refusing_however_long_they_are() -> None:
    class Long(Backoff):
        def seconds(self, attempt: int) -> float:  # noqa: ARG002 - as its own
            return 3600.0

    holds = Holds(Long(first=3600.0, cap=3600.0))
    holds.fail("a", "refused", now=1000)

    assert holds.fail("a", "refused", now=1000 + 3_600_000).refused_for == 3_600_000
