"""What an observer says of itself: from when to when it has seen everything, and when it saw the last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from delaybridge.bridge.ledger.observed import QUIET_MS, Look, ObservedFiles, Reach
from delaybridge.bridge.ledger.parquet import mark_of

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_750_000_000_000


def test_what_was_known_to_be_seen_stays_so_where_late_messages_come_next() -> None:
    reach = Reach()
    reach.looked(Look(T0, T0 + QUIET_MS, (), full=False))
    assert (reach.since, reach.until) == (T0, T0)

    overdue = {"at": T0 + QUIET_MS, "due": T0 - 60_000}
    reach.looked(Look(T0 + QUIET_MS, T0 + 3 * QUIET_MS, [overdue], full=False))

    assert (reach.since, reach.until) == (T0, T0)


def test_the_latest_is_the_latest_in_whatever_order_they_are_told(tmp_path: Path) -> None:
    files = ObservedFiles(tmp_path, "rabbit", "orders", "one")
    for at in (T0 + 5, T0):
        files.add({"at": at, "address": "orders"})
    files.seen(T0, T0 + 10)
    files.flush()

    assert json.loads(mark_of(tmp_path, "observed-one").read_text())["latest_ms"] == T0 + 5
