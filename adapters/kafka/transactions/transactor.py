"""Moves, many at a time, in transactions: messages are published and positions of levels committed, all of it or nothing.

One transaction at a time: each commits of a partition which records are finished, and two at once would forget what the other one says.
A transaction that was refused is taken back; what was refused is told, and the rest goes into the next one.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import errors
from kafka.structs import ConsumerGroupMetadata

from ....core.reasons import Reason
from ...base import AdapterError, BackOff, NotConnected, Rejected
from ...clock import wall_clock
from ...moves import LEAD, Gone
from ..link import refusal
from ..sinks.sink import Publisher
from .implicit import OLDEST as IMPLICIT_SINCE
from .implicit import Implicit, renewed
from .markers import AGAIN, ENDING, UNWRITABLE
from .pending import CLOSED, PendingMoves, number_in
from .state import Aborted, MoveDelivery, Moving, abort, ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kafka import TopicPartition

    from ...base import Confirm, Outcome
    from ...moves import Move
    from ..wire.batches import Prepared
    from .markers import Markers
    from .pending import Pending
    from .readers import Readers, Session

_MOST = 500
"""Moves in one transaction: what one that is refused may cost the others."""

_PAUSE = 0.05  # s, after which a transaction that came in the middle of a rebalance is tried again
_REBALANCED = (errors.CommitFailedError, errors.FencedInstanceIdError, ValueError)
"""The group refuses what the member says, and no destination refuses anything."""
_UNENDED = f"the end of the last transaction was not written everywhere within {ENDING:g} s"
_OLDEST = (3, 0)
"""Kafka's first version that tells how a transaction ended and where one is open (KIP-664): without that a lost connection may lose or double messages."""


