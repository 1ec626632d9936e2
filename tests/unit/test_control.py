"""What the running bridge answers to people, where the store alone does not decide it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from contract.stores import T0, record
from msgspec.structs import replace

from delaybridge.adapters import memory
from delaybridge.adapters.base import BackOff, NotConnected, Rejected
from delaybridge.bridge import control, plugins
from delaybridge.bridge.config import Config
from delaybridge.bridge.control import Control
from delaybridge.bridge.engine import Engine
from delaybridge.bridge.level_queues.unindexed import Unindexed
from delaybridge.bridge.metrics import Metrics
from delaybridge.bridge.text import instant
from delaybridge.bridge.views import NotKnownError, NotPossibleError, WouldBeRefusedError
from delaybridge.core.message import message
from delaybridge.core.reasons import Reason
from delaybridge.core.recurrence import decision
from delaybridge.core.store import Answer, Pending, Put, Query, Unsupported
from delaybridge.core.targets import Partition

if TYPE_CHECKING:
    from pathlib import Path

    from delaybridge.core.fields import Value


def test_what_is_pending_for_a_broker_that_nobody_knows_is_no_empty_list(engine: Engine, control: Control) -> None:
    engine.store.put([Put(record(lane="gone"))], T0)

    with pytest.raises(NotKnownError, match="there is no broker 'nope'; the brokers are: memory"):
        control.messages(Query(lane="nope"), 10, "")
    assert control.messages(Query(lane="memory"), 10, "").items == ()
    assert len(control.messages(Query(lane="gone"), 10, "").items) == 1


def test_messages_without_a_broker_are_told_behind_however_many_addresses_of_others(engine: Engine, control: Control) -> None:
    engine.store.put([Put(record(lane="memory", address=f"out-{number}")) for number in range(1_000)], T0)
    engine.store.put([Put(record(lane="gone"))], T0)

    assert control.status().without_broker == ["gone"]


def test_what_is_not_connected_says_why_until_it_is(engine: Engine, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, intake = engine.lanes["memory"], engine.intakes["default"]
    lane._lost(NotConnected("it went away"))
    outcomes = [NotConnected("refused"), NotConnected("refused again"), None]
    told: list[str] = []

    def connect() -> None:
        told.append(control.status().routes[0].error)
        if (error := outcomes.pop(0)) is not None:
            raise error

    monkeypatch.setattr(intake.stopping, "wait", lambda **_: None)
    assert intake._connect(connect)

    assert told == ["", "refused", "refused again"]
    assert [(each.error, each.connected) for each in control.status().routes] == [("", True)]
    assert control.status().lanes[0].error == "it went away"
    assert [check.detail for check in control.checks()][1:] == ["", "it went away"]


def _sent(engine: Engine, headers: dict[str, Value], address: str = "", *, force: bool = False) -> int:
    """How many messages that left in the ingress, which nobody empties here."""
    queue = memory.broker().queue("delaybridge.in")
    queue.clear()
    Control(engine).send(None, message(b"hello", headers), address, force=force)
    return len(queue)


def test_the_first_message_that_somebody_tries_has_somewhere_to_go(engine: Engine) -> None:
    assert _sent(engine, {"x-delay": "5000"}) == 1
    assert _sent(engine, {"x-delay": "5s", "x-delay-to": "elsewhere"}) == 1
    assert _sent(engine, {"x-delay-cancel": "a"}) == 1


@pytest.mark.parametrize(
    ("headers", "reason"), [({"x-delay": "soon"}, "bad_duration"), ({"x-delay": 5, "x-delay-to": ""}, "bad_destination")]
)
def test_a_message_that_would_be_dead_lettered_is_not_sent_but_by_force(engine: Engine, headers: dict[str, Value], reason: str) -> None:
    with pytest.raises(WouldBeRefusedError, match=f"^{reason}: "):
        _sent(engine, headers)

    assert _sent(engine, headers, force=True) == 1


def test_a_message_goes_out_as_a_producers_where_the_adapter_knows_how_that_differs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    class Knowing(memory.MemoryAdapter):  # a class of its own: whether one can do something is remembered for good
        def producer(self, options: Any, route: object) -> memory.MemorySink:
            asked.append(route)
            return memory.adapter.sink(options)

    monkeypatch.setattr(plugins, "adapter", lambda _: Knowing())

    assert _sent(engine, {"x-delay": "5s"}) == 1
    assert asked == [engine.config.routes[0].source.endpoint]


def test_a_message_that_the_broker_does_not_confirm_in_time_counts_as_not_sent(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.MemorySink, "publish", lambda *_: None)
    monkeypatch.setattr(control, "SEND_TIMEOUT", 0.01)

    with pytest.raises(NotConnected, match="the broker did not confirm within"):
        _sent(engine, {"x-delay": "5s"})


def test_a_message_that_the_broker_refuses_is_told_with_its_reason(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.MemorySink, "_outcome", lambda _, outgoing: (outgoing.tag, BackOff(Reason.UNROUTABLE, "it is full")))

    with pytest.raises(BackOff, match="it is full"):
        _sent(engine, {"x-delay": "5s"})


def test_a_message_is_not_sent_to_where_the_bridge_would_never_see_it(engine: Engine) -> None:
    with pytest.raises(NotPossibleError, match="what is sent to 'orders' never comes to the bridge"):
        _sent(engine, {"x-delay": "5s"}, "orders")


@pytest.mark.parametrize(
    ("kind", "place", "address", "refused"),
    [
        ("rabbitmq", "orders.delayed", "", "no_destination"),
        ("rabbitmq", "orders.delayed", "/exchanges/orders/eu", None),
        ("activemq", "orders.delayed", "", "no_destination"),
        ("kafka", "orders.delayed", "", None),
        ("kafka", "orders.delayed", "orders.delayed", None),
        ("kafka", "reminders", "", "no_destination"),
        ("kafka", "reminders", "reminders", "no_destination"),
        ("kafka", "reminders", "orders", None),
    ],
)
def test_what_names_no_destination_is_refused_where_its_broker_would_name_none(
    tmp_path: Path, kind: str, place: str, address: str, refused: str | None
) -> None:
    options = {"url": "amqp://x" if kind == "rabbitmq" else "stomp://x:1"} if kind != "kafka" else {"bootstrap_servers": "x:1"}
    source: dict[str, object] = {"broker": "b", "topic" if kind == "kafka" else "queue": place}
    if kind == "activemq":
        source["gate"] = ["/queue/orders"]
    brokers, routes = {"b": {"type": kind, **options}}, [{"name": "r", "from": source, "to": {"broker": "b"}, "allow_to": ["elsewhere"]}]
    config = Config.model_validate({"store": {"path": tmp_path}, "brokers": brokers, "routes": routes})
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    with pytest.raises(WouldBeRefusedError, match=refused) if refused else nullcontext():
        Control(engine)._would_be_taken(config.routes[0], kind, message(b"", {"x-delay": 5}), address)
    engine.store.close()


def test_a_queue_is_emptied_by_an_observation_only_where_somebody_says_so(tmp_path: Path) -> None:
    brokers = {"rabbit": {"type": "rabbitmq", "url": "amqp://127.0.0.1:1"}}
    routes = [{"name": "r", "from": {"broker": "rabbit", "queue": "in"}, "to": {"broker": "rabbit"}}]
    config = Config.model_validate({"store": {"path": tmp_path}, "brokers": brokers, "routes": routes})
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)

    def observed(address: str, *, take: bool) -> None:
        with Control(engine).observe("rabbit", address, take=take):
            pass

    with pytest.raises(NotPossibleError, match=r"taken away for good.*POST to /api/v1/observe if that is meant, or observe /exchanges/"):
        observed("/queues/billing", take=False)
    with pytest.raises(Rejected, match="'/foo/bar' is neither"):  # and is not called a queue
        observed("/foo/bar", take=False)
    for address, take in (("/queues/billing", True), ("/exchanges/orders/eu", False)):
        with pytest.raises(NotConnected):  # it is tried
            observed(address, take=take)
    engine.store.close()


def test_a_destination_that_waits_for_resume_has_no_next_try(engine: Engine, control: Control) -> None:
    (lane,) = engine.lanes.values()
    lane.lane.holds.pause("orders")
    lane.lane.holds.fail("billing", "unroutable", T0)
    lane.lane.holds.fail(Partition("topic", 3, 8), "no leader", T0)

    (status,) = control.status().lanes
    tries = {held.address: held.retry_at for held in status.held}
    assert [(held.address, held.partition) for held in status.held] == [("orders", None), ("billing", None), ("topic", 3)]

    assert tries["orders"] is None
    assert tries["billing"] is not None
    assert tries["billing"] > T0


def test_what_is_due_and_does_not_go_out_says_what_it_waits_for(engine: Engine, control: Control) -> None:
    """Also what stands behind a message that failed: it was never tried itself."""
    (lane,) = engine.lanes.values()
    due, gone = replace(record(lane="memory", address="billing", due=T0), route="default"), record(lane="gone", due=T0)

    assert control.waits_for(replace(due, schedule=replace(due.schedule, due=T0 + 1))) == ""
    assert control.waits_for(gone) == "no broker gone is configured"
    assert control.waits_for(due) == "broker memory: not connected"
    lane.connected = True
    assert control.waits_for(due) == ""
    lane.lane.holds.fail(partition := Partition("billing", 1, 2), "no leader", T0)
    assert "no leader" in control.waits_for(due)  # nobody knows which partition it is for
    lane.lane.holds.free(partition)
    retry = instant(lane.lane.holds.fail("billing", "unroutable", T0).retry_at)
    assert control.waits_for(due) == f"its destination is held back, tried again at {retry}: unroutable"
    lane.lane.holds.pause("billing")
    assert control.waits_for(due) == "its destination is held back: unroutable"
    assert control.pause("default")
    assert control.waits_for(due) == "route default is paused"


def test_a_paused_route_can_be_resumed_though_it_is_no_longer_configured(tmp_path: Path) -> None:
    """Else what it left behind would wait for ever."""
    (tmp_path / "paused.json").write_text('["retired"]')
    made = Engine(Config.model_validate({"store": {"path": tmp_path}}), lambda: T0, Metrics("0.1.0"), lambda *_: None)

    assert Control(made).resume("retired")

    assert made.pauses.routes == set()
    assert not Control(made).resume("retired")
    made.store.close()


def test_what_is_moved_to_an_instant_that_has_passed_is_due_now_and_counts_as_missed_by_no_misfire_rule(
    engine: Engine, control: Control
) -> None:
    waiting = record(chosen_id="a", due=T0 + 60_000, lane="memory")
    engine.store.put([Put(replace(waiting, schedule=replace(waiting.schedule, misfire="skip")))], T0)

    assert control.reschedule("a", T0 - 3_600_000) == Answer("done")

    found = control.find("a")
    assert isinstance(found, Pending)
    assert found.record.schedule.due == T0
    assert decision(found.record.schedule, control.downtimes, T0) == "deliver"


def test_nothing_is_moved_behind_its_end_where_it_would_only_expire(engine: Engine, control: Control) -> None:
    waiting = record(chosen_id="a", due=T0 + 1000, lane="memory")
    engine.store.put([Put(replace(waiting, schedule=replace(waiting.schedule, ends=T0 + 5000)))], T0)

    with pytest.raises(NotPossibleError, match="it would expire"):
        control.reschedule("a", T0 + 5001)

    found = control.find("a")
    assert isinstance(found, Pending)
    assert found.record.schedule.due == T0 + 1000
    assert control.reschedule("a", T0 + 5000) == Answer("done")


def test_level_queues_say_that_they_cannot_reschedule(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_store", Unindexed("levels.dead-letters"))
    with pytest.raises(Unsupported, match="rescheduling or releasing a message needs a time index"):
        control.reschedule("a", T0)


def test_what_has_ended_while_it_could_not_be_delivered_is_not_released(engine: Engine, control: Control) -> None:
    waiting = record(chosen_id="a", due=T0 - 60_000, lane="memory")
    engine.store.put([Put(replace(waiting, schedule=replace(waiting.schedule, ends=T0 - 1)))], T0)

    with pytest.raises(NotPossibleError, match="it would expire"):
        control.release("a")
