"""What the in-process broker does beyond the contract of all adapters (tests/contract/test_adapter.py)."""

from __future__ import annotations

import secrets

from delaybridge.adapters.base import BackOff, Outcome, Outgoing
from delaybridge.adapters.memory import Endpoint, Memory, adapter
from delaybridge.core.message import message


def outcomes(options: Memory, *addresses: str) -> list[Outcome]:
    heard: list[Outcome] = []
    sink = adapter.sink(options)
    sink.connect(heard.extend)
    sink.publish([Outgoing(str(number).encode(), address, message(b"")) for number, address in enumerate(addresses)])
    return heard


def reason(outcome: Outcome) -> str | None:
    error = outcome[1]
    assert error is None or isinstance(error, BackOff)
    return error.reason if error else None


def test_a_full_queue_takes_no_more_and_another_one_still_does() -> None:
    options = Memory(name=secrets.token_hex(4), capacity=1)
    assert [reason(outcome) for outcome in outcomes(options, "a", "a", "b")] == [None, "refused_by_broker", None]


def test_a_full_queue_takes_again_when_something_was_taken() -> None:
    options = Memory(name=secrets.token_hex(4), capacity=1)
    outcomes(options, "a")
    source = adapter.source(options, Endpoint(queue="a"))
    source.connect()
    assert source.receive(1, 0) is not None
    assert [reason(outcome) for outcome in outcomes(options, "a")] == [None]


def test_what_was_not_acknowledged_of_a_batch_comes_again_and_nothing_else() -> None:
    options = Memory(name=secrets.token_hex(4))
    outcomes(options, *["a"] * 5)
    source = adapter.source(options, Endpoint(queue="a"))
    source.connect()
    first, second = source.receive(3, 0), source.receive(2, 0)
    assert first is not None
    assert first.ack_some is not None
    assert second is not None
    assert second.ack_some is not None
    first.ack_some([1])
    second.ack_some([0])
    second.ack()
    source.connect()
    first.ack_some([0])  # too late, and no harm
    again = source.receive(5, 0)
    assert again is not None
    assert [each.token for each in again.messages] == [first.messages[place].token for place in (0, 2)]


def test_a_missing_queue_is_created_unless_the_options_forbid_it() -> None:
    name = secrets.token_hex(4)
    assert [reason(outcome) for outcome in outcomes(Memory(name=name, create_queues=False), "a")] == ["unroutable"]
    assert [reason(outcome) for outcome in outcomes(Memory(name=name), "a")] == [None]
    assert [reason(outcome) for outcome in outcomes(Memory(name=name, create_queues=False), "a")] == [None]


def test_brokers_of_different_names_share_nothing() -> None:
    first, second = Memory(name=secrets.token_hex(4)), Memory(name=secrets.token_hex(4))
    outcomes(first, "a")
    source = adapter.source(second, Endpoint(queue="a"))
    source.connect()
    assert source.receive(1, 0) is None


def test_a_tap_that_was_closed_collects_nothing_more() -> None:
    options = Memory(name=secrets.token_hex(4))
    tap = adapter.tap(options, "a")
    tap.connect()
    tap.close()
    outcomes(options, "a")
    tap.connect()
    assert tap.receive(1, 0) is None
