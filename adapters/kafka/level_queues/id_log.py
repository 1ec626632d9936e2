"""The log of ids beside level queues: a compacted topic of one partition, so that all lines have one order.

It is read without a group, as far as the replicas have it, and written without transactions: nobody's hanging transaction keeps a cancel from being read.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kafka import KafkaProducer, TopicPartition, errors

from ....core import fields
from ...base import NotConnected
from ...id_log import Line
from ..link import Caught, Pulse, not_connected, translated
from ..sources.consumer import bootstrapped, consuming
from ..sources.fetched import Suspects
from ..wire.records import offset_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...base import Received
    from ..options import Kafka

_BATCH = 256 << 10  # bytes; a partition has one batch under way at a time, and kafka-python's 16 KiB would be its limit
_WAIT = 50  # ms; a broker answers the question for the end after the fetch before it, which waits so long for records
_NOTE = b"note"


class KafkaIdLog:
    """See id_log.IdLog."""

    def __init__(self, options: Kafka, topic: str) -> None:
        self._options = options
        self._partition = TopicPartition(topic, 0)
        self._suspects = Suspects()
        self._identity = ""
        self._reader: _Reader | None = None
        self._lock = threading.Lock()
        self._writer: _Writer | None = None

    def connect(self, place: int) -> int:
        """See id_log.IdLog."""
        self._disconnect()
        caught = Caught(renewed=self._options.renewed)
        with caught.opening():
            reader = _Reader(self._options, self._partition, self._suspects, caught)
            found = reader.seek(place if self._identity in ("", reader.identity) else 0)  # in another topic a place means nothing
        self._reader, self._identity = reader, reader.identity
        return found

    def read(self, timeout: float) -> tuple[int, list[tuple[int, Line]]]:
        """See id_log.IdLog."""
        with translated():
            return self._reading().read(timeout)

    def end(self) -> int:
        """See id_log.IdLog."""
        with translated():
            return self._reading().end()

    def _reading(self) -> _Reader:
        if self._reader is None:
            raise NotConnected("the log is closed")
        return self._reader

    def append(self, lines: Sequence[Line]) -> list[int]:
        """See id_log.IdLog. After a failure a new writer is made for the next lines, and what the old one had under way is not waited for."""
        with self._lock:
            writer = self._writer = self._writer or _Writer(self._options, self._partition)
        try:
            return writer.append(lines)
        except Exception as error:
            with self._lock:
                if self._writer is writer:
                    self._writer = None
            writer.close(0)
            raise not_connected(error) from error

    def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """See id_log.IdLog."""
        self._disconnect()
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close(self._options.connection_timeout)


class _Reader:
    """One consumer. Its first place is to be sought."""

    def __init__(self, options: Kafka, partition: TopicPartition, suspects: Suspects, caught: Caught) -> None:
        self._partition = partition
        self._timeout = int(options.connection_timeout * 1000)
        configs = consuming(options, "ids") | {"isolation_level": "read_uncommitted", "fetch_max_wait_ms": _WAIT}
        self._consumer, self._topics = bootstrapped(configs, caught, options, suspects)
        self._topics.require([partition.topic], "run `delaybridge apply`")
        self.identity = self._topics.identity(partition.topic)
        self._consumer.assign([partition])
        self._pulse = Pulse(self._consumer._client, options.connection_timeout)  # noqa: SLF001 - see Pulse

    def seek(self, place: int) -> int:
        """Go on reading at this place; at the beginning where the topic is not that long (any more). Returns the place."""
        found = place if place <= self.end() else 0
        self._consumer.seek(self._partition, found)
        return found

    def end(self) -> int:
        """Behind the last record that all in-sync replicas have."""
        return int(self._consumer.end_offsets([self._partition], timeout_ms=self._timeout)[self._partition])

    def read(self, timeout: float) -> tuple[int, list[tuple[int, Line]]]:
        """See id_log.IdLog."""
        fetched = self._consumer.poll(timeout_ms=int(timeout * 1000))
        self._pulse.check()
        self._topics.check()
        lines = [(offset_of(each.token), _line(each)) for each in fetched.get(self._partition, ()) if each.message.key is not None]
        positions = self._consumer._subscription.all_consumed_offsets()  # noqa: SLF001 - the public way may ask the cluster
        return int(positions[self._partition].offset), lines

    def close(self) -> None:
        """Leave nothing behind."""
        self._consumer.close(autocommit=False)


class _Writer:
    """One idempotent producer."""

    def __init__(self, options: Kafka, partition: TopicPartition) -> None:
        self._partition = partition
        self._timeout = options.delivery_timeout
        caught = Caught(renewed=options.renewed)
        with caught.opening():
            self._producer = KafkaProducer(
                **options.waiting_client("ids"), kafka_client=caught,
                acks="all", enable_idempotence=True, batch_size=_BATCH, max_block_ms=int(options.connection_timeout * 1000),
                delivery_timeout_ms=int(options.delivery_timeout * 1000),
            )  # fmt: skip

    def append(self, lines: Sequence[Line]) -> list[int]:
        """See id_log.IdLog. Raises whatever kafka-python does."""
        topic, number = self._partition
        sent = [self._producer.send(topic, line.value, line.key, _headers(line), number) for line in lines]
        return [int(each.get(self._timeout + 1).offset) for each in sent]

    def close(self, timeout: float) -> None:
        """Wait so many seconds for confirmations; what has none by then has failed.

        Where something is not confirmed kafka-python's own `close` closes nothing: its thread would try for ever.
        """
        try:
            self._producer.flush(timeout)
        except errors.KafkaTimeoutError:
            self._producer._sender.force_close()  # noqa: SLF001 - nothing public gives up what is under way
        self._producer.close(self._timeout)


def _headers(line: Line) -> list[tuple[str, bytes]]:
    return [(_NOTE.decode(), line.note)] if line.note else []


def _line(received: Received) -> Line:
    message = received.message
    note = next((fields.value_of(each) for each in fields.named(message.headers, {_NOTE})), b"")
    return Line(message.key or b"", message.body, note if isinstance(note, bytes) else b"")