class Transactor(Publisher):
    """One transactional producer, and the thread that begins and ends its transactions.

    `hub` has the consumer whose records are finished, while there is one. A transaction of unknown outcome ends that consumer's session: the next one reads
    from the cluster which records are finished. `markers` sees to it that each transaction has ended where the next one writes.

    `leaves_doubt`: the moves of a transaction of unknown outcome have no outcome yet. They are `doubtful`, each with what it finishes, and are reported by
    whoever makes the next producer. If this one is not `in_doubt` once it is closed, they have not happened.
    """

    DELIVERY = MoveDelivery
    PACE = 1  # ms; a transaction's first request is often refused for some moments, while the last one is still being written

    def __init__(
        self,
        configs: dict[str, Any],
        timeout: float,
        delivery_timeout: float,
        transactions: dict[str, Any],
        hub: Readers,
        markers: Markers,
        *,
        leaves_doubt: bool,
        renewed: Callable[[], dict[str, Any]],
    ) -> None:
        self.doubtful: list[tuple[Pending, Any]] = []
        self._leaves_doubt = leaves_doubt
        self._transactions = transactions
        self._hub = hub
        self._markers = markers
        self._patience = delivery_timeout
        self._pending = PendingMoves()
        self._changed = self._pending.changed
        self._most = _MOST
        self._refused: dict[int, AdapterError] = {}
        self._taken = 0
        self._in_vain = False  # the last transaction failed before anything was written
        self._broken: NotConnected | None = None
        self._stopping = False
        super().__init__(configs, self._landed, timeout, delivery_timeout, self._doubt, renewed)
        self._accumulator.on_failure = self._gave_up
        self._numbers.incomplete = lambda: bool(self._accumulator.has_incomplete)
        result = self._numbers.initialize_transactions()
        self._sender.wakeup()
        try:
            self._await(result, timeout)
        except (errors.KafkaError, NotConnected) as error:
            super().close()
            raise NotConnected(f"transactions cannot begin: {error}") from error
        self._thread = threading.Thread(target=self._run, name="kafka transactions", daemon=True)
        self._thread.start()

    _numbers: Moving

    def _await(self, result: Any, timeout: float) -> None:
        """Wait to be let in. What the predecessor left open is ended first: if that end cannot be written everywhere, wait no longer than for any end."""
        if result.wait(min(timeout, ENDING) * 1000):
            return
        self._markers.overdue = bool(self._markers.recall())
        if self._markers.overdue:
            raise NotConnected(_UNENDED)
        if not result.wait(max(0, timeout - ENDING) * 1000):
            raise NotConnected(f"transactions did not begin within {timeout:g} s")

    def _numbered(self, **known: Any) -> Moving:
        if known["api_version"] < _OLDEST:
            speaks, needed = (".".join(map(str, version)) for version in (known["api_version"], _OLDEST))
            raise NotConnected(
                f"moving exactly once needs Kafka {needed} or later, and this broker speaks {speaks}: set exactly_once: false for it"
            )
        kind = Implicit if self._markers.implicit and known["api_version"] >= IMPLICIT_SINCE else Moving
        return kind(self._markers.ended, self._doubt, self._markers.epochs, **known, **self._transactions)

    def check(self) -> None:
        """Raises NotConnected where no more transactions can be made."""
        if self._broken is not None:
            raise self._broken
        super().check()

    # What comes in.

    def begin(self, moves: Sequence[Move], confirm: Confirm) -> None:
        """Take these on. Any thread; does not block."""
        self.submit(self._pending.begin(moves, confirm))

    def _to_partition(self, partition: TopicPartition, prepared: list[Prepared]) -> None:
        self._pending.to_partition(partition, prepared)

    def _landed(self, outcomes: Sequence[Outcome]) -> None:
        """What became of messages: in a transaction, or before one because there is no place for them."""
        early: list[tuple[Pending, AdapterError | None]] = []
        with self._changed:
            for tag, error in outcomes:
                number = number_in(tag)
                if (pending := self._pending.without_partition(number)) is not None:
                    early.append((pending, error))
                elif error is None:
                    self._taken += 1
                else:
                    self._refused[number] = error
        for pending, error in early:
            self._pending.tell([pending], error)

    def _gave_up(self, error: Exception, partition: TopicPartition) -> None:
        """A batch failed, and its transaction with it. The sender's thread, which would sleep before it tells."""
        if isinstance(refusal(error), Rejected):
            self._pending.refused(partition)
        self._numbers.give_up(error)
        self._sender.wakeup()

    # What goes out.

    def _run(self) -> None:
        try:
            while self._awaited():
                self._ensure_ended()  # takes milliseconds, in which more becomes ready
                renewed(self._numbers, self._sender.wakeup, self._patience, partial(self._markers.settled, self))
                self._transact(self._pending.next(self._most))
        except NotConnected as error:
            self._break(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody knows what became of the transaction
            self._break(NotConnected(f"{type(error).__name__}: {error}"))

    def _awaited(self) -> bool:
        """Wait for something to do; False where this ends."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._pending.ready or self._stopping or self._markers.doubtful, AGAIN if self._markers.waiting else None
            )
            return not self._stopping

    def _transact(self, batch: list[Pending]) -> None:
        session = self._hub.poller
        member = session.member() if session else None
        batch = self._placed(batch)
        last = {each.move.finishes: each for each in batch}  # a record that came again meanwhile is moved once
        found = [
            (each, session.out(each.move.finishes) if session and member and last[each.move.finishes] is each else None) for each in batch
        ]
        self._pending.tell((each for each, held in found if held is None), Gone("another bridge has it, or it comes again"))
        ours, finished = [each for each, held in found if held is not None], [held for _, held in found if held is not None]
        if session is None or not ours:
            return
        try:
            self._attempt(ours, finished, session, member)
        except Aborted as error:
            self._numbers.commit_asked = False
            self._again(ours, error)
            self._see()  # where the end cannot be written, nobody need wait for the next one to find out
        except KeyError:  # a partition has gone this moment
            self._pending.later(ours)
        except Exception:  # whatever it is, see _run
            self._doubt_of(ours, finished)
            raise
        else:
            self._numbers.commit_asked = False
            self._most = _MOST
            session.finished(finished)
            self._pending.went()
            self._pending.tell(ours, None)

    def _placed(self, batch: list[Pending]) -> list[Pending]:
        """Less those that go where nothing can be written: these get their outcome now, and keep no others waiting."""
        if not (unwritable := self._markers.waiting):
            return batch
        writable: list[Pending] = []
        for each in batch:
            stuck = next((partition for partition, _ in each.parts if partition in unwritable), None)
            if stuck is None:
                writable.append(each)
            else:
                self._refuse(each, BackOff(Reason.REFUSED_BY_BROKER, UNWRITABLE, self._accumulator.partitions(stuck)))
        return writable

    def _refuse(self, pending: Pending, error: AdapterError) -> None:
        """Tell what one of its messages was refused with. If it has several, nobody is told that only a partition refuses: it may be another topic's."""
        if isinstance(error, BackOff) and len(pending.move.messages) > 1:
            error = BackOff(error.reason, error.detail)
        self._pending.tell([pending], error)

    def _attempt(self, moves: Sequence[Pending], finished: Iterable[Any], session: Session, member: Any) -> None:
        """One transaction. Raises Aborted, and NotConnected."""
        numbers, positions = self._numbers, session.positions(finished)
        groups = _by_partition(moves)
        self._ensure_ended(groups.keys())
        self._refused, self._taken = {}, 0
        early = max(each.move.due for each in moves) - wall_clock()
        try:
            result = self._begun(max(0, min(early, LEAD)) / 1000, groups, positions, member)
        except (errors.KafkaError, ValueError) as error:
            abort(numbers, self._sender.wakeup, self._patience)
            raise Aborted(repr(error)) from error
        self._sender.wakeup()
        ended(numbers, self._sender.wakeup, result, self._patience)
        if self._refused or self._taken != sum(map(len, groups.values())):
            raise NotConnected("a transaction ended without all of its messages")

    def _begun(self, early: float, groups: Mapping[TopicPartition, list[Prepared]], *of: Any) -> Any:
        """Begin a transaction whose last move is due in so many seconds, write it then, and ask for its end; what to wait for.

        Its first steps are taken at once, unless the last one failed at these: then who refuses this one is to say so of what is written. It is not written
        before it is due: those who read what is not committed, too, would see it early. Raises Aborted, NotConnected, and KafkaError.
        """
        due, numbers = time.monotonic() + early, self._numbers
        begun = early > 0 and not self._in_vain
        if begun:
            self._in_vain = True
            offsets = numbers.begin(groups, *of)
            self._sender.wakeup()
            ended(numbers, self._sender.wakeup, offsets, self._patience)
        self._in_vain = False
        time.sleep(max(0, due - time.monotonic()))  # as in _again
        for partition, group in groups.items():
            self._accumulator.enqueue(partition, group)  # where it waits until the partition is in the transaction
        return numbers.begin_commit() if begun else numbers.all_in_one(groups, *of)

    def _again(self, moves: list[Pending], why: Aborted) -> None:
        """Tell what was refused; the rest goes into the next transaction, which is smaller where nobody knows what was wrong.

        What fails before it is written goes there as it is. Who refuses it says so then.
        """
        if self._in_vain:
            self._pending.later(moves)
            return
        culprits = {number: error for number, error in self._refused.items() if isinstance(error, BackOff | Rejected)}
        for each in moves:
            if each.number in culprits:
                self._refuse(each, culprits[each.number])
        rest = [each for each in moves if each.number not in culprits]
        if not culprits and not isinstance(why.__cause__, _REBALANCED):
            if len(rest) == 1:
                self._pending.tell(rest, BackOff(Reason.REFUSED_BY_BROKER, str(why)))
                return
            self._most = max(1, len(rest) // 2)
        elif not culprits:
            time.sleep(_PAUSE)  # this thread does nothing but transactions, and none can succeed before the group has settled
        self._pending.later(rest)

    def _doubt_of(self, moves: Sequence[Pending], finished: Sequence[Any]) -> None:
        """Nobody knows whether these have happened."""
        if self._leaves_doubt:
            untold = set(self._pending.leave(moves))
            self.doubtful += [(each, held) for each, held in zip(moves, finished, strict=True) if each in untold]

    # The ends of earlier transactions: see markers.py.

    def _doubt(self) -> None:
        with self._changed:
            self._markers.doubt()
            self._changed.notify()

    def _ensure_ended(self, partitions: AbstractSet[TopicPartition] = frozenset()) -> None:
        """See Markers.ensure_ended. Returns once nothing is in doubt: neither the last transaction, nor those with which earlier ones were ended again."""
        self._see()
        while True:
            self._markers.ensure_ended(self, partitions)
            if not self._markers.doubtful:
                return

    def _see(self) -> None:
        if not self._numbers.seen.wait(ENDING * 1000):
            self._markers.overdue = True
            raise NotConnected(_UNENDED)

    @property
    def producer_id(self) -> int:
        """See markers.Producer."""
        return int(self._numbers.producer_id_and_epoch.producer_id)

    def end_again(self, partitions: AbstractSet[TopicPartition], *, committed: bool) -> None:
        """See markers.Producer."""
        try:
            result = self._numbers.all_in_one(partitions, {}, ConsumerGroupMetadata(self._hub.group), commit=committed)
            self._sender.wakeup()
            ended(self._numbers, self._sender.wakeup, result, self._patience)
            self._see()
        except (Aborted, errors.KafkaError, ValueError) as error:
            raise NotConnected(f"the end of the last transaction is not certain: {error}") from error

    # The end.

    @property
    def broken(self) -> bool:
        """Whether it makes no more transactions."""
        return self._broken is not None or self._failed is not None

    @property
    def in_doubt(self) -> bool:
        """Whether its last moves may have happened although it was not told so. Ask once it is closed."""
        return self._numbers.commit_asked

    def abandon(self, confirm: Confirm) -> None:
        """Give up the moves whose outcomes go to `confirm`. Those that are in a transaction already have their outcome when it is known."""
        self._pending.abandon(confirm)

    def _break(self, error: NotConnected) -> None:
        self._broken = error
        session = self._hub.poller
        if session is not None:
            session.fail(error)
        self._pending.tell_all(error)

    def close(self) -> None:
        """End the transaction that was begun; what was not gets its outcome."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        super().close()
        self._pending.tell_all(NotConnected(CLOSED))


def _by_partition(moves: Iterable[Pending]) -> dict[TopicPartition, list[Prepared]]:
    """What is to be written where, in order. What was prepared before it is due bears the time at which it is."""
    groups: defaultdict[TopicPartition, list[Prepared]] = defaultdict(list)
    for each in moves:
        for partition, (tag, record, timestamp) in each.parts:
            groups[partition].append((tag, record, max(timestamp, each.move.due)))
    return groups
