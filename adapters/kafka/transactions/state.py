"""kafka-python's transactions for whole batches of ours: its producer's state, made to fail where anything failed.

kafka-python 3.0.12 commits a transaction although a batch of it was given up after its time-out, or its offsets were lost on their way (see link.py); and it
sends offsets again that an aborted transaction left behind. `Moving` does none of that. What is replaced here is tried in
tests/unit/kafka/test_transactions.py.
"""

from __future__ import annotations

import heapq
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition, errors
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import (
    AddPartitionsToTxnHandler,
    EndTxnHandler,
    FindCoordinatorHandler,
    Priority,
    TransactionalRequestResult,
    TransactionState,
    TxnOffsetCommitHandler,
    TxnRequestHandler,
)
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.metadata import MetadataRequest

from ...base import NotConnected
from ..link import refusal
from ..sinks.sender import Delivery, Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafka import OffsetAndMetadata

    from ..sinks.sender import Flight

_OFFSETS = (Priority.ADD_PARTITIONS_OR_OFFSETS + Priority.END_TXN) / 2
_TOO_FEW = (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError)
_VERIFYING = 1.0
"""Seconds for which "too few replicas" may mean that a broker is asking the coordinator whether a partition is in the transaction, and "unknown topic"
that the coordinator has not heard of one yet."""
_UNVERIFIED = "Unable to verify"
"""With these words a broker says "too few replicas" where the coordinator has not answered it."""
_LOOKUPS = 0.1
"""Seconds between two questions for a coordinator."""
_TAKEN_OVER = (errors.ProducerFencedError, errors.InvalidProducerEpochError)
"""What a producer is told whose epoch is over: another one has begun under its id, or the coordinator has ended its transaction, which took too long."""
_OPEN = (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING_TRANSACTION)


class Aborted(Exception):
    """The transaction did not happen; another one may be begun."""


class Leaders(TxnRequestHandler):  # type: ignore[misc]  # kafka-python has no types
    """Asks, after a transaction, which leaders its partitions have once its ends are written there.

    A transaction's end is answered before it is written, and a leader that goes in between leaves none. So the coordinator, which writes the ends, is asked
    for the transaction's state until it has done with it, and then for the leaders that it knows. Where it cannot tell, there are none. On the sender's
    thread, before anything is asked of the next transaction.
    """

    def __init__(self, numbers: Moving, topics: Iterable[str], found: Callable[[Mapping[TopicPartition, int]], None]) -> None:
        super().__init__(numbers)
        self._found = found
        self.request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        self._leaders = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    @property
    def priority(self) -> Any:
        """Behind the search for a coordinator, else in the order in which it was asked."""
        return Priority.ADD_PARTITIONS_OR_OFFSETS

    def handle_response(self, response: Any) -> None:
        """Of the coordinator, again and again until all ends are written; then of the leaders, which are told."""
        if self.request is self._leaders:
            partitions = ((topic.name, each) for topic in response.topics for each in topic.partitions)
            self._tell({TopicPartition(name, each.partition_index): each.leader_epoch for name, each in partitions if each.leader_id >= 0})
            return
        (found,) = response.transaction_states
        if found.error_code:
            self._tell({})
        elif found.transaction_state.startswith("Prepare"):
            self.transaction_manager.retry(self)
        else:
            self._is_retry = False
            self.request = self._leaders
            self.transaction_manager._enqueue_request(self)  # noqa: SLF001 - as every handler of kafka-python does

    def reenqueue(self) -> None:
        """See TxnRequestHandler: where a connection was lost there is no second try."""
        self._tell({})

    def fail(self, _: Exception) -> None:
        """However it fails, it tells of no leaders, and neither fails the transaction nor ends the producer."""
        self._tell({})

    fatal_error = abortable_error = fail

    def _tell(self, leaders: Mapping[TopicPartition, int]) -> None:
        self._found(leaders)
        self.result.done()


