"""The state of a transactional producer: what is asked of the cluster, in which order, and what is told of the answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import OffsetAndMetadata, TopicPartition, errors
from kafka.cluster import ClusterMetadata
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import (
    AddPartitionsToTxnHandler,
    CoordinatorType,
    ProducerIdAndEpoch,
    TransactionState,
    TxnOffsetCommitHandler,
)
from kafka.structs import ConsumerGroupMetadata

from delaybridge.adapters.base import BackOff, NotConnected
from delaybridge.adapters.kafka import Kafka
from delaybridge.adapters.kafka.link import Caught
from delaybridge.adapters.kafka.transactions import state as module
from delaybridge.adapters.kafka.transactions.state import Aborted, Leaders, Moving
from delaybridge.adapters.kafka.transactions.state import ended as until_ended
from delaybridge.adapters.kafka.transactions.transactor import Transactor
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable


def moving(on_end: Callable[[bool], None] = lambda _: None, on_doubt: Callable[[], None] = lambda: None) -> Moving:
    numbers = Moving(
        on_end, on_doubt, {}, transactional_id="t", transaction_timeout_ms=1000, api_version=(4, 0), metadata=ClusterMetadata()
    )
    numbers.set_producer_id_and_epoch(ProducerIdAndEpoch(1, 0))
    numbers._current_state = TransactionState.READY
    return numbers


def test_a_batch_that_was_given_up_ends_its_transaction_whatever_the_client_thinks_of_it() -> None:
    numbers = moving()
    numbers.begin_transaction()
    result = numbers.begin_commit()
    numbers.give_up(errors.KafkaTimeoutError("too late"))
    assert numbers.next_request_handler(False) is None
    assert result.failed
    assert numbers.has_abortable_error()


def test_a_batch_that_was_never_taken_aborts_its_transaction_and_the_producer_goes_on() -> None:
    numbers = moving()
    numbers.begin_transaction()
    result = numbers.begin_commit()
    numbers.give_up(BackOff(Reason.REFUSED_BY_BROKER, "too late"))
    assert numbers.next_request_handler(False) is None
    aborting = numbers.begin_abort

    def begin_abort() -> Any:
        done = aborting()
        done.done()
        return done

    numbers.begin_abort = begin_abort
    with pytest.raises(Aborted, match="too late"):
        until_ended(numbers, lambda: None, result, 1)


def test_a_coordinator_is_asked_for_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python asks with each answer while the cluster names a node that is away."""
    clock, numbers, transaction = [1000.0], moving(), CoordinatorType.TRANSACTION
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def looks_up(kind: CoordinatorType) -> float:
        numbers._lookup_coordinator(kind, "t")
        pause = numbers.pause
        clock[0] += pause
        assert numbers.next_request_handler(False) is not None
        return pause

    assert [looks_up(kind) for kind in (transaction, transaction, CoordinatorType.GROUP)] == pytest.approx([0, 0.1, 0])
    clock[0] += 0.06
    assert looks_up(transaction) == pytest.approx(0.04)
    assert numbers.pause == 0, "there is nothing to ask"


@pytest.mark.parametrize("error", [errors.KafkaTimeoutError("no answer in time"), NotConnected("dropped behind another one")])
def test_a_batch_that_may_still_be_on_its_way_costs_the_producer_for_it_would_land_in_the_next_transaction(error: Exception) -> None:
    numbers = moving()
    numbers.begin_transaction()
    result = numbers.begin_commit()
    numbers.give_up(error)
    assert numbers.next_request_handler(False) is None
    with pytest.raises(NotConnected):
        until_ended(numbers, lambda: None, result, 1)


@pytest.mark.parametrize("error", [errors.ProducerFencedError, errors.InvalidProducerEpochError])
def test_a_producer_that_another_one_fenced_off_names_the_id_and_who_may_have_it(error: type[Exception]) -> None:
    numbers = moving()
    numbers.begin_transaction()
    result = numbers.begin_commit()
    numbers.transition_to_fatal_error(error())
    result.done(error=error())
    with pytest.raises(NotConnected, match=r"transactional id t \(does a second bridge run under this bridge's name\?\)"):
        until_ended(numbers, lambda: None, result, 1)


