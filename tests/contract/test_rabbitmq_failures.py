"""What RabbitMQ refuses, forgets or breaks, and which messages hear of it."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pika
import pytest
from brokers.common import free_port, wait_until
from brokers.rabbitmq import user

from contract.outcomes import words
from contract.taking import tag_of, taken, until_lost
from delaybridge.adapters.base import NotConnected, Outcome, Outgoing
from delaybridge.adapters.rabbitmq import Endpoint, RabbitMQ, adapter
from delaybridge.core.message import NO_PROPERTIES, Message, Properties, message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.rabbitmq import Broker

    from delaybridge.adapters.rabbitmq.sink import RabbitSink
    from delaybridge.adapters.rabbitmq.source import RabbitSource


def named(kind: str) -> str:
    return f"failures-{kind}-{secrets.token_hex(6)}"


class Stage:
    """A user of the broker on plain pika, and sources and sinks that end with the test."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.outcomes: list[Outcome] = []
        self.queue = named("queue")
        self._opened: list[RabbitSource | RabbitSink] = []
        self.user = pika.BlockingConnection(pika.URLParameters(broker.url))
        self.channel = self.user.channel()

    def options(self, **options: Any) -> RabbitMQ:
        return RabbitMQ.model_validate({"url": self.broker.url, "connection_timeout": 15} | options)

    def source(self, *, declare: bool = True, gate: tuple[str, ...] = (), **options: Any) -> RabbitSource:
        source = adapter.source(self.options(**options), Endpoint(queue=self.queue, declare=declare, gate=gate))
        self._opened.append(source)
        return source

    def sink(self, **options: Any) -> RabbitSink:
        sink = adapter.sink(self.options(**options))
        sink.connect(self.outcomes.extend)
        self._opened.append(sink)
        return sink

    def close(self) -> None:
        for opened in self._opened:
            opened.close()
        if self.user.is_open:
            self.user.close()

    def words(self, count: int) -> dict[str, str]:
        """The outcome of each tag, when that many have come."""
        return words(self.outcomes, count)


def out(tag: str, address: str, body: bytes = b"", properties: Properties = NO_PROPERTIES, **headers: Any) -> Outgoing:
    return Outgoing(tag.encode(), address, message(body, headers, properties))


@pytest.fixture
def stage(rabbitmq: Broker) -> Iterator[Stage]:
    one = Stage(rabbitmq)
    yield one
    one.close()


# --- destinations that do not take messages ---


def test_a_missing_queue_is_unroutable_and_its_neighbours_are_delivered(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue, durable=True)
    addresses = {str(number): stage.queue if number % 3 else named("missing") for number in range(30)}
    stage.sink().publish([out(tag, address) for tag, address in addresses.items()])
    assert stage.words(30) == {tag: "confirmed" if address == stage.queue else "unroutable" for tag, address in addresses.items()}


def test_a_key_that_nothing_is_bound_for_is_unroutable(stage: Stage) -> None:
    stage.sink().publish([out("1", "/exchanges/amq.topic/" + named("key"))])
    assert stage.words(1) == {"1": "unroutable"}


def test_a_missing_exchange_is_unroutable_and_harms_no_other_destination(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue, durable=True)
    sink = stage.sink()
    missing = named("exchange")
    for start in range(0, 400, 100):
        sink.publish([out(str(n), f"/exchanges/{missing}/k" if n % 2 else stage.queue) for n in range(start, start + 100)])
    assert Counter(stage.words(400).values()) == {"confirmed": 200, "unroutable": 200}
    assert stage.channel.queue_declare(stage.queue, passive=True).method.message_count == 200