class Adding(AddPartitionsToTxnHandler):  # type: ignore[misc]  # as above
    """Asks for the cluster's state where a partition is not there: kafka-python would ask the coordinator again, for ever, and look nowhere else.

    The batch that waits for the partition is told by that state. Where none does yet, because the transaction was begun early, that fails here.
    """

    def handle_response(self, response: Any) -> None:
        """A partition that is not there fails the transaction, unless that is ending: then its batch is told of it."""
        codes = {code for _, partitions in response.results_by_topic_v3_and_below for _, code in partitions}
        if errors.UnknownTopicOrPartitionError.errno in codes:
            self.transaction_manager.look_again()
            if not self.transaction_manager.is_ending:
                self.abortable_error(errors.UnknownTopicOrPartitionError())
                return
        super().handle_response(response)


class Moving(Numbers):
    """The state of a transactional producer. One thread begins and ends transactions; the sender's thread carries them out.

    on_end         is called with how each transaction ended that the cluster knew of: whether it was committed
    on_doubt       is called after that, on the sender's thread, where a partition has no leader, or another one: its end may be missing there
    seen           completes after these. The next transaction must not begin before: if it were aborted, so would be what this one delivered
    epochs         those of the leaders that were seen last, by this producer or the one before it
    commit_asked   the cluster was asked to commit a transaction that finishes something; whoever begins transactions unsets it once that one has ended.
                   If it was never asked, the transaction has not happened, whatever the cluster says of the last one that it knows
    incomplete     says whether a batch waits or is on its way. kafka-python's sender says so, too, but as it was before it had to wait for a transaction
                   that was just begun: then that one's offsets would go out beside its batches, see _next_request_handler
    """

    def __init__(
        self,
        on_end: Callable[[bool], None],
        on_doubt: Callable[[], None],
        epochs: dict[TopicPartition, int],
        **known: Any,
    ) -> None:
        super().__init__(**known)
        self._on_end = on_end
        self._on_doubt = on_doubt
        self._offsets = TransactionalRequestResult()
        self._epochs = epochs
        self._finishing = False
        self._looked_up: dict[Any, float] = {}
        self.commit_asked = False
        self.incomplete: Callable[[], bool] = lambda: False
        self.seen = TransactionalRequestResult()
        self.seen.done()

    def classify_batch_error(self, error: Any, batch: Flight, log_start_offset: int = -1) -> str:
        """See TransactionManager. A producer whose numbers are in doubt is done with: a new one aborts what it began."""
        verdict = super().classify_batch_error(error, batch, log_start_offset)
        return str(self.ERROR_CLASS_FATAL) if verdict == self.ERROR_CLASS_NEEDS_EPOCH_BUMP else verdict

    def give_up(self, error: Exception) -> None:
        """A batch failed: its transaction must not be committed. The sender's thread.

        Where the broker has certainly not taken it, the transaction is aborted, and another one may follow. Else this producer is done with: what is still on
        its way to the broker would land in the next transaction, beside what is sent again. Its successor has another epoch, which the broker tells from that.
        """
        why = refusal(error)
        with self._lock:
            if self._current_state in _OPEN:
                self.transition_to_abortable_error(why if isinstance(why, NotConnected) else errors.KafkaError(str(why)))

    def _complete_transaction(self) -> None:
        if self._transaction_started:
            self._on_end(self._current_state == TransactionState.COMMITTING_TRANSACTION)
            self._ask_for_leaders(frozenset(self._partitions_in_transaction))
        super()._complete_transaction()
        self._pending_txn_offset_commits.clear()

    @property
    def is_ending(self) -> bool:
        """Whether the end was asked for: all batches are waiting by then, if they are not on their way."""
        return bool(self._current_state != TransactionState.IN_TRANSACTION)

    def look_again(self) -> None:
        """A topic may have gone: whatever waits for it is told so."""
        self._metadata.request_update()

    def _add_partitions_to_transaction_handler(self) -> Adding:
        self._pending_partitions_in_transaction.update(self._new_partitions_in_transaction)
        self._new_partitions_in_transaction.clear()
        return Adding(self, self._pending_partitions_in_transaction)

    def _remember_leader(self, partition: TopicPartition) -> None:
        epoch = self._metadata.leader_epoch_for_partition(partition)
        if epoch is not None and epoch >= 0:
            self._epochs.setdefault(partition, epoch)

    def _ask_for_leaders(self, partitions: frozenset[TopicPartition]) -> None:
        request = Leaders(self, {each.topic for each in partitions}, partial(self._compare, partitions))
        self.seen = request.result
        self._enqueue_request(request)

    def _compare(self, partitions: frozenset[TopicPartition], leaders: Mapping[TopicPartition, int]) -> None:
        if any(each not in leaders or self._epochs.get(each, leaders[each]) != leaders[each] for each in partitions):
            self._on_doubt()
        self._epochs |= leaders

    def _enqueue_request(self, request_handler: TxnRequestHandler) -> None:
        """See TransactionManager. The offsets come last, before the end: they wait for the batches, and those may wait for any other request."""
        if isinstance(request_handler, TxnOffsetCommitHandler):
            heapq.heappush(self._pending_requests, (_OFFSETS, self._next_pending_requests_sort_id(), request_handler))
        else:
            super()._enqueue_request(request_handler)

    def next_request_handler(self, has_incomplete_batches: bool) -> Any:
        """See TransactionManager. Where the transaction has failed, all that was to be asked fails at once: kafka-python sleeps after each."""
        with self._lock:
            while True:
                before = len(self._pending_requests)
                handler = self._next_request_handler(has_incomplete_batches or self.incomplete())
                if handler is not None or len(self._pending_requests) >= before:
                    break
        if isinstance(handler, FindCoordinatorHandler):
            self._looked_up[handler._coord_type] = time.monotonic()  # noqa: SLF001 - said nowhere else but in the request
        return handler

    @property
    def pause(self) -> float:
        """Seconds until the next request, where that asks for a coordinator that was asked for a moment ago.

        While the cluster names a node that cannot be reached, as for some seconds after one has died, kafka-python asks again with each answer.
        """
        first = self._pending_requests[0][2] if self._pending_requests else None
        if not isinstance(first, FindCoordinatorHandler):
            return 0
        return max(0, self._looked_up.get(first._coord_type, 0) + _LOOKUPS - time.monotonic())  # noqa: SLF001 - as above

    def _next_request_handler(self, has_incomplete_batches: bool) -> Any:
        """Without its offsets a transaction is not committed, whatever became of the request with them.

        They wait for the batches. A broker asks the coordinator about either, whether it belongs to the transaction, and forgets the first question of
        a producer where a second one comes: what it concerned is refused then, as NOT_ENOUGH_REPLICAS, and tried again after 100 ms.
        """
        first = self._pending_requests[0][2] if self._pending_requests else None
        if isinstance(first, TxnOffsetCommitHandler) and has_incomplete_batches and not (self.has_error() or self.is_aborting()):
            return None
        if isinstance(first, EndTxnHandler) and not has_incomplete_batches and self._lacks_offsets:
            first.abortable_error(errors.KafkaError("the offsets of a transaction were not sent"))
        handler = super().next_request_handler(has_incomplete_batches)
        if self._finishing and isinstance(handler, EndTxnHandler) and handler.request.committed:
            self.commit_asked = True
        return handler

    @property
    def _lacks_offsets(self) -> bool:
        return self._current_state == TransactionState.COMMITTING_TRANSACTION and not self._offsets.succeeded

    def all_in_one(
        self,
        partitions: Iterable[TopicPartition],
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        member: Any,
        *,
        commit: bool = True,
    ) -> Any:
        """Begin a transaction with these partitions and offsets, and ask for its end, which waits for their batches; what to wait for.

        `member`: of which group the offsets are, and who says so. The partitions come first, so that their batches go out while the offsets are on
        their way. Raises KafkaError.
        """
        with self._lock:
            self.begin(partitions, positions, member)
            return self.begin_commit() if commit else self.begin_abort()

    def begin(self, partitions: Iterable[TopicPartition], positions: Mapping[TopicPartition, OffsetAndMetadata], member: Any) -> Any:
        """As `all_in_one`, without its end: until something is written nobody sees anything of it. What to wait for until the offsets are in it."""
        with self._lock:
            self.begin_transaction()
            self._finishing = bool(positions)
            for partition in partitions:
                self._remember_leader(partition)
            self._enter(partitions, positions, member)
            return self._offsets

    def _enter(self, partitions: Iterable[TopicPartition], positions: Mapping[TopicPartition, OffsetAndMetadata], member: Any) -> None:
        """Ask for these to be in the transaction."""
        for partition in partitions:
            self.maybe_add_partition_to_transaction(partition)
        if self._new_partitions_in_transaction:
            self._enqueue_request(self._add_partitions_to_transaction_handler())
        self._offsets = self.send_offsets_to_transaction(positions, member)

    @property
    def produce_version(self) -> int | None:
        """Of the requests that write in this transaction; None where kafka-python decides."""
        return None


