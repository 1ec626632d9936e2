"""Faults that no real broker makes on demand, by librdkafka's mock cluster: real connections, three brokers, errors on request."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from brokers.common import wait_until
from kafka import TopicPartition
from structlog.testing import capture_logs

from contract.kafka_user import User, bodies, out, receive
from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka.sources.progress import MOST

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCE, FETCH, OFFSET_COMMIT, FIND_COORDINATOR = 0, 1, 8, 10
NOT_LEADER, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, NO_COORDINATOR, NOT_COORDINATOR, LOADING = 6, 7, 19, 15, 16, 14
DISCONNECT = -195


class Mock:
    """A cluster that lives as long as this object."""

    def __init__(self) -> None:
        (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*")
        self._library = library = ctypes.CDLL(str(path))
        for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        self._handle = ctypes.c_void_p(library.rd_kafka_new(0, None, ctypes.create_string_buffer(512), 512))
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._handle, 3))
        self.url = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def topic(self, name: str, partitions: int = 1) -> None:
        assert self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 3) == 0

    def answer(self, request: int, *errors: int) -> None:
        """The next requests of a kind get these answers."""
        codes = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), codes)

    def work_again(self, request: int) -> None:
        """Requests of a kind get no more such answers."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(request))

    def lead(self, topic: str, broker: int) -> None:
        """Another broker leads the topic's first partition; -1: none does."""
        assert self._library.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), 0, broker) == 0

    def set_down(self, broker: int, down: bool) -> None:
        call = self._library.rd_kafka_mock_broker_set_down if down else self._library.rd_kafka_mock_broker_set_up
        assert call(self._cluster, broker) == 0

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)


@pytest.fixture
def mock() -> Iterator[Mock]:
    cluster = Mock()
    yield cluster
    cluster.close()


@pytest.fixture
def user(mock: Mock) -> Iterator[User]:
    one = User(mock.url, create=False, api_version="2.3")  # the mock cannot say what it speaks
    mock.topic(one.topic)
    yield one
    one.close()


FAULTS = {
    "the leader moved": (NOT_LEADER, NOT_LEADER),
    "the connection broke": (DISCONNECT,),
    "the broker timed out": (REQUEST_TIMED_OUT,),
    "too few replicas, twice": (NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS),
    "all of them": (NOT_LEADER, DISCONNECT, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS),
}


@pytest.mark.parametrize("errors", FAULTS.values(), ids=FAULTS)
def test_a_fault_while_publishing_loses_doubles_and_disorders_nothing(mock: Mock, user: User, errors: tuple[int, ...]) -> None:
    sink = user.sink()
    sink.publish([out("warm", user.topic, b"warm")])
    user.words(1)
    mock.answer(PRODUCE, *errors)
    for start in range(0, 500, 50):
        sink.publish([out(str(number), user.topic, b"%d" % number) for number in range(start, start + 50)])
    assert set(user.words(501, 30).values()) == {"confirmed"}
    assert bodies(receive(user.source(), 501)) == ["warm", *map(str, range(500))]


def test_a_new_leader_is_followed(mock: Mock, user: User) -> None:
    sink = user.sink()
    for round_ in range(6):
        mock.lead(user.topic, 1 + round_ % 3)
        sink.publish([out(f"{round_}-{number}", user.topic, b"%d" % (100 * round_ + number)) for number in range(100)])
    assert set(user.words(600, 30).values()) == {"confirmed"}
    assert bodies(receive(user.source(), 600)) == [str(number) for number in range(600)]


def test_one_broker_of_three_that_dies_is_no_lost_connection(mock: Mock, user: User) -> None:
    sink = user.sink(connection_timeout=2)
    mock.lead(user.topic, 1)
    sink.publish([out("before", user.topic)])
    user.words(1)
    mock.set_down(1, True)
    mock.lead(user.topic, 2)
    sink.publish([out("after", user.topic)])
    assert user.words(2, 20) == {"before": "confirmed", "after": "confirmed"}
    sink.publish(())


def test_a_partition_without_a_leader_holds_its_messages_only(mock: Mock, user: User) -> None:
    other = user.topic + ".other"
    mock.topic(other)
    sink = user.sink(delivery_timeout=2)
    sink.publish([out("1", user.topic), out("2", other)])
    user.words(2)
    mock.lead(user.topic, -1)
    publisher = sink._publisher
    assert publisher is not None
    publisher._cluster.request_update()
    wait_until(lambda: -1 in {each.leader_id for each in publisher._cluster._partitions[user.topic].values()}, "the news")
    sink.publish([out("3", user.topic), out("4", other)])
    assert user.words(4, 20) == {"1": "confirmed", "2": "confirmed", "3": "refused_by_broker", "4": "confirmed"}


