"""Moving house with ids: what claims one in level queues, what was cancelled there, and what a killed move leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import HOUR, MINUTE, T0, adds_up, bodies, give, record, take
from msgspec.structs import replace
from unit.migration import at_once, back, configured, killed_out, levels, messages, out, texts

from delaybridge.bridge.level_queues.envelope import unpack
from delaybridge.bridge.level_queues.ids.lines import cancelling, going_on
from delaybridge.bridge.migration import Place, place
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def there(tmp_path: Path) -> Place:
    return place(configured(tmp_path), "here", "levels")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)


def test_what_moves_to_a_broker_with_a_log_of_ids_can_be_cancelled_there_and_ends_when_it_comes_back(
    index: TimeIndex, there: Place
) -> None:
    give(index, record("a", T0 + HOUR, chosen_id="a"), record("b", T0 + HOUR), record("c", T0 + HOUR, chosen_id="c"))
    out(index, there)
    claims = {envelope.record.id: envelope.claim for envelope in map(unpack, messages(there, "1h"))}
    assert [claims["a"] is None, claims["c"] is None, sum(claim is None for claim in claims.values())] == [False, False, 1]

    assert there.log is not None
    there.log.append([cancelling("a", b"a cancel", T0 + 5, 0)])
    came = back(index, there)

    assert (came.records, came.ended) == (2, 1)
    assert bodies(take(index, T0 + HOUR)) == ["b", "c"]
    assert index.counts().events["cancelled"] == 1
    assert len(there.known()) == 0, "nothing is said any more of what has left"


def test_a_way_back_that_was_killed_tells_once_of_what_had_been_cancelled(
    index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(index, record("a", T0 + HOUR, chosen_id="a"), record("tick", T0 + HOUR, every=MINUTE, chosen_id="tick"))
    out(index, there)
    assert there.log is not None
    there.log.append([cancelling(each, b"a cancel", T0 + 5, 0) for each in ("a", "tick")])

    def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(index, "sync", killed)
        with pytest.raises(KeyboardInterrupt):
            back(index, there)

    assert back(index, there).ended == 2
    assert index.counts().events["cancelled"] == 2
    assert adds_up(index)


def test_what_a_bridge_had_ended_and_told_of_before_it_was_killed_does_not_come_back(index: TimeIndex, there: Place) -> None:
    give(index, record("a", T0 + HOUR, chosen_id="a"), record("b", T0 + HOUR, chosen_id="b"))
    out(index, there)
    (claim,) = (envelope.claim for envelope in map(unpack, messages(there, "1h")) if envelope.record.id == "a")
    assert there.log is not None
    assert claim is not None
    there.log.append(there.known().ending("a", claim, "cancelled", T0 + 5))

    came = back(index, there)

    assert (came.records, came.ended) == (1, 1)
    assert bodies(take(index, T0 + HOUR)) == ["b"]
    assert "cancelled" not in {event for event, count in index.counts().events.items() if count}


def test_of_a_series_whose_move_was_killed_only_the_later_copy_goes_on_and_the_ledger_hears_of_one(
    index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(index, record("tick", T0 + HOUR, every=MINUTE), record("a", T0 + HOUR, chosen_id="a"))
    killed_out(index, there, monkeypatch)
    out(index, there)

    found, known = [unpack(each) for each in messages(there, "1h")], there.known()
    fates = [known.fate(each.record.id, each.claim) for each in found if each.claim is not None]
    assert [fate and fate[0] for fate in fates] == ["over", "over", None, None]
    assert [each.record.id for each in found[:2]] == [each.record.id for each in found[2:]]
    assert (back(index, there).records, index.counts().pending, len(there.known())) == (2, 2, 0)
    assert "replaced" not in {event for event, count in index.counts().events.items() if count}


def test_copies_that_a_killed_move_left_count_as_there_already_and_not_as_cancelled_or_replaced(
    index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(index, record("tick", T0 + HOUR, every=MINUTE), record("a", T0 + HOUR, chosen_id="a"), record("b", T0 + HOUR))
    killed_out(index, there, monkeypatch)
    out(index, there)
    assert len(messages(there, "1h")) == 6

    came = back(index, there)

    assert (came.records, came.again, came.ended) == (3, 3, 0)


def test_a_series_that_has_gone_on_in_level_queues_after_a_move_was_killed_goes_on_there(
    index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(index, record("tick", T0 + HOUR, every=MINUTE))
    killed_out(index, there, monkeypatch)
    (first,) = map(unpack, messages(there, "1h"))
    assert there.log is not None
    assert first.claim is not None
    there.log.append([going_on(first.record.id, first.claim.mark, T0 + HOUR, T0 + HOUR + MINUTE)])
    out(index, there, T0 + HOUR)

    assert [unpack(each).record.id for queue in ("0", "1h") for each in messages(there, queue)] == [first.record.id]
    assert there.known().fate(first.record.id, first.claim) is None
    assert index.counts().pending == 0


def test_what_level_queues_delivered_after_a_move_was_killed_does_not_move_again(
    index: TimeIndex, there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(index, record("a", T0 + HOUR, chosen_id="a"), record("b", T0 + HOUR, chosen_id="b"))
    killed_out(index, there, monkeypatch)
    claims = {envelope.record.id: envelope.claim for envelope in map(unpack, messages(there, "1h"))}
    assert there.log is not None
    assert claims["a"] is not None
    there.log.append(there.known().ending("a", claims["a"], "delivered", T0 + HOUR))
    out(index, there, T0 + HOUR)

    assert sorted(texts([unpack(each).record for queue in ("0", "1h") for each in messages(there, queue)])) == ["a", "b", "b"]
    assert index.counts().pending == 0


def test_what_is_sent_again_for_the_same_instant_is_no_copy_of_what_was_cancelled(index: TimeIndex, there: Place) -> None:
    give(index, record("first", T0 + 2 * HOUR, chosen_id="a"))
    out(index, there)
    assert there.log is not None
    there.log.append([cancelling("a", b"a cancel", T0 + 5, 0)])
    assert back(index, there).ended == 1

    give(index, replace(record("second", T0 + 2 * HOUR, chosen_id="a"), taken=T0 + 10), now=T0 + 10)
    out(index, there, T0 + 20)

    assert texts(levels(there)["1h"]) == ["second"]
    assert back(index, there, T0 + 30).records == 1
    assert bodies(take(index, T0 + 2 * HOUR)) == ["second"]
