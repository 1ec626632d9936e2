"""What the log of ids says of cancels and replacements, whoever reads it, and whatever the broker has dropped of it by then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.level_queues.id_lines import DAY, HOUR, T0, Log

from delaybridge.adapters.id_log import Line
from delaybridge.bridge.level_queues.ids import endings
from delaybridge.bridge.level_queues.ids.endings import REMEMBERED
from delaybridge.bridge.level_queues.ids.lines import Claim, cancelling, claiming, going_on, over, readable, spent

if TYPE_CHECKING:
    from delaybridge.bridge.level_queues.ids.known import Fate


@pytest.mark.parametrize(
    "line",
    [
        Line(b"order-1234-xyz", b"hello"),
        Line(b"m12345678a", b"hello"),
        Line(b"m123", None),
        Line(b"m12345678\xff", None),
        Line(b"x12345678a", None),
        Line(b"", None),
        Line(b"m12345678a", None, b"delivered yesterday"),
        Line(b"f12345678a", b"\x92\x01\x07"),
        Line(b"m12345678a", b"\x95\x01\x02\x03\x04" + b"\x91" * 100_000 + b"\x90"),
    ],
    ids=lambda line: repr(line)[:60],
)
def test_what_anybody_else_writes_into_the_log_cannot_be_read(line: Line) -> None:
    assert not readable(line)


def test_all_that_a_bridge_writes_can_be_read() -> None:
    log = Log()
    for name in ("a", "\u20ac"):
        claim = log.claim(name)
        log.cancel(name)
        log.again(claim, name)
        log.append(going_on(name, claim.mark, T0, T0 + DAY))
    log.end(log.claim("a"))

    assert all(readable(line) for _, line in log.lines)
    assert any(line.note for _, line in log.lines)


def test_a_message_alone_with_its_id_may_be_delivered_and_costs_nothing_once_it_is() -> None:
    log = Log()
    claim = log.claim()
    assert log.ids.fate("a", claim) is None
    log.end(claim)
    assert len(log.ids) == 0
    ended = log.ids.ended("a")
    assert ended is not None
    assert (ended.event, ended.at, ended.claim) == ("delivered", T0, claim)


def test_a_cancel_ends_what_bore_the_id_before_it_and_nothing_that_comes_later() -> None:
    log = Log()
    before = log.claim()
    log.cancel(now=T0 + 5)
    after = log.claim()
    assert log.ids.fate("a", before) == ("cancelled", T0 + 5)
    assert log.ids.fate("a", after) is None
    log.end(before, "cancelled")
    assert log.ids.fate("a", after) is None


def test_a_later_message_replaces_the_earlier_also_after_it_has_gone() -> None:
    log = Log()
    first, second = log.claim(), log.claim(now=T0 + 7)
    assert log.ids.fate("a", first) == ("replaced", T0 + 7)
    assert log.ids.fate("a", second) is None
    log.end(second)
    assert log.ids.fate("a", first) == ("replaced", T0 + 7)
    assert log.compacted(tombstones=False).fate("a", first) == ("replaced", T0 + 7)


def test_a_cancel_that_overtakes_its_message_waits_for_it_once_and_not_for_ever() -> None:
    log = Log()
    log.cancel(until=T0 + HOUR)
    first, second = log.claim(now=T0 + 1), log.claim(now=T0 + 2)
    assert log.ids.fate("a", first) == ("cancelled", T0 + 1)
    assert log.ids.fate("a", second) is None
    log.end(first, "cancelled")
    assert log.compacted(tombstones=False).fate("a", second) is None

    late = Log()
    late.cancel(until=T0 + HOUR)
    assert late.ids.fate("a", late.claim(now=T0 + HOUR + 1)) is None


def test_a_message_that_is_taken_in_again_while_it_ends_has_ended() -> None:
    """Who takes it in has not read yet that it ended: the copy claims after that, and finds neither the first claim nor the cancel."""
    log = Log()
    claim = log.claim()
    log.cancel()
    log.end(claim, "cancelled", T0 + 5)
    copy = log.again(claim)
    assert log.ids.fate("a", copy) == ("replaced", T0 + 5)
    log.end(log.claim())
    for ids in (log.ids, log.compacted(tombstones=False)):
        assert ids.fate("a", copy) == ("replaced", T0 + 5)
    log.end(copy, "replaced")
    assert len(log.ids) == 0


def test_a_copy_of_what_has_ended_has_its_fate_as_soon_as_its_claim_is_read() -> None:
    """Not only once the line that says so has come back from the broker: it could be delivered meanwhile."""
    log = Log()
    claim = log.claim()
    log.end(claim, "cancelled", T0 + 5)

    log.ids.apply(100, claiming("a", claim.mark, T0 + 6, T0 + HOUR))

    assert log.ids.fate("a", Claim(claim.mark, 100)) == ("replaced", T0 + 5)


def test_a_cancel_is_for_the_message_that_waits_and_not_for_a_copy_of_what_has_ended() -> None:
    log = Log()
    ended = log.claim()
    log.end(ended, "cancelled", T0 + 5)
    waits = log.claim()
    log.ids.apply(100, claiming("a", ended.mark, T0 + 6, T0 + HOUR))

    target, fate = log.ids.target("a", 101)

    assert target is not None
    assert (target.mark, fate) == (waits.mark, None)


def test_a_message_that_was_taken_in_again_before_its_end_was_written_has_ended() -> None:
    """Who ends it has not read yet that it was taken in again: its end takes the claim of the copy away, too."""
    log = Log()
    claim = log.claim()
    log.cancel()
    end = log.ids.ending("a", claim, "cancelled", T0 + 5)
    copy = log.again(claim)
    log.append(*end)
    for ids in (log.ids, log.compacted()):
        assert ids.fate("a", copy) == ("replaced", T0 + 5)


def test_a_cancel_that_was_taken_in_again_before_its_end_was_written_cancels_nothing_that_was_sent_behind_it() -> None:
    log = Log()
    first = log.claim()
    mark = log.mark()
    place = log.append(cancelling("a", mark, T0, T0 + DAY))
    second = log.claim()
    log.end(first, "cancelled")

    log.append(cancelling("a", mark, T0, T0 + DAY, place))

    assert log.ids.fate("a", second) is None
    assert log.compacted().fate("a", second) is None


def test_a_cancel_that_comes_while_its_message_ends_is_not_for_the_next_one() -> None:
    """Who ends the message has not read the cancel yet."""
    log = Log()
    end = log.ids.ending("a", log.claim(), "delivered", T0)
    waiting = log.cancel(until=T0 + DAY)

    assert [more for line in end for more in log.ids.apply(100, line)] == [spent("a", waiting)]
    assert log.ids.fate("a", log.claim()) is None


def test_what_replaced_another_message_has_not_ended_with_it() -> None:
    log = Log()
    first, second = log.claim(), log.claim()
    log.end(first, "replaced")
    assert log.ids.has_ended("a", first.mark)
    assert not log.ids.has_ended("a", second.mark)


def test_what_has_left_these_level_queues_may_come_back() -> None:
    log = Log()
    claim = log.claim()
    log.append(over("a", claim.mark, ""))
    assert not log.ids.has_ended("a", claim.mark)


def test_a_cancel_of_another_id_with_the_same_mark_is_another_one() -> None:
    """A broker that does not tell topics apart gives the same places to those of a topic that was made anew."""
    log = Log()
    mark = log.cancel(now=T0)
    log.append(spent("a", mark))
    assert log.ids.has_ended("a", mark)
    assert not log.ids.has_ended("b", mark)


def test_ids_do_not_touch_each_other() -> None:
    log = Log()
    one, other = log.claim("a"), log.claim("b")
    log.cancel("b")
    assert log.ids.fate("a", one) is None
    assert log.ids.fate("b", other) == ("cancelled", T0)


def test_of_a_message_that_the_log_does_not_know_nothing_is_said() -> None:
    log = Log()
    log.claim()
    log.cancel()
    assert log.ids.fate("a", Claim(b"12345678", 77)) is None


def test_a_series_is_ended_by_a_cancel_whatever_its_next_occurrence_says() -> None:
    log = Log()
    claim = log.claim()
    log.cancel()
    log.append(going_on("a", claim.mark, T0 + 1, T0 + DAY))
    assert log.ids.fate("a", claim) == ("cancelled", T0)
    assert log.ids.words("a")[0].until == T0 + DAY


def test_what_no_level_can_hold_any_more_is_outdated() -> None:
    log = Log()
    claim, waiting = log.claim(due=T0 + HOUR), log.cancel("b", until=T0 + HOUR)
    assert list(log.ids.outdated(T0 + HOUR, DAY)) == []
    assert list(log.ids.outdated(T0 + HOUR + 1, DAY)) == [spent("b", waiting)]
    log.append(*log.ids.outdated(T0 + HOUR + DAY + 1, DAY))
    assert len(log.ids) == 0
    assert log.ids.fate("a", claim) is None


def test_a_cancel_is_not_outdated_while_its_message_waits_however_long_that_is() -> None:
    """A bridge that reads the log later would deliver the message."""
    log = Log()
    claim, _ = log.claim(due=T0 + 9 * DAY), log.cancel(now=T0, until=T0 + HOUR)
    assert list(log.ids.outdated(T0 + 8 * DAY, DAY)) == []
    assert log.compacted().fate("a", claim) == ("cancelled", T0)


def test_what_is_said_of_a_message_after_its_end_is_done_with_at_once() -> None:
    log = Log()
    first, second = log.claim(), log.claim()
    late = log.ids.ending("a", second, "delivered", T0)
    log.end(first, "replaced")
    assert [log.ids.apply(100 + number, line) for number, line in enumerate(late)] == [[Line(late[0].key, None)], []]
    assert len(log.ids) == 0


def test_what_ended_last_is_remembered_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "REMEMBERED", 2)
    log = Log()
    for name in ("again", "once", "again", "latest"):
        log.append(*log.ids.ending(name, log.claim(name), "delivered", T0))
    assert log.ids.ended("again") is not None
    assert log.ids.ended("once") is None


def test_a_bounded_number_of_endings_is_remembered() -> None:
    log = Log()
    for number in range(REMEMBERED + 5):
        log.append(*log.ids.ending(str(number), Claim(b"12345678", 0), "delivered", T0))
    assert log.ids.ended("4") is None
    assert log.ids.ended("5") is not None


def test_what_was_not_delivered_is_not_forgotten_for_many_deliveries() -> None:
    log = Log()
    claim = log.claim()
    log.end(claim, "cancelled")
    for number in range(REMEMBERED):
        log.append(*log.ids.ending(str(number), Claim(b"12345678", 0), "delivered", T0))
    assert log.ids.ended("a") is None
    assert log.ids.fate("a", claim) == ("over", T0)


@dataclass
class Message:
    claim: Claim
    fate: Fate | None = None


@dataclass
class Model:
    """The same as one who has seen everything in order would tell it."""

    waiting: list[Message] = field(default_factory=list)
    early: int = 0

    def claim(self, claim: Claim, now: int) -> None:
        for message in self.waiting:
            message.fate = message.fate or ("replaced", now)
        self.waiting.append(Message(claim, ("cancelled", now) if self.early >= now else None))
        self.early = 0

    def cancel(self, now: int, until: int) -> None:
        if not self.waiting:
            self.early = max(self.early, until)
        for message in self.waiting:
            message.fate = message.fate or ("cancelled", now)


class Both:
    """The log and the model, step by step."""

    def __init__(self) -> None:
        self.log, self.model = Log(), Model()

    def take(self, step: str, now: int, chosen: Message | None, choice: int) -> None:
        log, model = self.log, self.model
        match step:
            case "claim":
                model.claim(log.claim(now=now), now)
            case "cancel" if model.waiting:
                log.cancel(now=now)
                model.cancel(now, 0)
            case "withdraw":
                log.cancel(now=now, until=now + 5)
                model.cancel(now, now + 5)
            case "compact":
                log.ids = log.compacted(tombstones=bool(choice % 2))
            case "go on" if chosen is not None:
                log.append(going_on("a", chosen.claim.mark, now, now + HOUR))
            case "end" if chosen is not None:
                log.end(chosen.claim, chosen.fate[0] if chosen.fate else "delivered", now)
                model.waiting.remove(chosen)


STEPS = st.lists(st.tuples(st.sampled_from(["claim", "cancel", "withdraw", "end", "compact", "go on"]), st.integers(0, 7)), max_size=30)


@settings(max_examples=600)
@given(STEPS)
def test_whatever_the_broker_drops_every_reader_says_the_same(steps: list[tuple[str, int]]) -> None:
    """Messages end in any order; each claims, is cancelled and replaced meanwhile."""
    both = Both()
    for number, (step, choice) in enumerate(steps):
        waiting = both.model.waiting
        both.take(step, T0 + number, waiting[choice % len(waiting)] if waiting else None, choice)
        for ids in (both.log.ids, both.log.compacted()):
            assert [ids.fate("a", message.claim) for message in waiting] == [message.fate for message in waiting]
    for message in both.model.waiting:
        both.log.end(message.claim)
    assert all(word.cancel for word in both.log.ids.words("a")), "nothing is left of messages that have ended"
