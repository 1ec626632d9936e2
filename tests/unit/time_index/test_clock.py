"""The time index under a wall clock that is wrong for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.stores import HOUR, T0, give, record

from delaybridge.core.store import Answer, Withdraw
from delaybridge.core.time_index.database import scan_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaybridge.core.time_index import TimeIndex


def test_a_clock_that_was_days_ahead_for_a_moment_ends_nothing_that_is_remembered_from_then_on(open_index: Callable[[], TimeIndex]) -> None:
    index = open_index()
    day = 24 * HOUR
    index.put([Withdraw("then")], T0 + 1000 * day)

    index.put([Withdraw("early")], T0)
    give(index, record(chosen_id="early"), record(chosen_id="gone"), now=T0 + 1)
    index.cancel("gone", T0 + 2)

    assert [index.find(one) for one in ("early", "gone")] == [Answer("too_late", "cancelled", at) for at in (T0 + 1, T0 + 2)]

    index.put([], T0 + 2 * day)
    assert [index.find(one) for one in ("early", "gone")] == [Answer("unknown")] * 2
    assert [key[9:] for key, _ in scan_prefix(index._db.ids, b"x")] == [b"then"]
