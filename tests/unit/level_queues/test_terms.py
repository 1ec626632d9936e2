"""A bridge that stood still and claims what another one has taken in meanwhile: its claims come too late, and neither lose nor cancel anything."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest
from brokers.common import wait_until
from contract.stores import record
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.level_queues.id_bridges import Bridge
from unit.level_queues.id_lines import HOUR, T0, Log
from unit.level_queues.sharing import Sharing as Stepping

from delaybridge.adapters.base import NotConnected
from delaybridge.bridge.level_queues.envelope import unpack
from delaybridge.bridge.level_queues.ids.lines import Claim, cancelling, claiming
from delaybridge.bridge.level_queues.ids.register import Cancelling, Claiming
from delaybridge.bridge.level_queues.ids.replica import read_all
from delaybridge.core.store import Put, SourceProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from pathlib import Path

    from delaybridge.adapters.id_log import IdLog, Line
    from delaybridge.adapters.moves import Joined
    from delaybridge.core.message import Message


def test_of_two_claims_of_one_message_that_of_the_later_owner_counts_whichever_comes_first() -> None:
    log, mark = Log(), b"message1"
    former, present = log.term(), log.term()
    taken_in = log.under(present, mark)
    late = log.under(former, mark)

    for ids in (log.ids, log.compacted()):
        assert ids.fate("a", taken_in) is None
    assert log.ids.fate("a", late) == ("replaced", T0)
    log.end(taken_in)
    assert len(log.ids) == 0, "whoever has it ends it"


def test_what_its_source_gives_to_another_bridge_again_is_claimed_by_that_one() -> None:
    log, mark = Log(), b"message1"
    first = log.under(log.term(), mark)
    second = log.under(log.term(), mark, first.place)
    assert log.ids.fate("a", first) == ("replaced", T0)
    assert log.ids.fate("a", second) is None


def test_what_was_delivered_before_its_bridge_knew_of_a_copy_ends_the_copy() -> None:
    log, mark = Log(), b"message1"
    delivered = log.under(log.term(), mark)
    copy = log.under(log.term(), mark, delivered.place)
    log.end(delivered, "delivered", T0 + 1)
    for ids in (log.ids, log.compacted()):
        assert ids.fate("a", copy) == ("replaced", T0 + 1)


def test_a_claim_that_comes_too_late_does_not_count_either_where_it_is_the_last_line_that_the_broker_keeps() -> None:
    log, mark = Log(), b"message1"
    first, former, present = log.under(log.term(), mark), log.term(), log.term()
    taken_in = log.under(present, mark, first.place)
    late = log.under(former, mark, first.place)

    for ids in (log.ids, log.compacted()):
        assert ids.fate("a", taken_in) is None
        assert ids.fate("a", late) == ("replaced", T0)


def test_a_claim_that_comes_too_late_does_not_undo_a_cancel() -> None:
    """After the late claim the broker may drop the first one, which was before the cancel."""
    log, mark = Log(), b"message1"
    former, present = log.term(), log.term()
    taken_in = log.under(present, mark)
    log.cancel(now=T0 + 5)
    log.under(former, mark)
    for ids in (log.ids, log.compacted(tombstones=False)):
        assert ids.fate("a", taken_in) == ("cancelled", T0 + 5)


def test_a_claim_that_comes_too_late_replaces_nothing_that_was_sent_since() -> None:
    log, mark = Log(), b"message1"
    former, present = log.term(), log.term()
    log.under(present, mark)
    newer = log.claim()
    log.under(former, mark)
    for ids in (log.ids, log.compacted(tombstones=False)):
        assert ids.fate("a", newer) is None


@pytest.mark.parametrize("how", ["delivered", "replaced"])
def test_nor_does_one_whose_message_has_ended(how: str) -> None:
    log, mark = Log(), b"message1"
    taken_in = log.under(-1, mark)
    newer = log.claim(now=T0 + 1)
    log.end(taken_in, how, T0 + 2)
    late = log.under(-1, mark, now=T0 + 3)
    for ids in (log.ids, log.compacted(tombstones=False)):
        assert ids.fate("a", newer) is None
        assert ids.fate("a", late) is not None


def test_a_cancellation_that_comes_too_late_cancels_nothing_that_was_sent_since() -> None:
    log, mark = Log(), b"cancel 1"
    log.claim()
    log.append(cancelling("a", mark, T0, T0 + HOUR))
    newer = log.claim(now=T0 + 1)
    log.append(cancelling("a", mark, T0, T0 + HOUR))
    for ids in (log.ids, log.compacted(tombstones=False)):
        assert ids.fate("a", newer) is None


def test_a_term_of_a_log_that_stood_here_before_counts_for_nothing() -> None:
    """Its places go on beyond those of the log that was made anew: a bridge that has not noticed yet would outdo all others."""
    log, mark = Log(), b"message1"
    former = log.under(1_000, mark)
    present = log.under(log.term(), mark, former.place)
    assert log.ids.fate("a", present) is None


STEPS = st.lists(st.tuples(st.sampled_from(["take", "late", "cancel", "other", "compact"]), st.integers(0, 7)), max_size=20)


@settings(max_examples=400)
@given(STEPS)
def test_whatever_former_owners_write_late_what_was_taken_in_has_the_fate_that_came_to_it(steps: list[tuple[str, int]]) -> None:
    """One message, which one bridge after the other is given; each stands still, and writes what it wanted to write, or has written it in time."""
    log, mark = Log(), b"message1"
    owners: list[tuple[int, int]] = []  # term, and where the message stood first as far as that owner had read
    taken_in: Claim | None = None
    fate: tuple[str, int] | None = None
    first = -1
    for number, (step, choice) in enumerate(steps):
        now = T0 + number
        match step:
            case "take" if fate is None:
                owners.append((log.term(), first))
                taken_in = log.under(*owners[-1][:1], mark, first, now)
                first = taken_in.place if first < 0 else first
            case "late" if len(owners) > 1:
                term, known = owners[choice % (len(owners) - 1)]
                log.under(term, mark, known, now)
            case "cancel":
                log.cancel(now=now)
                fate = fate or (("cancelled", now) if taken_in else None)
            case "other":
                log.claim(now=now)
                fate = fate or (("replaced", now) if taken_in else None)
            case "compact":
                log.ids = log.compacted(tombstones=bool(choice % 2))
        for ids in (log.ids, log.compacted()):
            assert taken_in is None or ids.fate("a", taken_in) == fate


class Partition:
    """What a bridge reads, and whether it has it still, as it knows and as its broker says."""

    def __init__(self) -> None:
        self.generation = 1
        self.known: int | None = 1
        self.asked = 0

    def tenure(self) -> Hashable:
        if self.known is None:
            raise NotConnected("it has gone")
        return self.known

    def affirm(self, tenure: Hashable) -> bool:
        self.asked += 1
        if self.known is not None and self.known != self.generation:
            self.known = self.generation
            return False
        if tenure != self.generation:
            raise NotConnected("it has gone")
        return True


@pytest.fixture
def shared(open_log: Callable[[], IdLog]) -> IdLog:
    return open_log()


@pytest.fixture
def bridge(open_log: Callable[[], IdLog]) -> Iterator[Bridge]:
    made = Bridge(open_log()).start()
    yield made
    made.stop()


def taken(bridge: Bridge, mark: bytes, holder: Partition | None) -> Claim:
    (claim,), _ = bridge.register.enter([Claiming("a", T0 + HOUR, mark)], T0, holder)
    return claim


def test_a_term_is_as_long_as_the_tenure_in_which_messages_are_read(bridge: Bridge) -> None:
    partition = Partition()
    terms = [taken(bridge, mark, partition).term for mark in (b"message1", b"message2")]
    partition.generation = partition.known = 2
    terms.append(taken(bridge, b"message3", partition).term)
    terms.append(taken(bridge, b"message4", Partition()).term)
    assert -1 < terms[0] == terms[1] < terms[2] < terms[3]
    assert partition.asked == 2


def test_messages_that_nobody_gives_again_need_no_term(bridge: Bridge) -> None:
    partition = Partition()
    assert taken(bridge, b"", partition).term == -1
    assert partition.asked == 0


def test_a_generation_that_begins_meanwhile_is_asked_for_anew(bridge: Bridge) -> None:
    partition = Partition()
    partition.generation = 2
    assert taken(bridge, b"message1", partition).term >= 0
    assert (partition.known, partition.asked) == (2, 2)


def test_a_bridge_that_has_lost_what_it_read_claims_nothing(bridge: Bridge, shared: IdLog) -> None:
    partition = Partition()
    partition.known = None
    with pytest.raises(NotConnected, match="it has gone"):
        taken(bridge, b"message1", partition)
    assert read_all(shared).words("a") == []


class Slow:
    """A log whose next claim takes until it is let go."""

    def __init__(self, log: IdLog) -> None:
        self._log = log
        self.wanted = False
        self.go = False
        self.connect, self.read, self.end, self.close = log.connect, log.read, log.end, log.close

    def append(self, lines: Sequence[Line]) -> list[int]:
        if lines[0].key[:1] == b"m":
            self.wanted = True
            wait_until(lambda: self.go, "it to be let go")
        return self._log.append(lines)


def test_what_another_bridge_took_in_while_one_stood_still_is_not_lost(bridge: Bridge, shared: IdLog) -> None:
    """The one stands still when all is affirmed, at the last moment before its claim."""
    log = Slow(shared)
    former = Bridge(log).start()
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(taken, former, b"message1", Partition())
        wait_until(lambda: log.wanted, "its claim to be on its way")
        taken_in = taken(bridge, b"message1", Partition())
        log.go = True
        bridge.knows(late.result())
    former.stop()

    assert late.result().place > taken_in.place
    assert bridge.register.fate("a", taken_in) is None
    assert bridge.register.cancel("a", T0, 0.0).outcome == "done"
    bridge.knows(taken(bridge, b"another1", None))
    assert bridge.register.fate("a", taken_in) == ("cancelled", T0)


def test_what_a_bridge_loses_just_after_it_had_been_told_that_it_has_it_counts_for_whoever_gets_it(
    bridge: Bridge, shared: IdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, partition, taken_in = Bridge(shared).start(), Partition(), list[Claim]()
    affirm = partition.affirm

    def and_then_it_moves(tenure: Hashable) -> bool:
        affirmed = affirm(tenure)
        taken_in.append(taken(bridge, b"message1", Partition()))
        return affirmed

    monkeypatch.setattr(partition, "affirm", and_then_it_moves)
    late = taken(former, b"message1", partition)
    bridge.knows(late)
    former.stop()

    assert bridge.register.fate("a", taken_in[0]) is None
    assert bridge.register.fate("a", late) == ("replaced", T0)


def test_what_stands_is_said_again_by_who_was_there_and_by_nobody_who_reads_of_it_later(
    bridge: Bridge, shared: IdLog, open_log: Callable[[], IdLog]
) -> None:
    """It may have ended by then: the claim of what has ended would come back."""
    former = taken(bridge, b"another1", Partition()).term
    taken_in = taken(bridge, b"message1", Partition())
    (late,) = shared.append([claiming("a", b"message1", T0, T0 + HOUR, -1, former)])
    wait_until(lambda: shared.end() > late + 1, "what stands to be said again")
    end = shared.end()

    Bridge(open_log()).start().stop()

    assert shared.end() == end
    assert read_all(shared).fate("a", taken_in) is None


def test_a_copy_of_what_this_bridge_has_just_delivered_waits_until_the_log_says_so(bridge: Bridge) -> None:
    delivered, copy = (taken(bridge, b"message1", Partition()) for _ in range(2))
    bridge.knows(copy)
    bridge.stop()
    bridge.register.ended("a", delivered, "delivered", T0)
    assert not bridge.replica.certain(copy, float("inf"))

    bridge.replica.look(lambda: False)
    bridge.replica.look(lambda: False)

    assert bridge.replica.certain(copy, float("inf"))
    assert bridge.register.fate("a", copy) == ("replaced", T0)


def test_a_copy_goes_on_where_the_other_one_has_ended_for_its_sake(bridge: Bridge) -> None:
    former, copy = (taken(bridge, b"message1", Partition()) for _ in range(2))
    bridge.knows(copy)
    bridge.register.ended("a", former, "replaced", T0)
    assert bridge.replica.certain(copy, float("inf"))
    assert bridge.register.fate("a", copy) is None


class Door(Partition):
    """A route whose messages enter in the transaction that finishes them at their source."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[Message] = []

    def publish(self, messages: Sequence[tuple[str, Message]], entered: Callable[[], None]) -> None:
        self.entered += [message for _, message in messages]
        entered()


