"""Level sources on one consumer, and movers on one transactional producer: see moves.TransactionalLevels."""

from __future__ import annotations

import secrets
import threading
from functools import partial
from typing import TYPE_CHECKING

from ...base import NotConnected
from ..cluster import opened
from ..finished import Finished
from ..link import translated
from ..sources.source import KafkaSource, Subscription
from ..transactions.identities import Identities, of_route, own
from ..transactions.markers import Markers
from ..transactions.transactor import Transactor
from .joined import JoinedSource
from .source import Hub, LevelSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...base import Confirm, Source
    from ...levelled import Level
    from ...moves import Move
    from ..options import Kafka
    from ..transactions.pending import Pending
    from ..transactions.readers import Readers
    from .waiting import LevelRecord


class KafkaTransactionalLevels:
    """Exactly once from level to level and to any topic of the cluster, for consumers that read what is committed.

    The producer has the bridge's name: so a bridge that comes back ends at once what it began before it was killed, and nobody waits for that. Without
    a bridge's name the producer has a new one in each process, and the cluster ends what it began after the session's time-out.
    """

    def __init__(self, options: Kafka, levels: Sequence[Level], bridge: str) -> None:
        self._options = options
        self._hub = Hub(options, levels, moving=options.exactly_once)
        self._name = own(self._hub.group, options.level_instance or bridge or secrets.token_hex(8))
        self._identities = Identities(options, self._name, self._hub.topics)
        self._lock = threading.Lock()
        self._transactor: Transactor | None = None
        self._doubtful: list[tuple[Pending, LevelRecord]] = []
        self._in_doubt = self._identities.last
        self._users = 0

    def source(self, level: Level) -> LevelSource:
        """See moves.TransactionalLevels."""
        return self._hub.source(level)

    def mover(self) -> KafkaMover | None:
        """See moves.TransactionalLevels."""
        return KafkaMover(self) if self._options.exactly_once else None

    def joined(self, source: Source, route: str) -> JoinedSource | None:
        """See moves.TransactionalLevels. Each of a bridge's routes has a producer of its own."""
        if not self._options.exactly_once or not isinstance(source, KafkaSource) or not isinstance(source.subscription, Subscription):
            return None
        markers = Markers(self._options, of_route(self._name, route), self._hub.topics)
        return JoinedSource(source, source.subscription.group, markers, partial(self._opened, markers))

    def join(self) -> Transactor:
        """The producer that all movers share; a new one where none works. Reports the moves that the one before left in doubt. Raises NotConnected."""
        with self._lock:
            if self._transactor is not None and self._transactor.broken:
                self._close()
            if self._transactor is None:
                markers = self._identities.free()
                self._transactor = self._opened(markers, self._hub, leaves_doubt=True)
                markers.taken = True
            self._settle()
            self._users += 1
            return self._transactor

    def _settle(self) -> None:
        """Report what became of moves whose transaction was in doubt: it has ended by now, and the group's positions say how."""
        if not self._doubtful:
            return
        partitions = {record.partition for _, record in self._doubtful}
        with opened(self._options) as cluster:
            # Its end may be written anew only now: see markers.py.
            positions = cluster.groups.positions(self._hub.group, partitions, stable=True)
        known = {each: Finished(position.offset, position.metadata or "") for each, position in positions.items()}
        happened = self._in_doubt.committed and all(
            record.partition in known and known[record.partition].includes(record.offset) for _, record in self._doubtful
        )
        doubtful, self._doubtful = self._doubtful, []
        _tell(doubtful, None if happened else NotConnected("its transaction was not committed"))

    def leave(self, transactor: Transactor) -> None:
        """A mover needs the producer no more; it is closed with the last mover."""
        with self._lock:
            if transactor is self._transactor:
                self._users -= 1
                if not self._users:
                    self._close()

    def _close(self) -> None:
        transactor, self._transactor, self._users = self._transactor, None, 0
        if transactor is None:
            return
        transactor.close()
        if transactor.in_doubt:
            self._doubtful += transactor.doubtful
            self._in_doubt = self._identities.last
        else:
            _tell(transactor.doubtful, NotConnected("its transaction did not come to its end"))

    def _opened(self, markers: Markers, readers: Readers, *, leaves_doubt: bool = False) -> Transactor:
        options, limit = self._options, self._options.session_timeout
        with translated():
            configs = options.client("mover") | {"request_timeout_ms": int(limit * 500)}
        transactions = {"transactional_id": markers.name, "transaction_timeout_ms": int(limit * 1000)}
        return Transactor(
            configs, options.connection_timeout, limit, transactions, readers, markers, leaves_doubt=leaves_doubt, renewed=options.renewed
        )


def _tell(doubtful: Iterable[tuple[Pending, LevelRecord]], error: NotConnected | None) -> None:
    for pending, _ in doubtful:
        pending.confirm([(pending.move.tag, error)])


class KafkaMover:
    """See moves.Mover."""

    def __init__(self, levels: KafkaTransactionalLevels) -> None:
        self._levels = levels
        self._transactor: Transactor | None = None
        self._confirm: Confirm | None = None

    def connect(self, confirm: Confirm) -> None:
        """See moves.Mover."""
        self.close()
        self._transactor = self._levels.join()
        self._confirm = confirm

    def move(self, moves: Sequence[Move]) -> None:
        """See moves.Mover. Never blocks."""
        if self._transactor is None or self._confirm is None:
            raise NotConnected("the mover is closed")
        self._transactor.check()
        if moves:
            self._transactor.begin(moves, self._confirm)

    def close(self) -> None:
        """See moves.Mover."""
        transactor, self._transactor = self._transactor, None
        if transactor is not None and self._confirm is not None:
            transactor.abandon(self._confirm)
            self._levels.leave(transactor)
