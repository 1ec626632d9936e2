"""Stands in for a broker's own scheduler: answers what the broker's clients ask it. Only what came from that broker is shown or withdrawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ..adapters.base import Rejected
from ..adapters.scheduler_requests import Browse, Manageable, Remove, RemoveAll
from ..core.store import Pending, Query, Withdraw
from . import plugins
from .workers import RECEIVE_TIMEOUT, ClientWorker, Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..adapters.clock import Clock
    from ..adapters.scheduler_requests import ManagementMessage, SchedulerRequests
    from ..core.store import Answer, Record, Store
    from .config import Config
    from .metrics import Metrics

    AnswerBy = Callable[[str, Iterable[Sequence[Record]]], None]

log = structlog.get_logger()

PORTION = 100
"""How many messages are held in memory at once, or withdrawn in one durable write; delivery goes on between two portions."""

_LAST = 2**63 - 1


class Manager:
    """Does what the clients of one broker ask for.

    cancel     withdraws one message: see `answers.Answers`
    stopping   says that the daemon ends: then a request is left between two portions of its work
    """

    def __init__(self, broker: str, store: Store, cancel: Callable[[str], Answer], clock: Clock, stopping: Callable[[], bool]) -> None:
        self._broker = broker
        self._store = store
        self._cancel = cancel
        self._clock = clock
        self._stopping = stopping

    def do(self, message: ManagementMessage, answer: AnswerBy) -> None:
        """Do it, then acknowledge; `answer` is `SchedulerRequests.answer`. Interrupted by the daemon's end it is not acknowledged.

        Raises NotConnected: the request comes again.
        """
        request = message.request
        if isinstance(request, Browse):
            self._browse(request, answer)
        elif isinstance(request, Remove):
            self._remove(request.id)
        elif isinstance(request, RemoveAll):
            self._remove_all(request)
        else:
            log.warning("management_refused", broker=self._broker, detail=request.detail)
        if not self._stopping():
            message.ack()

    def _browse(self, request: Browse, answer: AnswerBy) -> None:
        """If the broker refuses the answer, nobody waits for it any more: this is logged, not tried again."""
        shown = 0

        def counted() -> Iterator[Sequence[Record]]:
            nonlocal shown
            for portion in self._portions(request.due_from, request.due_to):
                yield portion
                shown += len(portion)

        try:
            answer(request.reply_to, counted())
        except Rejected as error:
            log.warning("management_answer_refused", broker=self._broker, to=request.reply_to, shown=shown, error=str(error))
        else:
            log.info("management_browsed", broker=self._broker, to=request.reply_to, shown=shown)

    def _remove(self, id_: str) -> None:
        found = self._store.find(id_)
        outcome = self._cancel(id_).outcome if isinstance(found, Pending) and self._is_scheduled(found.record) else "unknown"
        if outcome == "in_flight":  # nobody will ask again: whatever becomes of this occurrence, a series ends
            self._store.put([Withdraw(id_)], self._clock())
        log.info("management_removed", broker=self._broker, id=id_, outcome=outcome)

    def _is_scheduled(self, record: Record) -> bool:
        """Whether this broker's scheduler would have it: not what waits for its destination without a delay."""
        return record.source_broker == self._broker and record.kind != "pass_through"

    def _remove_all(self, request: RemoveAll) -> None:
        removed = 0
        for portion in self._portions(request.due_from, request.due_to):
            answers = self._store.put([Withdraw(record.id) for record in portion], self._clock())
            removed += sum(answer.outcome in {"done", "in_flight"} for answer in answers)
        log.info("management_removed_all", broker=self._broker, removed=removed)

    def _portions(self, due_from: int | None, due_to: int | None) -> Iterator[Sequence[Record]]:
        """What is pending of this broker's, in order of due time; what is scheduled meanwhile may be missing."""
        query = Query(due_from=due_from, due_to=None if due_to is None or due_to >= _LAST else due_to + 1)
        cursor = ""
        while not self._stopping():
            page = self._store.list(query, PORTION, cursor)
            if ours := [found.record for found in page.items if self._is_scheduled(found.record)]:
                yield ours
            cursor = page.cursor
            if not cursor:
                return


class ManagementWorker(ClientWorker):
    """Drives one destination of management messages."""

    def __init__(
        self,
        name: str,
        broker: str,
        management: SchedulerRequests,
        manager: Manager,
        metrics: Metrics,
        failed: Failed,
    ) -> None:
        super().__init__(name, broker, metrics, failed)
        self._management = management
        self._manager = manager

    def run(self) -> None:
        """Answer until stopped."""
        self._serve(self._management.connect, self._answer, self._management.close)

    def _answer(self) -> None:
        while not self.stopping.is_set():
            message = self._management.receive(RECEIVE_TIMEOUT)
            if message is not None:
                self._manager.do(message, self._management.answer)


def workers(
    config: Config,
    store: Store,
    cancel: Callable[[str], Answer],
    clock: Clock,
    metrics: Metrics,
    failed: Failed,
    stopping: Callable[[], bool],
) -> list[ManagementWorker]:
    """For every broker that a route reads from and that has a scheduler to stand in for. `stopping`: see `Manager`."""
    found: list[ManagementWorker] = []
    for broker in dict.fromkeys(route.source.broker for route in config.routes):
        section = config.brokers[broker]
        adapter = plugins.adapter(section.type)
        if not isinstance(adapter, Manageable):
            continue
        for number, management in enumerate(adapter.management(section.options), 1):
            manager = Manager(broker, store, cancel, clock, stopping)
            found.append(ManagementWorker(f"management {broker} {number}", broker, management, manager, metrics, failed))
    return found
