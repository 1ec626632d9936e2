"""The latest messages of each source: the tokens of its latest batches, and the last token of each log, so that redeliveries are recognised."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from ..store import SourceProgress
from . import keys
from .database import Database, scan_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .change import Change

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode

RECENT_TOKENS = 10_000
"""How many of a source's latest messages are remembered: more than any adapter leaves unacknowledged or uncommitted."""


class Recent:
    """Per source: batches of tokens, oldest first; the oldest is dropped when at least `keep` tokens came after it."""

    def __init__(self, db: Database, keep: int) -> None:
        self._db = db
        self._keep = keep
        self._sizes: dict[str, deque[tuple[int, int]]] = {}
        self._totals: dict[str, int] = {}

    def _stored(self, source: str) -> list[tuple[int, list[bytes]]]:
        prefix = keys.tokens_prefix(source)
        return [(int.from_bytes(key[-8:], "big"), _decode(value)) for key, value in scan_prefix(self._db.meta, prefix)]

    def stage(self, change: Change, came: SourceProgress) -> None:
        """Keep what is to be remembered of one batch."""
        if came.reached:
            prefix = keys.reached_prefix(came.source)
            for log, token in came.reached.items():
                change.meta[prefix + log] = token
        elif came.tokens:
            self._keep_tokens(change, came.source, came.tokens)

    def _keep_tokens(self, change: Change, source: str, tokens: Sequence[bytes]) -> None:
        """Keep one batch's tokens, and drop what they make superfluous."""
        if source not in self._sizes:
            self._sizes[source] = deque((batch, len(stored)) for batch, stored in self._stored(source))
            self._totals[source] = sum(size for _, size in self._sizes[source])
        prefix, batch = keys.tokens_prefix(source), change.numbers.batch
        change.numbers.batch += 1
        change.meta[prefix + keys.pack64(batch)] = _encode(tokens)
        behind, dropped = self._totals[source] + len(tokens), 0
        for old, size in self._sizes[source]:
            if behind - size < self._keep:
                break
            behind -= size
            dropped += 1
            change.meta[prefix + keys.pack64(old)] = None
        change.then.append(lambda: self._kept(source, (batch, len(tokens)), dropped, behind))

    def _kept(self, source: str, newest: tuple[int, int], dropped: int, total: int) -> None:
        sizes = self._sizes[source]
        sizes.append(newest)
        for _ in range(dropped):
            sizes.popleft()
        self._totals[source] = total

    def forget(self, change: Change, source: str) -> None:
        """Remember no token of this source any more."""
        prefix = keys.tokens_prefix(source)
        change.meta.update({prefix + keys.pack64(batch): None for batch, _ in self._stored(source)})
        change.then.append(lambda: self._forgotten(source))

    def _forgotten(self, source: str) -> None:
        self._sizes.pop(source, None)

    def came(self, source: str) -> SourceProgress:
        """See `Store.came`."""
        prefix = keys.reached_prefix(source)
        tokens = [token for _, tokens in self._stored(source) for token in tokens]
        return SourceProgress(source, tokens, {key[len(prefix) :]: token for key, token in scan_prefix(self._db.meta, prefix)})