def test_offsets_of_a_transaction_that_was_aborted_are_not_in_the_next_one() -> None:
    numbers = moving()
    numbers.begin_transaction()
    numbers._pending_txn_offset_commits[TopicPartition("t", 0)] = OffsetAndMetadata(1, "", -1)
    numbers.begin_abort()
    numbers._complete_transaction()
    assert numbers._pending_txn_offset_commits == {}


def test_a_transactional_producer_whose_numbers_are_in_doubt_is_done_with() -> None:
    assert moving().classify_batch_error(errors.OutOfOrderSequenceNumberError, None) == Moving.ERROR_CLASS_FATAL  # type: ignore[arg-type]


def test_the_partitions_of_a_transaction_are_asked_for_before_its_offsets_and_its_end() -> None:
    numbers = moving()
    member = ConsumerGroupMetadata("g", 1, "m", None)
    numbers.all_in_one([TopicPartition("t", 0)], {TopicPartition("s", 0): OffsetAndMetadata(1, "", -1)}, member)
    numbers._transaction_started = True  # as the answer to the first one says
    asked = [numbers.next_request_handler(False) for _ in range(2)]
    asked[1].result.done()
    asked.append(numbers.next_request_handler(False))
    assert [type(each).__name__ for each in asked] == ["Adding", "AddOffsetsToTxnHandler", "EndTxnHandler"]


def test_the_offsets_of_a_transaction_wait_for_its_batches_unless_it_is_taken_back() -> None:
    numbers = moving()
    member = ConsumerGroupMetadata("g", 1, "m", None)
    numbers.all_in_one([TopicPartition("t", 0)], {TopicPartition("s", 0): OffsetAndMetadata(1, "", -1)}, member)
    numbers._transaction_started = True
    assert isinstance(numbers.next_request_handler(True), AddPartitionsToTxnHandler)
    joining = numbers.next_request_handler(True)
    joining.handle_response(SimpleNamespace(error_code=0))
    assert numbers.next_request_handler(True) is None
    assert isinstance(numbers.next_request_handler(False), TxnOffsetCommitHandler)
    joining.handle_response(SimpleNamespace(error_code=0))
    numbers.give_up(errors.KafkaTimeoutError("too late"))
    numbers.begin_abort()
    assert isinstance(numbers.next_request_handler(True), TxnOffsetCommitHandler)


def test_the_offsets_of_a_transaction_wait_for_batches_that_came_after_the_sender_had_looked_for_any() -> None:
    """It looks, and then waits for the lock while the transaction is begun. A broker that is asked about both at once refuses the batches for 100 ms."""
    numbers = moving()
    numbers.all_in_one(
        [TopicPartition("t", 0)], {TopicPartition("s", 0): OffsetAndMetadata(1, "", -1)}, ConsumerGroupMetadata("g", 1, "m", None)
    )
    joining = [numbers.next_request_handler(False) for _ in range(2)][1]
    joining.handle_response(SimpleNamespace(error_code=0))
    numbers.incomplete = lambda: True
    assert numbers.next_request_handler(False) is None
    numbers.incomplete = lambda: False
    assert isinstance(numbers.next_request_handler(False), TxnOffsetCommitHandler)


def test_partitions_that_are_not_in_the_transaction_yet_are_asked_for_before_the_offsets_however_often_they_are_refused() -> None:
    numbers, looks = moving(), []
    numbers._metadata = SimpleNamespace(leader_epoch_for_partition=lambda _: None, request_update=lambda: looks.append("again"))
    member = ConsumerGroupMetadata("g", 1, "m", None)
    numbers.all_in_one([TopicPartition("t", 0)], {TopicPartition("s", 0): OffsetAndMetadata(1, "", -1)}, member)
    refused = SimpleNamespace(results_by_topic_v3_and_below=[("t", [(0, errors.UnknownTopicOrPartitionError.errno)])])
    joining, asked = SimpleNamespace(error_code=0), []
    for _ in range(5):
        request = numbers.next_request_handler(True)
        request.handle_response(refused if isinstance(request, AddPartitionsToTxnHandler) else joining)
        asked.append(type(request).__name__)
    assert asked == ["Adding", "AddOffsetsToTxnHandler", *["Adding"] * 3]
    assert looks == ["again"] * 4, "the topic may have gone: only the cluster's state tells"


