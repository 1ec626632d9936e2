"""Transactions as Kafka has them since 4.0 (KIP-890, `transaction.version` 2): writing to a partition adds it to the transaction, without a request of its own.

That saves two of seven requests that follow one another. And each transaction has an epoch of its own, which comes with the answer to the end of the one
before: so a late request of that one is refused. kafka-python 3.0.12 can encode these requests, and makes none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka import errors
from kafka.producer.transaction_manager import (
    EndTxnHandler,
    InitProducerIdHandler,
    ProducerIdAndEpoch,
    TransactionalRequestResult,
    TransactionState,
    TxnOffsetCommitHandler,
)

from ...base import NotConnected
from .state import Moving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafka import OffsetAndMetadata, TopicPartition

OLDEST = (4, 1)
"""In 4.0.0 an id that is taken over in the middle of a transaction may lose its epoch (KAFKA-19367)."""

WORN = 32_700
"""The epoch with which an id is worn out, nearly: from 32,766 on the cluster gives a new one, whoever asks for the next epoch.

It would do so with the end of a transaction, too. But where a partition has lost an end, only a producer of the same id can write it there: see
markers.py. So the id is renewed when nothing is owed under it, and until then its transactions are those of before, which leave the epoch as it is. What is
left of it is for producers that come and go meanwhile.
"""

_PRODUCE, _OFFSETS, _END = 12, 5, 5
"""The versions of the requests that mean what is said above. Produce 13 names topics by their ids."""


class Offsets(TxnOffsetCommitHandler):  # type: ignore[misc]  # kafka-python has no types
    """Offsets that join the transaction by being committed."""

    def _build_request(self) -> Any:
        request = super()._build_request()
        request._min_version = request._max_version = _OFFSETS  # noqa: SLF001 - kafka-python says 3 there
        return request


class End(EndTxnHandler):  # type: ignore[misc]  # as above
    """Brings the epoch of the next transaction."""

    transaction_manager: Implicit

    def __init__(self, numbers: Implicit, *, committed: bool) -> None:
        super().__init__(numbers, committed)
        self.request._min_version = self.request._max_version = _END  # noqa: SLF001 - as above

    def handle_response(self, response: Any) -> None:
        """Takes over what came with the end, before kafka-python lets the next transaction begin."""
        if not response.error_code:
            self.transaction_manager.become(response.producer_id, response.producer_epoch)
        super().handle_response(response)


class Renewal(InitProducerIdHandler):  # type: ignore[misc]  # as above
    """Asks for the next epoch, or another id. A producer that has lost the transactional id to a successor does not take it back, as kafka-python would."""

    def __init__(self, numbers: Implicit) -> None:
        super().__init__(numbers, numbers.transaction_timeout_ms, is_epoch_bump=True)

    def handle_response(self, response: Any) -> None:
        """An epoch that is over ends this producer."""
        if response.error_code == errors.InvalidProducerEpochError.errno:
            self.fatal_error(errors.ProducerFencedError())
        else:
            super().handle_response(response)


class Implicit(Moving):
    """See Moving. A transaction that finishes nothing, and only ends again what Kafka may have forgotten, asks for its partitions as ever."""

    _unasked = False

    @property
    def produce_version(self) -> int | None:
        """See Moving."""
        return _PRODUCE if self._unasked else None

    @property
    def worn(self) -> bool:
        """Whether the id is to be renewed, between two transactions; see WORN."""
        return int(self.producer_id_and_epoch.epoch) >= WORN

    def renew(self) -> TransactionalRequestResult:
        """Ask for the next epoch; what to wait for. Between two transactions. Raises KafkaError."""
        with self._lock:
            self._transition_to(TransactionState.BUMPING_PRODUCER_EPOCH)
            self._forget_numbers()
            handler = Renewal(self)
            self._enqueue_request(handler)
            return handler.result

    def become(self, producer_id: int, epoch: int) -> None:
        """From now on what is written bears these. The sender's thread, between two transactions."""
        self.producer_id_and_epoch = ProducerIdAndEpoch(producer_id, epoch)
        self._forget_numbers()

    def _forget_numbers(self) -> None:
        self._sequence_numbers.clear()
        self._last_acked_offset.clear()

    def _enter(self, partitions: Iterable[TopicPartition], positions: Mapping[TopicPartition, OffsetAndMetadata], member: Any) -> None:
        self._unasked = bool(positions) and not self.worn
        if not self._unasked:
            super()._enter(partitions, positions, member)
            return
        self._partitions_in_transaction.update(partitions)
        self._transaction_started = True
        self._pending_txn_offset_commits.update(positions)
        self._offsets = TransactionalRequestResult()
        self._enqueue_request(Offsets(self, member, self._pending_txn_offset_commits, self._offsets))

    def _begin_completing_transaction(self, committed: bool) -> TransactionalRequestResult:
        if not self._unasked:
            return super()._begin_completing_transaction(committed)
        handler = End(self, committed=committed)
        self._enqueue_request(handler)
        return handler.result


def renewed(numbers: Moving, wakeup: Callable[[], None], timeout: float, settled: Callable[[], bool]) -> None:
    """Return with an id that is not worn, unless something is owed under it still. Between two transactions. Raises KafkaError, NotConnected."""
    if not isinstance(numbers, Implicit) or not numbers.worn or not settled():
        return
    while numbers.worn:
        result = numbers.renew()
        wakeup()
        if not result.wait(timeout * 1000):
            raise NotConnected(f"a producer's id was not renewed within {timeout:g} s")
