"""What the Kafka adapter uses of kafka-python beside its documented interface. One of these fails when the client changes it."""

from __future__ import annotations

import inspect
import os
import socket
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka import KafkaConsumer, TopicPartition, errors
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.base import BaseCoordinator
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.net.connection import KafkaConnection, SaslReauthenticator
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaTCPTransport
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import ProducerIdAndEpoch, TransactionManager
from kafka.protocol.parser import KafkaProtocol
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.util import Timer
from unit.kafka.sender import sending

from delaybridge.adapters.base import AdapterError, BackOff, NotConnected, Rejected
from delaybridge.adapters.kafka import Kafka
from delaybridge.adapters.kafka.link import NOT_WRITTEN, Caught, _answers_first, not_connected, refusal
from delaybridge.adapters.kafka.sinks.sender import Accumulator, Delivery, Numbers
from delaybridge.adapters.kafka.sources import consumer
from delaybridge.adapters.kafka.wire.batches import Records


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_fetcher_makes_partition_records_as_we_expect() -> None:
    assert parameters(Fetcher.PartitionRecords._unpack_records) == ["self", "tp", "records", "key_deserializer", "value_deserializer"]
    assert parameters(Fetcher.PartitionRecords.__init__)[:4] == ["self", "fetch_offset", "tp", "records"]
    assert "self.PartitionRecords(" in inspect.getsource(Fetcher._parse_fetched_data)


def test_a_batch_is_laid_out_as_we_read_it() -> None:
    assert {"_buffer", "_pos", "_header_data"} <= set(DefaultRecordBatch.__slots__)
    assert DefaultRecordBatch.HEADER_STRUCT.format == ">qiibIhiqqqhii"


def test_our_records_answer_all_that_the_client_asks_of_its_own() -> None:
    asked = {
        "next_offset",
        "is_full",
        "size_in_bytes",
        "set_producer_state",
        "buffer",
        "close",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    }
    assert asked <= set(dir(MemoryRecordsBuilder))
    assert asked <= set(dir(Records()))
    source = "".join(inspect.getsource(each) for each in (ProducerBatch, RecordAccumulator, Sender))
    used = {
        word.split("(")[0].split(")")[0].strip()
        for word in source.replace("self.records.", "\0").replace("batch.records.", "\0").split("\0")[1:]
    }
    used = {word.split()[0].rstrip(",:") for word in used if word}
    assert used <= asked | {"append", "compression_rate"}, "the client asks something new of a batch's records"


def test_the_sender_decides_about_failed_batches_in_one_place() -> None:
    assert parameters(Sender._dispatch_error) == ["self", "batch", "exception", "partition_response"]
    assert parameters(Sender._can_retry) == ["self", "batch", "error_cls"]
    assert parameters(TransactionManager.classify_batch_error) == ["self", "error", "batch", "log_start_offset"]
    assert parameters(RecordAccumulator.abort_batches) == ["self", "error"]
    assert parameters(RecordAccumulator.ready) == ["self", "cluster", "now"]
    assert "self._accumulator.ready(" in inspect.getsource(Sender)


def test_sockets_come_from_a_registry_and_connect_in_one_place() -> None:
    assert KafkaNetSocket._registry["delaybridge"].SCHEMES == ("delaybridge",)
    assert parameters(KafkaNetSocket.sock_connect) == ["self", "net", "sock", "sockaddr", "timeout_at"]
    assert "_conns" in inspect.getsource(KafkaConnectionManager.__init__)


def test_a_socket_reads_much_more_at_once_than_the_client_asks_for() -> None:
    assert "sock = self.socket(family, sock_type, proto)" in inspect.getsource(KafkaNetSocket.connect)
    assert "data = self._sock.recv(4096)" in inspect.getsource(KafkaTCPTransport._sock_recv)
    ours, theirs = socket.socketpair()
    theirs.sendall(bytes(100_000))
    factory = KafkaNetSocket("delaybridge://")
    with ours, theirs, factory.socket(ours.family, ours.type, ours.proto) as wide:
        os.dup2(ours.fileno(), wide.fileno())
        assert len(wide.recv(4096)) == 100_000


def test_why_a_connection_failed_is_told_in_one_place() -> None:
    assert "self.get_connection(" in inspect.getsource(KafkaConnectionManager._do_bootstrap)
    assert "self._init_future.failure(error)" in inspect.getsource(KafkaConnection)


