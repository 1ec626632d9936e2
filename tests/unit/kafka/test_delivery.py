"""What Kafka's client does while a broker cannot be reached: how often the thread that sends looks what it may send, and whom it asks of the cluster."""

from __future__ import annotations

import inspect
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition, errors
from kafka.future import Future
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.producer.transaction_manager import ProducerIdAndEpoch
from unit.kafka.sender import sending

from delaybridge.adapters.kafka import Kafka, link
from delaybridge.adapters.kafka.link import TIDY, Caught
from delaybridge.adapters.kafka.sinks.sender import Delivery, Numbers
from delaybridge.adapters.tls import Tls

PARTITION, LEADER = TopicPartition("orders", 0), 1


def wait(monkeypatch: pytest.MonkeyPatch, *, ready: bool) -> tuple[float, list[Any]]:
    """Milliseconds until the next look, where a message waits for a broker that takes requests or does not; and what was sent to it."""
    numbers, sent = Numbers(api_version=(4, 0)), list[Any]()

    def send(_: int, request: Any, **__: Any) -> Future:
        sent.append(request)
        return Future()

    numbers.set_producer_id_and_epoch(ProducerIdAndEpoch(1, 0))
    with sending(Delivery, numbers, PARTITION, timeout_ms=10_000) as one:
        sender: Any = one._sender
        cluster, client = sender._metadata, sender._client
        monkeypatch.setattr(cluster, "leader_for_partition", lambda _: LEADER)
        monkeypatch.setattr(cluster, "partitions_for_broker", lambda _: {PARTITION})
        monkeypatch.setattr(client, "is_ready", lambda _: ready)
        monkeypatch.setattr(client, "maybe_connect", lambda *_, **__: None)
        monkeypatch.setattr(client, "send", send)
        sender._accumulator.enqueue(PARTITION, [(b"tag", b"\x01\x01\0", 0)])
        return sender._send_producer_data(), sent


def test_while_a_broker_is_being_connected_to_or_throttles_the_sender_it_looks_some_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    delay, sent = wait(monkeypatch, ready=False)
    assert (delay >= 10, sent) == (True, [])


def test_after_something_was_sent_it_looks_for_more_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    delay, sent = wait(monkeypatch, ready=True)
    assert (delay, len(sent)) == (0, 1)


def connection(*, connected: bool) -> Any:
    """One over which something was asked."""
    return SimpleNamespace(connected=connected, paused=set(), in_flight_requests=["fetch"] if connected else [], close=lambda: None)


@pytest.mark.parametrize(
    ("brokers", "asked"),
    [({"busy", "died"}, {"busy"}), ({"busy", "connecting"}, {"busy"}), ({"died", "connecting", "new"}, {"new"}), ({"died"}, {"died"})],
    ids=["one that died before", "one that may have died", "one that was not tried", "nobody else"],
)
def test_what_any_broker_can_tell_is_not_asked_of_one_that_cannot_be_reached(brokers: set[str], asked: set[str]) -> None:
    """The answer would come once the connection is given up, ten seconds and more later: a new destination, and a new leader, are not known until then."""
    caught = Caught()
    try:
        client = caught(**Kafka(bootstrap_servers="127.0.0.1:1").client("test"))
        client.cluster._brokers = {name: SimpleNamespace(node_id=name) for name in brokers}
        client.unreachable["died"] = errors.KafkaConnectionError("away")
        client._manager._conns |= {"busy": connection(connected=True), "connecting": connection(connected=False)}
        assert {client._manager.least_loaded_node() for _ in range(50)} == asked
    finally:
        caught.close()


def test_an_address_that_does_not_answer_leaves_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have several, and of several servers the first that is tried may have died."""
    limits: list[float] = []

    async def connects(_: Any, __: Any, sock: Any, where: str, timeout_at: float) -> Any:
        limits.append(timeout_at - time.monotonic())
        if where == "died":
            raise errors.KafkaTimeoutError("Connection timed out")
        return sock

    monkeypatch.setattr(KafkaNetSocket, "sock_connect", connects)
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", where) for where in ("died", "there")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses)
    connecting = create_connection(None, "kafka", 9092, timeout_at=time.monotonic() + 10, **TIDY)
    with pytest.raises(StopIteration) as made:
        connecting.send(None)
    made.value.value.close()
    assert max(limits) < 5


def test_who_takes_a_connection_and_says_nothing_ends_a_tls_handshake_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that hangs does. Over TCP alone kafka-python's first request has a time-out."""
    assert "await transport.handshake()" in inspect.getsource(KafkaConnectionManager._build_transport)
    monkeypatch.setattr(link, "_SHAKING", 0.1)
    caught = Caught()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        try:
            options = Kafka(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}", tls=Tls(verify=False))
            manager = caught(**options.client("test"))._manager
            with pytest.raises(errors.KafkaConnectionError, match="Handshake failed"):
                manager._net.run(manager._build_transport, manager.cluster.bootstrap_brokers()[0])
        finally:
            caught.close()


def test_a_bootstrap_server_that_takes_a_connection_and_says_nothing_leaves_time_for_the_others() -> None:
    assert "timeout_ms=timeout_ms" in inspect.getsource(KafkaConnectionManager._do_bootstrap)
    caught = Caught()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        try:
            servers = tuple(f"127.0.0.1:{silent.getsockname()[1]}" for silent in (one, other))
            manager = caught(**Kafka(bootstrap_servers=servers).client("test"))._manager
            with pytest.raises(errors.KafkaTimeoutError):
                manager.bootstrap(timeout_ms=200)
            for silent in (one, other):
                silent.settimeout(0)
                silent.accept()[0].close()
        finally:
            caught.close()


@pytest.mark.parametrize(("failed", "left"), [(set(), {"a", "b"}), ({"a"}, {"b"}), ({"a", "b"}, {"a", "b"})])
def test_a_bootstrap_server_that_has_just_failed_is_asked_only_where_all_have(failed: set[str], left: set[str]) -> None:
    """kafka-python draws lots each time."""
    caught = Caught()
    try:
        client = caught(**Kafka(bootstrap_servers=("a:1", "b:1")).client("test"))
        ids = {broker.host: broker.node_id for broker in client.cluster.bootstrap_brokers()}
        client.unreachable |= {ids[host]: errors.KafkaConnectionError("away") for host in failed}
        assert {broker.host for broker in client.cluster.bootstrap_brokers()} == left
    finally:
        caught.close()
