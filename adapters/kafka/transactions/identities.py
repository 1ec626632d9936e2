"""Which transactional id the movers use: the bridge's own, or another one while that is busy.

Kafka keeps an id busy until the end of its transaction is written in all partitions of that transaction. In a partition with fewer replicas in sync than its
`min.insync.replicas` it cannot be written: because of one such topic nothing would be moved any more, to any topic. But by then it is decided how the
transaction ends, and that is written in all other partitions. So the movers go on under another id, without the partitions where it is not.

Once the end is written everywhere, the bridge's own id is used again: only a producer of the same id can write an end that was lost (see markers.py).

    <group>-<bridge>             the bridge's own, for moves from level to level and to destinations
    <group>-<bridge>:<route>     for what a route takes in
    <group>-<bridge>::<number>   in place of its own. No bridge's name has a colon, and no route's begins with one
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from ...base import NotConnected
from .markers import ENDING, Markers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenacity import RetryCallState

    from ..options import Kafka

_MOST = 8
_ROUTE, _NUMBER = ":", "::"


def own(group: str, bridge: str) -> str:
    """A bridge's own id, at the levels of this consumer group."""
    return f"{group}-{bridge}"


def of_route(bridges_own: str, route: str) -> str:
    """The id with which a bridge takes in from this route."""
    return f"{bridges_own}{_ROUTE}{route}"


def bridge_of(transactional_id: str, group: str) -> str:
    """The name of the bridge that uses this id; empty where none does at the levels of this consumer group."""
    prefix = own(group, "")
    return transactional_id.removeprefix(prefix).partition(_ROUTE)[0] if transactional_id.startswith(prefix) else ""


def is_in_place(transactional_id: str) -> bool:
    """Whether it is one in place of a bridge's own: a bridge that starts again does not use it."""
    return _NUMBER in transactional_id


class Identities:
    """The ids of one mover, each with what is known of it. One thread at a time."""

    def __init__(self, options: Kafka, name: str, topics: Iterable[str]) -> None:
        self._made = partial(Markers, options, topics=frozenset(topics))
        self._name = name
        self._all = [self._made(name)]

    @property
    def last(self) -> Markers:
        """The one that was used last."""
        return self._all[-1]

    def free(self) -> Markers:
        """The id to be used next. Blocks for `ENDING` seconds at most for each that is busy. Raises NotConnected.

        It is the one that was used last, unless that is busy: a producer that takes an id over ends what is open under it. How the last transaction of the id
        ends is known by then (`Markers.recall`).
        """
        if self.last.over:
            del self._all[1:]
        elif not self.last.taken and len(self._all) > 1:
            self._all.pop()  # there was no way in, maybe for want of a right: the one before may have become free
        while _busy(self.last):
            if len(self._all) == _MOST:
                raise NotConnected(f"transactions of {_MOST} producers wait for topics with too few replicas in sync, or none")
            self._all.append(self._made(f"{self._name}{_NUMBER}{len(self._all)}", busy=tuple(self._all)))
        return self.last


def _busy(markers: Markers) -> bool:
    stop = stop_after_delay(0 if markers.overdue else ENDING)
    asking = Retrying(retry=retry_if_result(bool), stop=stop, wait=wait_fixed(0.2), retry_error_callback=_told)
    return bool(asking(markers.recall))


def _told(call: RetryCallState) -> object:
    return call.outcome.result() if call.outcome else None
