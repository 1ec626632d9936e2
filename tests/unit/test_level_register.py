"""Bridges that share a log of ids: whichever of them is asked, the answer is true for all."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until
from contract.level_queues import declared

from delaybridge.adapters.base import BackOff, NotConnected
from delaybridge.adapters.id_log import Line
from delaybridge.adapters.levelled import Level
from delaybridge.adapters.memory import Memory, adapter
from delaybridge.bridge.level_queues import register as module
from delaybridge.bridge.level_queues.lines import ENDED, Claim
from delaybridge.bridge.level_queues.register import MARGIN, Cancelling, Claiming, Register, read_all
from delaybridge.bridge.level_queues.register_worker import RegisterWorker
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.reasons import Reason
from delaybridge.core.store import Answer
from delaybridge.core.uptime import uptime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delaybridge.adapters.id_log import IdLog

T0 = 1_763_700_000_000
HOUR = 3_600_000
NEVER = float("inf")
OVER = ("over", T0)


class Bridge:
    """A register with its thread, at T0 for ever."""

    def __init__(self, log: IdLog) -> None:
        self.decided: set[str] = set()
        self.died: list[BaseException] = []
        self.register = Register(log, lambda: T0, self.decided.update, lambda: None, 24 * HOUR)
        self._worker = RegisterWorker(
            self.register, "memory", Metrics("test"), lambda _, error: self.died.append(error), declared(), lambda: None
        )

    def start(self) -> Bridge:
        self._worker.start()
        wait_until(lambda: self._worker.caught_up, "the log to be read")
        return self

    def stop(self) -> None:
        self._worker.stop()
        assert self._worker.join(10)
        assert self.died == []

    def claim(self, name: str = "a", due: int = T0 + HOUR) -> Claim:
        (claim,), _ = self.register.enter([Claiming(name, due)], T0)
        return claim

    def cancel(self, name: str = "a", patience: float = 0.0) -> Answer:
        return self.register.cancel(name, T0, patience)

    def knows(self, claim: Claim) -> None:
        wait_until(lambda: self.register.certain(claim, NEVER), "the bridge to know of it")


@pytest.fixture
def shared() -> Callable[[], IdLog]:
    name = secrets.token_hex(4)
    return lambda: adapter.id_log(Memory(name=name), Level("levels.ids", 0, "ids"))


@pytest.fixture
def bridges(shared: Callable[[], IdLog]) -> Iterator[tuple[Bridge, Bridge]]:
    one, other = Bridge(shared()).start(), Bridge(shared()).start()
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
    wait_until(lambda: one.register.size == 0, "it to hear of both")

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
    wait_until(lambda: one.register.size + other.register.size == 0, "both to hear of it")

    assert other.register.enter(batch, T0)[0] == [ENDED, ENDED]


def test_of_two_cancellations_of_one_millisecond_the_first_is_done_and_the_message_is_cancelled(
    bridges: tuple[Bridge, Bridge], shared: Callable[[], IdLog]
) -> None:
    one, other = bridges
    cancel = Cancelling("a", T0 + HOUR)
    (claim,), answers = one.register.enter([Claiming("a", T0 + HOUR), cancel, cancel], T0)
    assert answers == [Answer("done"), Answer("too_late", "cancelled", T0)]
    assert other.cancel() == Answer("too_late", "cancelled", T0)

    wait_until(lambda: len(read_all(shared()).words("a")) == 2, "those that came too late to be withdrawn")
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
    wait_until(lambda: one.register.size == 0, "it to be forgotten")
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
    wait_until(lambda: one.register.size + other.register.size == 0, "both to have forgotten")
    assert other.cancel() == Answer("too_late", "cancelled", T0 + 3)
    wait_until(lambda: one.register.size + other.register.size == 0, "both to have forgotten")


def test_a_bridge_that_is_started_again_knows_all_of_it(shared: Callable[[], IdLog], bridges: tuple[Bridge, Bridge]) -> None:
    one, _ = bridges
    cancelled, free = one.claim("a"), one.claim("b")
    one.cancel("a")
    late = Bridge(shared()).start()
    late.knows(free)
    assert late.register.fate("a", cancelled) == ("cancelled", T0)
    assert late.register.fate("b", free) is None
    late.stop()


def test_nothing_is_certain_for_a_bridge_that_has_not_looked_lately(shared: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = Bridge(shared()).start()
    claim = bridge.claim()
    bridge.knows(claim)
    bridge.stop()
    assert bridge.register.certain(claim, NEVER)
    monkeypatch.setattr(module, "FRESH", -1.0)
    assert not bridge.register.certain(claim, NEVER)


def test_after_a_machine_was_suspended_for_long_the_log_is_read_anew(shared: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka may have dropped the line that says how something ended."""
    bridge = Bridge(shared()).start()
    bridge.knows(bridge.claim())
    before = bridge.register._ids

    monkeypatch.setattr(module, "uptime", lambda: uptime() + 2 * module.GONE_FOR)

    wait_until(lambda: bridge.register._ids is not before and bridge.register.size == 1, "it to be read anew")
    bridge.stop()