def test_a_connection_that_must_log_in_again_does_so_with_what_is_in_the_files_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may ask for that (`connections.max.reauth.ms`). kafka-python keeps the password that it connected with, and each connection was lost then."""
    assert "await self._sasl_authenticate(timeout_at)" in inspect.getsource(KafkaConnection)
    assert "await self._conn._sasl_authenticate()" in inspect.getsource(SaslReauthenticator)
    assert "self.initializing = False" in inspect.getsource(KafkaConnection._init_complete)
    tried, passwords = list[str](), iter(["first", "second", "third"])

    async def log_in(connection: Any, *_: Any) -> None:
        tried.append(connection.config["sasl_plain_password"])

    monkeypatch.setattr(KafkaConnection, "_sasl_authenticate", log_in)
    caught = Caught(renewed=lambda: {"sasl_plain_password": next(passwords)})
    try:
        manager = caught(**Kafka(bootstrap_servers="127.0.0.1:1").client("test"))._manager
        connection = manager.get_connection(manager.cluster.bootstrap_brokers()[0].node_id)
        for initializing in (True, False, False):
            connection.initializing = initializing
            manager._net.run(connection._sasl_authenticate)
        assert tried == ["first", "second", "third"]
    finally:
        caught.close()


def test_the_wait_for_a_broker_is_forgotten_after_a_connection_whether_it_was_refused_or_not() -> None:
    """If kafka-python tells the two apart one day, `Caught` need not."""
    connect = inspect.getsource(KafkaConnectionManager._connect)
    assert "conn.initialize does not currently raise on error" in connect
    assert connect.index("await conn.initialize(") < connect.index("self.reset_backoff(node.node_id)")
    assert "self._init_future.success(True)" in inspect.getsource(KafkaConnection)


def test_an_answer_is_heard_before_the_end_of_the_connection_that_came_with_it() -> None:
    caught = Caught()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        try:
            manager = caught(**Kafka(bootstrap_servers=f"127.0.0.1:{port}").client("test"))._manager
            transport = manager._net.run(manager._build_transport, manager.cluster.bootstrap_brokers()[0])
            with server.accept()[0] as theirs:
                theirs.sendall(b"the password is wrong")
            assert transport._sock_recv() == (b"the password is wrong", None)
            data, ended = transport._sock_recv()
            assert data == b""
            assert isinstance(ended, errors.KafkaConnectionError)
            transport.close()
        finally:
            caught.close()


@pytest.mark.parametrize("told", [errors.KafkaConnectionError("no socket"), None], ids=["in the middle of the read", "after it"])
def test_what_is_read_while_another_thread_closes_the_connection_is_handed_to_nobody(told: Exception | None) -> None:
    """Over TLS a read takes long enough for that to happen, and the log had a traceback."""
    closing = inspect.getsource(KafkaTCPTransport._close)
    assert closing.index("self._sock = None") < closing.index("self._protocol = None")
    data, ended = _answers_first(SimpleNamespace(_sock=None, _sock_recv=lambda: (b"late", told)))()
    assert data == b""
    assert isinstance(ended, errors.KafkaConnectionError)


SILENT = [errors.RequestTimedOutError, errors.KafkaTimeoutError, errors.KafkaConnectionError]
CUT_OFF = [*SILENT, errors.Cancelled, OSError]


@pytest.mark.parametrize("silent", SILENT, ids=lambda error: error.__name__)
@pytest.mark.parametrize("cut_off", CUT_OFF, ids=lambda error: error.__name__)
def test_a_last_try_that_was_cut_off_does_not_hide_that_the_password_is_wrong(silent: type[Exception], cut_off: type[Exception]) -> None:
    caught = Caught()
    for error in (silent("before"), errors.SaslAuthenticationFailedError("wrong"), cut_off("after")):
        caught._note(error)
    with pytest.raises(NotConnected, match="SaslAuthenticationFailed"), caught.opening():
        raise silent("Unable to bootstrap")


def test_why_a_handshake_failed_is_not_hidden_by_the_tries_that_follow() -> None:
    caught = Caught()
    for error in (errors.KafkaConnectionError("CERTIFICATE_VERIFY_FAILED"), errors.KafkaConnectionError("cut off")):
        caught._note(error)
    with pytest.raises(NotConnected, match="CERTIFICATE_VERIFY_FAILED"), caught.opening():
        raise errors.KafkaTimeoutError("Unable to bootstrap")


def test_only_a_broker_that_could_not_be_reached_is_waited_for_after_a_connection() -> None:
    """kafka-python keeps the wait for metadata, which has no connection of its own, in the same place."""
    caught = Caught()
    try:
        client = caught(**Kafka(bootstrap_servers="127.0.0.1:1").client("test"))
        client.unreachable[1] = errors.SaslAuthenticationFailedError("wrong")
        for node in (1, 2, "metadata"):
            client._manager.update_backoff(node)
            client._manager.reset_backoff(node)
        assert [client._manager.connection_delay(node) > 0 for node in (1, 2, "metadata")] == [True, False, False]
    finally:
        caught.close()


def test_a_broker_that_refuses_the_login_is_left_alone_for_longer_than_one_that_does_not_answer() -> None:
    """It may lock the account."""
    caught = Caught()
    try:
        client = caught(**Kafka(bootstrap_servers="127.0.0.1:1").client("test"))
        client.unreachable |= {1: errors.SaslAuthenticationFailedError("wrong"), 2: errors.KafkaConnectionError("away")}
        waits = [client._manager.update_backoff(node) / 1000 for node in (1, 2)]
        delays = [client._manager.connection_delay(node) for node in (1, 2)]
    finally:
        caught.close()
    assert delays == pytest.approx(waits, abs=1)
    assert waits[1] < 1
    assert waits[0] > 9


def test_no_client_of_ours_lets_a_broker_create_topics() -> None:
    caught = Caught()
    try:
        client = caught(**Kafka(bootstrap_servers="127.0.0.1:1").client("test"))
        client.cluster._topics.add("typo")
        assert client.cluster.metadata_request().allow_auto_topic_creation is False
    finally:
        caught.close()


def test_a_client_of_ours_takes_an_answer_with_the_largest_record_or_tens_of_thousands_of_partitions() -> None:
    caught = Caught()
    try:
        client = caught(**Kafka(bootstrap_servers="127.0.0.1:1").client("test"))
        KafkaProtocol(**client._manager.config).receive_bytes((101 << 20).to_bytes(4, "big"))  # the length of what follows
    finally:
        caught.close()


def test_the_clusters_state_has_what_we_look_at() -> None:
    cluster = ClusterMetadata(bootstrap_servers=["127.0.0.1:1"])
    assert (cluster._partitions, cluster._topics, cluster.unauthorized_topics) == ({}, set(), set())
    assert cluster.topic_id("none") is None


def test_a_member_of_a_group_says_whether_it_leads() -> None:
    assert "self._is_leader = True" in inspect.getsource(ConsumerCoordinator)
    assert "self.state = MemberState.STABLE" in inspect.getsource(BaseCoordinator)
    assert "self.rejoin_needed = True" in inspect.getsource(ConsumerCoordinator.request_rejoin)


def test_the_consumer_takes_a_network_client_of_ours() -> None:
    assert "self.config['kafka_client'](" in inspect.getsource(KafkaConsumer.__init__)


ALL = [error for _, error in inspect.getmembers(errors, inspect.isclass) if issubclass(error, errors.KafkaError)]


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_of_the_client_is_one_of_the_three_words(error: type[Exception]) -> None:
    try:
        raised = error()
    except TypeError:
        raised = error({})  # it wants to know of which partitions
    word = refusal(raised)
    assert isinstance(word, AdapterError)
    assert isinstance(word, BackOff | Rejected) == isinstance(raised, NOT_WRITTEN), "only what was certainly not written is refused"


def test_what_nobody_knows_may_have_been_delivered() -> None:
    for doubtful in (
        errors.KafkaTimeoutError(),
        errors.RequestTimedOutError(),
        errors.NotEnoughReplicasAfterAppendError(),
        errors.UnknownError(),
    ):
        assert isinstance(refusal(doubtful), NotConnected)


def test_a_refusal_names_the_error_once_and_says_nothing_where_the_broker_says_nothing() -> None:
    too_large = errors.MessageSizeTooLargeError
    assert str(refusal(too_large(None))) == "too_large: [Error 10] MessageSizeTooLargeError"
    assert str(refusal(too_large("at most 220 bytes"))) == "too_large: [Error 10] MessageSizeTooLargeError: at most 220 bytes"


def test_what_is_said_in_our_own_words_is_told_as_it_is() -> None:
    assert str(not_connected(NotConnected("no broker has answered for 10 s"))) == "no broker has answered for 10 s"


def test_a_session_that_the_cluster_does_not_allow_is_told_with_the_settings_on_both_sides() -> None:
    told = str(not_connected(errors.InvalidSessionTimeoutError()))
    assert "InvalidSessionTimeoutError: `session_timeout` must lie between" in told
    assert "group.min.session.timeout.ms" in told


def test_levels_ask_for_offsets_and_positions_as_we_expect() -> None:
    assert parameters(ConsumerCoordinator.fetch_committed_offsets) == ["self", "partitions", "timeout_ms"]
    assert "require_stable" in inspect.getsource(ConsumerCoordinator._send_offset_fetch_request)
    assert parameters(SubscriptionState.all_consumed_offsets) == ["self"]


def test_kafka_python_leaves_the_epoch_out_where_it_puts_a_partition_where_its_group_is() -> None:
    """So sources/consumer.py does that itself; it need not any more where this fails."""
    source = inspect.getsource(ConsumerCoordinator.refresh_committed_offsets_if_needed_async)
    assert parameters(ConsumerCoordinator.refresh_committed_offsets_if_needed_async) == ["self", "timeout_ms"]
    assert "await self.fetch_committed_offsets_async(missing_fetch_positions, timeout_ms=timeout_ms)" in source
    assert "self._subscription.seek(partition, offset.offset)" in source


def test_the_coordinator_is_asked_for_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python asks with each answer while the cluster names a node that is away."""
    assert "self._manager.call_soon(self._send_group_coordinator_request)" in inspect.getsource(BaseCoordinator.lookup_coordinator)
    clock, asked = [1000.0], list[float]()
    monkeypatch.setattr(consumer, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    async def ask() -> str:
        asked.append(clock[0])
        clock[0] += 0.02
        return "node"

    coordinator = SimpleNamespace(
        _send_group_coordinator_request=ask, config={"retry_backoff_ms": 100}, _manager=SimpleNamespace(_net=SimpleNamespace(sleep=sleep))
    )
    paced = consumer._paced(coordinator)
    for _ in range(3):
        with pytest.raises(StopIteration, match="node"):
            paced().send(None)
    clock[0] += 5
    with pytest.raises(StopIteration, match="node"):
        paced().send(None)
    assert asked == pytest.approx([1000.0, 1000.1, 1000.2, 1005.22])


@pytest.mark.parametrize(("doubtful", "following", "outcome"), [(False, 5, BackOff), (True, 6, NotConnected)], ids=["never", "perhaps"])
def test_numbers_of_a_batch_are_used_again_only_where_no_try_of_it_was_taken(
    doubtful: bool, following: int, outcome: type[AdapterError]
) -> None:
    """Else the broker takes the next batch for this one, says that it has it, and drops it."""
    numbers, partition = Numbers(api_version=(4, 0)), TopicPartition("t", 0)
    numbers.set_producer_id_and_epoch(ProducerIdAndEpoch(1, 0))
    with sending(Delivery, numbers, partition, timeout_ms=1) as one:
        numbers.set_sequence_number(partition, 5)
        one.batch.records.set_producer_state(1, 0, 5, False)
        numbers.increment_sequence_number(partition, 1)
        one.batch.doubtful, one.batch.created = doubtful, one.batch.created - 1  # its time is over
        one.answered(errors.NotEnoughReplicasError())
        assert (numbers.sequence_number(partition), [type(each) for each in one.told]) == (following, [outcome])


def test_a_batch_whose_time_is_over_is_tried_no_more() -> None:
    """Else the sender forgets the producer's id with it, never asks for another, and sends nothing to anybody any more."""
    assert "any([batch.in_retry() for batch in expired_batches])" in inspect.getsource(Sender._send_producer_data)
    accumulator, partition = Accumulator(lambda _: None, Mock(), delivery_timeout_ms=1, request_timeout_ms=1), TopicPartition("t", 0)
    accumulator.enqueue(partition, [(b"tag", b"\x01\x01\0", 0)])
    (waiting,) = accumulator._batches[partition]
    waiting.retry()
    waiting.created -= 1
    (expired,) = accumulator.expired_batches()
    assert (expired, expired.in_retry()) == (waiting, False)


def test_the_sender_waits_for_requests_about_the_transaction_in_one_place() -> None:
    source = inspect.getsource(Sender.run_once)
    assert "has_in_flight_transactional_request() or self._maybe_send_pending_request()" in source
    assert parameters(Sender._send_producer_data) == ["self", "now"]
    assert "is_send_to_partition_allowed" in inspect.getsource(RecordAccumulator)


def test_a_batch_of_a_transaction_says_so() -> None:
    records = Records([(b"1", b"\x01\x01\0", 0)])
    records.set_producer_state(1, 0, 0, True)
    records.close()
    assert DefaultRecordBatch(records.buffer()).is_transactional


def test_a_poll_waits_its_time_also_while_a_heartbeat_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is while no broker answers. kafka-python would look again without any wait, and each look leaves something behind at the fetch under way."""
    waits = list[float]()

    def fetch(_: int, *, update_offsets: bool, timeout_ms: float) -> tuple[dict[str, Any], bool]:
        del update_offsets
        waits.append(timeout_ms)
        return {}, False

    fetcher = Mock(fetch_records=fetch)
    ours = Mock(config={"api_version": (2, 2), "group_id": "bridges"}, _fetcher=fetcher)
    ours._coordinator = Mock(config={"retry_backoff_ms": 100}, time_to_next_poll=lambda: 0.0)
    monkeypatch.setattr(consumer, "KafkaConsumer", lambda **_: ours)
    consumer.bootstrapped({}, Mock(), Kafka(bootstrap_servers="127.0.0.1:1"), Mock())
    KafkaConsumer._poll_once(ours, Timer(200), 1)
    assert 100 < waits[0] <= 200