class MoveDelivery(Delivery):
    """Sends batches of partitions that are in the transaction already while a request about it is under way; kafka-python waits for that first."""

    _transaction_manager: Moving

    def _dispatch_error(self, batch: Flight, exception: Exception, partition_response: Any) -> None:
        batch.unverified = _UNVERIFIED in str(exception)
        super()._dispatch_error(batch, exception, partition_response)

    def _can_retry(self, batch: Flight, error_cls: type[Exception]) -> bool:
        """See Sender. Too few replicas are not waited for, as the transaction's others would wait, too.

        Where partitions are not asked for, it is the answer to a batch that the coordinator does not know one, and that it therefore has not tried the others.
        """
        late = time.monotonic() - batch.created > _VERIFYING
        if issubclass(error_cls, _TOO_FEW) and late and not batch.unverified:
            return False
        if self._transaction_manager.produce_version is None or late:
            return super()._can_retry(batch, error_cls)
        if issubclass(error_cls, errors.OperationNotAttemptedError):
            error_cls = errors.NotEnoughReplicasError
        return bool(Sender._can_retry(self, batch, error_cls))  # noqa: SLF001 - but for the few tries that Delivery makes

    def _in_vain(self, batch: Flight, error_cls: type[Exception]) -> bool:
        return not batch.unverified and super()._in_vain(batch, error_cls)

    def _produce_request(self, *which: Any) -> Any:
        request, version = super()._produce_request(*which), self._transaction_manager.produce_version
        if version is not None:
            request._min_version = request._max_version = version  # noqa: SLF001 - kafka-python says 9 there
        return request

    def run_once(self) -> None:
        """One turn of the sender's thread: nothing but answers while it pauses, batches beside a request about the transaction, or as kafka-python has it."""
        numbers = self._transaction_manager
        if (pause := numbers.pause) > 0:
            self._client.poll(timeout_ms=pause * 1000)
        elif numbers.has_in_flight_transactional_request() and not (numbers.has_error() or numbers.is_aborting()):
            pace = self.config["retry_backoff_ms"]
            delay = self._send_producer_data()
            allowed = any(map(numbers.is_send_to_partition_allowed, self._accumulator.waiting()))  # else it says at once, for ever
            self._client.poll(timeout_ms=min(delay, pace) if allowed else pace)
        else:
            super().run_once()


