"""What a bridge has lately passed on of one level: if the broker gives it again, it is not passed on a second time.

What is passed on waits for moments before it is acknowledged, and a broker that loses the connection gives again all that it has not heard of. A bridge that
lives knows better. What another bridge has passed on it does not know, nor does it after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LATELY = 5_000
"""Messages of a level, at least: more than may be unacknowledged, see `passage.WINDOW`, and as many of which the acknowledgement may be on its way."""


class Lately:
    """The tokens of the latest LATELY messages, and of up to as many before. One thread."""

    def __init__(self) -> None:
        self._latest: set[bytes] = set()
        self._before: set[bytes] = set()

    def add(self, tokens: Iterable[bytes]) -> None:
        """These are passed on."""
        self._latest.update(tokens)
        if len(self._latest) >= LATELY:
            self._before, self._latest = self._latest, set()

    def __contains__(self, token: bytes) -> bool:
        return token in self._latest or token in self._before
