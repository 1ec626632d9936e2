"""What a bridge has in memory when it is stopped in order: it stays where it is, and the broker gives it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.stores import T0, record

from delaybridge.adapters.base import Batch, Received
from delaybridge.adapters.memory import broker
from delaybridge.bridge.level_queues.envelope import Envelope, pack
from delaybridge.bridge.level_queues.passage import Batched, Finish

if TYPE_CHECKING:
    from pathlib import Path

    from contract.level_queues import Stepped


def test_it_is_not_published_again_which_would_double_it_if_the_broker_did_not_confirm_that_in_time(store: Stepped, place: Path) -> None:
    taken, envelope = store.passages[0]._taken, Envelope(record("a"), T0)
    batch = Batch([Received(pack(envelope), "", b"")], lambda: None, lambda _: None)
    store.hops.leave(envelope, taken, T0, Finish(Batched(batch, taken, lambda: T0), 0, b""))

    assert store.hops.empty(taken) == 1
    assert (list(broker(str(place)).queue("levels.0")), store.counts().pending) == ([], 0)
