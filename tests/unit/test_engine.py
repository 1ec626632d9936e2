"""What the engine makes of a configuration and of what its store holds already."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import structlog
from brokers.common import free_port, wait_until
from contract.stores import HOUR, T0, record
from msgspec.structs import replace
from unit.apart.clients import pid_of

from delaybridge.adapters.base import Rejected
from delaybridge.adapters.memory import Memory, broker
from delaybridge.adapters.moves import LEAD
from delaybridge.bridge import downtimes
from delaybridge.bridge.config import Config
from delaybridge.bridge.config.sections import Ledger, Retry
from delaybridge.bridge.control import Control
from delaybridge.bridge.engine import Engine, _tell_of_what_stays_behind, open_journal
from delaybridge.bridge.ledger import worker as ledger_worker
from delaybridge.bridge.level_queues import doors
from delaybridge.bridge.level_queues.publisher import Publisher
from delaybridge.bridge.metrics import Metrics
from delaybridge.bridge.views import LedgerStatus
from delaybridge.bridge.workers import Worker
from delaybridge.core.message import message
from delaybridge.core.reasons import Reason
from delaybridge.core.store import Answer, LedgerEvent, Put, Refuse

if TYPE_CHECKING:
    from delaybridge.adapters.base import Outgoing


@pytest.fixture
def config(tmp_path: Path) -> Config:
    brokers = {name: {"type": "memory", "name": name} for name in ("here", "there")}
    route = {"name": "jobs", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here"}}
    return Config.model_validate({"store": {"path": tmp_path}, "brokers": brokers, "routes": [route]})


def _lanes(config: Config, waiting_for: str) -> list[str]:
    store = open_journal(config)
    store.put([Put(record("a", lane=waiting_for))], T0)
    store.close()
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    engine.store.close()
    return list(engine.lanes)


def test_what_waits_for_a_broker_that_no_route_names_any_more_is_delivered(config: Config) -> None:
    assert _lanes(config, "there") == ["here", "there"]


def test_what_waits_for_a_broker_that_is_not_configured_any_more_is_told_and_kept(config: Config) -> None:
    with structlog.testing.capture_logs() as logs:
        assert _lanes(config, "gone") == ["here"]
    assert [(line["event"], line["broker"]) for line in logs] == [("messages_without_broker", "gone")]


def test_an_engine_that_was_never_started_can_be_drained(config: Config) -> None:
    assert Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None).drain(1)
    open_journal(config).close()  # nobody has it open


def test_no_process_of_a_client_outlives_the_engine(tmp_path: Path) -> None:
    away = {"type": "rabbitmq", "url": f"amqp://127.0.0.1:{free_port()}", "own_processes": True}
    route = {"name": "jobs", "from": {"broker": "away", "queue": "in"}, "to": {"broker": "away"}}
    config = Config.model_validate({"store": {"path": tmp_path}, "brokers": {"away": away}, "routes": [route]})
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    engine.start()
    try:
        wait_until(lambda: all(client._place._process for client in engine._apart), "a process for the source, and one for the sink")
        pids = [pid_of(client) for client in engine._apart]
    finally:
        assert engine.drain(20)

    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert len(pids) == 2


def test_a_reload_gives_the_lanes_the_new_times_to_drain_and_to_give_up(config: Config) -> None:
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    engine.reload(config.model_copy(update={"shutdown_timeout": 4000, "retry": Retry(give_up_after=5000)}))
    engine.store.close()

    assert [(lane.drain_for, lane.lane.settings.give_up_after) for lane in engine.lanes.values()] == [(2.0, 5000)]


def test_what_is_refused_after_a_reload_goes_to_the_dead_letter_that_its_route_names_by_then(config: Config) -> None:
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    (route,), (worker,) = config.routes, engine.lanes.values()
    engine.store.put([Put(replace(record("a", lane="here"), route="jobs"))], T0)
    changed = config.model_copy(update={"routes": [route.model_copy(update={"dead_letter": "dead"})]})
    engine.reload(changed)
    sent: list[Outgoing] = []
    worker.lane.tick(T0, sent.extend)
    worker.lane.confirm([(sent[0].tag, Rejected(Reason.TOO_LARGE, "16 MiB at most"))])
    for moment in range(1, 30):
        worker.lane.tick(T0 + moment, sent.extend)
    engine.store.close()

    assert [each.address for each in sent] == ["orders", "dead"]
    assert engine.intakes["jobs"].intake.planner.route.dead_letter == "dead", "what is refused on arrival"
    assert engine.config is changed, "what status compares with the file"


def test_lanes_wait_before_another_try_as_configured_and_after_a_reload_as_configured_by_then(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda _, most: most)  # full jitter: anything up to that

    def waits() -> list[float]:
        (lane,) = engine.lanes.values()
        return [lane.lane.holds.backoff.seconds(attempt) for attempt in (1, 2, 3, 10)]

    engine = Engine(config.model_copy(update={"retry": Retry(first=2_000, cap=5_000)}), lambda: T0, Metrics("0.1.0"), lambda *_: None)
    assert waits() == [2.0, 4.0, 5.0, 5.0]
    engine.reload(config.model_copy(update={"retry": Retry(first=1_000, cap=3_000)}))
    assert waits() == [1.0, 2.0, 3.0, 3.0]
    engine.store.close()


def test_a_route_that_is_resumed_wakes_the_lanes_for_what_waited(config: Config) -> None:
    """Else they may sleep for ten seconds more."""
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    (lane,) = engine.lanes.values()
    engine.store.put([Put(replace(record("a", lane="here"), route="jobs"))], T0)
    engine.pauses.pause("jobs")
    assert lane.lane.tick(T0, lambda _: None) > 0
    assert not lane._wake.is_set()

    engine.pauses.resume("jobs")

    assert lane._wake.is_set()
    sent: list[Outgoing] = []
    lane.lane.tick(T0, sent.extend)
    assert [outgoing.message.body for outgoing in sent] == [b"a"]
    engine.store.close()


def test_an_engine_is_alive_while_all_its_threads_run_and_while_it_stops(config: Config) -> None:
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    assert not Control(engine).alive()

    engine.start()
    try:
        assert Control(engine).alive()
        engine.ledger.stop()
        assert engine.ledger.join(10)
        assert not Control(engine).alive()
    finally:
        assert engine.drain(10)
    assert Control(engine).alive()


def test_a_bridge_is_seen_to_live_however_long_it_takes_to_give_space_back(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large store that takes a while; and after a kill, what fell due since the last sign of life would count as missed."""
    monkeypatch.setattr(downtimes, "SIGN_EVERY", 0.01)
    monkeypatch.setattr(ledger_worker, "MAINTAIN", 0.0)
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    begun, over = threading.Event(), threading.Event()
    signs: list[int] = []

    def long_maintenance(_: int) -> bool:
        begun.set()
        return over.wait(10)

    monkeypatch.setattr(engine.down, "alive", lambda now, _: signs.append(now))
    monkeypatch.setattr(engine.journal, "maintain", long_maintenance)

    engine.start()
    try:
        assert begun.wait(10)
        given = len(signs)
        wait_until(lambda: len(signs) > given + 1, "a sign of life")
    finally:
        over.set()
        assert engine.drain(10)


