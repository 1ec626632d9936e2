"""kafka-python's idempotent producer without its front door: its sender and accumulator, given whole batches of ours.

`KafkaProducer.send` blocks while a topic is unknown, refuses null header values, and takes a future per record; and its sender gives up the whole
producer for one message that a broker refuses. What is replaced here is listed in tests/unit/kafka/test_client.py, which fails when kafka-python
changes it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafka import errors
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import TransactionManager

from ....core.reasons import Reason
from ...base import AdapterError, BackOff, NotConnected, Rejected
from ..link import NOT_WRITTEN, TOO_LARGE, UNROUTABLE, not_connected, refusal
from ..wire.batches import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafka import TopicPartition

    from ...base import Confirm, Outcome
    from ..wire.batches import Prepared

_PATIENCE = 5  # answers "unknown topic" for a topic that was there: its leader may be moving
_NOBODY = -1  # as its leader, a partition has
_PAUSE = 10.0  # ms until the sender looks again what it may send, where nothing was sent and nothing happens to a connection
_STANDING = 3.0
"""Seconds for which a partition may take nothing. An election takes less, and what waits here keeps other partitions waiting. One message alone does not,
and stays: it is what a held-back partition is tried with, and so goes out as soon as there is a leader again."""
_SILENCE = 1.0
"""Seconds without a word from the cluster, after which it is not known any more for how long a partition has had no leader: a broker that is being stopped
says that of its partitions, and once more when it is back."""


class Flight(ProducerBatch):  # type: ignore[misc]  # kafka-python has no types
    """A batch under way. `doubtful`: a broker may have taken it. `error` is its last one. `unverified`: see state.MoveDelivery."""

    records: Records

    def __init__(self, partition: TopicPartition, records: Records, now: float) -> None:
        super().__init__(partition, records, now=now)
        self.doubtful = self.unverified = False
        self.error: Exception | None = None

    def ends(self) -> None:
        """Its time is over: it is tried no more.

        kafka-python would forget the producer's id for a batch that it was still trying, and never ask for another: nothing would be sent any more, to
        anybody. What a refused batch leaves behind is seen to in `Delivery._dispatch_error`. Where nobody knows whether one was taken, the answer to the next
        one tells.
        """
        self._retry = False


class Accumulator(RecordAccumulator):  # type: ignore[misc]  # kafka-python has no types
    """Batches that wait for their partition, in order. `report` hears outcomes, on the sender's thread or the closing one.

    `refused`: when a partition last refused what others may have taken (`time.monotonic`), unless it has taken something since.
    """

    def __init__(self, report: Confirm, cluster: Any, **configs: Any) -> None:
        super().__init__(**configs)
        self._report = report
        self._cluster = cluster
        self.refused: dict[TopicPartition, float] = {}
        self._leaderless: dict[TopicPartition, float] = {}
        self._heard = 0.0
        self.on_failure: Callable[[Exception, TopicPartition], None] = _nothing

    def enqueue(self, partition: TopicPartition, messages: Sequence[Prepared]) -> None:
        """Add messages to the partition's last batch, where it has room and was not sent yet, and to new ones. Any thread."""
        with self._tp_lock(partition):
            queue = self._batches[partition]
            records = queue[-1].records if queue else None
            for message in messages:
                if records is None or not records.append(message):
                    records = Records([message])
                    queue.append(self._flight(partition, records, time.monotonic()))

    def _flight(self, partition: TopicPartition, records: Records, created: float) -> Flight:
        flight = Flight(partition, records, created)
        flight.produce_future.add_callback(lambda result: self._landed(flight, result[2]))
        self._incomplete.add(flight)
        return flight

    def replace(self, flight: Flight, smaller: Sequence[Records]) -> None:
        """Put smaller batches in place of one that is too large."""
        now = time.monotonic()
        with self._tp_lock(flight.topic_partition):
            for records in reversed(smaller):
                part = self._flight(flight.topic_partition, records, flight.created)
                part.last_attempt = now
                self._batches[flight.topic_partition].appendleft(part)
        self.deallocate(flight)

    def abort_batches(self, error: Exception) -> None:
        """All that has no outcome gets this one."""
        for flight in self._incomplete.all():
            with self._tp_lock(flight.topic_partition):
                queue = self._batches[flight.topic_partition]
                if flight in queue:
                    queue.remove(flight)
            self._end(flight, error)

    def _end(self, flight: Flight, error: Exception) -> None:
        if flight.final_state is None:
            flight.abort(error)
        self.deallocate(flight)

    def _landed(self, flight: Flight, failure: Callable[[int], Exception] | None) -> None:
        """Tell the outcomes of a batch. Where a message is to be tried again, what waits behind it gets the same outcome, so that nothing overtakes it."""
        messages = flight.records.prepared
        if failure is None:
            self.refused.pop(flight.topic_partition, None)
            self._report([(tag, None) for tag, _, _ in messages])
            return
        failures = [failure(number) for number in range(len(messages))]
        culprit = next((each for each in failures if not isinstance(each, NotConnected)), failures[0])
        self.on_failure(culprit, flight.topic_partition)
        partitions = self.partitions(flight.topic_partition)
        outcomes: list[Outcome] = [(tag, refusal(each, partitions)) for (tag, _, _), each in zip(messages, failures, strict=True)]
        held = next((outcome for _, outcome in outcomes if not isinstance(outcome, Rejected)), None)
        if isinstance(held, BackOff) and held.partitions:
            self.refused[flight.topic_partition] = time.monotonic()
        self._report(outcomes)
        if held is not None:
            self.drop(flight.topic_partition, held)

    def partitions(self, of: TopicPartition) -> int:
        """How many its topic has."""
        return len(self._cluster.partitions_for_topic(of.topic) or ())

    def drop(self, partition: TopicPartition, error: AdapterError) -> None:
        """All that waits for a partition gets this outcome, or NotConnected where it may have been taken."""
        with self._tp_lock(partition):
            queue = self._batches[partition]
            waiting = list(queue)
            queue.clear()
        for flight in waiting:
            self._end(flight, NotConnected(str(error)) if flight.doubtful else error)

    def ready(self, cluster: Any, now: float | None = None) -> Any:
        """See RecordAccumulator, which looks at every partition that it ever had, each time: those for which nothing waits are forgotten here."""
        for partition in [partition for partition, queue in list(self._batches.items()) if not queue]:
            with self._tp_lock(partition):
                if not self._batches[partition]:
                    del self._batches[partition]
        return super().ready(cluster, now)

    def heard(self) -> None:
        """The cluster has told of its leaders. On the thread that asks for `expired_batches`."""
        now = time.monotonic()
        known = self._leaderless if now - self._heard < _SILENCE else {}
        leaderless = (each for each in self.waiting() if self._cluster.leader_for_partition(each) == _NOBODY)
        self._leaderless = {each: known.get(each, now) for each in leaderless}
        self._heard = now

    def expired_batches(self, now: float | None = None) -> list[Flight]:
        """See RecordAccumulator. What was never sent, as its partition has no leader, waits for less long; see `_STANDING`."""
        standing = [partition for partition, since in self._leaderless.items() if self._heard - since >= _STANDING]
        before = (time.monotonic() if now is None else now) - _STANDING
        return _ended(super().expired_batches(now) + [each for partition in standing for each in self._in_line(partition, before)])

    def _in_line(self, partition: TopicPartition, before: float) -> list[Flight]:
        """Take out what has waited since before then. What a leader may have taken stays: the next one knows, and does not write it twice."""
        with self._tp_lock(partition):
            queue = self._batches[partition]
            over = [flight for flight in queue if flight.created < before and not flight.doubtful]
            if sum(flight.record_count for flight in over) <= 1:
                return []
            for flight in over:
                queue.remove(flight)
        return over

    def alone(self, flight: Flight) -> bool:
        """Whether this batch is one message, and none waits behind it."""
        with self._tp_lock(flight.topic_partition):
            return flight.record_count == 1 and not self._batches[flight.topic_partition]

    def overdue(self, before: float) -> bool:
        """Whether something that came before then (`time.monotonic`) has no outcome yet. Any thread."""
        return any(flight.created < before for flight in self._incomplete.all())

    def waiting(self) -> set[TopicPartition]:
        """The partitions that have batches waiting."""
        return {partition for partition, queue in list(self._batches.items()) if queue}

    def abandon(self, topic: str, error: AdapterError) -> None:
        """All that waits for a topic gets this outcome."""
        for partition in list(self._batches):
            if partition.topic == topic:
                self.drop(partition, error)


