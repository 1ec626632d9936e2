"""Optional ability of an adapter: to look for what stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .levelled import Level
    from .preparing import Finding


@runtime_checkable
class Examinable(Protocol):
    """Optional ability of an adapter, for `doctor`: to find what keeps messages from arriving, or from being read.

    What a broker does not tell is no fault: such a finding is `ok`, and says so.
    """

    def standstills(self, options: Any, routes: Sequence[Any], addresses: Sequence[str], levels: Sequence[Level]) -> list[Finding]:
        """Look at what `routes` (validated `from` sections) read, at `addresses`, where messages go, and at `levels`; changes nothing. Raises AdapterError."""
        ...
