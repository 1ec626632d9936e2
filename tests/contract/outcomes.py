"""What a sink told of messages, in words that a test can compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokers.common import wait_until

from delaybridge.adapters.base import BackOff, Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaybridge.adapters.base import AdapterError, Outcome


def word(error: AdapterError | None) -> str:
    """`confirmed`, the reason of a refusal, or the name of the error."""
    if error is None:
        return "confirmed"
    return error.reason if isinstance(error, BackOff | Rejected) else type(error).__name__


def words(outcomes: Sequence[Outcome], count: int, timeout: float = 60) -> dict[str, str]:
    """The outcome of each tag, when that many have come; none comes twice."""
    wait_until(lambda: len(outcomes) >= count, f"{count} outcomes", timeout)
    told = list(outcomes)  # more may come meanwhile
    assert len(told) == len({tag for tag, _ in told})
    return {tag.decode(): word(error) for tag, error in told}
