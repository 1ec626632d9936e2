"""What a bridge has in memory when it is stopped in order: the broker gives it again, or it is put back into the level queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, record

from delaybridge.adapters.base import Batch, Received
from delaybridge.adapters.memory import broker
from delaybridge.bridge.level_queues.envelope import Envelope, pack
from delaybridge.bridge.level_queues.passage import Batched, Finish

if TYPE_CHECKING:
    from pathlib import Path

    from contract.level_queues import Stepped


@pytest.mark.parametrize("alone", [True, False])
def test_it_is_published_again_only_where_the_broker_could_not_be_told_that_others_of_its_batch_are_done(
    store: Stepped, place: Path, *, alone: bool
) -> None:
    """Published, it comes twice if the broker does not confirm it before the bridge has ended."""
    taken, envelope = store.passages[0]._taken, Envelope(record("a"), T0)
    batch = Batch([Received(pack(envelope), "", b"")], lambda: None, (lambda _: None) if alone else None)
    store.hops.leave(envelope, taken, T0, Finish(Batched(batch, taken, lambda: T0), 0, b""))

    given_again = store.hops.empty(taken, T0)
    assert (len(broker(str(place)).queue("levels.0")), given_again) == ((0, 1) if alone else (1, 0))