def test_the_last_sign_of_life_tells_how_much_of_the_ledger_is_in_files(config: Config) -> None:
    """Else an older copy of the store, put back, is not recognised as one."""
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    engine.store.put([Put(record("a", T0 + HOUR, lane="here"))], T0)
    engine.start()
    assert engine.drain(10)

    assert msgspec.json.decode((config.store.path / "downtimes.json").read_bytes())["row"] == 2


def test_an_intake_that_does_not_end_leaves_the_lanes_most_of_the_time(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[str, float]] = []

    def join(worker: Worker, timeout: float) -> bool:
        waited.append((worker.name.split()[0], timeout))
        return not worker.name.startswith("intake")

    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    monkeypatch.setattr(Worker, "join", join)

    assert not engine.drain(100)
    times = dict(reversed(waited))  # the first time of each
    assert (times["intake"] <= 25, times["lane"] > 70) == (True, True)
    engine.store.close()


def test_a_ledger_that_cannot_be_written_is_told_by_the_status_until_it_can(config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    engine = Engine(config.model_copy(update={"ledger": Ledger(path=tmp_path / "file")}), lambda: T0, Metrics("0.1.0"), lambda *_: None)
    engine.store.put([Put(record("a"))], T0)

    with structlog.testing.capture_logs():
        engine.ledger._flush()
    broken = Control(engine).status().ledger
    (tmp_path / "file").unlink()
    engine.ledger._flush()

    assert (broken.backlog, "Not a directory" in broken.error) == (1, True)
    assert Control(engine).status().ledger == LedgerStatus()
    assert engine.drain(1)


def _on_level_queues(config: Config) -> Config:
    data = config.model_dump(exclude={"brokers", "routes"})
    store = data["store"] | {"kind": "level_queues", "broker": "here"}
    return config.model_copy(update={"store": type(config.store).model_validate(store)})


def test_what_a_time_index_still_holds_is_told_when_messages_wait_in_level_queues_from_now_on(config: Config) -> None:
    store = open_journal(config)
    store.put([Put(record("a")), Refuse(record("b", kind="refused"), "bad_number", "x")], T0)
    store.close()
    with structlog.testing.capture_logs() as logs:
        Engine(_on_level_queues(config), lambda: T0, Metrics("0.1.0"), lambda *_: None).store.close()
    (line,) = [line for line in logs if line["event"] == "messages_left_in_time_index"]
    assert (line["log_level"], line["pending"], line["dead_letters"]) == ("error", 1, 1)
    assert "delaybridge migrate-store --to level_queues" in line["action"]


def test_dead_letters_on_the_shelf_alone_are_told_then_too(config: Config) -> None:
    store = open_journal(config)
    store.put([Refuse(record("a"), "bad", "")], T0)
    with structlog.testing.capture_logs() as logs:
        _tell_of_what_stays_behind(store)
    store.close()
    assert [(line["event"], line["pending"], line["dead_letters"]) for line in logs] == [("messages_left_in_time_index", 0, 1)]


def test_the_time_index_remembers_for_as_long_and_takes_as_much_as_configured(config: Config) -> None:
    of_store = config.store.model_copy(update={"memory": 2 * HOUR, "max_size": 5 << 30})
    store = open_journal(config.model_copy(update={"store": of_store}))
    store.put([Put(record("a", chosen_id="a"))], T0)
    store.cancel("a", T0)
    found = []
    for now in (T0 + 2 * HOUR, T0 + 2 * HOUR + 1):
        store.put([], now)
        found.append(store.find("a"))
    room = store.free_bytes()
    store.close()

    assert found == [Answer("too_late", "cancelled", T0), Answer("unknown")]
    assert room <= 5 << 30


def test_an_empty_time_index_is_no_news(config: Config) -> None:
    with structlog.testing.capture_logs() as logs:
        Engine(_on_level_queues(config), lambda: T0, Metrics("0.1.0"), lambda *_: None).store.close()
    assert logs == []


def test_ledger_rows_are_numbered_on_when_the_kind_of_store_changes(config: Config) -> None:
    store = open_journal(config)
    store.put([Put(record("a"))], T0)
    store.close()
    again = open_journal(_on_level_queues(config))
    again.tell([LedgerEvent("delivered", T0, record("a", chosen_id="a"))], T0)
    assert [row.sequence for row in again.unfiled.rows(10)] == [1, 2]
    again.close()


def test_a_stop_ends_what_waits_to_enter_level_queues_and_its_source_gives_it_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "GRACE", 0.0)
    monkeypatch.setattr(Publisher, "submit", lambda *_: None)  # a broker that confirms nothing
    source = broker("here").queue("in")
    broker("here").put("in", message(b"a", {"x-delay": 5000}), Memory(name="here"))
    engine = Engine(_on_level_queues(config), lambda: T0, Metrics("0.1.0"), lambda *_: None)
    engine.start()
    wait_until(lambda: not source, "the intake")

    assert engine.drain(10)
    assert [entry.message.body for entry in source] == [b"a"]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_messages_are_given_early_to_the_sink_that_keeps_them_until_they_are_due_and_to_no_other_also_after_a_reload(
    tmp_path: Path, exactly_once: bool
) -> None:
    kafka = {"type": "kafka", "bootstrap_servers": "127.0.0.1:1", "exactly_once": exactly_once}
    route = {"name": "jobs", "from": {"broker": "here", "topic": "in"}, "to": {"broker": "there", "address": "out"}}
    store = {"path": tmp_path, "kind": "level_queues", "broker": "here"}
    brokers = {"here": kafka, "there": {"type": "memory", "name": "there"}}
    config = Config.model_validate({"store": store, "brokers": brokers, "routes": [route]})
    engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    for _ in ("from the start", "after a reload"):
        assert {name: worker.lane.settings.lead for name, worker in engine.lanes.items()} == {
            "here": LEAD if exactly_once else 0,
            "there": 0,
        }
        engine.reload(config)
    assert engine.drain(1)
