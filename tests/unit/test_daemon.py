"""How a run ends that cannot begin."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from contract.stores import T0, record

from delaybridge.bridge import daemon as daemon_module
from delaybridge.bridge.config import Config
from delaybridge.bridge.config import file as configuration_file
from delaybridge.bridge.control import Control
from delaybridge.bridge.daemon import Daemon, run
from delaybridge.bridge.engine import Engine, open_journal
from delaybridge.bridge.http import HttpServer
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.store import Put, StoreError
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def port() -> Iterator[int]:
    """One on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def _config(path: Path, http: dict[str, Any], **store: str) -> Config:
    return Config.model_validate({"store": {"path": path, "min_free_disk": 0} | store, "http": http})


@pytest.mark.parametrize("store", [{}, {"kind": "level_queues", "broker": "memory"}], ids=["time index", "level queues"])
def test_a_port_that_another_process_has_is_told_in_a_sentence_with_status_75(tmp_path: Path, port: int, store: dict[str, str]) -> None:
    config = _config(tmp_path, {"port": port}, **store)
    with structlog.testing.capture_logs() as logs:
        assert run(config) == 75

    (told,) = [line for line in logs if line["log_level"] == "error"]
    text = f"http cannot listen on 127.0.0.1:{port}: Address already in use: stop the other process, or set another http.port"
    assert (told["event"], told["error"], "exc_info" in told) == ("http_cannot_listen", text, False)
    open_journal(config).close()  # the store was given back


