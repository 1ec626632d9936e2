"""What an engine has in place of level queues where messages wait in a time index: nothing to start, to look at, or to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...adapters.base import Sink, Source
    from ..views import Check, LevelStatus
    from ..workers import Worker


class NoQueues:
    """Answers what an engine asks of `build.Assembled`."""

    sinks: Mapping[str, Sink] = {}
    opened = None
    workers: Sequence[list[Worker]] = ()
    refusing = 0

    def held(self, route: str, source: Source) -> Source:  # noqa: ARG002 - no route differs from another
        """The same source: nobody asks it anything."""
        return source

    source = held

    def shut(self) -> None:
        """Nothing waits to enter."""

    def status(self) -> list[LevelStatus]:
        """No level."""
        return []

    def checks(self) -> list[Check]:
        """Readiness depends on none."""
        return []