class Delivery(Sender):  # type: ignore[misc]  # kafka-python has no types
    """The thread that sends. A batch that a broker refuses harms no other, and its numbers are used again."""

    _accumulator: Accumulator
    _sent = False

    def _send_producer_data(self, now: float | None = None) -> float:
        """See Sender. kafka-python would look again at once, for ever, while a broker is being connected to or throttles this client."""
        self._sent = False
        delay = float(super()._send_producer_data(now))
        return delay if self._sent else max(delay, _PAUSE)

    def _create_produce_requests(self, collated: Any) -> Any:
        requests = super()._create_produce_requests(collated)
        self._sent = bool(requests)
        return requests

    def _get_expired_inflight_batches(self, now: float | None = None) -> list[Flight]:
        """See Sender."""
        return _ended(super()._get_expired_inflight_batches(now))

    def _can_retry(self, batch: Flight, error_cls: type[Exception]) -> bool:
        if not batch.doubtful and self._in_vain(batch, error_cls):
            return False
        return bool(super()._can_retry(batch, error_cls))

    def _in_vain(self, batch: Flight, error_cls: type[Exception]) -> bool:
        """Whether a batch that has certainly not been taken has been refused so for long enough."""
        if issubclass(error_cls, UNROUTABLE):
            return bool(batch.attempts >= _PATIENCE)
        late = bool(batch.created < time.monotonic() - _STANDING)
        return late and issubclass(error_cls, errors.NotEnoughReplicasError) and not self._accumulator.alone(batch)

    def _dispatch_error(self, batch: Flight, exception: Exception, partition_response: Any) -> None:
        refused = partition_response is not None and isinstance(exception, NOT_WRITTEN)
        over = batch.final_state is None and not self._can_retry(batch, type(exception))
        if refused and over and batch.doubtful and isinstance(exception, errors.RetriableError):
            # An earlier try may have been taken: were its numbers used again, the broker would take the next batch for this one, and drop it.
            exception, refused = errors.KafkaTimeoutError(str(exception)), False
        if refused and over:
            self._refused(batch, exception, partition_response)
        elif partition_response is None and isinstance(exception, errors.KafkaTimeoutError) and self._never_taken(batch):
            why = f"{batch.error or exception}{self._why(batch)}"
            failure = BackOff(Reason.REFUSED_BY_BROKER, why, self._accumulator.partitions(batch.topic_partition))
            self._end(batch, lambda _: failure)
        else:
            batch.error = exception
            batch.doubtful = batch.doubtful or not refused
            super()._dispatch_error(batch, exception, partition_response)

    def _why(self, batch: Flight) -> str:
        """What keeps its leader from being reached, if that is known: of itself kafka-python says no more than that time has passed."""
        leader = self._metadata.leader_for_partition(batch.topic_partition)
        if leader == _NOBODY:
            return ": the partition has no leader"
        error = self._client.unreachable.get(leader)
        return "" if error is None else f": broker {leader} cannot be reached: {not_connected(error)}"

    @staticmethod
    def _never_taken(batch: Flight) -> bool:
        """Of a batch that took too long: it was never sent, or refused each time, and is not under way now."""
        return batch.drained is None or (batch.error is not None and not batch.doubtful and batch.last_attempt >= batch.drained)

    def _end(self, batch: Flight, failure: Callable[[int], Exception]) -> None:
        """The batch has not been written: its numbers are used again."""
        if batch.base_sequence >= 0:
            self._transaction_manager.set_sequence_number(batch.topic_partition, batch.base_sequence)
        self._maybe_remove_from_inflight_batches(batch)
        batch.complete_exceptionally(NotConnected("see the function"), failure)
        self._accumulator.deallocate(batch)
        self._accumulator.muted.discard(batch.topic_partition)

    def _refused(self, batch: Flight, error: Exception, response: Any) -> None:
        """The broker has not taken it and never will as it is: make it smaller, or let it be."""
        if isinstance(error, errors.InvalidMetadataError):
            self._metadata.request_update()
        if isinstance(error, TOO_LARGE) and (smaller := batch.records.smaller()):
            self._transaction_manager.set_sequence_number(batch.topic_partition, batch.base_sequence)
            self._maybe_remove_from_inflight_batches(batch)
            self._accumulator.replace(batch, smaller)
            self._accumulator.muted.discard(batch.topic_partition)
        else:
            culprits = {each.batch_index: each.batch_index_error_message for each in response.record_errors or ()}
            self._end(batch, lambda number: _blame(error, culprits, number))


class Numbers(TransactionManager):  # type: ignore[misc]  # kafka-python has no types
    """The producer's id and the batches' numbers. An error that nobody knows costs a new epoch, not the producer."""

    def classify_batch_error(self, error: Any, batch: Flight, log_start_offset: int = -1) -> str:
        """See TransactionManager."""
        verdict = str(super().classify_batch_error(error, batch, log_start_offset))
        kind = error if isinstance(error, type) else type(error)
        if verdict != self.ERROR_CLASS_FATAL or kind in self._FATAL_ERRORS:
            return verdict
        return str(self.ERROR_CLASS_NEEDS_EPOCH_BUMP if self._supports_epoch_bump() else self.ERROR_CLASS_NEEDS_PRODUCER_ID_RESET)


def _nothing(_: Exception, __: TopicPartition) -> None:
    pass


def _ended(flights: list[Flight]) -> list[Flight]:
    for flight in flights:
        flight.ends()
    return flights


def _blame(error: Exception, culprits: dict[int, str | None], number: int) -> Exception:
    """Where the broker names bad records, the others are due again."""
    if not culprits:
        return error
    if number in culprits:
        return type(error)(culprits[number] or str(error))
    return NotConnected("another message of its batch was refused")
