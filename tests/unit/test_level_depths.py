"""How much waits in level queues, of what the broker counts and what a bridge has taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delaybridge.bridge.level_queues.depths import DepthWorker

if TYPE_CHECKING:
    from delaybridge.adapters.base import Step


class Queues:
    """Level queues of which the broker counts these, and whose worker is then stopped."""

    def __init__(self, depths: list[int], *, counts_taken: bool) -> None:
        self.counts_taken = counts_taken
        self._depths = depths
        self.worker = DepthWorker(self, lambda *_: None)

    def depths(self) -> list[int]:
        self.worker.stopping.set()
        return self._depths

    def plan(self) -> list[Step]:
        return []

    apply = undo = plan


@pytest.mark.parametrize(("counts_taken", "pending"), [(True, 12), (False, 17)], ids=["counts what is taken", "leaves it out"])
def test_what_a_bridge_has_taken_is_pending_once_whether_the_broker_counts_it_or_not(counts_taken: bool, pending: int) -> None:
    worker = Queues([7, 5], counts_taken=counts_taken).worker

    assert worker.pending(5) == 5
    worker.run()
    assert worker.pending(5) == pending