def ended(numbers: Moving, wakeup: Any, result: Any, timeout: float) -> None:
    """Wait for the end of a transaction, or for its offsets to be in it. Raises Aborted where it did not happen, NotConnected where nobody knows."""
    try:
        if not result.wait(timeout * 1000):
            raise NotConnected(f"a transaction did not end within {timeout:g} s")
    except errors.KafkaError as error:
        if numbers.has_fatal_error():
            raise NotConnected(f"a transaction failed: {_why(error, numbers.transactional_id)}") from error
        abort(numbers, wakeup, timeout)
        raise Aborted(repr(error)) from error


def _why(error: errors.KafkaError, transactional_id: str) -> str:
    if not isinstance(error, _TAKEN_OVER):
        return repr(error)
    return (
        f"another process has taken over the transactional id {transactional_id} (does a second bridge run under this bridge's name?), "
        "or this bridge stood still for longer than `session_timeout`"
    )


def abort(numbers: Moving, wakeup: Any, timeout: float) -> None:
    """Take back what was begun. Raises NotConnected where that cannot be done."""
    try:
        result = numbers.begin_abort()
        wakeup()
        done = result.wait(timeout * 1000)
    except errors.KafkaError as error:
        raise NotConnected(f"a transaction could not be aborted: {error!r}") from error
    if not done:
        raise NotConnected(f"a transaction was not aborted within {timeout:g} s")
