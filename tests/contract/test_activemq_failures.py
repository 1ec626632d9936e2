"""What ActiveMQ refuses, holds back or breaks, and which messages hear of it."""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from brokers import activemq as brokers
from brokers.common import free_port, wait_until

from contract.activemq_stage import STRICT, Stage, drained, named, native, out
from contract.outcomes import word
from contract.proxy import Proxy
from contract.taking import batches, tag_of, taken, until_lost
from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.activemq import sink as sinks
from delaybridge.adapters.activemq.statistics import Statistics
from delaybridge.adapters.base import LoginRefused, NotConnected
from delaybridge.core.message import Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaybridge.adapters.activemq.sink import ActiveSink
    from delaybridge.adapters.activemq.source import ActiveSource


@pytest.fixture
def stage(activemq: brokers.Broker) -> Iterator[Stage]:
    one = Stage(activemq)
    yield one
    one.close()


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[brokers.Native]:
    """A private broker with users, rights, and queues that are soon full."""
    yield from native(xml=STRICT)


@pytest.fixture
def strict(strict_broker: brokers.Native) -> Iterator[Stage]:
    one = Stage(strict_broker)
    yield one
    one.close()


# --- destinations that do not take messages ---


def test_a_forbidden_queue_is_refused_and_its_neighbours_are_delivered(strict: Stage) -> None:
    closed = named("closed")
    sink = strict.sink()
    for start in range(0, 300, 100):
        sink.publish([out(str(n), closed if n % 3 == 0 else strict.queue, str(n).encode()) for n in range(start, start + 100)])
    assert strict.words(300) == {str(n): "refused_by_broker" if n % 3 == 0 else "confirmed" for n in range(300)}
    assert "not authorized" in str(dict(strict.outcomes)[b"0"])
    source = strict.source()
    source.connect()
    assert drained(source, 200) == [n for n in range(300) if n % 3]


def test_a_refusal_in_a_transaction_condemns_its_message_only_doubles_none_and_leaves_nothing_in_the_brokers_memory(strict: Stage) -> None:
    """A destination that was open closes: the sink trusts it, and ActiveMQ lets the whole transaction fail, and counts it until the connection ends."""
    closed = named("closed")
    sink = strict.sink()
    sink.publish([out("first", strict.queue, b"-1")])
    strict.words(1)
    sink._standing.trust(f"/queue/{closed}")
    sink.publish([out(str(n), closed if n == 50 else strict.queue, str(n).encode()) for n in range(100)])
    words = strict.words(101)
    assert {tag: how for tag, how in words.items() if how != "confirmed"} == {"50": "refused_by_broker"}
    wait_until(lambda: ended(sink), "the connection to end")

    sink.connect(strict.outcomes.extend)
    sink.publish([out(f"again {n}", strict.queue, b"100") for n in range(100)])
    assert Counter(strict.words(201).values()) == {"confirmed": 200, "refused_by_broker": 1}
    source = strict.source()
    source.connect()
    assert drained(source, 200) == [*(n for n in range(-1, 100) if n != 50), *[100] * 100]
    wait_until(lambda: memory(strict) == 0, "no memory to be in use any more")


def ended(sink: ActiveSink) -> bool:
    try:
        sink.publish([])
    except NotConnected:
        return True
    return False


def memory(stage: Stage) -> int:
    """What the broker counts for the messages in the stage's queue, in bytes."""
    options = stage.options()
    with Statistics(options.targets(), options.times) as statistics:
        (answer,) = statistics._answered(f"Destination.{stage.queue}")
    return int(answer["memoryUsage"])


