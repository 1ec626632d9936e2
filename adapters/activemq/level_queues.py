"""Level queues on ActiveMQ: one queue for each level, which ActiveMQ makes when the first bridge comes.

Messages in them are persistent and never expire. Broker-side settings that would lose or stop them, and that no client can see, are told in
docs/operations.md: a timeStampPlugin with a `ttlCeiling`, memory limits with a cursor in memory.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..base import AdapterError
from ..preparing import Step
from .statistics import PLUGIN, Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..levelled import Level
    from .transport import Target, Times


_COUNTS = "ActiveMQ counts what waits at each level: activemq.xml, in the element <broker>; takes effect when the broker starts", PLUGIN
_TELLS = (
    "Artemis tells the bridge what waits at each level: broker.xml, in the element <security-settings>",
    '<security-setting match="activemq.management"><permission type="send" roles="…"/><permission type="manage" roles="…"/></security-setting>',
)


class ActiveLevelQueues:
    """See levelled.LevelDeclaration. There is nothing to declare; what a level holds the statistics plug-in knows, or Artemis itself."""

    counts_taken = True
    held_after_a_kill = 0.0

    def __init__(self, targets: Callable[[], Sequence[Target]], times: Times, levels: Sequence[Level]) -> None:
        self._targets = targets
        self._times = times
        self._levels = levels

    def plan(self) -> list[Step]:
        """See levelled.LevelDeclaration. Where the last step is not done all works, but nobody can say how much waits."""
        steps = [Step(f"queue `{level.name}` holds what waits for its level; ActiveMQ makes it", "", True) for level in self._levels]
        artemis = counted = False
        with contextlib.suppress(AdapterError), Statistics(self._targets(), self._times) as statistics:
            artemis = statistics.artemis
            self._depths(statistics)
            counted = True
        return [*steps, Step(*(_TELLS if artemis else _COUNTS), counted, by_hand=True)]

    def apply(self) -> list[Step]:
        """See levelled.LevelDeclaration: what is not done has to be done by hand."""
        return self.plan()

    def undo(self) -> list[Step]:
        """See levelled.LevelDeclaration. No STOMP client can delete a queue; ActiveMQ itself removes unused ones where `gcInactiveDestinations` says so."""
        return [self._left(level, depth) for level, depth in zip(self._levels, self.depths(), strict=True)]

    def _left(self, level: Level, depth: int) -> Step:
        if depth:
            return Step(f"queue `{level.name}` still holds {depth} messages: run a bridge until they are delivered", "", False)
        return Step(f"queue `{level.name}` is empty; ActiveMQ removes it where `gcInactiveDestinations` is on", "", True)

    def depths(self) -> list[int]:
        """See levelled.LevelDeclaration. What a bridge holds counts as well, until it is at its next place."""
        with Statistics(self._targets(), self._times) as statistics:
            return self._depths(statistics)

    def _depths(self, statistics: Statistics) -> list[int]:
        return statistics.depths([level.name for level in self._levels])