def test_an_exchange_that_appears_later_takes_messages(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    exchange = named("exchange")
    sink = stage.sink()
    sink.publish([out("early", f"/exchanges/{exchange}/k")])
    assert stage.words(1) == {"early": "unroutable"}
    stage.channel.exchange_declare(exchange, auto_delete=True)
    stage.channel.queue_bind(stage.queue, exchange, "k")
    sink.publish([out("late", f"/exchanges/{exchange}/k")])
    assert stage.words(2)["late"] == "confirmed"


def test_a_queue_that_a_producer_names_for_a_copy_gets_none_through_the_default_exchange(stage: Stage) -> None:
    """Else whoever may send to the bridge could reach any queue, with the bridge's rights."""
    victim = stage.channel.queue_declare("", exclusive=True).method.queue
    stage.channel.queue_declare(stage.queue, durable=True)
    names = b"S" + len(victim).to_bytes(4, "big") + victim.encode()
    copies = b"\x02CCA" + len(names).to_bytes(4, "big") + names  # an array of one long string
    stage.sink().publish([Outgoing(b"1", stage.queue, Message(b"body", copies))])
    assert stage.words(1) == {"1": "confirmed"}
    assert stage.channel.queue_declare(victim, passive=True).method.message_count == 0
    _, properties, _ = stage.channel.basic_get(stage.queue)
    assert properties is not None
    assert properties.headers == {"x-original-cc": [victim]}


def test_a_full_queue_that_rejects_means_refused_by_the_broker(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    sink = stage.sink()
    sink.publish([out("1", stage.queue)])
    stage.words(1)
    sink.publish([out("2", stage.queue)])
    assert stage.words(2) == {"1": "confirmed", "2": "refused_by_broker"}


def test_an_internal_exchange_is_refused_and_harms_no_other_destination(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    exchange = named("internal")
    stage.channel.exchange_declare(exchange, internal=True, auto_delete=True)
    stage.channel.queue_bind(stage.queue, exchange, "k")
    stage.sink().publish([out("1", f"/exchanges/{exchange}/k"), out("2", stage.queue), out("3", f"/exchanges/{exchange}/k")])
    assert stage.words(3) == {"1": "refused_by_broker", "2": "confirmed", "3": "refused_by_broker"}


def test_the_one_message_that_the_broker_cannot_take_is_rejected_and_the_rest_delivered_in_order(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    bad = {7, 8, 31}
    stage.sink().publish(
        [out(str(n), stage.queue, str(n).encode(), Properties(expiration=b"soon") if n in bad else NO_PROPERTIES) for n in range(50)]
    )
    assert stage.words(50) == {str(n): "rejected_by_broker" if n in bad else "confirmed" for n in range(50)}
    first_copies = dict.fromkeys(drained(stage))
    assert [int(body) for body in first_copies] == [n for n in range(50) if n not in bad]


def drained(stage: Stage) -> list[bytes]:
    """The bodies that lie in the queue."""
    bodies = []
    while (body := stage.channel.basic_get(stage.queue, auto_ack=True)[2]) is not None:
        bodies.append(body)
    return bodies


def test_a_foreign_user_id_is_rejected_without_asking_the_broker(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    stage.sink().publish([out("1", stage.queue, properties=Properties(user_id=b"alice")), out("2", stage.queue)])
    assert stage.words(2) == {"1": "rejected_by_broker", "2": "confirmed"}


def test_the_user_of_the_url_that_answered_is_the_own_one(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    sink = stage.sink(url=[f"amqp://alice@127.0.0.1:{free_port()}", stage.broker.url])
    sink.publish([out("1", stage.queue, properties=Properties(user_id=stage.broker.url.split("//")[1].split(":")[0].encode()))])
    assert stage.words(1) == {"1": "confirmed"}


def test_an_impersonator_who_is_none_is_told_so_by_the_broker(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    stage.sink(impersonate=True).publish([out("1", stage.queue, properties=Properties(user_id=b"alice")), out("2", stage.queue)])
    assert stage.words(2) == {"1": "rejected_by_broker", "2": "confirmed"}
    assert "alice" in str(dict(stage.outcomes)[b"1"])


def test_headers_that_do_not_fit_one_frame_are_too_large_and_the_connection_lives(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    stage.sink().publish([out("1", stage.queue, h="x" * 131_072), out("2", stage.queue, h="x" * 131_000)])
    assert stage.words(2) == {"1": "too_large", "2": "confirmed"}


def test_a_user_without_the_right_to_write_is_refused_for_that_exchange_alone(stage: Stage) -> None:
    management = stage.broker.management_url
    if not management:
        pytest.skip("needs the management API")
    exchange = named("forbidden")
    stage.channel.queue_declare(stage.queue)
    stage.channel.exchange_declare(exchange, auto_delete=True)
    stage.channel.queue_bind(stage.queue, exchange, "k")
    with user(management, named("user"), configure="", write="^amq\\.default$", read="") as name:
        stage.sink(username=name, password="secret").publish([out("1", f"/exchanges/{exchange}/k"), out("2", stage.queue)])
        assert stage.words(2) == {"1": "refused_by_broker", "2": "confirmed"}


# --- sources ---


def test_a_missing_queue_is_declared_durable(stage: Stage) -> None:
    stage.source().connect()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="durable"):
        stage.channel.queue_declare(stage.queue, durable=False)


def test_a_missing_queue_is_not_declared_where_the_route_says_so(stage: Stage) -> None:
    with pytest.raises(NotConnected, match="no queue"):
        stage.source(declare=False).connect()


def test_a_missing_queue_to_which_a_gate_should_lead_is_not_made_without_it(stage: Stage) -> None:
    """With the queue the gate's binding has gone: all would look well, and nothing would be delayed any more."""
    gated = stage.source(gate=("orders",))
    with pytest.raises(NotConnected, match=r"no queue .* nothing is delayed. Run `delaybridge apply`"):
        gated.connect()
    stage.channel.queue_declare(stage.queue)
    gated.connect()
    stage.channel.queue_delete(stage.queue)
    until_lost(lambda: gated.receive(1, 0.1))
    with pytest.raises(NotConnected, match="delaybridge apply"):
        gated.connect()


def test_an_existing_queue_is_taken_with_whatever_arguments_it_has(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue, durable=False, auto_delete=False, arguments={"x-max-length": 100, "x-max-priority": 3})
    stage.source().connect()


def test_a_queue_that_is_deleted_means_not_connected_and_comes_back_with_the_next_connect(stage: Stage) -> None:
    source = stage.source()
    source.connect()
    stage.channel.queue_delete(stage.queue)
    with pytest.raises(NotConnected, match="cancelled"):
        source.receive(1, 15)
    source.connect()
    stage.channel.basic_publish("", stage.queue, b"back")
    batch = source.receive(1, 15)
    assert batch is not None
    assert batch.messages[0].message == Message(b"back")


def test_a_queue_that_another_consumer_has_to_itself_means_not_connected(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    stage.channel.basic_consume(stage.queue, lambda *_: None, exclusive=True)
    with pytest.raises(NotConnected, match="exclusive use"):
        stage.source().connect()


def test_no_more_than_the_prefetch_is_taken_from_the_queue(stage: Stage) -> None:
    source = stage.source(prefetch=10)
    source.connect()
    for _ in range(100):
        stage.channel.basic_publish("", stage.queue, b"x")
    first = source.receive(50, 15)
    assert first is not None
    taken = len(first.messages)
    while taken < 10:
        more = source.receive(50, 15)
        assert more is not None
        taken += len(more.messages)
    assert taken == 10
    assert source.receive(50, 0.3) is None
    first.ack()
    assert source.receive(50, 15) is not None


def test_a_store_that_is_slow_for_longer_than_the_heartbeat_costs_no_connection(stage: Stage) -> None:
    source = stage.source(heartbeat=3)
    source.connect()
    stage.channel.basic_publish("", stage.queue, b"x")
    batch = source.receive(1, 15)
    assert batch is not None
    time.sleep(10)  # the store, not the test, is slow: RabbitMQ gives a silent client up after two heartbeats
    batch.ack()
    stage.channel.basic_publish("", stage.queue, b"y")
    again = source.receive(1, 15)
    assert again is not None
    assert again.messages[0].message.body == b"y"


def test_a_tap_at_an_exchange_hears_copies_and_leaves_the_consumers_theirs(stage: Stage) -> None:
    stage.channel.queue_declare(stage.queue)
    for kind in ("direct", "topic", "fanout", "headers"):
        exchange = named(kind)
        stage.channel.exchange_declare(exchange, kind, auto_delete=True)
        stage.channel.queue_bind(stage.queue, exchange, "k", {"x-match": "all"})
        tap = adapter.tap(stage.options(), f"/exchanges/{exchange}/k")
        tap.connect()
        stage.channel.basic_publish(exchange, "k", kind.encode())
        heard = tap.receive(1, 15)
        tap.close()
        assert heard is not None
        assert heard.messages[0].message.body == kind.encode()
    assert drained(stage) == [b"direct", b"topic", b"fanout", b"headers"]


# --- the connection ---


def test_a_reply_to_a_requester_without_a_queue_is_delivered_once_and_confirmed(stage: Stage) -> None:
    heard: list[bytes] = []
    stage.channel.basic_consume("amq.rabbitmq.reply-to", lambda *message: heard.append(message[-1]), auto_ack=True)
    stage.channel.queue_declare(stage.queue)
    stage.channel.basic_publish("", stage.queue, b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    properties = stage.channel.basic_get(stage.queue, auto_ack=True)[1]
    assert properties is not None
    stage.sink().publish([out("1", "/queues/" + quote(properties.reply_to or "", safe=""), b"answer")])
    assert stage.words(1) == {"1": "confirmed"}

    def answered() -> bool:
        stage.user.process_data_events(0.1)
        return bool(heard)

    wait_until(answered, "the answer")
    assert heard == [b"answer"]


def test_a_connection_that_the_operator_closes_is_told_to_source_and_sink(stage: Stage) -> None:
    if not stage.broker.management_url:
        pytest.skip("needs the management API")
    source, sink = stage.source(), stage.sink()
    source.connect()
    with httpx.Client(base_url=stage.broker.management_url, timeout=60, trust_env=False) as api:

        def ours() -> list[str]:
            connections = api.get("/api/connections").json()
            return [one["name"] for one in connections if one.get("client_properties", {}).get("product") == "delaybridge"]

        wait_until(lambda: len(ours()) == 2, "the management API to list both connections", 60)
        for name in ours():
            api.delete(f"/api/connections/{name}", headers={"X-Reason": "maintenance"})
    with pytest.raises(NotConnected, match="maintenance"):
        source.receive(1, 15)
    until_lost(lambda: sink.publish([out(secrets.token_hex(8), stage.queue)]), "maintenance")


def test_nothing_is_lost_or_confirmed_falsely_when_the_broker_is_killed_and_comes_back(stage: Stage) -> None:
    if not stage.broker.restartable:
        pytest.skip("this broker is not ours to kill")
    source, sink = stage.source(), stage.sink()
    source.connect()
    stage.broker.control("eval", "disk_log:sync(latest_log).")  # RabbitMQ 3 answers a declaration up to 2 s before it is safe from kill -9
    persistent = Properties(delivery_mode=2)
    sink.publish([out(str(n), stage.queue, str(n).encode(), persistent) for n in range(2000)])
    wait_until(lambda: len(stage.outcomes) >= 500, "some confirms")
    held = source.receive(100, 15)
    assert held is not None
    stage.user.close()
    stage.broker.kill()
    wait_until(lambda: len(stage.outcomes) == 2000, "an outcome for each message")
    until_lost(lambda: source.receive(500, 0.1))
    stage.broker.start()
    confirmed = {tag for tag, how in stage.words(2000).items() if how == "confirmed"}
    assert set(stage.words(2000).values()) <= {"confirmed", "NotConnected"}
    source.connect()
    came = taken(source, lambda found: confirmed <= {tag_of(one) for one in found})
    given = {tag_of(one) for one in held.messages}
    assert all(one.redelivered for one in came if tag_of(one) in given)  # what was handed out before it was safe need not come again


def test_while_the_broker_is_short_of_memory_outcomes_stay_open_until_the_blocked_timeout(stage: Stage) -> None:
    if not stage.broker.restartable:
        pytest.skip("this broker is not ours to starve")
    stage.channel.queue_declare(stage.queue)
    patient, hasty = stage.sink(), stage.sink(blocked_connection_timeout=1)
    stage.broker.control("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        wait_until(lambda: "memory" in stage.broker.control("eval", "rabbit_alarm:get_alarms()."), "the alarm", 30)
        for name, sink in (("patient", patient), ("hasty", hasty)):  # the first message is what makes RabbitMQ block a connection
            sink.publish([out(f"{name} first", stage.queue)])
        stage.words(2)
        for name, sink in (("patient", patient), ("hasty", hasty)):
            sink.publish([out(name, stage.queue)])
        assert stage.words(3)["hasty"] == "NotConnected"
        assert "low on memory" in patient.blocked
    finally:
        stage.broker.control("set_vm_memory_high_watermark", "0.4")
    assert stage.words(4)["patient"] == "confirmed"
    wait_until(lambda: not patient.blocked, "RabbitMQ to say that it takes messages again")
