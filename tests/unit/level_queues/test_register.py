"""Bridges that share a log of ids: whichever of them is asked, the answer is true for all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from unit.level_queues.id_bridges import NEVER, Bridge
from unit.level_queues.id_lines import HOUR, T0

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.clock import uptime
from delaybridge.bridge.level_queues.ids import replica as module
from delaybridge.bridge.level_queues.ids.lines import ENDED, Claim
from delaybridge.bridge.level_queues.ids.register import MARGIN, Cancelling, Claiming
from delaybridge.bridge.level_queues.ids.replica import read_all
from delaybridge.core.store import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delaybridge.adapters.id_log import IdLog

OVER = ("over", T0)


@pytest.fixture
def bridges(open_log: Callable[[], IdLog]) -> Iterator[tuple[Bridge, Bridge]]:
    one, other = Bridge(open_log()).start(), Bridge(open_log()).start()
    yield one, other
    one.stop()
    other.stop()


def test_what_one_bridge_took_in_is_cancelled_through_the_other(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    claim = one.claim()
    assert other.cancel() == Answer("done")
    wait_until(lambda: one.register.fate("a", claim) == ("cancelled", T0), "the first to hear of it")
    wait_until(lambda: one.decided == {"a"}, "it to be told")
    assert one.cancel() == Answer("too_late", "cancelled", T0)


def test_a_later_message_with_the_id_replaces_the_first_wherever_it_was_taken_in(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    first, second = one.claim(), other.claim()
    for bridge in bridges:
        bridge.knows(second)
        assert bridge.register.fate("a", first) == ("replaced", T0)
        assert bridge.register.fate("a", second) is None


def test_an_id_that_nobody_bears_is_unknown_and_the_next_to_bear_it_is_free(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    assert one.cancel() == Answer("unknown")
    claim = other.claim()
    other.knows(claim)
    assert other.register.fate("a", claim) is None


def test_a_cancel_that_waits_ends_the_next_to_bear_the_id(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    assert one.register.enter([Cancelling("a", T0 + HOUR)], T0) == ([], [Answer("unknown")])
    first, second = other.claim(), one.claim("a")
    other.knows(second)
    assert other.register.fate("a", first) == ("cancelled", T0)
    assert other.register.fate("a", second) is None


def test_a_cancel_that_waits_is_kept_and_one_that_does_not_is_forgotten(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    one.register.enter([Cancelling("a", T0 + HOUR)], T0)
    assert one.cancel("b") == Answer("unknown")
    wait_until(lambda: one.replica.size == other.replica.size == 1, "the second to be forgotten")
    claim = other.claim("a")
    other.knows(claim)
    assert other.register.fate("a", claim) == ("cancelled", T0)


def test_claims_and_cancels_of_one_batch_are_taken_in_order(bridges: tuple[Bridge, Bridge]) -> None:
    one, _ = bridges
    (first, second), answers = one.register.enter([Claiming("a", T0 + HOUR), Cancelling("a", 0), Claiming("a", T0 + HOUR)], T0)
    assert answers == [Answer("done")]
    one.knows(second)
    assert one.register.fate("a", first) == ("cancelled", T0)
    assert one.register.fate("a", second) is None


@pytest.mark.parametrize("over", [False, True])
def test_a_cancellation_that_is_given_again_cancels_nothing_that_was_sent_behind_it(bridges: tuple[Bridge, Bridge], over: bool) -> None:
    """As where a bridge is killed in the middle of a batch: its source gives it again to this one or another."""
    one, other = bridges
    batch: list[Claiming | Cancelling]
    batch = [Claiming("a", T0 + HOUR, b"11111111"), Cancelling("a", T0 + HOUR, b"22222222"), Claiming("a", T0 + HOUR, b"33333333")]
    (old, _), _ = one.register.enter(batch, T0)
    if over:
        one.register.ended("a", old, "cancelled", T0)
        wait_until(lambda: other.register.fate("a", old) == OVER, "the other one to hear of it")

    (old, new), answers = other.register.enter(batch, T0)

    other.knows(new)
    assert answers == [Answer("done")]
    assert other.register.fate("a", new) is None
    assert (old == ENDED) if over else (other.register.fate("a", old) == ("cancelled", T0))


def test_whoever_had_stood_still_knows_that_another_one_has_ended_what_it_holds(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    cancelled, sent = one.claim("a"), one.claim("b")
    assert one.register.fate("a", cancelled) is None
    assert other.cancel("a") == Answer("done")
    other.register.ended("a", cancelled, "cancelled", T0)
    other.register.ended("b", sent, "delivered", T0)

    wait_until(lambda: one.register.fate("a", cancelled) == OVER, "it to hear of it")
    assert "a" in one.decided, "what it holds is looked for at once"
    one.knows(one.claim("c"))
    assert one.register.fate("b", sent) is None, "it may come again, as what was delivered may"


def test_whoever_had_stood_still_knows_it_also_where_the_id_was_used_again(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    old, new = one.claim(), one.claim()
    one.knows(new)
    other.register.ended("a", old, "replaced", T0)
    other.register.ended("a", new, "delivered", T0)
    wait_until(lambda: one.replica.size == 0, "it to hear of both")

    assert one.register.fate("a", old) == OVER
    assert one.register.fate("a", new) is None


@pytest.mark.parametrize("cancelled", [True, False])
def test_what_has_ended_and_is_given_again_after_its_id_was_used_again_has_ended(bridges: tuple[Bridge, Bridge], cancelled: bool) -> None:
    one, other = bridges
    batch: list[Claiming | Cancelling] = [Claiming("a", T0 + HOUR, b"11111111"), Claiming("a", T0 + HOUR, b"33333333")]
    if cancelled:
        batch.insert(1, Cancelling("a", T0 + HOUR, b"22222222"))
    (old, new), _ = one.register.enter(batch, T0)
    one.knows(new)
    one.register.ended("a", old, "cancelled" if cancelled else "replaced", T0)
    one.register.ended("a", new, "delivered", T0)
    wait_until(lambda: one.replica.size + other.replica.size == 0, "both to hear of it")

    assert other.register.enter(batch, T0)[0] == [ENDED, ENDED]


def test_of_two_cancellations_of_one_millisecond_the_first_is_done_and_the_message_is_cancelled(
    bridges: tuple[Bridge, Bridge], open_log: Callable[[], IdLog]
) -> None:
    one, other = bridges
    cancel = Cancelling("a", T0 + HOUR)
    (claim,), answers = one.register.enter([Claiming("a", T0 + HOUR), cancel, cancel], T0)
    assert answers == [Answer("done"), Answer("too_late", "cancelled", T0)]
    assert other.cancel() == Answer("too_late", "cancelled", T0)

    wait_until(lambda: len(read_all(open_log()).words("a")) == 2, "those that came too late to be withdrawn")
    other.knows(other.claim("z"))
    assert other.register.fate("a", claim) == ("cancelled", T0)


def test_what_a_source_gives_again_is_the_same_message(bridges: tuple[Bridge, Bridge]) -> None:
    """What was decided about it stands, and only its last copy is delivered."""
    one, other = bridges
    again = Claiming("a", T0 + HOUR, b"12345678")
    (first,), _ = one.register.enter([again], T0)
    (second,), _ = other.register.enter([again], T0)
    other.knows(second)
    assert other.register.fate("a", first) == ("replaced", T0)
    assert other.register.fate("a", second) is None

    assert one.cancel() == Answer("done")
    (third,), _ = other.register.enter([again], T0)
    other.knows(third)
    assert other.register.fate("a", third) == ("cancelled", T0)

    other.register.ended("a", third, "cancelled", T0)
    wait_until(lambda: one.replica.size == 0, "it to be forgotten")
    assert one.register.enter([again], T0) == ([ENDED], [])
    assert one.register.fate("a", first) == ("replaced", T0), "a copy that was still on its way"
    assert one.register.enter([Claiming("a", T0 + HOUR, b"another1")], T0)[0] != [ENDED]


def cancelled_meanwhile(bridges: tuple[Bridge, Bridge], name: str, then: Callable[[], None]) -> list[Answer]:
    """What two cancels are told, the first one at the other bridge, where this happens at the first bridge while they wait."""
    with ThreadPoolExecutor(2) as threads:
        told = []
        for bridge in reversed(bridges):
            bridges[0].decided.clear()
            told.append(threads.submit(bridge.cancel, name, 60.0))
            wait_until(lambda: name in bridges[0].decided, "the cancel to be in the log")
        then()
        return [answer.result() for answer in told]


def test_what_is_due_about_now_is_in_flight_until_the_log_says_what_came_first(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    one.claim("later", due=T0 + MARGIN)
    assert other.cancel("later") == Answer("done"), "every bridge hears of it in time"
    one.claim(due=T0 + MARGIN - 1)
    assert [other.cancel(), other.cancel()] == [Answer("in_flight")] * 2, "whether the first one came in time is not known yet, either"

    delivered, cancelled = one.claim("b", T0 + 5), one.claim("c", T0 + 5)
    told = cancelled_meanwhile(bridges, "b", lambda: one.register.ended("b", delivered, "delivered", T0 + 6))
    assert told == [Answer("too_late", "delivered", T0 + 6)] * 2
    told = cancelled_meanwhile(bridges, "c", lambda: one.register.ended("c", cancelled, "cancelled", T0 + 7))
    assert told == [Answer("done"), Answer("too_late", "cancelled", T0 + 7)]


def test_a_series_is_cancelled_for_certain_where_its_next_occurrence_is_due_late_enough(bridges: tuple[Bridge, Bridge]) -> None:
    one, _ = bridges
    claim = one.claim(due=T0)
    told = cancelled_meanwhile(bridges, "a", lambda: one.register.goes_on("a", claim, T0 + HOUR, T0))
    assert told == [Answer("done"), Answer("too_late", "cancelled", T0)]


def test_after_an_ending_nothing_is_left_and_a_cancel_is_told_of_it(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    claim = one.claim()
    other.cancel()
    one.knows(claim)
    one.register.ended("a", claim, "cancelled", T0 + 3)
    wait_until(lambda: one.replica.size + other.replica.size == 0, "both to have forgotten")
    assert other.cancel() == Answer("too_late", "cancelled", T0 + 3)
    wait_until(lambda: one.replica.size + other.replica.size == 0, "both to have forgotten")


def test_a_bridge_that_is_started_again_knows_all_of_it(open_log: Callable[[], IdLog], bridges: tuple[Bridge, Bridge]) -> None:
    one, _ = bridges
    cancelled, free = one.claim("a"), one.claim("b")
    one.cancel("a")
    late = Bridge(open_log()).start()
    late.knows(free)
    assert late.register.fate("a", cancelled) == ("cancelled", T0)
    assert late.register.fate("b", free) is None
    late.stop()


def test_an_ending_of_long_ago_does_not_keep_a_cancel_from_waiting(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    first = one.claim()
    one.knows(first)
    one.register.ended("a", first, "delivered", T0 - 2 * 24 * HOUR)
    wait_until(lambda: one.replica.size == 0, "it to be forgotten")
    assert one.register.enter([Cancelling("a", T0 + HOUR)], T0) == ([], [Answer("unknown")])
    second = other.claim()
    other.knows(second)
    assert other.register.fate("a", second) == ("cancelled", T0)


def test_a_bridge_that_does_not_read_answers_no_cancel(open_log: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    bridge = Bridge(open_log())
    with pytest.raises(NotConnected, match="has not read the log of ids"):
        bridge.cancel()


def test_a_claim_of_which_a_log_that_was_made_anew_knows_nothing_keeps_nobody_waiting(bridges: tuple[Bridge, Bridge]) -> None:
    one, _ = bridges
    claim = Claim(b"12345678", 1_000)
    assert not one.replica.certain(claim, NEVER)
    came = uptime()
    wait_until(lambda: one.replica.certain(claim, came), "a look at the log")
    assert one.register.fate("a", claim) is None


def test_where_each_message_has_an_id_of_its_own_nobody_is_called_upon_to_decide(bridges: tuple[Bridge, Bridge]) -> None:
    """A decision is looked for among all that waits."""
    one, other = bridges
    claims = {name: one.claim(name) for name in ("a", "b")}
    for name, claim in claims.items():
        other.knows(claim)
        one.register.ended(name, claim, "delivered", T0)
    wait_until(lambda: one.replica.size == other.replica.size == 0, "the endings")
    assert one.decided == other.decided == set()
    assert not one.replica._own_endings, "nor is anything kept of them"
