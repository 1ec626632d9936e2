"""One connection of a consumer: the thread that polls, what is committed, and how partitions of its group come and go.

The thread polls also while nobody receives: a bridge whose disk is full stays in its group. When a partition goes to another bridge of the group, what is
being stored of it is waited for and committed first; nothing of it is committed later. Partitions that stay are not touched (cooperative rebalancing).

What is fetched, and how it is known which of it is finished, is another matter for each subclass: a `Poller` serves a source, a `LevelPoller` all levels.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kafka import errors
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.structs import MemberState

from ...base import NotConnected
from ...clock import uptime
from ..link import Pulse, not_connected
from .commits import REBALANCING, Commits, settled
from .membership import Coordinated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from kafka import OffsetAndMetadata, TopicPartition

    from .topics import Topics

POLL = 200  # ms; so long, and a pause, may a commit wait
_HANDOVER = 10.0  # s, in which a batch of a revoked partition may still be stored: all of the group wait meanwhile
_CLOSING = 5000  # ms
_ASKING = 30.0  # s, in which the cluster tells what was committed


class Inbox(Protocol):
    """What was fetched and is not given out yet. Any thread."""

    def drop(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Forget what is here of these."""
        ...

    def fail(self, reason: NotConnected) -> None:
        """From now on there is nothing to take. The first reason stands."""
        ...


class Progress(Protocol):
    """What is given out, and how far that is finished, by partition. Any thread. A position is whatever `Connection._positions` makes offsets of."""

    def take(self) -> dict[TopicPartition, Any]:
        """The positions to commit now; the caller does it, or gives them back."""
        ...

    def committed(self, positions: dict[TopicPartition, Any]) -> None:
        """What was taken has been committed."""
        ...

    def give_back(self, positions: dict[TopicPartition, Any]) -> None:
        """What was taken could not be committed."""
        ...

    def held(self, partitions: AbstractSet[TopicPartition]) -> int:
        """How much of these is given out and not finished: a number that changes with every step."""
        ...

    def forget(self, partitions: AbstractSet[TopicPartition]) -> None:
        """These are not ours any more."""
        ...

    def out(self, token: bytes) -> Any:
        """What was given out with this token, while it is ours and not finished; else None."""
        ...

    def positions(self, found: Iterable[Any]) -> dict[TopicPartition, Any]:
        """What is committed where these, from `out`, are finished in a transaction. Raises KeyError where a partition has gone."""
        ...


