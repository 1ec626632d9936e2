"""What becomes of a message on the shelf when somebody retries it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, record
from msgspec.structs import replace

from delaybridge.adapters.base import Outgoing, Received, Rejected
from delaybridge.bridge.config import Config
from delaybridge.bridge.control import Control
from delaybridge.bridge.engine import Engine
from delaybridge.bridge.metrics import Metrics
from delaybridge.bridge.views import NotPossibleError
from delaybridge.core.message import message
from delaybridge.core.reasons import Reason
from delaybridge.core.store import Answer, Pending, Put, Query, Refuse, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from delaybridge.core.fields import Value
    from delaybridge.core.store import Change


def _refused(reason: str, headers: dict[str, Value], address: str = "") -> Refuse:
    kept = replace(record("a", address=address, kind="refused"), message=message(b"body", headers), route="default")
    return Refuse(kept, reason, "as it came")


def test_a_refused_message_that_would_be_refused_again_stays_on_the_shelf(engine: Engine, control: Control) -> None:
    engine.store.put([_refused("bad_duration", {"x-delay": "soon"}, "orders")], T0)

    with pytest.raises(NotPossibleError, match="bad_duration"):
        control.retry_dead_letter(1)

    assert [letter.reason for letter in control.dead_letters(10, 0)] == ["bad_duration"]
    assert engine.store.counts().pending == 0


def test_a_refused_message_is_found_by_its_producers_id_and_harms_nothing_that_is_pending_under_it(
    engine: Engine, control: Control
) -> None:
    planner = engine.intakes["default"].intake.planner
    wrong = [Received(message(b"", {"x-delay": "soon", "x-delay-id": id_}), "", b"") for id_ in ("a", "b")]

    engine.store.put([Put(record(chosen_id="a", lane="memory")), *(planner.plan(each, T0) for each in wrong)], T0)

    assert [letter.record.id for letter in control.dead_letters(10, 0)] == ["a", "b"]
    assert isinstance(control.find("a"), Pending)
    assert control.find("b") == Answer("too_late", "dead_lettered", T0)
    assert control.cancel("a") == Answer("done")


def test_a_refused_message_is_planned_again_by_the_rules_of_today(engine: Engine, control: Control) -> None:
    """The operator has allowed the destination meanwhile, say."""
    engine.store.put([_refused("destination_not_allowed", {"x-delay": "90s", "x-delay-to": "orders"})], T0)

    assert control.retry_dead_letter(1)

    (pending,) = control.messages(Query(), 10, "").items
    assert (pending.record.address, pending.record.schedule.due) == ("orders", T0 + 90_000)
    assert control.dead_letters(10, 0) == []


def _asks_while_it_is_put(engine: Engine, monkeypatch: pytest.MonkeyPatch, asks: Callable[[], object]) -> threading.Thread:
    """A second thread, which begins to ask once the first one is about to put something into the store."""
    second, put = threading.Thread(target=asks), engine.store.put

    def put_while_another_asks(changes: Sequence[Change], now: int) -> list[Answer]:
        if second.ident is None:
            second.start()
            second.join(0.1)
        return put(changes, now)

    monkeypatch.setattr(engine.store, "put", put_while_another_asks)
    return second


def test_two_who_retry_one_dead_letter_at_once_schedule_it_once(engine: Engine, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.store.put([_refused("destination_not_allowed", {"x-delay": "90s", "x-delay-to": "orders"})], T0)
    second = _asks_while_it_is_put(engine, monkeypatch, lambda: control.retry_dead_letter(1))

    assert control.retry_dead_letter(1)
    second.join()

    assert engine.store.counts().pending == 1


def test_of_one_who_retries_a_dead_letter_and_one_who_drops_it_at_once_one_gets_it(
    engine: Engine, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.store.put([_refused("destination_not_allowed", {"x-delay": "90s", "x-delay-to": "orders"})], T0)
    dropped: list[bool] = []
    second = _asks_while_it_is_put(engine, monkeypatch, lambda: dropped.append(control.drop_dead_letter(1)))

    assert control.retry_dead_letter(1)
    second.join()

    assert dropped == [False]


def test_a_message_that_could_not_be_delivered_is_scheduled_again_at_once(engine: Engine, control: Control) -> None:
    engine.store.put([Put(record("a", address="orders", lane="memory"))], T0)
    (due,) = engine.store.due("memory", T0 + 86_400_000, 1, 1 << 20)
    engine.store.settle([Settled(due.key, "dead_lettered", T0, "too_large")], T0)

    assert control.retry_dead_letter(1)
    assert not control.retry_dead_letter(2)
    assert engine.store.counts().pending == 1
    assert engine.lanes["memory"]._wake.is_set(), "nothing else wakes it in time"


@pytest.mark.parametrize("reason", [Reason.HEADER_DAMAGED, Reason.UNSUPPORTED_BODY, Reason.TOO_LARGE])
def test_what_an_adapter_could_not_carry_is_never_sent_as_what_is_left_of_it(engine: Engine, control: Control, reason: Reason) -> None:
    (worker,) = engine.intakes.values()
    received = Received(message(b"charge the card"), "orders", b"1", defect=Rejected(reason, "the header table is cut off"))
    engine.store.put([worker.intake.planner.plan(received, T0)], T0)

    with pytest.raises(NotPossibleError, match=f"{reason}: the header table is cut off"):
        control.retry_dead_letter(1)

    assert (engine.store.counts().pending, engine.store.counts().shelved) == (0, 1)


def _engine(path: Path, *, limits: dict[str, str] | None = None, dead_letter: str = "", to: str = "m") -> Engine:
    """One route of an in-process broker, from `in` to `orders`, there or on another one."""
    route = {
        "name": "orders",
        "from": {"broker": "m", "queue": "in"},
        "to": {"broker": to, "address": "orders"},
        "dead_letter": dead_letter,
    }
    config = {
        "store": {"path": path},
        "brokers": {name: {"type": "memory"} for name in ("m", to)},
        "routes": [route],
        "limits": limits or {},
    }
    return Engine(Config.model_validate(config), lambda: T0, Metrics("0.1.0"), lambda *_: None)


def _take_in_two_of_one_id(path: Path, *, old: str, new: str, apart: int) -> None:
    """The second `apart` ms after the first, while delays of up to an hour are allowed: what is longer goes to the shelf."""
    engine = _engine(path, limits={"max_delay": "1h"})
    for body, delay, now in ((b"old", old, T0), (b"new", new, T0 + apart)):
        received = Received(message(body, {"x-delay": delay, "x-delay-id": "order-1"}), "in", body)
        engine.store.put([engine.intakes["orders"].intake.planner.plan(received, now)], now)
    engine.store.close()


def test_a_refused_message_that_is_read_again_replaces_no_newer_one_of_its_id(tmp_path: Path) -> None:
    _take_in_two_of_one_id(tmp_path, old="2h", new="30m", apart=0)
    engine = _engine(tmp_path)

    assert Control(engine).retry_dead_letter(1)

    waiting = engine.store.find("order-1")
    assert isinstance(waiting, Pending)
    assert waiting.record.message.body == b"new"
    assert engine.store.counts().pending == 2
    engine.store.close()


def test_a_newer_message_that_comes_in_while_a_refused_one_is_read_again_keeps_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _take_in_two_of_one_id(tmp_path, old="2h", new="1s", apart=0)
    engine = _engine(tmp_path)
    put, planner = engine.store.put, engine.intakes["orders"].intake.planner
    newer = planner.plan(Received(message(b"newer", {"x-delay": "30m", "x-delay-id": "order-1"}), "in", b"3"), T0 + 1)

    def put_behind_another(changes: Sequence[Change], now: int) -> list[Answer]:
        put([newer], T0 + 1)
        return put(changes, now)

    monkeypatch.setattr(engine.store, "put", put_behind_another)
    engine.store.cancel("order-1", T0)
    assert Control(engine).retry_dead_letter(1)

    waiting = engine.store.find("order-1")
    assert isinstance(waiting, Pending)
    assert (waiting.record.message.body, engine.store.counts().pending) == (b"newer", 2)
    engine.store.close()


def test_a_refused_message_that_is_read_again_replaces_an_older_one_of_its_id(tmp_path: Path) -> None:
    _take_in_two_of_one_id(tmp_path, old="30m", new="2h", apart=1)
    engine = _engine(tmp_path)

    assert Control(engine).retry_dead_letter(1)

    waiting = engine.store.find("order-1")
    assert isinstance(waiting, Pending)
    assert (waiting.record.message.body, engine.store.counts().pending) == (b"new", 1)
    engine.store.close()


def test_what_came_back_too_often_can_be_read_again_when_the_loop_is_mended(tmp_path: Path) -> None:
    engine = _engine(tmp_path)
    came = Received(message(b"", {"x-delay-occurrence": 1, "x-delay-hops": 16}), "in", b"1")
    engine.store.put([engine.intakes["orders"].intake.planner.plan(came, T0)], T0)
    assert [letter.reason for letter in Control(engine).dead_letters(10, 0)] == ["loop"]

    assert Control(engine).retry_dead_letter(1)
    engine.store.close()


def _with_a_dead_letter_that_was_refused(path: Path) -> None:
    """By its destination, whose name was mistyped."""
    engine = _engine(path, dead_letter="daed")
    engine.store.put([Put(record("a", lane="m"))], T0)
    lane = engine.lanes["m"].lane
    wire: list[Outgoing] = []
    while not engine.store.counts().shelved:
        lane.tick(T0, wire.extend)
        lane.confirm([(sent.tag, Rejected(Reason.REJECTED_BY_BROKER, "no")) for sent in wire])
        wire.clear()
        lane.drain(T0)
    assert [letter.record.address for letter in Control(engine).dead_letters(10, 0)] == ["daed"]
    engine.store.close()


def test_a_dead_letter_that_its_destination_refused_goes_to_the_one_of_today(tmp_path: Path) -> None:
    _with_a_dead_letter_that_was_refused(tmp_path)
    engine = _engine(tmp_path, dead_letter="dead")

    assert Control(engine).retry_dead_letter(1)

    assert [one.record.address for one in engine.store.list(Query(), 10).items] == ["dead"]
    engine.store.close()


def test_a_dead_letter_goes_to_no_other_destination_where_its_route_names_none_for_them_any_more(tmp_path: Path) -> None:
    _with_a_dead_letter_that_was_refused(tmp_path)
    engine = _engine(tmp_path)

    with pytest.raises(NotPossibleError, match="has no `dead_letter` on 'm' any more"):
        Control(engine).retry_dead_letter(1)

    assert engine.store.counts().shelved == 1
    engine.store.close()


def test_a_dead_letter_goes_to_no_destination_of_that_name_on_another_broker(tmp_path: Path) -> None:
    """To which its route leads by now."""
    _with_a_dead_letter_that_was_refused(tmp_path)
    engine = _engine(tmp_path, dead_letter="dead", to="another")

    with pytest.raises(NotPossibleError, match="has no `dead_letter` on 'm' any more"):
        Control(engine).retry_dead_letter(1)

    assert engine.store.counts().shelved == 1
    engine.store.close()


def test_a_message_for_a_broker_to_which_no_route_leads_any_more_stays_on_the_shelf(engine: Engine, control: Control) -> None:
    """Nothing would deliver it; "scheduled again" would be a promise that nobody keeps."""
    engine.store.put([Put(record("a", address="orders", lane="gone"))], T0)
    (due,) = engine.store.due("gone", T0, 1, 1 << 20)
    engine.store.settle([Settled(due.key, "dead_lettered", T0, "too_large")], T0)

    with pytest.raises(NotPossibleError, match="no route leads to its broker 'gone' any more"):
        control.retry_dead_letter(1)

    assert [letter.reason for letter in control.dead_letters(10, 0)] == ["too_large"]
    assert engine.store.counts().pending == 0


def test_no_number_of_a_dead_letter_is_too_large_to_be_unknown(control: Control) -> None:
    for number in (10**20, 2**64, 2**64 - 1):
        assert not control.retry_dead_letter(number)
        assert not control.drop_dead_letter(number)
        assert control.dead_letters(10, number) == []


def test_a_dead_letter_is_dropped_once(engine: Engine, control: Control) -> None:
    engine.store.put([_refused("bad_duration", {"x-delay": "soon"})], T0)

    assert control.drop_dead_letter(1)
    assert not control.drop_dead_letter(1)
    assert control.dead_letters(10, 0) == []


def test_whoever_retries_a_letter_that_has_gone_retries_no_other(engine: Engine, control: Control) -> None:
    engine.store.put([_refused("bad_duration", {"x-delay": "5s"}, "out")] * 2, T0)
    assert control.drop_dead_letter(1)

    assert control.retry_dead_letter(1) is False
    assert [each.number for each in control.dead_letters(10, 0)] == [2]


def test_a_refused_message_of_a_route_that_is_gone_stays_on_the_shelf_and_is_told_why(engine: Engine, control: Control) -> None:
    refused = _refused("bad_duration", {"x-delay": "5s"}, "out")
    engine.store.put([replace(refused, record=replace(refused.record, route="retired"))], T0)

    with pytest.raises(NotPossibleError, match="its route 'retired' is no longer configured"):
        control.retry_dead_letter(1)
    assert len(control.dead_letters(10, 0)) == 1