def test_all_of_a_transaction_that_failed_is_told_at_once() -> None:
    numbers = moving()
    member = ConsumerGroupMetadata("g", 1, "m", None)
    result = numbers.all_in_one([TopicPartition("t", 0)], {TopicPartition("s", 0): OffsetAndMetadata(1, "", -1)}, member)
    numbers.give_up(errors.KafkaTimeoutError("too late"))
    assert numbers.next_request_handler(True) is None
    assert not result.is_done, "a batch may still be on its way"
    assert numbers.next_request_handler(False) is None
    assert result.failed


def leaders(**epochs: int) -> Any:
    """What a coordinator says: a topic's only partition has a leader of this epoch; of -1 none."""
    return SimpleNamespace(
        topics=[
            SimpleNamespace(name=name, partitions=[SimpleNamespace(partition_index=0, leader_id=min(epoch, 1), leader_epoch=epoch)])
            for name, epoch in epochs.items()
        ]
    )


def state(name: str, error_code: int = 0) -> Any:
    """How far a coordinator says that a transaction is."""
    return SimpleNamespace(transaction_states=[SimpleNamespace(transaction_state=name, error_code=error_code)])


def ended(numbers: Moving, *topics: str) -> Any:
    """A transaction that wrote to these ends; what is asked next."""
    numbers.begin_transaction()
    numbers._partitions_in_transaction |= {TopicPartition(topic, 0) for topic in topics}
    numbers._transaction_started = True
    numbers.begin_commit()
    numbers._complete_transaction()
    numbers._pending_requests = [each for each in numbers._pending_requests if isinstance(each[2], Leaders)]
    return numbers.next_request_handler(False)


def test_after_a_transaction_its_coordinator_is_asked_whether_all_that_it_wrote_to_has_the_same_leader_still() -> None:
    doubts: list[str] = []
    numbers = moving(on_doubt=lambda: doubts.append("doubt"))
    for expected, epochs in (
        (0, {"a": 3, "b": 5}),
        (0, {"a": 3, "b": 5}),
        (1, {"a": 3, "b": 6}),
        (1, {"a": 3, "b": 6}),
        (2, {"a": 3, "b": -1}),
    ):
        ended(numbers, "a", "b").handle_response(state("CompleteCommit"))
        look = numbers.next_request_handler(False)
        assert sorted(topic.name for topic in look.request.topics) == ["a", "b"]
        assert not numbers.seen.is_done
        look.handle_response(leaders(**epochs))
        assert numbers.seen.succeeded
        assert len(doubts) == expected, epochs


def test_the_leaders_are_asked_for_when_the_coordinator_has_written_all_ends_and_not_before() -> None:
    numbers = moving()
    look = ended(numbers, "a")
    for _ in range(3):
        assert look.request.transactional_ids == ["t"]
        look.handle_response(state("PrepareCommit"))
        look = numbers.next_request_handler(False)
        assert look.is_retry, "it waits before it asks again"
    look.handle_response(state("CompleteCommit"))
    look = numbers.next_request_handler(False)
    assert not look.is_retry
    assert [topic.name for topic in look.request.topics] == ["a"]


def test_where_another_coordinator_has_taken_over_the_end_of_a_transaction_is_in_doubt() -> None:
    doubts: list[str] = []
    numbers = moving(on_doubt=lambda: doubts.append("doubt"))
    ended(numbers, "a").handle_response(state("", errors.NotCoordinatorError.errno))
    assert doubts == ["doubt"]
    assert numbers.seen.succeeded
    assert numbers.next_request_handler(False) is None


@pytest.mark.parametrize("error", [errors.KafkaConnectionError("gone"), errors.UnsupportedVersionError("old"), None])
def test_where_the_coordinator_does_not_answer_the_end_of_a_transaction_is_in_doubt(error: Exception | None) -> None:
    doubts: list[str] = []
    numbers = moving(on_doubt=lambda: doubts.append("doubt"))
    look = ended(numbers, "a")
    look.on_complete(numbers.next_in_flight_request_correlation_id(), error)
    assert doubts == ["doubt"]
    assert numbers.seen.succeeded
    assert not numbers.has_error()


