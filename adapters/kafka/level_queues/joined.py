"""A source of the cluster of the level queues: what a batch of it becomes is published, and its offsets are committed, in one transaction.

So a bridge that is killed takes nothing in twice, and neither does the one that comes after it.
"""

from __future__ import annotations

import contextlib
import queue
import time
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from ...base import AdapterError, BackOff, Batch, NotConnected, Rejected
from ...moves import Gone, Move
from ..cluster import opened
from ..sources.source import KafkaSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafka import TopicPartition

    from ....core.message import Message
    from ...base import Outcome, Received
    from ..sources.poller import Poller
    from ..sources.progress import Given
    from ..transactions.markers import Markers
    from ..transactions.readers import Readers
    from ..transactions.transactor import Transactor
    from ..wire.records import Place

_PATIENCE = 10.0  # s, for a transaction and its repetitions, where it may not take longer itself
_LOOK = 1.0  # s, after which the producer is asked whether it still works


class JoinedSource(KafkaSource):
    """See moves.Joined. `opened_producer` makes the producer, and raises NotConnected; `markers` are those of its transactions. One thread drives it.

    Nothing is committed but in transactions: a plain commit that is late would undo what one of them has committed.
    """

    GATHERING = 0.1  # s; a transaction takes as long for one message as for hundreds, and those that deliver wait for the same processors

    def __init__(self, source: KafkaSource, group: str, markers: Markers, opened_producer: Callable[[Readers], Transactor]) -> None:
        super().__init__(source.options, source.subscription)
        self.group = group
        self._markers = markers
        self._opened_producer = opened_producer
        self._transactor: Transactor | None = None
        self._doubtful: tuple[Mapping[TopicPartition, Place], Callable[[], None]] | None = None

    @property
    def poller(self) -> Poller | None:
        """See readers.Readers."""
        return self._poller

    def connect(self) -> None:
        """See base.Source. The producer comes first: it ends what the one before has begun, before the group's offsets are asked for."""
        self.close()
        self._markers.recall()
        transactor = self._opened_producer(self)
        try:
            if not self._markers.committed:
                self._doubtful = None
            super().connect()
            transactor.check()
        except BaseException:
            transactor.close()
            raise
        self._transactor = transactor

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """See moves.Joined."""
        self._settle()
        return super().receive(limit, timeout)

    def _settle(self) -> None:
        """Tell what was in doubt if it has happened: the group's offsets say. Raises NotConnected."""
        if self._doubtful is None:
            return
        ends, entered = self._doubtful
        with opened(self.options) as cluster:
            committed = cluster.groups.positions(self.group, ends.keys(), stable=True)  # as those of the levels are
        if all(partition in committed and committed[partition].offset >= end.offset for partition, end in ends.items()):
            entered()
        self._doubtful = None

    def _batch(self, poller: Poller, records: Sequence[Received], given: Given) -> Batch:
        return Batch(records, lambda: self._ack(poller, given))

    def _ack(self, poller: Poller, given: Given) -> None:
        try:
            if not given.committed:
                self._move((), given)
        except AdapterError as error:
            poller.fail(NotConnected(f"a batch could not be committed: {error}"))
        else:
            poller.progress.ack(given)

    def publish(self, messages: Sequence[tuple[str, Message]], entered: Callable[[], None]) -> None:
        """See moves.Joined."""
        given, poller = self._given, self._poller
        if given is None or poller is None:
            raise NotConnected("the source is closed")
        try:
            self._doubtful = poller.progress.positions([given]), entered
        except KeyError:  # else its other part would say whether all of it has happened
            raise NotConnected("a part of these messages has gone to another bridge") from None
        try:
            self._move(messages, given)
        except (Gone, BackOff, Rejected) as error:
            self._doubtful = None  # it has not happened
            raise NotConnected(f"{len(messages)} messages were not taken: {error}") from error
        entered()
        self._doubtful = None

    def _move(self, messages: Sequence[tuple[str, Message]], given: Given) -> None:
        """Raises AdapterError: Gone, BackOff and Rejected say that nothing has happened."""
        patience = max(_PATIENCE, self.options.session_timeout)
        deadline = time.monotonic() + patience
        again = Retrying(
            retry=retry_if_exception_type((BackOff, Rejected)),
            wait=wait_random_exponential(multiplier=0.1, max=2),
            stop=stop_after_delay(patience),
            reraise=True,
        )
        again(self._attempt, Move(b"", messages, given.token), deadline)

    def _attempt(self, move: Move, deadline: float) -> None:
        transactor = self._transactor
        if transactor is None:
            raise Gone("the source is closed")
        transactor.check()
        began = time.monotonic()
        told: queue.SimpleQueue[Sequence[Outcome]] = queue.SimpleQueue()
        transactor.begin([move], told.put)
        while True:
            with contextlib.suppress(queue.Empty):
                ((_, error),) = told.get(timeout=_LOOK)
                break
            transactor.check()
            if time.monotonic() > deadline:
                raise NotConnected(f"a transaction did not end within {time.monotonic() - began:.0f} s")
        if error is not None:
            raise error

    def close(self) -> None:
        """See base.Source. What is begun is ended first: then it is known, by the group's offsets."""
        transactor, given = self._transactor, self._given
        self._transactor = None
        if transactor is not None:
            transactor.close()
            if not transactor.in_doubt and not (given and given.committed):
                self._doubtful = None  # it has not happened, however far the offsets come: another bridge may have it now
        super().close()