def test_a_claim_of_which_a_log_that_was_made_anew_knows_nothing_keeps_nobody_waiting(bridges: tuple[Bridge, Bridge]) -> None:
    one, _ = bridges
    claim = Claim(b"12345678", 1_000)
    assert not one.register.certain(claim, NEVER)
    came = uptime()
    wait_until(lambda: one.register.certain(claim, came), "a look at the log")
    assert one.register.fate("a", claim) is None


def test_an_ending_of_long_ago_does_not_keep_a_cancel_from_waiting(bridges: tuple[Bridge, Bridge]) -> None:
    one, other = bridges
    first = one.claim()
    one.knows(first)
    one.register.ended("a", first, "delivered", T0 - 2 * 24 * HOUR)
    wait_until(lambda: one.register.size == 0, "it to be forgotten")
    assert one.register.enter([Cancelling("a", T0 + HOUR)], T0) == ([], [Answer("unknown")])
    second = other.claim()
    other.knows(second)
    assert other.register.fate("a", second) == ("cancelled", T0)


def test_a_bridge_that_does_not_read_answers_no_cancel(shared: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    bridge = Bridge(shared())
    with pytest.raises(NotConnected, match="has not read the log of ids"):
        bridge.cancel()


class Refusing:
    """A log that takes nothing the first few times."""

    def __init__(self, log: IdLog, times: int) -> None:
        self._log, self.left = log, times
        self.connect, self.read, self.end, self.close = log.connect, log.read, log.end, log.close

    def append(self, lines: Sequence[Line]) -> list[int]:
        if self.left:
            self.left -= 1
            raise BackOff(Reason.REFUSED_BY_BROKER, "too few replicas")
        return self._log.append(lines)


def test_endings_that_cannot_be_written_are_written_later(shared: Callable[[], IdLog]) -> None:
    refusing = Refusing(shared(), 0)
    bridge = Bridge(refusing).start()
    claim = bridge.claim()
    bridge.knows(claim)
    refusing.left = 2
    bridge.register.ended("a", claim, "delivered", T0)
    wait_until(lambda: bridge.register.size == 0, "the ending to be written")
    assert refusing.left == 0
    bridge.stop()


def _look(register: Register) -> None:
    """Read up to the end, and no longer."""
    register.look(lambda: register.known[0] >= register.known[1])


def test_over_a_new_connection_the_log_is_read_on_and_nothing_is_forgotten(shared: Callable[[], IdLog]) -> None:
    bridge = Bridge(shared())
    bridge.register.connect()
    bridge.claim()
    _look(bridge.register)
    bridge.register.close()
    bridge.register.connect()
    assert bridge.register.size == 1


def test_in_a_log_that_was_made_anew_claims_go_on(shared: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shorter than what this bridge had written into the one before."""
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    bridge = Bridge(shared())
    bridge.register.connect()
    for _ in range(3):
        bridge.claim()
    _look(bridge.register)
    bridge.register._log = adapter.id_log(Memory(name=secrets.token_hex(4)), Level("levels.ids", 0, "ids"))
    bridge.register.connect()
    _look(bridge.register)
    assert bridge.register.size == 0
    assert bridge.register.enter([Claiming("b", T0 + HOUR, b"12345678")], T0)[0] == [Claim(b"12345678", 0)]


def test_what_anybody_else_writes_into_the_log_is_passed_over(shared: Callable[[], IdLog]) -> None:
    bridge = Bridge(shared())
    bridge.register.connect()
    shared().append([Line(b"order-1234-xyz", b"hello")])
    bridge.claim()
    _look(bridge.register)
    assert bridge.register.size == 1


def test_where_each_message_has_an_id_of_its_own_nobody_is_called_upon_to_decide(bridges: tuple[Bridge, Bridge]) -> None:
    """A decision is looked for among all that waits."""
    one, other = bridges
    claims = {name: one.claim(name) for name in ("a", "b")}
    for name, claim in claims.items():
        other.knows(claim)
        one.register.ended(name, claim, "delivered", T0)
    wait_until(lambda: one.register.size == other.register.size == 0, "the endings")
    assert one.decided == other.decided == set()
    assert not one.register._own_endings, "nor is anything kept of them"
