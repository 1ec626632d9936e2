"""Recognises messages that a broker sends again although they are stored: those whose acknowledgement did not reach it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...adapters.base import Received
    from ...core.store import SourceProgress

SEARCH = 10_000
"""For how many messages after connecting redeliveries are recognised by their tokens: more than any prefetch window, because new ones may come between them.

Messages marked as redelivered do not count.
"""


class Redeliveries:
    """What the store remembers of one source's latest messages, compared with what the source gives. One thread uses it.

    exact   see `base.Traits`
    over    since it connected, the source gave something that is not stored, or had nothing to give: what is stored comes again no more
    """

    def __init__(self, *, exact: bool) -> None:
        self.exact = exact
        self.over = False
        self._known: set[bytes] = set()
        self._reached: dict[bytes, bytes] = {}
        self._left = 0  # of SEARCH

    def begin(self, came: SourceProgress) -> None:
        """The source connects anew: from here on what is stored already may come again.

        A token that stands twice among the latest is not relied on. If tokens are not exact, none is then: producers send messages here that cannot be told
        apart, and it is better to deliver one of those twice than to lose one.
        """
        self.over = False
        taken = Counter(came.tokens)
        known = {token for token, times in taken.items() if times == 1}
        self._known = known if self.exact or len(known) == len(taken) else set()
        self._reached = dict(came.reached)
        self._left = SEARCH

    def stored(self, reached: Mapping[bytes, bytes]) -> None:
        """Up to these places the source's logs are stored now: see `SourceProgress.reached`."""
        self._reached |= reached

    def reached(self, messages: Sequence[Received]) -> Mapping[bytes, bytes]:
        """How far the source's logs are stored once these are; empty where not all of them come from logs. See `SourceProgress.reached`."""
        reached: dict[bytes, bytes] = {}
        for received in messages:
            log, token = received.log, received.token
            if not log:
                return {}
            reached[log] = max(token, reached.get(log) or self._reached.get(log, b""))
        return reached

    def fresh(self, messages: Sequence[Received]) -> Sequence[Received]:
        """Leave out those that are stored already."""
        fresh = self._ahead(messages)
        if self._known:
            fresh = self._not_known(fresh)
        self.over |= bool(fresh)
        return fresh

    def _ahead(self, messages: Sequence[Received]) -> Sequence[Received]:
        """Leave out what is not ahead of all that came before it in its log, in this batch too: a source may go back while a part of it still waits."""
        reached: dict[bytes, bytes] = {}  # in this batch
        fresh = []
        for received in messages:
            log, token = received.log, received.token
            if log:
                if token <= (reached.get(log) or self._reached.get(log, b"")):
                    continue
                reached[log] = token
            fresh.append(received)
        return fresh

    def _not_known(self, messages: Sequence[Received]) -> Sequence[Received]:
        """Leave out those whose tokens are among the latest that are stored.

        A queue redelivers in the order in which it delivered first: what is stored comes before what is not. So if tokens are not exact, the first redelivery
        that is not stored ends the search: a later message that looks like a stored one is a message of its own.
        """
        self._left -= sum(not received.redelivered for received in messages)
        if self._left <= 0:
            self._known.clear()
        fresh = []
        for received in messages:
            if received.redelivered and received.token in self._known:
                self._known.remove(received.token)
            else:
                if received.redelivered and not self.exact:
                    self._known.clear()
                fresh.append(received)
        return fresh