def test_what_enters_by_a_joined_route_bears_the_term_in_which_it_was_read(tmp_path: Path) -> None:
    door, progress = Door(), SourceProgress("exact", [b"token"])
    with contextlib.closing(Stepping(tmp_path / "store").start()) as store:
        store.doors.join("exact", cast("Joined", door))
        changes = [Put(record("a", T0 + HOUR, chosen_id="a"))]
        store.put(changes, T0, progress)
        door.known = None
        with pytest.raises(NotConnected, match="it has gone"):
            store.put(changes, T0, progress)
    (claim,) = (unpack(message).claim for message in door.entered)
    assert claim is not None
    assert -1 < claim.term < claim.place


def test_what_another_routes_source_has_lost_claims_nothing(tmp_path: Path) -> None:
    queue, changes = Partition(), [Put(record("a", T0 + HOUR, chosen_id="a"))]
    queue.known = None
    with contextlib.closing(Stepping(tmp_path / "store").start()) as store:
        store.doors.hold("exact", queue)
        with pytest.raises(NotConnected, match="it has gone"):
            store.put(changes, T0, SourceProgress("exact", [b"token"]))


def test_a_message_that_comes_again_without_a_term_is_the_last_all_the_same(bridge: Bridge) -> None:
    """As where its route was joined to the level queues before the bridge was started anew, with exactly_once: false."""
    before = taken(bridge, b"message1", Partition())
    now = taken(bridge, b"message1", None)
    again = taken(bridge, b"message1", None)
    bridge.knows(again)
    assert [bridge.register.fate("a", claim) for claim in (before, now, again)] == [("replaced", T0), ("replaced", T0), None]
    joined_again = taken(bridge, b"message1", Partition())
    bridge.knows(joined_again)
    assert bridge.register.fate("a", again) == ("replaced", T0)
    assert bridge.register.fate("a", joined_again) is None


def test_a_cancellation_of_a_former_owner_is_the_one_that_was_taken_in(bridge: Bridge, shared: IdLog) -> None:
    (first,), answers = bridge.register.enter(
        [Claiming("a", T0 + HOUR, b"message1"), Cancelling("a", T0 + HOUR, b"cancel 1")], T0, Partition()
    )
    second = taken(bridge, b"message2", None)
    shared.append([cancelling("a", b"cancel 1", T0, T0 + HOUR)])
    bridge.knows(taken(bridge, b"", None))
    assert [answer.outcome for answer in answers] == ["done"]
    assert bridge.register.fate("a", first) == ("cancelled", T0)
    assert bridge.register.fate("a", second) == ("replaced", T0)
