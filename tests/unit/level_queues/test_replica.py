"""What a bridge knows of the log of ids, and what it writes there."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from brokers.common import wait_until
from unit.level_queues.id_bridges import NEVER, Bridge
from unit.level_queues.id_lines import HOUR, T0

from delaybridge.adapters.base import BackOff
from delaybridge.adapters.clock import uptime
from delaybridge.adapters.id_log import Line
from delaybridge.adapters.levelled import Level
from delaybridge.adapters.memory import Memory, adapter
from delaybridge.bridge.level_queues.ids import replica as module
from delaybridge.bridge.level_queues.ids.lines import Claim
from delaybridge.bridge.level_queues.ids.register import Claiming
from delaybridge.bridge.level_queues.ids.replica import read_all
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delaybridge.adapters.id_log import IdLog
    from delaybridge.bridge.level_queues.ids.replica import Replica


def test_nothing_is_certain_for_a_bridge_that_has_not_looked_lately(open_log: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = Bridge(open_log()).start()
    claim = bridge.claim()
    bridge.knows(claim)
    bridge.stop()
    assert bridge.replica.certain(claim, NEVER)
    monkeypatch.setattr(module, "FRESH", -1.0)
    assert not bridge.replica.certain(claim, NEVER)


def test_after_a_machine_was_suspended_for_long_the_log_is_read_anew(
    open_log: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka may have dropped the line that says how something ended."""
    bridge = Bridge(open_log()).start()
    bridge.knows(bridge.claim())
    before = bridge.replica.ids

    monkeypatch.setattr(module, "uptime", lambda: uptime() + 2 * module.GONE_FOR)

    wait_until(lambda: bridge.replica.ids is not before and bridge.replica.size == 1, "it to be read anew")
    bridge.stop()


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


def test_endings_that_cannot_be_written_are_written_later(open_log: Callable[[], IdLog]) -> None:
    refusing = Refusing(open_log(), 0)
    bridge = Bridge(refusing).start()
    claim = bridge.claim()
    bridge.knows(claim)
    refusing.left = 2
    bridge.register.ended("a", claim, "delivered", T0)
    wait_until(lambda: bridge.replica.size == 0, "the ending to be written")
    assert refusing.left == 0
    bridge.stop()


def _look(replica: Replica) -> None:
    """Read up to the end, and no longer."""
    replica.look(lambda: replica.known[0] >= replica.known[1])


def test_over_a_new_connection_the_log_is_read_on_and_nothing_is_forgotten(open_log: Callable[[], IdLog]) -> None:
    bridge = Bridge(open_log())
    bridge.replica.connect()
    bridge.claim()
    _look(bridge.replica)
    bridge.replica.close()
    bridge.replica.connect()
    assert bridge.replica.size == 1


def test_whoever_waits_for_a_look_at_the_log_goes_on_with_it_also_where_nothing_new_stands_there(
    open_log: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, waiting = Bridge(open_log()).replica, threading.Event()
    replica.connect()
    wait_for = replica.changed.wait_for

    def waits(known: Callable[[], bool], patience: float) -> bool:
        waiting.set()
        return wait_for(known, patience)

    monkeypatch.setattr(replica.changed, "wait_for", waits)
    with ThreadPoolExecutor(1) as threads:
        sure = threads.submit(replica.be_sure)
        assert waiting.wait(10)
        _look(replica)
        sure.result(module.PATIENCE / 2)


def test_what_ended_last_is_written_before_a_bridge_stops(open_log: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its id would be taken for one under which a message waits, for weeks."""
    bridge = Bridge(open_log())
    bridge.replica.connect()
    claim, worker = bridge.claim(), bridge._reader._worker
    _look(bridge.replica)

    def ends_while_it_is_to_stop(_: object) -> None:
        bridge.register.ended("a", claim, "delivered", T0)
        worker.stopping.set()

    monkeypatch.setattr(bridge.replica, "look", ends_while_it_is_to_stop)
    worker.start()
    assert worker.join(10)
    assert read_all(open_log()).words("a") == []


def test_what_is_known_is_as_old_as_the_question_for_it_and_not_as_the_answer(
    open_log: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel that was written after the log had told its end is not among it."""
    now = 1_000.0
    monkeypatch.setattr(module, "uptime", lambda: now)
    shared = open_log()
    bridge = Bridge(shared)
    bridge.replica.connect()
    claim, end = bridge.claim(), shared.end
    _look(bridge.replica)
    assert bridge.replica.certain(claim, NEVER)

    def answered_late() -> int:
        nonlocal now
        found = end()
        now += 2 * module.FRESH
        return found

    monkeypatch.setattr(shared, "end", answered_late)
    _look(bridge.replica)
    assert not bridge.replica.certain(claim, NEVER)


def test_in_a_log_that_was_made_anew_claims_go_on(open_log: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shorter than what this bridge had written into the one before."""
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    bridge = Bridge(open_log())
    bridge.replica.connect()
    for _ in range(3):
        bridge.claim()
    _look(bridge.replica)
    bridge.replica._log = adapter.id_log(Memory(name=secrets.token_hex(4)), Level("levels.ids", 0, "ids"))
    bridge.replica.connect()
    _look(bridge.replica)
    assert bridge.replica.size == 0
    assert bridge.register.enter([Claiming("b", T0 + HOUR, b"12345678")], T0)[0] == [Claim(b"12345678", 0)]


def test_what_this_bridge_had_ended_in_a_log_that_was_made_anew_is_waited_for_no_longer(open_log: Callable[[], IdLog]) -> None:
    """Its ending was written there, and is never read: a copy that the broker gives again would stay here for ever."""
    bridge = Bridge(open_log())
    bridge.replica.connect()
    written, waits = bridge.claim("a"), bridge.claim("b")
    _look(bridge.replica)
    bridge.register.ended("a", written, "delivered", T0)
    bridge.replica.write()
    bridge.register.ended("b", waits, "delivered", T0)
    bridge.replica._log = adapter.id_log(Memory(name=secrets.token_hex(4)), Level("levels.ids", 0, "ids"))
    bridge.replica.connect()
    came = uptime()
    bridge.replica.look(lambda: True)
    assert bridge.replica.certain(written, came)
    assert not bridge.replica.certain(waits, came), "its ending has just been written"
    _look(bridge.replica)
    assert bridge.replica.certain(waits, came)


def test_in_a_log_that_was_made_anew_the_term_of_what_a_source_gave_begins_anew(
    open_log: Callable[[], IdLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place by which it was called says nothing there: no copy could be told from another."""
    holder = Mock(tenure=lambda: 1, affirm=lambda _: True)
    bridge = Bridge(open_log())
    monkeypatch.setattr(bridge.replica, "be_sure", lambda: _look(bridge.replica))
    bridge.replica.connect()
    for _ in range(3):
        bridge.claim()
    (before,), _ = bridge.register.enter([Claiming("a", T0 + HOUR, b"12345678")], T0, holder)
    assert before.term == 3
    bridge.replica._log = adapter.id_log(Memory(name=secrets.token_hex(4)), Level("levels.ids", 0, "ids"))
    bridge.replica.connect()
    assert bridge.register.enter([Claiming("b", T0 + HOUR, b"87654321")], T0, holder)[0] == [Claim(b"87654321", 1, term=0)]


def test_what_anybody_else_writes_into_the_log_is_passed_over(open_log: Callable[[], IdLog]) -> None:
    bridge = Bridge(open_log())
    bridge.replica.connect()
    open_log().append([Line(b"order-1234-xyz", b"hello")])
    bridge.claim()
    _look(bridge.replica)
    assert bridge.replica.size == 1