def test_a_full_queue_holds_back_its_own_messages_only(strict: Stage) -> None:
    full = named("full")
    sink = strict.sink(
        blocked_timeout=1, heartbeat=3
    )  # by its heartbeats ActiveMQ notices that a connection is gone whose thread it has stopped
    for start in range(0, 100, 10):
        sink.publish([out(f"full {start + n}", full, b"x" * 10_000) for n in range(10)])
        sink.publish([out(f"open {start + n}", strict.queue) for n in range(10)])
    wait_until(
        lambda: len([tag for tag, _ in strict.outcomes if tag.startswith(b"open")]) == 100 or not_connected(strict), "the open queue"
    )
    if not_connected(strict):  # it had come to be trusted before it was full, and stopped the connection once
        before = len(strict.outcomes)
        sink.connect(strict.outcomes.extend)
        sink.publish([out(f"full more {n}", full, b"x" * 10_000) for n in range(10)])
        sink.publish([out(f"open more {n}", strict.queue) for n in range(10)])
        wait_until(
            lambda: {tag for tag, error in strict.outcomes[before:] if error is None} >= {b"open more %d" % n for n in range(10)},
            "the open queue",
        )
    wait_until(lambda: "refused_by_broker" in {word(error) for _, error in strict.outcomes}, "the full queue's messages to be held back")
    strict.queue = full
    source = strict.source()
    source.connect()

    def takes_again() -> bool:
        batch = source.receive(500, 0.1)
        if batch is not None:
            batch.ack()
        try:
            sink.publish([out(f"probe {secrets.token_hex(8)}", full)])
        except NotConnected:
            sink.connect(strict.outcomes.extend)
        return any(tag.startswith(b"probe") and error is None for tag, error in strict.outcomes)

    wait_until(takes_again, "the queue to take messages again", 30)


def test_a_queue_that_stopped_the_connection_once_does_not_do_so_whenever_there_is_room_for_some(strict: Stage) -> None:
    full = named("full")
    sink = strict.sink(blocked_timeout=1, heartbeat=3)
    sink._standing.trust(f"/queue/{full}")
    sink.publish([out(f"first {n}", full, b"x" * 10_000) for n in range(100)])
    wait_until(lambda: not_connected(strict), "the transaction to stall", 30)
    sink.connect(strict.outcomes.extend)
    strict.outcomes.clear()

    def takes_again() -> bool:
        sink.publish([out(f"probe {secrets.token_hex(8)}", full)])
        return "confirmed" in strict.words(0).values()

    wait_until(takes_again, "the transaction to be taken back", 30)
    sink.publish([out("open", strict.queue), *(out(f"full {n}", full, b"x" * 10_000) for n in range(100))])
    wait_until(lambda: any(tag.startswith("full") and how == "refused_by_broker" for tag, how in strict.words(0).items()), "it to be full")
    assert strict.words(0)["open"] == "confirmed"
    assert not not_connected(strict)


def not_connected(stage: Stage) -> bool:
    return any(isinstance(error, NotConnected) for _, error in stage.outcomes)


# --- a broker that cannot take anything ---


@pytest.fixture
def small() -> Iterator[Stage]:
    """A private broker whose store is soon full."""
    for broker in native(usage=brokers.USAGE.replace("4 gb", "2 mb")):
        one = Stage(broker)
        yield one
        one.close()


def test_a_broker_with_a_full_store_means_not_connected_and_no_hang(small: Stage) -> None:
    sink = small.sink(blocked_timeout=2)
    began = time.monotonic()
    sink.publish([out(str(n), small.queue, b"x" * 10_000) for n in range(2000)])
    words = small.words(2000)
    assert "NotConnected" in words.values()
    assert set(words.values()) <= {"confirmed", "NotConnected"}
    assert time.monotonic() - began < 20
    with pytest.raises(NotConnected):
        sink.publish([out("more", small.queue)])


def test_a_server_that_accepts_and_says_nothing_is_not_connected_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = ActiveMQ.model_validate({"url": f"stomp://127.0.0.1:{silent.getsockname()[1]}", "connection_timeout": 0.5})
        began = time.monotonic()
        with pytest.raises(NotConnected, match="did not answer within"):
            adapter.source(options, Endpoint(queue="q")).connect()
        with pytest.raises(NotConnected, match="did not answer within"):
            adapter.sink(options).connect(lambda _: None)
        assert time.monotonic() - began < 10


def test_a_server_that_falls_silent_is_given_up_after_its_heartbeats_stop(stage: Stage) -> None:
    with Proxy(stage.broker.url) as proxy:
        source = stage.source(url=proxy.url, heartbeat=0.5)
        sink = stage.sink(url=proxy.url, heartbeat=0.5)
        source.connect()
        proxy.freeze()
        with pytest.raises(NotConnected, match="heartbeat"):
            source.receive(1, 20)
        until_lost(lambda: sink.publish([]), timeout=20)


