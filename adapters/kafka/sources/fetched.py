"""Stands in for kafka-python's parser of what was fetched, with the one of `wire/records.py`: a poll then gives `Received`, not `ConsumerRecord`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.consumer.fetcher import Fetcher, IsolationLevel

from ...base import NotConnected
from ..wire.records import Damaged, legacy, offset_of, records, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...base import Received
    from ..wire.records import Origin

_V2 = 2


class Suspects:
    """Batches that could not be read once. The network may have damaged them, so they are fetched again over a new connection first.

    They are remembered for good: many damaged batches in a row cost a connection each, not one for each of their combinations.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, int, int]] = set()

    def twice(self, origin: Origin, offset: int, why: str) -> None:
        """Raises NotConnected the first time that this batch cannot be read; returns from then on."""
        batch = (origin.topic, origin.partition, offset)
        if batch not in self._seen:
            self._seen.add(batch)
            raise NotConnected(f"{origin.topic}-{origin.partition} at offset {offset} cannot be read, and is fetched again: {why}")


class PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python has no types
    """The records of one partition in one answer. Aborted transactions and control batches are left out, as kafka-python does.

    `origin` says what is known of a partition.
    """

    def __init__(self, origin: Callable[[Any], Origin], suspects: Suspects, *args: Any, **kwargs: Any) -> None:
        self._origin_of = origin
        self._suspects = suspects
        super().__init__(*args, **kwargs)

    def take(self, n: int | None = None) -> list[Received]:
        """See Fetcher.PartitionRecords. After an error nothing is left: kafka-python asks for more as long as there is any, without end."""
        try:
            taken: list[Received] = super().take(n)
        except Exception:
            self.drain()
            raise
        return taken

    def _maybe_skip_record(self, record: Received) -> bool:
        return offset_of(record.token) < int(self.fetch_offset)

    def _unpack_records(self, tp: Any, fetched: Any, *_: Any) -> Iterator[Received]:
        self._origin = self._origin_of(tp)
        batch = fetched.next_batch()
        while batch is not None:
            following = fetched.next_batch()
            yield from self._read(batch, following)
            batch = following
        self.drain()

    def _read(self, batch: Any, following: Any) -> Iterator[Received]:
        raw, reached = batch._buffer, batch.base_offset  # noqa: SLF001 - decompressing the batch leaves this as it came
        last = reached if batch.magic < _V2 else batch.last_offset  # the old formats have the last offset there
        try:
            if not batch.validate_crc():
                last = self._end(batch, following)
                raise Damaged("its checksum is wrong")  # noqa: TRY301 - as all that is damaged
            for one in self._records(batch):
                reached = self.next_fetch_offset = offset_of(one.token) + 1
                yield one
        except Damaged as error:
            self._suspects.twice(self._origin, batch.base_offset, str(error))
            yield unreadable(bytes(raw), self._origin, (reached, last), str(error))
        self.next_fetch_offset = max(last + 1, reached)

    def _records(self, batch: Any) -> Iterator[Received]:
        if batch.magic < _V2:
            return legacy(batch, self._origin)
        self.leader_epoch = batch.leader_epoch
        return iter(()) if self._left_out(batch) else records(batch, self._origin)

    def _end(self, batch: Any, following: Any) -> int:
        """The last offset of a batch whose header may be damaged. Going on too far would skip records, or read all of them again."""
        if following is not None:
            return int(following.base_offset) - 1
        if batch.magic < _V2:
            return int(batch.base_offset)
        if batch.last_offset_delta + 1 != batch.records_count:
            raise NotConnected(
                f"{self._origin.topic}-{self._origin.partition} at offset {batch.base_offset} is damaged: nobody can tell where it ends"
            )
        return int(batch.last_offset)

    def _left_out(self, batch: Any) -> bool:
        """Whether nothing of a batch is to be seen. Keeps account of which producers' transactions were aborted."""
        if self.isolation_level == IsolationLevel.READ_COMMITTED and batch.has_producer_id():
            self._consume_aborted_transactions_up_to(batch.last_offset)
            if batch.is_control_batch:
                if batch.records_count and self._contains_abort_marker(batch):  # compaction leaves the header of a producer's last marker
                    self.aborted_producer_ids.discard(batch.producer_id)
            elif self._is_batch_aborted(batch):
                return True
        return bool(batch.is_control_batch)