def test_the_first_leader_of_a_partition_is_the_one_that_was_known_when_its_transaction_began() -> None:
    doubts: list[str] = []
    numbers = moving(on_doubt=lambda: doubts.append("doubt"))
    numbers._metadata = SimpleNamespace(leader_epoch_for_partition=lambda partition: {"a": 3}.get(partition.topic))
    member = ConsumerGroupMetadata("g", 1, "m", None)
    numbers.all_in_one([TopicPartition("a", 0), TopicPartition("new", 0)], {}, member)
    assert numbers._epochs == {TopicPartition("a", 0): 3}
    numbers._current_state, numbers._pending_requests = TransactionState.READY, []
    ended(numbers, "a").handle_response(state("CompleteCommit"))
    numbers.next_request_handler(False).handle_response(leaders(a=4))
    assert doubts == ["doubt"]


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "of nothing else"])
def test_a_transaction_is_not_committed_without_its_offsets(begun: bool) -> None:
    numbers = moving()
    result = numbers.all_in_one(
        [TopicPartition("t", 0)], {TopicPartition("s", 0): OffsetAndMetadata(1, "", -1)}, ConsumerGroupMetadata("g", 1, "m", None)
    )
    numbers._transaction_started = begun
    for _ in range(2):
        numbers.next_request_handler(False)  # and the sender drops it
    assert numbers.next_request_handler(False) is None
    assert result.failed
    assert numbers.has_abortable_error()
    numbers.begin_abort()
    assert numbers._pending_requests[0][2].request.committed is False
    assert (numbers.next_request_handler(False) is not None) == begun


@pytest.mark.parametrize("known", [True, False], ids=["it refuses", "nobody knows it"])
def test_the_sender_keeps_a_request_whose_node_cannot_be_reached(known: bool) -> None:
    """kafka-python drops it where `await_ready` raises, as it always does there."""
    caught, numbers = Caught(), moving()
    client = caught(**Kafka(bootstrap_servers="127.0.0.1:1").client("test"))
    try:
        numbers._transaction_coordinator = next(iter(client.cluster.bootstrap_brokers())).node_id if known else "nobody"
        numbers.begin_transaction()
        numbers.send_offsets_to_transaction({}, ConsumerGroupMetadata("g"))
        accumulator = RecordAccumulator(transaction_manager=numbers)
        sender = Sender(client, client.cluster, accumulator, transaction_manager=numbers, request_timeout_ms=100)
        assert sender._maybe_send_pending_request()
        assert [type(each).__name__ for _, _, each in sorted(numbers._pending_requests)] == [
            "FindCoordinatorHandler",
            "AddOffsetsToTxnHandler",
        ]
    finally:
        caught.close()


def test_only_ends_that_the_cluster_knows_of_are_told() -> None:
    ends: list[bool] = []
    numbers = moving(ends.append)
    for begun, commit in ((True, True), (True, False), (False, True)):
        numbers.begin_transaction()
        numbers._transaction_started = begun
        numbers.begin_commit() if commit else numbers.begin_abort()
        numbers._complete_transaction()
    assert ends == [True, False]


def test_an_empty_transaction_announces_its_partitions_and_offsets_before_it_is_aborted() -> None:
    numbers = moving()
    numbers.all_in_one([TopicPartition("t", 0)], {}, ConsumerGroupMetadata("g"), commit=False)
    numbers._transaction_started = True
    asked = [numbers.next_request_handler(False) for _ in range(3)]
    assert [type(each).__name__ for each in asked] == ["Adding", "AddOffsetsToTxnHandler", "EndTxnHandler"]


class Waited:
    """What is waited for in vain. `waits`: for how long (ms)."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        return False


@pytest.mark.parametrize(("busy", "waits"), [({TopicPartition("t", 0)}, [3000]), (set(), [3000, 7000])])
def test_whoever_takes_an_id_over_waits_no_longer_than_for_an_end_that_cannot_be_written(
    busy: set[TopicPartition], waits: list[float]
) -> None:
    """It began when its predecessor's transaction was taken back for it. One that is slow to come has all of its time."""
    transactor, waited = Transactor.__new__(Transactor), Waited()
    markers: Any = SimpleNamespace(recall=lambda: busy, overdue=False)
    transactor._markers = markers
    with pytest.raises(NotConnected, match="not written everywhere within 3 s" if busy else "did not begin within 10 s"):
        transactor._await(waited, 10)
    assert (waited.waits, markers.overdue) == (waits, bool(busy))


def test_a_producer_that_failed_is_not_joined_again() -> None:
    transactor = Transactor.__new__(Transactor)
    transactor._broken, transactor._failed = None, NotConnected("the sink failed")
    assert transactor.broken