def test_a_pause_after_traffic_costs_no_connection_at_whatever_moment_it_begins(stage: Stage) -> None:
    """ActiveMQ looks once in an interval whether a heartbeat is needed: connections of different ages stand at different moments of theirs."""
    sinks = []
    for _ in range(4):
        sinks.append(stage.sink(heartbeat=2))
        time.sleep(0.5)  # their ages
    time.sleep(3)  # the first heartbeat may be later than others
    for number, sink in enumerate(sinks):
        sink.publish([out(str(number), stage.queue)])
    assert set(stage.words(4).values()) == {"confirmed"}
    time.sleep(4.4)  # the pause
    for sink in sinks:
        sink.publish([])


# --- sources ---


def test_no_more_than_the_prefetch_is_taken_from_the_queue(stage: Stage) -> None:
    source = stage.source(prefetch=10)
    source.connect()
    sink = stage.sink()
    sink.publish([out(str(n), stage.queue) for n in range(100)])
    stage.words(100)
    found = batches(source, 10, 50)
    assert sum(len(batch.messages) for batch in found) == 10
    assert source.receive(50, 0.3) is None
    for batch in found:
        batch.ack()
    assert source.receive(50, 15) is not None


def test_a_store_that_is_slow_for_longer_than_the_heartbeat_costs_no_connection(stage: Stage) -> None:
    source = stage.source(heartbeat=3)
    source.connect()
    sink = stage.sink()
    sink.publish([out("1", stage.queue, b"x")])
    batch = source.receive(1, 15)
    assert batch is not None
    time.sleep(8)  # the store, not the test, is slow: ActiveMQ gives a silent client up after one and a half heartbeats
    batch.ack()
    sink.publish([out("2", stage.queue, b"y")])
    again = source.receive(1, 15)
    assert again is not None
    assert again.messages[0].message.body == b"y"


def test_batches_that_are_acknowledged_out_of_order_are_forgotten_once_the_earlier_ones_are(stage: Stage) -> None:
    source = stage.source()
    source.connect()
    sink = stage.sink()
    sink.publish([out(str(n), stage.queue, str(n).encode()) for n in range(30)])
    stage.words(30)
    for batch in reversed(batches(source, 30, 5)):
        batch.ack()
    source.connect()
    assert source.receive(1, 0.5) is None


# --- the connection ---


def refused(source: ActiveSource) -> NotConnected:
    """What the broker says to one that it does not let in."""
    with pytest.raises(NotConnected) as caught:
        source.connect()
    return caught.value


def test_a_wrong_password_and_a_forbidden_queue_are_said_in_plain_words(strict: Stage) -> None:
    # ActiveMQ itself now and then closes the connection before it has said why (2 of 4,000 times to a bare socket); the next attempt hears it.
    refusals = (refused(strict.source(username="bridge", password="wrong")) for _ in range(5))
    heard = next(each for each in refusals if "closed the connection" not in str(each))
    assert "password is invalid" in str(heard)
    assert isinstance(heard, LoginRefused)
    strict.source(username="bridge", password="se:cret").connect()
    strict.queue = named("closed")
    with pytest.raises(NotConnected, match=r"(?i)not authorized to read"):
        strict.source().connect()


def test_of_several_urls_the_first_that_answers_is_taken(stage: Stage) -> None:
    dead = f"stomp://127.0.0.1:{free_port()}"
    stage.source(url=[dead, stage.broker.url]).connect()
    with pytest.raises(NotConnected, match="refused"):
        stage.source(url=[dead, dead]).connect()


@pytest.fixture
def own() -> Iterator[Stage]:
    """A private broker: what a thousand other tests have left in the shared one has no part in this."""
    for broker in native():
        one = Stage(broker)
        yield one
        one.close()