class Handover(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Hears on kafka-python's thread which partitions come and go."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Nothing is known of them yet."""

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """They are ours until this returns: what is stored of them can be committed."""
        await self._connection.hand_over(set(revoked))

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        """They belong to somebody else already. If they come back, what was stored and not committed comes again: a new connection recognises that."""
        self._connection.drop(set(lost))
        self._connection.fail(NotConnected("the group has given this bridge's partitions away"))


class Connection(ABC):
    """The consumer, the thread that polls it, what it has fetched, and what may be committed.

    A subclass says how to `_poll`, what is `_holding`, what is committed (`_positions`), and what it means that a transaction has `finished` something.
    """

    def __init__(self, consumer: Any, inbox: Inbox, progress: Progress, patience: float, topics: Topics, *, returning: bool) -> None:
        self.consumer = consumer
        self.inbox = inbox
        self.progress = progress
        self.still = _HANDOVER  # s, for which nothing of a revoked partition may come to its end before the rest is left to the next owner
        self._topics = topics
        self._returning = returning
        self._pulse = Pulse(consumer._client, patience)  # noqa: SLF001 - see Pulse
        self._coordinated = Coordinated(consumer)
        self._commit: Any = None
        self._beginning = threading.Lock()  # of a commit
        self._commits = Commits(consumer.config["group_id"])
        self._member: str | None = None  # who fetched what is here; None while nothing is
        self._passed = uptime()  # when this thread last came by
        self._session = consumer.config["session_timeout_ms"] / 1000
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka source", daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._commit_some()
                self._poll()
                self._join_again()
                self._pulse.check()
                self._coordinated.check()
                self._topics.check()
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is of no use any more
            self.inbox.fail(not_connected(error))

    @abstractmethod
    def _poll(self) -> None:
        """Fetch, and note what has come. Calls `_mind_the_join` before, `_forgotten` and `_mind_the_session` after the consumer's own poll."""

    @property
    @abstractmethod
    def _holding(self) -> bool:
        """Whether anything is here of partitions that are ours."""

    @abstractmethod
    def _positions(self, offsets: dict[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is committed for these positions."""

    @staticmethod
    def _each(change: Callable[[TopicPartition], None], partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            with contextlib.suppress(KeyError):  # it has gone to another bridge
                change(each)

    def _mind_the_join(self) -> None:
        coordinator = self.consumer._coordinator  # noqa: SLF001 - 3.0.12: nobody picks up the result of a join in whose middle a poll gave up
        if coordinator._join_task is not None:  # noqa: SLF001 - as above
            coordinator.rejoin_needed = True

    def _forgotten(self) -> bool:
        """Whether the group has forgotten this bridge and taken it in anew: others may have had its partitions meanwhile. Then the connection is given up.

        kafka-python tells it where it knows it before it joins. In the middle of a join it keeps the partitions, and where each was read up to.
        """
        if not (self._holding and self._member) or self.consumer.group_metadata().member_id in ("", self._member):
            return False
        self.fail(NotConnected("the group has forgotten this bridge"))
        return True

    def _mind_the_session(self) -> None:
        """Say that this thread comes by, after having looked whether it did not for too long."""
        if self._holding:
            self.stood_still()
        self._passed = uptime()

    def _committed_in(self, partitions: set[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What the group has committed there. Another bridge's transaction may have to end before that is told: meanwhile this thread comes by.

        It is asked on kafka-python's thread, whose heartbeats go on: the wait must not be taken for a process that stands still.
        """
        deadline = time.monotonic() + _ASKING
        while True:
            with contextlib.suppress(errors.KafkaTimeoutError):
                found: Mapping[TopicPartition, OffsetAndMetadata] = self.consumer._coordinator.fetch_committed_offsets(  # noqa: SLF001 - the public way asks for each alone
                    partitions, timeout_ms=int(self._session * 250)
                )
                return found
            if time.monotonic() > deadline:
                raise NotConnected(f"the group did not tell within {_ASKING:g} s what is committed")
            self._mind_the_session()

    def stood_still(self) -> bool:
        """Whether this process stood still for so long that its session may have ended, as one of a machine that was suspended. Any thread.

        Others may have its partitions, and deliver what it has here and what it fetches now. kafka-python finds that out with its next
        heartbeat, seconds later. The last one was sent up to a third of the session before. So this connection is given up then.
        """
        gap = uptime() - self._passed
        if gap <= self._session * 2 / 3:
            return False
        self.fail(NotConnected(f"this process stood still for {gap:.0f} s, and the group may have given its partitions away"))
        return True

    def _join_again(self) -> None:
        """Once, where a member with an `instance` may have come back.

        Kafka then gives it the partitions that it had, if only because it was killed before it knew any, and takes it for a mere member: if it was
        the leader, nobody looks for new partitions any more.
        """
        coordinator = self.consumer._coordinator  # noqa: SLF001 - nothing public says who leads
        if self._returning and coordinator.state == MemberState.STABLE:
            self._returning = False
            if not coordinator._is_leader:  # noqa: SLF001
                coordinator.request_rejoin()

    def _commit_some(self) -> None:
        """Commit what was acknowledged, one request at a time: a late answer to an earlier one must not undo it."""
        with self._beginning:
            if self._commit is None or self._commit.is_done:
                self._commit_ready()

    def _commit_ready(self) -> bool:
        """Begin to commit what was acknowledged; False where that is nothing. What cannot be committed is given back."""
        offsets = {} if self._forgotten() else self.progress.take()
        if offsets:
            try:
                self._commit = self._committing(offsets)
            except BaseException:
                self.progress.give_back(offsets)
                raise
            self._commit.add_callback(lambda _: self._committed(offsets))
            self._commit.add_errback(partial(self._not_committed, offsets))
        return bool(offsets)

    def _committed(self, offsets: dict[TopicPartition, Any]) -> None:
        self.progress.committed(offsets)
        self._commits.made()

    def _not_committed(self, offsets: dict[TopicPartition, Any], error: BaseException) -> None:
        self.progress.give_back(offsets)
        self._commits.failed(error)

    def _committing(self, offsets: dict[TopicPartition, int]) -> Any:
        """The future of one request. It fails where the coordinator is not known; the next poll asks for it."""
        return self.consumer._coordinator._do_commit_offsets_async(self._positions(offsets))  # noqa: SLF001 - 3.0.12: commit_async gives the future of the search for a coordinator then, and the commit's own error is lost

    # For transactions: see readers.Session.

    def member(self) -> Any:
        """See readers.Session. None where the group has forgotten the member that fetched what is here.

        Others may have these records by then, and kafka-python does not always tell: so this connection is of no use any more. Kafka fences off a member that
        is not in its group. But it takes offsets in a transaction from a nobody, which is what kafka-python's member is until it has joined again.
        """
        member = self.consumer.group_metadata()
        if member.member_id and member.member_id == self._member:
            return member
        if self._member is not None:
            self.fail(NotConnected("the group has forgotten this bridge"))
        return None

    def out(self, token: bytes) -> Any:
        """See readers.Session."""
        return self.progress.out(token)

    def positions(self, found: Iterable[Any]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """See readers.Session."""
        return self._positions(self.progress.positions(found))

    @abstractmethod
    def finished(self, found: Iterable[Any]) -> None:
        """See readers.Session."""

    def fail(self, reason: NotConnected) -> None:
        """See readers.Session."""
        self.inbox.fail(reason)

    # When partitions go.

    async def hand_over(self, revoked: set[TopicPartition]) -> None:
        """Wait until what is being stored of these partitions is stored, commit it, and forget them. kafka-python's thread.

        `poll` takes that much longer then, which must not be taken for a process that stands still.
        """
        self.inbox.drop(revoked)
        began = moved = time.monotonic()
        held = self.progress.held(revoked)
        while held and (now := time.monotonic()) - began < _HANDOVER and now - moved < self.still and not self._stopping.is_set():
            await self.consumer._net.sleep(0.01)  # noqa: SLF001 - its loop is not asyncio's
            self._mind_the_session()
            if (left := self.progress.held(revoked)) != held:
                held, moved = left, now
        committed = await self._commit_last()
        self._passed = uptime()
        self.drop(revoked)
        if not committed:
            self.fail(NotConnected("what was taken of partitions that have gone could not be committed"))

    async def _commit_last(self) -> bool:
        """Once no other commit is under way. Whether it was made."""
        while True:
            await settled(self._commit)
            with self._beginning:
                if self._commit is None or self._commit.is_done:
                    begun = self._commit_ready()
                    break
        return not begun or await settled(self._commit)

    def drop(self, lost: set[TopicPartition]) -> None:
        """Forget these partitions."""
        self.inbox.drop(lost)
        self.progress.forget(lost)

    def close(self) -> None:
        """Stop polling, commit what was acknowledged, leave the group."""
        self._stopping.set()
        self.inbox.fail(NotConnected("the source is closed"))
        self._thread.join()
        try:
            if not self._forgotten():
                self._commit_rest(time.monotonic() + _CLOSING / 1000)
        except Exception:  # noqa: BLE001, S110 - the broker gives these again, and their tokens are known
            pass
        finally:
            self._leave()

    def _leave(self) -> None:
        """Where kafka-python's own thread has died it cannot leave the group, and closes nothing."""
        try:
            self.consumer.close(autocommit=False, timeout_ms=_CLOSING)
        except Exception:  # noqa: BLE001 - the group misses this member soon
            with contextlib.suppress(Exception):  # it may be what the other thread has died of
                self.consumer._client.close()  # noqa: SLF001 - as KafkaConsumer.close does

    def _commit_rest(self, deadline: float) -> None:
        """All that was acknowledged. In the middle of a rebalance Kafka takes no commit: polling brings that to its end first."""
        while self._commit is not None and not self._commit.is_done and time.monotonic() < deadline:
            self.consumer.poll(timeout_ms=POLL)
        while offsets := self.progress.take():
            try:
                self.consumer.commit(self._positions(offsets), timeout_ms=_CLOSING)
            except Exception as error:
                self.progress.give_back(offsets)
                if not isinstance(error, REBALANCING) or time.monotonic() > deadline:
                    raise
                self.consumer.poll(timeout_ms=POLL)
