"""The queues of levels are declared at each attempt to connect: what is in the way is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from delaybridge.adapters.base import AdapterError, NotConnected
from delaybridge.bridge.level_queues.build import Declaration

if TYPE_CHECKING:
    from delaybridge.adapters.preparing import Step


class Queues:
    """Level queues that cannot be declared, for these reasons one after the other; None: they can."""

    counts_taken = True
    held_after_a_kill = 0.0

    def __init__(self, *reasons: AdapterError | None) -> None:
        self._reasons = list(reasons)

    def apply(self) -> list[Step]:
        if (reason := self._reasons.pop(0)) is not None:
            raise reason
        return []

    def depths(self) -> list[int]:
        return []

    plan = undo = apply


def test_why_they_cannot_be_declared_is_told_once_until_they_can_or_for_another_reason_cannot() -> None:
    reasons = [AdapterError("CREATE"), AdapterError("CREATE"), AdapterError("DESCRIBE"), None, AdapterError("DESCRIBE")]
    declaration = Declaration(Queues(*reasons))

    with capture_logs() as logs:
        for _ in reasons:
            declaration.make()

    assert [one["error"] for one in logs if one["event"] == "level_queues_not_declared"] == ["CREATE", "DESCRIBE", "DESCRIBE"]
    assert declaration.made.is_set()


def test_where_nobody_answers_they_are_not_said_to_be_made() -> None:
    declaration = Declaration(Queues(NotConnected("gone")))

    with pytest.raises(NotConnected):
        declaration.make()

    assert not declaration.made.is_set()