@pytest.mark.parametrize("round_", range(3))
def test_nothing_is_lost_or_confirmed_falsely_when_the_broker_is_killed_and_comes_back(own: Stage, round_: int) -> None:
    stage, broker = own, own.broker
    assert isinstance(broker, brokers.Native)
    source, sink = stage.source(), stage.sink()
    source.connect()
    for start in range(0, 5000, 250):
        sink.publish([out(str(n), stage.queue, str(n).encode() + b" " * 1000) for n in range(start, start + 250)])
    wait_until(lambda: len([1 for _, error in stage.outcomes if error is None]) >= 500 * round_ + 1, "some confirms")
    held = source.receive(100, 15)
    assert held is not None
    stage.broker.kill()
    wait_until(lambda: len(stage.outcomes) == 5000, "an outcome for each message")
    until_lost(lambda: source.receive(500, 0.1))
    until_lost(lambda: sink.publish([]))
    held.ack()
    stage.broker.start()
    words = stage.words(5000)
    assert set(words.values()) <= {"confirmed", "NotConnected"}
    source.connect()
    confirmed = {tag for tag, how in words.items() if how == "confirmed"}
    try:
        came = taken(source, lambda found: confirmed <= {tag_of(one) for one in found})
    except AssertionError:
        print(broker.output[-20_000:])
        raise
    assert all(one.redelivered for one in came)
    given = {tag_of(one): one.token for one in held.messages}
    assert all(one.token == given.get(tag_of(one), one.token) for one in came)  # what was handed out before it was safe need not come again


UNREADABLE = (
    *(Properties(expiration=ttl) for ttl in (b"%d" % 2**63, b"%d" % (2**63 - 1), b"9" * 255)),
    *(
        Properties(reply_to=kind + name)
        for kind in (b"/queue/", b"/topic/", b"/remote-temp-queue/", b" /temp-topic/")
        for name in (b"", b" ", b",", b"\x01", b"?a=b", b"a?b=%zz", b"a,queue://", b"a,b")
    ),
    *(Properties(type=odd, correlation_id=odd, reply_to=odd) for odd in (b"", b" ", b"\n", b"\0", b"\xff", b"ID:")),
    Properties(priority=255, timestamp_ms=2**63, message_id=b"\0", app_id=b":"),
)
"""What ActiveMQ closes the connection for without a word, or takes and cannot read again from its disk, were it written as it is; and what is like it."""


def test_no_property_makes_activemq_close_the_connection_or_keeps_it_from_starting_again(own: Stage) -> None:
    names = ("JMSXGroupID", "JMSXGroupSeq", "JMSX", "a b", " ", "\x01", "=", "TRUE", "content-type", "user-id", "heart-beat")
    headers: list[dict[str, Any]] = [{name: value} for name in names for value in ("", "9" * 30, "\n\0")]
    odd = [out(str(n), own.queue, str(n).encode(), properties) for n, properties in enumerate(UNREADABLE)]
    odd += [out(str(n), own.queue, str(n).encode(), **header) for n, header in enumerate(headers, len(odd))]
    sink = own.sink()
    for one in odd[: len(UNREADABLE)]:
        sink.publish([one])
    sink.publish([*odd[len(UNREADABLE) :], out("good", own.queue, b"%d" % len(odd))])
    assert set(own.words(len(odd) + 1).values()) == {"confirmed"}
    broker = own.broker
    assert isinstance(broker, brokers.Native)
    broker.restart()
    source = own.source()
    source.connect()
    assert drained(source, len(odd) + 1) == list(range(len(odd) + 1))


def test_messages_to_many_destinations_are_all_confirmed_in_the_order_of_each(stage: Stage) -> None:
    queues = [named("open") for _ in range(20)]
    sink = stage.sink()
    for start in range(0, 1000, 50):
        sink.publish([out(str(n), queues[n % 20], str(n).encode()) for n in range(start, start + 50)])
    assert set(stage.words(1000).values()) == {"confirmed"}
    for index, queue in enumerate(queues[:3]):
        stage.queue = queue
        source = stage.source()
        source.connect()
        assert drained(source, 50) == list(range(index, 1000, 20))


def test_a_connection_that_answers_no_transaction_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy(stage.broker.url) as proxy:
        sink = stage.sink(url=proxy.url, heartbeat=0)
        sink.publish([out("first", stage.queue)])
        stage.words(1)
        monkeypatch.setattr(sinks, "STALL", 0.5)
        proxy.freeze()
        sink.publish([out(str(n), stage.queue) for n in range(100)])
        assert Counter(stage.words(101).values()) == {"confirmed": 1, "NotConnected": 100}