def test_a_bridge_may_open_as_many_files_as_the_hard_limit_allows(tmp_path: Path, port: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        assert run(_config(tmp_path, {"port": port})) == 75
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_address_that_is_not_of_this_machine_is_told_with_status_78(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        assert run(_config(tmp_path, {"bind": "192.0.2.1", "token": "a-token-of-length"})) == 78

    (told,) = [line for line in logs if line["log_level"] == "error"]
    assert "Cannot assign requested address: set another http.bind or http.port" in told["error"]


def test_a_store_path_that_is_a_file_is_told_in_a_sentence_with_what_to_do_and_status_74(tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    with structlog.testing.capture_logs() as logs:
        assert run(_config(tmp_path / "afile", {})) == 74

    (told,) = [line for line in logs if line["log_level"] == "error"]
    assert (told["event"], "exc_info" in told) == ("store_failed", False)
    assert "must be a directory" in told["fix"]
    assert f"user ({os.getuid()})" in told["fix"]  # a container's has no name on the host, whose directory it may be


DEFAULT_NAMES_ON_RABBITMQ: dict[str, Any] = {
    "brokers": {"memory": {"type": "rabbitmq", "url": "amqp://localhost"}},
    "routes": [{"name": "default", "from": {"broker": "memory", "queue": "q"}, "to": {"broker": "memory"}}],
}


@pytest.mark.parametrize(
    ("file", "data", "told"),
    [
        (None, {}, "start where delaybridge.yaml lies, or with --config or DELAYBRIDGE_CONFIG"),
        (
            "delaybridge.yml",
            {},
            "delaybridge.yml lies there, and is not read: call it delaybridge.yaml, or start with --config delaybridge.yml",
        ),
        (
            None,
            {"brokers": {"m": {"type": "memory"}}, "routes": [{"name": "r", "from": {"broker": "m", "queue": "q"}, "to": {"broker": "m"}}]},
            None,
        ),
        (None, DEFAULT_NAMES_ON_RABBITMQ, None),
    ],
)
def test_a_bridge_without_a_configuration_says_so_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None, data: dict[str, Any], told: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    if file:
        (tmp_path / file).touch()
    with structlog.testing.capture_logs() as logs:
        Daemon(Config.model_validate(data))._tell_of_no_configuration()

    assert [(line["event"], line["directory"], line["fix"]) for line in logs] == [("no_configuration", str(tmp_path), told)] * (
        told is not None
    )


def test_a_run_tells_what_it_reads_and_writes_and_that_it_is_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaybridge.bridge.tuning.for_messages", lambda: None)  # it is for the process, which here is the tests' own
    monkeypatch.setattr(Daemon, "_wait", lambda self: self._on_signal(signal.SIGTERM, None))
    config = _config(tmp_path, {"port": 0}).read_from(tmp_path / "d.yaml")
    with structlog.testing.capture_logs() as logs:
        assert run(config) == 0

    lines = {line["event"]: line for line in logs}
    assert (lines["started"]["config"], lines["started"]["store"]) == (str(tmp_path / "d.yaml"), str(tmp_path))
    order = [line["event"] for line in logs]
    assert order.index("started") < order.index("stopping") < order.index("stopped")
    assert "second signal" in lines["stopping"]["again"]


@pytest.mark.parametrize(("error", "code"), [(StoreError("no disk"), 74), (RuntimeError("of all things"), 1)])
def test_a_run_that_ends_with_a_failure_does_not_say_that_it_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    monkeypatch.setattr("delaybridge.bridge.tuning.for_messages", lambda: None)
    monkeypatch.setattr(Daemon, "_wait", lambda self: self._failed("lane memory", error))
    with structlog.testing.capture_logs() as logs:
        assert run(_config(tmp_path, {"port": 0})) == code

    (told,) = [line for line in logs if line["event"] == "stopped"]
    assert (told["drained"], told["exit_code"]) == (False, code)


def test_a_store_that_cannot_be_closed_in_order_is_told_as_any_that_failed_and_the_run_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: TimeIndex) -> None:
        closed(store)
        raise StoreError("no space left")

    closed = TimeIndex.close
    monkeypatch.setattr(TimeIndex, "close", full)
    monkeypatch.setattr("delaybridge.bridge.tuning.for_messages", lambda: None)
    monkeypatch.setattr(Daemon, "_wait", lambda self: self._on_signal(signal.SIGTERM, None))
    with structlog.testing.capture_logs() as logs:
        assert run(_config(tmp_path, {"port": 0})) == 74

    failed, stopped = logs[-2:]
    assert (failed["event"], failed["worker"], failed["error"]) == ("worker_failed", "store", "StoreError: no space left")
    assert (stopped["event"], stopped["drained"], stopped["exit_code"]) == ("stopped", False, 74)


def test_a_run_that_leaves_a_thread_at_work_ends_the_process_with_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes back from a long compaction while Python ends had the process aborted: 134 instead of 0."""
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr("delaybridge.bridge.tuning.for_messages", lambda: None)
    monkeypatch.setattr(Daemon, "_wait", lambda self: self._on_signal(signal.SIGTERM, None))
    drain = Engine.drain
    monkeypatch.setattr(Engine, "drain", lambda engine, patience: not drain(engine, patience))

    run(_config(tmp_path, {"port": 0}))

    assert ended == [0]


@pytest.mark.parametrize(("drained_for", "left"), [(0.0, 5.0), (22.0, 3.0), (25.0, 1.0)])
def test_requests_have_what_the_drain_has_left_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drained_for: float, left: float
) -> None:
    """Whoever stops the bridge kills it a few seconds after `shutdown_timeout`."""
    clock, given = [0.0], []
    monkeypatch.setattr("delaybridge.bridge.tuning.for_messages", lambda: None)
    monkeypatch.setattr(daemon_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(Engine, "start", lambda _: None)
    monkeypatch.setattr(Engine, "drain", lambda engine, _: (engine.store.close(), clock.__setitem__(0, drained_for)))
    monkeypatch.setattr(HttpServer, "stop", lambda _, timeout: given.append(timeout))
    for name in ("bind", "start"):
        monkeypatch.setattr(HttpServer, name, lambda _: None)
    monkeypatch.setattr(Daemon, "_wait", lambda _: None)

    run(_config(tmp_path, {"port": 0}))

    assert given == [left]


def test_a_reload_that_fails_in_a_way_that_nobody_thought_of_leaves_the_bridge_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path | None) -> Config:
        raise RuntimeError("of all things")

    monkeypatch.setattr(configuration_file, "load", fail)
    daemon = Daemon(_config(tmp_path, {}))
    with structlog.testing.capture_logs() as logs:
        daemon._load_again()

    assert [(line["event"], line["error"]) for line in logs] == [("reload_refused", "RuntimeError('of all things')")]
    assert daemon.exit_code == 0


def _open(config: Config) -> Daemon:
    """As it is before it serves."""
    daemon = Daemon(config)
    daemon.engine = Engine(config, lambda: T0, Metrics("0.1.0"), lambda *_: None)
    daemon.control = Control(daemon.engine)
    return daemon


def test_what_no_ledger_file_has_yet_is_counted(tmp_path: Path) -> None:
    """An operator must see a ledger that cannot be written before its rows have filled the store's disk."""
    daemon = _open(_config(tmp_path, {}))
    daemon.engine.store.put([Put(record("a")), Put(record("b"))], T0)

    assert daemon._gauges().ledger_backlog_rows == 2
    daemon.engine.store.close()


@pytest.mark.parametrize(
    ("store", "known"), [({}, True), ({"kind": "level_queues", "broker": "memory"}, False)], ids=["time index", "level queues"]
)
def test_a_scrape_does_not_say_0_of_what_the_store_cannot_know(tmp_path: Path, store: dict[str, str], known: bool) -> None:
    daemon = _open(_config(tmp_path, {}, **store))
    daemon._metrics.watch(daemon._gauges)
    scrape = daemon._metrics.expose()[0].decode()
    daemon.engine.store.close()

    assert ("\ndelaybridge_messages_pending 0.0\n" in scrape) == known  # the broker of level queues has not been asked yet
    assert ("delaybridge_messages_overdue" in scrape, "delaybridge_messages_shelved" in scrape) == (known, known)


@pytest.mark.parametrize(
    ("data", "environment", "warned"),
    [
        ({}, {}, False),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
        ({"bridge": "b1"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "DELAYBRIDGE__BRIDGE": "b1"}, False),
        ({"store": {"kind": "level_queues", "broker": "memory"}}, {}, True),
        ({"store": {"kind": "level_queues", "broker": "memory"}, "bridge": "b1"}, {}, False),
    ],
)
def test_a_name_that_nobody_chose_is_warned_of_where_it_may_not_last(
    monkeypatch: pytest.MonkeyPatch, data: dict[str, Any], environment: dict[str, str], warned: bool
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(daemon_module, "CONTAINER", re.compile("no host name"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with structlog.testing.capture_logs() as logs:
        Daemon(Config.model_validate(data))._tell_of_name()

    assert [line["event"] for line in logs] == ["bridge_name_is_host_name"] * warned


@pytest.mark.parametrize("store", [{}, {"kind": "level_queues", "broker": "memory"}], ids=["time index", "level queues"])
def test_level_queues_that_end_with_the_bridge_are_warned_of(store: dict[str, str]) -> None:
    with structlog.testing.capture_logs() as logs:
        Daemon(Config.model_validate({"store": store}))._tell_of_lost_levels()

    assert [line["event"] for line in logs] == ["level_queues_in_this_process"] * bool(store)


@pytest.mark.parametrize(("name", "made"), [("3f2a9c0b1d4e", True), ("delaybridge", False), ("delaybridge-0", False), ("deadbeef", False)])
def test_the_host_name_that_a_container_gets_is_its_id(name: str, made: bool) -> None:
    assert bool(daemon_module.CONTAINER.fullmatch(name)) is made
