"""How a message leaves the place where it waits: what it becomes is confirmed first, and only then may the broker forget it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .countdown import Countdown, both
from .moving import MoveItem
from .publisher import Item

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .doors import Publishing
    from .passage import Finish, Taken
    from .places import Addressed


class Exits:
    """Any thread. `mover` is for a broker with transactions: there, both are one move."""

    def __init__(self, publisher: Publishing, mover: Publishing | None = None) -> None:
        self._publisher = publisher
        self._mover = mover

    def leave(self, items: Sequence[Addressed], taken: Taken, done: Finish, landed: Callable[[], None] | None = None) -> None:
        """Publish, again and again, until all are confirmed or the broker redelivers the message that they come from; then that may be acknowledged.

        `landed` is called before that, where all are confirmed. Does not block.
        """
        if self._mover is not None:
            self._mover.submit([MoveItem(items, done, lambda: not taken.lost, landed)])
            return
        finish = done if landed is None else partial(both, landed, done)
        if not items:
            finish()
            return
        last = Countdown(len(items), finish)
        self._publisher.submit([Item([item], last.one, lambda: not taken.lost) for item in items])
