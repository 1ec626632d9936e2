"""How messages leave a level."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from contract.level_queues import TABLE
from contract.stores import HOUR, MINUTE, T0, record
from structlog.testing import capture_logs

from delaybridge.bridge.level_queues.envelope import Envelope
from delaybridge.bridge.level_queues.exits import Exits
from delaybridge.bridge.level_queues.ids.claims import Claims
from delaybridge.bridge.level_queues.ids.lines import Claim
from delaybridge.bridge.level_queues.late_rows import LateRows
from delaybridge.bridge.level_queues.passage import Finish, Taken
from delaybridge.bridge.level_queues.places import Places
from delaybridge.bridge.level_queues.publisher import Item
from delaybridge.bridge.level_queues.store import LevelQueues
from delaybridge.bridge.level_queues.waiting import Waiting
from delaybridge.core.message import Message
from delaybridge.core.store import LedgerEvent, Settled, StoreFull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaybridge.core.ledger import Event


class Submitted:
    """Keeps what is handed over."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def submit(self, items: Sequence[Item]) -> None:
        self.items += items

    def seek_missing(self) -> None:
        """Nothing is missing."""


@pytest.mark.parametrize("transactional", [False, True])
def test_what_a_message_becomes_is_insisted_on_until_the_broker_gives_that_message_again(*, transactional: bool) -> None:
    submitted, taken = Submitted(), Taken()
    exits = Exits(Submitted(), submitted) if transactional else Exits(submitted)
    exits.leave([("1s", Message(b""))], taken, Finish(Mock(), 0, b""))
    (item,) = submitted.items
    assert item.wanted()
    taken.lost = True
    assert not item.wanted(), "it would stand twice"


@pytest.mark.parametrize(("moved", "told"), [(True, ["cancelled"]), (False, [])])
def test_the_ledger_hears_of_a_cancel_from_the_bridge_whose_move_ends_its_message_and_from_no_other(
    *, moved: bool, told: list[str]
) -> None:
    mover, rows, taken = Submitted(), Mock(), Taken()
    claims = Claims(None, Waiting(), Exits(Submitted(), mover), rows, Mock(), lambda: T0, HOUR)
    claims.end(record("a", chosen_id="a"), Claim(b"message1", 0), ("cancelled", T0), taken, Finish(Mock(), 0, b""))
    (item,) = mover.items
    rows.tell.assert_not_called()
    (item.landed if moved else item.gone)()
    assert [call.args[0].event for call in rows.tell.call_args_list] == told


@pytest.mark.parametrize("event", ["expired", "dead_lettered"])
@pytest.mark.parametrize("moved", [True, False])
def test_the_ledger_hears_of_an_end_from_the_bridge_whose_move_makes_it_and_from_no_other(event: Event, *, moved: bool) -> None:
    """Of a broker that does not answer, both would tell: the message comes again, and has expired there, too."""
    mover, journal, waiting, origin = Submitted(), Mock(), Waiting(), Taken()
    places = Places(TABLE, [f"level-{number}" for number in range(len(TABLE.waits))], "shelf")
    rows = LateRows(journal, lambda: T0)
    store = LevelQueues(places, Mock(), waiting, Mock(), Exits(Submitted(), mover), journal, rows, moving="rabbit")
    waiting.add(Envelope(record("a", every=MINUTE), T0), origin, Finish(Mock(lost=lambda _: False), 0, b""))
    (due,) = waiting.due("rabbit", T0, 1, 1 << 20)

    def told() -> list[str]:
        return [row.event for call in journal.tell.call_args_list for row in call.args[0]]

    store.settle([Settled(due.key, event, T0, next=record("a", due=T0 + MINUTE, every=MINUTE))], T0)
    assert told() == []
    (item,) = mover.items
    (item.landed if moved else item.gone)()
    assert told() == ([event, "scheduled"] if moved else [])


def test_rows_that_a_full_disk_does_not_take_are_told_of_as_those_of_level_queues_and_written_when_there_is_room() -> None:
    """Not as the log of ids': most brokers keep none."""
    journal = Mock()
    journal.tell.side_effect = [StoreFull("no space left"), None]
    rows = LateRows(journal, lambda: T0)
    with capture_logs() as logs:
        rows.tell(LedgerEvent("expired", T0, record("a")))
    rows.write()

    assert [(line["event"], line["worker"], line["rows"]) for line in logs] == [("store_full", "level queues", 1)]
    assert [row.event for row in journal.tell.call_args.args[0]] == ["expired"]
