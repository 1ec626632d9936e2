"""The state of a transactional producer whose transactions have what is written in them: what is asked, in which order, and with which epoch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import OffsetAndMetadata, TopicPartition, errors
from kafka.cluster import ClusterMetadata
from kafka.producer.transaction_manager import ProducerIdAndEpoch, TransactionState
from kafka.structs import ConsumerGroupMetadata
from unit.kafka.sender import sending

from delaybridge.adapters.base import BackOff, NotConnected, Rejected
from delaybridge.adapters.kafka.transactions.implicit import WORN, End, Implicit, Renewal, renewed
from delaybridge.adapters.kafka.transactions.state import MoveDelivery, ended

MEMBER = ConsumerGroupMetadata("g", 1, "m", None)
TO, FROM = TopicPartition("t", 0), TopicPartition("s", 0)
POSITIONS = {FROM: OffsetAndMetadata(1, "", -1)}


def implicit(epoch: int = 0) -> Implicit:
    numbers = Implicit(
        lambda _: None, lambda: None, {}, transactional_id="t", transaction_timeout_ms=1000, api_version=(4, 1), metadata=ClusterMetadata()
    )
    numbers.set_producer_id_and_epoch(ProducerIdAndEpoch(1, epoch))
    numbers._current_state = TransactionState.READY
    return numbers


def versions(request: Any) -> tuple[int, int]:
    return request._min_version, request._max_version


def committed(numbers: Implicit) -> Any:
    """Its offsets are taken; what is asked next."""
    numbers.next_request_handler(False).handle_response(SimpleNamespace(topics=[(FROM.topic, [(FROM.partition, 0)])]))
    return numbers.next_request_handler(False)


def test_batches_go_out_unasked_then_the_offsets_and_then_the_end() -> None:
    numbers = implicit()
    numbers.all_in_one([TO], POSITIONS, MEMBER)
    assert numbers.is_send_to_partition_allowed(TO)
    assert numbers.produce_version == 12
    assert numbers.next_request_handler(True) is None, "the offsets wait for the batches"
    offsets = numbers.next_request_handler(False)
    assert (type(offsets.request).__name__, versions(offsets.request)) == ("TxnOffsetCommitRequest", (5, 5))
    offsets.handle_response(SimpleNamespace(topics=[(FROM.topic, [(FROM.partition, 0)])]))
    end = numbers.next_request_handler(False)
    assert (type(end.request).__name__, versions(end.request), end.request.committed) == ("EndTxnRequest", (5, 5), True)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_brings_the_epoch_of_the_next_one_in_which_all_numbers_begin_anew(*, commit: bool) -> None:
    numbers = implicit()
    numbers.set_sequence_number(TO, 17)
    result = numbers.all_in_one([TO], POSITIONS, MEMBER, commit=commit)
    end = committed(numbers)
    assert (end.request.producer_epoch, end.request.committed) == (0, commit)
    end.handle_response(SimpleNamespace(error_code=0, producer_id=1, producer_epoch=1))
    assert result.succeeded
    assert (numbers.producer_id_and_epoch.epoch, numbers.sequence_number(TO)) == (1, 0)


def test_offsets_that_are_refused_for_now_are_sent_again_in_the_same_way() -> None:
    numbers = implicit()
    numbers.all_in_one([TO], POSITIONS, MEMBER)
    refused = errors.CoordinatorLoadInProgressError.errno
    numbers.next_request_handler(False).handle_response(SimpleNamespace(topics=[(FROM.topic, [(FROM.partition, refused)])]))
    again = numbers.next_request_handler(False)
    assert (type(again.request).__name__, versions(again.request)) == ("TxnOffsetCommitRequest", (5, 5))


def test_what_only_ends_something_again_asks_for_its_partitions_and_keeps_the_epoch() -> None:
    numbers = implicit()
    numbers.all_in_one([TO], {}, MEMBER)
    asked = [numbers.next_request_handler(False) for _ in range(2)]
    assert [type(each).__name__ for each in asked] == ["Adding", "AddOffsetsToTxnHandler"]
    assert not numbers.is_send_to_partition_allowed(TO)
    assert numbers.produce_version is None
    asked[1].result.done()
    numbers._transaction_started = True
    end = numbers.next_request_handler(False)
    assert end.request._max_version == 3
    end.handle_response(SimpleNamespace(error_code=0))
    assert numbers.producer_id_and_epoch.epoch == 0


def test_a_batch_that_may_still_be_on_its_way_costs_the_producer() -> None:
    numbers = implicit()
    result = numbers.all_in_one([TO], POSITIONS, MEMBER)
    numbers.give_up(errors.KafkaTimeoutError("too late"))
    while numbers._pending_requests:
        assert numbers.next_request_handler(False) is None
    with pytest.raises(NotConnected):
        ended(numbers, lambda: None, result, 1)


def test_an_id_is_worn_before_the_cluster_would_change_it_in_the_middle_and_its_renewal_goes_on_from_where_it_is() -> None:
    assert not implicit(WORN - 1).worn
    numbers = implicit(WORN)
    assert numbers.worn
    numbers.set_sequence_number(TO, 17)
    result = numbers.renew()
    asked = numbers.next_request_handler(False)
    assert isinstance(asked, Renewal)
    assert (asked.request.producer_id, asked.request.producer_epoch) == (1, WORN)
    asked.handle_response(SimpleNamespace(error_code=0, producer_id=2, producer_epoch=0))
    assert result.succeeded
    assert (numbers.producer_id_and_epoch.producer_id, numbers.worn, numbers.sequence_number(TO)) == (2, False, 0)
    numbers.all_in_one([TO], POSITIONS, MEMBER)


def test_while_something_is_owed_under_a_worn_id_transactions_are_those_of_before_which_leave_the_epoch_as_it_is() -> None:
    numbers = implicit(WORN)
    renewed(numbers, lambda: None, 0, lambda: False)
    numbers.all_in_one([TO], POSITIONS, MEMBER)
    asked = [numbers.next_request_handler(False) for _ in range(2)]
    assert [type(each).__name__ for each in asked] == ["Adding", "AddOffsetsToTxnHandler"]
    assert numbers.produce_version is None


def test_an_end_that_is_asked_for_again_because_its_answer_was_lost_is_the_same_one() -> None:
    numbers = implicit()
    result = numbers.all_in_one([TO], POSITIONS, MEMBER)
    end = committed(numbers)
    end.on_complete(numbers.next_in_flight_request_correlation_id(), errors.KafkaConnectionError("gone"))
    again = [each for _, _, each in numbers._pending_requests if isinstance(each, End)]
    assert (again, end.request.producer_epoch) == ([end], 0)
    end.handle_response(SimpleNamespace(error_code=0, producer_id=1, producer_epoch=1))
    assert result.succeeded
    assert numbers.producer_id_and_epoch.epoch == 1


@pytest.mark.parametrize("error", [errors.InvalidProducerEpochError, errors.ProducerFencedError])
def test_whoever_has_lost_the_transactional_id_does_not_take_it_back(error: type[errors.KafkaError]) -> None:
    numbers = implicit(WORN)
    result = numbers.renew()
    numbers.next_request_handler(False).handle_response(SimpleNamespace(error_code=error.errno))
    assert result.failed
    assert numbers.has_fatal_error()
    assert numbers.next_request_handler(False) is None


UNVERIFIED = "Unable to verify the partition has been added to the transaction. Underlying error: NOT_COORDINATOR"


@pytest.mark.parametrize(
    ("error", "tried_for"),
    [
        (errors.UnknownTopicOrPartitionError(), 1),
        (errors.OperationNotAttemptedError(), 1),
        (errors.NotEnoughReplicasError("too few"), 1),
        (errors.NotEnoughReplicasError(UNVERIFIED), 10),
        (errors.ConcurrentTransactionsError(), 10),
    ],
    ids=["unknown to the coordinator", "beside one that is", "too few replicas", "the coordinator is away", "the last one is being ended"],
)
def test_what_the_coordinator_cannot_tell_yet_is_tried_again_and_counts_as_not_written(error: Exception, tried_for: float) -> None:
    """Partitions are not asked for: what was said about them then is the answer to a batch."""
    numbers = implicit()
    numbers.all_in_one([TO], POSITIONS, MEMBER)
    with sending(MoveDelivery, numbers, TO, timeout_ms=10_000) as one:
        one.batch.records.set_producer_state(1, 0, 0, True)
        one.batch.attempts, began = 50, one.batch.created
        for age, tried in ((tried_for - 0.5, True), (tried_for + 0.5, False)):
            one.batch.created = began - age
            one.answered(error)
            assert (one.told == [], one.batch.doubtful) == (tried, False)
        assert all(isinstance(each, BackOff | Rejected) for each in one.told)