def test_messages_without_a_key_go_to_partitions_that_have_a_leader(mock: Mock, user: User) -> None:
    topic = user.topic + ".three"
    mock.topic(topic, 3)
    mock.lead(topic, -1)
    sink = user.sink(delivery_timeout=15)
    sink.publish([out("first", topic)])  # what comes before the topic is known goes to one partition
    user.words(1)
    for number in range(50):
        sink.publish([out(str(number), topic)])
    assert set(user.words(51, 40).values()) == {"confirmed"}


@pytest.mark.parametrize("request_", [FETCH, OFFSET_COMMIT], ids=["fetch", "commit"])
def test_a_fault_while_receiving_loses_and_doubles_nothing(mock: Mock, user: User, request_: int) -> None:
    user.sink().publish([out(str(number), user.topic, b"%d" % number) for number in range(1000)])
    source = user.source()
    assert len(receive(source, 100)) == 100
    mock.answer(request_, *((NOT_LEADER, DISCONNECT) if request_ == FETCH else (NOT_COORDINATOR, LOADING, DISCONNECT)))
    assert bodies(receive(source, 900)) == [str(number) for number in range(100, 1000)]
    poller = source._poller
    assert poller is not None
    wait_until(lambda: not poller.progress._ready and poller._commit is not None and poller._commit.succeeded(), "the last commit", 20)
    source.close()
    again = user.source()
    assert again.receive(1, 2) is None


def test_while_nothing_is_committed_no_more_is_taken_than_a_bridge_recognises_and_then_the_rest(mock: Mock, user: User) -> None:
    user.sink().publish([out(str(number), user.topic, b"%d" % number) for number in range(MOST + 500)])
    mock.answer(OFFSET_COMMIT, *[NOT_ENOUGH_REPLICAS] * 1000)
    source = user.source()
    with capture_logs() as told:
        assert bodies(receive(source, MOST)) == [str(number) for number in range(MOST)]
        assert source.receive(500, 0.5) is None
        mock.work_again(OFFSET_COMMIT)
        assert bodies(receive(source, 500)) == [str(number) for number in range(MOST, MOST + 500)]
    assert [each["event"] for each in told] == ["commit_failed", "commits_again"]


def test_a_group_that_no_node_coordinates_is_an_outage_at_the_start_and_later_and_over_when_one_does(mock: Mock, user: User) -> None:
    nobody = "no node has coordinated the group '.*' for .* s: look whether each partition of __consumer_offsets has a leader"
    mock.answer(FIND_COORDINATOR, *[NO_COORDINATOR] * 10_000)
    with pytest.raises(NotConnected, match=nobody):
        user.source(connection_timeout=1)
    mock.work_again(FIND_COORDINATOR)

    user.sink().publish([out("first", user.topic, b"first")])
    source = user.source()
    assert bodies(receive(source, 1)) == ["first"]
    poller = source._poller
    assert poller is not None
    poller._coordinated._patience.seconds = 1.0
    mock.answer(FIND_COORDINATOR, *[NO_COORDINATOR] * 10_000)
    poller.consumer._coordinator.coordinator_dead("it went away")
    with pytest.raises(NotConnected, match=nobody):
        receive(source, 1)


def test_a_commit_that_fails_after_its_coordinator_was_searched_for_is_made_again(mock: Mock, user: User) -> None:
    """As where a broker comes back, and nothing is received after that which would be committed as well."""
    user.sink().publish([out(str(number), user.topic, b"%d" % number) for number in range(100)])
    source = user.source()
    batch, poller = source.receive(100, 20), source._poller
    assert batch is not None
    assert poller is not None
    assert len(batch.messages) == 100
    poll = poller._poll

    def poll_and_lose_the_coordinator() -> None:
        poll()
        poller._poll = poll  # type: ignore[method-assign]
        poller.consumer._coordinator.coordinator_dead("it went away")
        batch.ack()

    mock.answer(OFFSET_COMMIT, LOADING)
    poller._poll = poll_and_lose_the_coordinator  # type: ignore[method-assign]
    wait_until(lambda: poller.consumer.committed(TopicPartition(user.topic, 0)) == 100, "the commit", 20)
