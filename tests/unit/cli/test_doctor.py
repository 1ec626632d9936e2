"""Which places `doctor` has an adapter look at for what stands still."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.activemq.entry import ActiveAdapter
from delaybridge.adapters.activemq.scheduler import Scheduler
from delaybridge.adapters.base import AdapterError, NotConnected
from delaybridge.adapters.kafka.entry import KafkaAdapter
from delaybridge.adapters.preparing import Finding, Step
from delaybridge.bridge.cli import doctor
from delaybridge.bridge.cli.client import UnreachableError
from delaybridge.bridge.config import Config
from delaybridge.bridge.config.file import load
from delaybridge.bridge.config.sections import Ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaybridge.adapters.kafka import Endpoint, Kafka
    from delaybridge.adapters.levelled import Level

MEMORY = "brokers: {memory: {type: memory}}\nroutes: [{name: default, from: {broker: memory, queue: in}, to: {broker: memory}}]"
STANDS = Finding(False, "out-0 stands still", "end it")
PROBED = Finding(True, "the probe came back")


class Nobody:
    """No daemon runs, and nothing else is asked of a broker."""

    def status(self) -> dict[str, Any]:
        raise UnreachableError("nobody answers")

    def connect(self, *_: object) -> None: ...

    def close(self) -> None: ...

    def check(self) -> list[Finding]:
        return []

    def probe(self) -> list[Finding]:
        return [PROBED]

    def plan(self) -> list[Any]:
        return []


class Crowd(Nobody):
    """Two consumers take in from one queue."""

    def crowds(self) -> dict[str, int]:
        return {"in": 2}


class Somebody(Nobody):
    """A daemon that runs, with the configuration in /etc."""

    def status(self) -> dict[str, Any]:
        return {"bridge": "b", "version": "1", "ready": True, "config": "/etc/delaybridge.yaml"}


class Asked:
    """What an adapter was asked for, by its bootstrap server."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[list[str], set[str], list[str]]] = {}

    def standstills(self, options: Kafka, routes: Sequence[Endpoint], addresses: Sequence[str], levels: Sequence[Level]) -> list[Finding]:
        self.places[options.bootstrap_servers[0]] = ([each.address for each in routes], set(addresses), [each.name for each in levels])
        return [STANDS]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    for part in ("sink", "interception", "level_queues"):
        monkeypatch.setattr(KafkaAdapter, part, lambda *_: Nobody())
    monkeypatch.setattr(KafkaAdapter, "standstills", made.standstills)
    return made


def config(folder: Path, back: str = "one", **store: Any) -> Config:
    route = {"name": "r", "from": {"broker": "one", "topic": "in"}, "to": {"broker": "two", "address": "out"}, "dead_letter": "dead"}
    second = {"name": "back", "from": {"broker": "two", "topic": "^x.*"}, "to": {"broker": back}, "allow_to": ["*"]}
    brokers = {name: {"type": "kafka", "bootstrap_servers": f"{name}:1"} for name in ("one", "two")}
    limits = {"levels": ["1s", "1m"]}
    return Config.model_validate({"store": {"path": folder} | store, "brokers": brokers, "routes": [route, second], "limits": limits})


def findings(given: Config) -> list[Finding]:
    return list(doctor.findings(given, Nobody(), list(given.brokers), probe=False))  # type: ignore[arg-type]


def test_each_broker_is_looked_at_where_routes_read_and_write_on_it(asked: Asked, tmp_path: Path) -> None:
    found = findings(config(tmp_path))
    assert asked.places == {"one:1": (["in"], set(), []), "two:1": (["^x.*"], {"out", "dead"}, [])}
    assert [each.what for each in found if each.fix == STANDS.fix] == ["one: out-0 stands still", "two: out-0 stands still"]


@pytest.mark.parametrize(("named", "told"), [("", 1), (MEMORY, 0)])
def test_a_file_that_names_no_broker_is_found(tmp_path: Path, named: str, told: int) -> None:
    file = tmp_path / "delaybridge.yaml"
    file.write_text(f"store: {{path: {tmp_path}}}\n{named}")

    wrong = [each for each in findings(load(file)) if "names no broker" in each.what]

    assert [(each.ok, each.fix.partition(";")[0]) for each in wrong] == [(False, "name brokers and routes in it")] * told


def test_levels_are_looked_at_on_their_own_broker(asked: Asked, tmp_path: Path) -> None:
    findings(config(tmp_path, kind="level_queues", broker="two", prefix="lv"))
    assert [levels for _, _, levels in asked.places.values()] == [[], ["lv.0", "lv.1s", "lv.1m", "lv.dead-letters"]]


@pytest.mark.parametrize(("by_hand", "fix"), [(True, "<plugins/>"), (False, "delaybridge apply --broker one, or: <plugins/>")])
@pytest.mark.usefixtures("asked")
def test_what_apply_cannot_do_for_level_queues_is_to_be_done_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_hand: bool, fix: str
) -> None:
    monkeypatch.setattr(Nobody, "plan", lambda _: [Step("the broker counts", "<plugins/>", False, by_hand=by_hand)])
    found = findings(config(tmp_path, kind="level_queues", broker="one"))
    assert [each.fix for each in found if "the broker counts" in each.what] == [fix]


@pytest.mark.parametrize(
    ("options", "store", "told"), [({}, {}, 2), ({"management": False}, {}, 0), ({}, {"kind": "level_queues", "broker": "one"}, 0)]
)
def test_management_messages_that_the_bridge_asks_for_and_may_not_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], store: dict[str, Any], told: int
) -> None:
    def refused(_: Scheduler) -> None:
        raise NotConnected("not authorized to read")

    monkeypatch.setattr(Scheduler, "connect", refused)
    monkeypatch.setattr(ActiveAdapter, "sink", lambda *_: Nobody())
    monkeypatch.setattr(ActiveAdapter, "interception", lambda *_: Nobody())
    monkeypatch.setattr(ActiveAdapter, "level_queues", lambda *_: Nobody())
    brokers = {name: {"type": "activemq", "url": "stomp://x", **options} for name in ("one", "two")}
    routes = [{"name": "r", "from": {"broker": "one", "queue": "in"}, "to": {"broker": "two"}, "allow_to": ["out"]}]
    given = Config.model_validate({"store": {"path": tmp_path, **store}, "brokers": brokers, "routes": routes})

    found = [each for each in findings(given) if "own scheduler" in each.what]

    assert len(found) == told
    for each in found:
        assert each.what == "one: messages to the broker's own scheduler do not come to the bridge: not authorized to read"
        assert "brokers.one.management to false" in each.fix


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(("store", "told"), [({}, 1), ({"kind": "level_queues", "broker": "two"}, 0)])
def test_bridges_that_share_an_ingress_queue_but_no_store_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: dict[str, str], told: int
) -> None:
    """What one holds, the other can neither cancel nor replace. Level queues are shared, so there it is as it should be."""
    monkeypatch.setattr(
        KafkaAdapter, "interception", lambda _, options, __: Crowd() if options.bootstrap_servers == ("one:1",) else Nobody()
    )

    found = [each for each in findings(config(tmp_path, **store)) if "share queue" in each.what]

    assert len(found) == told
    assert all(not each.ok and "one: 2 consumers share queue `in`" in each.what and "level queues" in each.fix for each in found)


@pytest.mark.usefixtures("asked")
def test_a_small_disk_is_not_told_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4 * 1024**2 + 200 * 1024))

    found = findings(config(tmp_path, min_free_disk="5MiB"))[1]

    assert (found.ok, found.what) == (False, f"4.2 MiB are free for the store in {tmp_path}")
    assert found.fix == "free some: intake stops below 5.0 MiB"


@pytest.mark.usefixtures("asked")
def test_a_store_that_may_not_be_read_is_told_and_what_follows_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: Path) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor, "taken", denied)

    found = findings(config(tmp_path, max_size="1GiB"))[2:]

    assert (found[0].ok, found[0].what) == (False, f"cannot read the store in {tmp_path}: Permission denied")
    assert found[1].what.startswith("the disk of the store syncs")


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("name", "told"),
    [("ledger", "the ledger can be written in {}"), ("file", "the ledger cannot be written in {}/file: Not a directory")],
)
def test_a_ledger_that_cannot_be_written_is_told_though_messages_flow(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "file").touch()
    given = config(tmp_path).model_copy(update={"ledger": Ledger(path=tmp_path / name)})

    (found,) = [each for each in findings(given) if each.what.startswith("the ledger")]

    assert (found.ok, found.what) == (name == "ledger", told.format(tmp_path))


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(("taken", "left", "ok"), [(0, "1.0 GiB", True), (800 << 20, "224.0 MiB", False), (2 << 30, "0 B", False)])
def test_what_is_left_of_a_stores_largest_size_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int, left: str, ok: bool
) -> None:
    monkeypatch.setattr(doctor, "taken", lambda _: taken)

    found = findings(config(tmp_path, max_size="1GiB"))[2]

    assert (found.ok, found.what) == (ok, f"{left} of store.max_size (1.0 GiB) are left")
    assert found.fix == "raise it, or wait until messages are delivered: intake stops below 256.0 MiB"


REFUSED = "the broker answers, but not to this: check that the user of brokers.one may do it, and the broker's own log"
LOST = (
    "the broker itself answered before: check that what this names runs as well, that the user of brokers.one may do this, "
    "and the broker's own log"
)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("part", "error", "fix"),
    [
        ("standstills", AdapterError("refused"), REFUSED),
        ("standstills", NotConnected("the management API does not answer"), LOST),
        ("interception", AdapterError("an exchange is gated by two routes"), ""),
    ],
)
def test_a_look_that_fails_is_a_finding_that_says_where_to_look_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, error: AdapterError, fix: str
) -> None:
    def fails(*_: object) -> list[Finding]:
        raise error

    monkeypatch.setattr(KafkaAdapter, part, fails)
    (found,) = [each for each in findings(config(tmp_path)) if each.what == f"one: {error}"]
    assert (found.ok, found.fix) == (False, fix)


@pytest.mark.usefixtures("asked")
def test_where_the_certificate_is_not_trusted_its_authority_is_missing_and_not_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise NotConnected("[SSL: CERTIFICATE_VERIFY_FAILED] unable to get local issuer certificate")

    monkeypatch.setattr(Nobody, "connect", fails)

    (found,) = [each for each in findings(config(tmp_path)) if "one: [SSL" in each.what]
    fix = "name the authority of its certificate in brokers.one.tls.ca_file, and the broker as the certificate does"
    assert (found.ok, found.fix) == (False, fix)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("file", "told"),
    [("/etc/delaybridge.yaml", ""), ("/tmp/mine.yaml", "; it reads /etc/delaybridge.yaml, which may not be this one")],
)
def test_a_daemon_that_reads_another_configuration_is_told(tmp_path: Path, file: str, told: str) -> None:
    """Where two bridges share a machine, the one that answers may be the other one."""
    given = config(tmp_path).read_from(Path(file))

    found = list(doctor.findings(given, Somebody(), ["one"], probe=False))  # type: ignore[arg-type]

    assert found[-1] == Finding(True, f"the daemon runs (b, 1) and is ready{told}", found[-1].fix)


@pytest.mark.usefixtures("asked")
def test_a_destination_that_takes_nothing_is_told_though_the_daemon_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"address": "/queues/typo", "attempts": 3, "error": "unroutable: NO_ROUTE", "retry_at": 1}
    status = Somebody().status() | {"lanes": [{"broker": "rabbit", "held": [held]}, {"broker": "kafka", "held": []}]}
    monkeypatch.setattr(Somebody, "status", lambda _: status)

    found = list(doctor.findings(config(tmp_path), Somebody(), ["one"], probe=False))  # type: ignore[arg-type]

    told = Finding(False, "rabbit: /queues/typo takes no messages, and they are held back: unroutable: NO_ROUTE", found[-1].fix)
    assert found[-1] == told


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("paused", "which", "fix"),
    [
        (["jobs"], " (jobs)", "delaybridge resume jobs"),
        (["jobs", "mails"], " (jobs, mails)", "delaybridge resume ROUTE"),
        ([], ", which the configuration does not name any more", "delaybridge resume ROUTE"),
    ],
)
def test_what_waits_for_a_paused_route_is_told_with_how_to_resume_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paused: list[str], which: str, fix: str
) -> None:
    held = {"address": "/queues/out", "attempts": 0, "error": "paused", "retry_at": None}
    elsewhere = {"name": "elsewhere", "paused": True, "to": "kafka orders"}
    routes = [{"name": name, "paused": True, "to": "rabbit"} for name in paused] + [{"name": "other", "paused": False}, elsewhere]
    status = Somebody().status() | {"lanes": [{"broker": "rabbit", "held": [held]}], "routes": routes}
    monkeypatch.setattr(Somebody, "status", lambda _: status)

    found = list(doctor.findings(config(tmp_path), Somebody(), ["one"], probe=False))  # type: ignore[arg-type]

    assert found[-1] == Finding(False, f"rabbit: messages for /queues/out wait, because their route is paused{which}", fix)


@pytest.mark.usefixtures("asked")
def test_messages_for_a_broker_that_is_not_in_the_configuration_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = Somebody().status() | {"lanes": [{"broker": "rabbit", "held": []}], "without_broker": ["old"]}
    monkeypatch.setattr(Somebody, "status", lambda _: status)

    found = list(doctor.findings(config(tmp_path), Somebody(), ["one"], probe=False))  # type: ignore[arg-type]

    assert [each.what for each in found if not each.ok and "wait for" in each.what] == [
        "messages wait for a broker 'old', which the daemon's configuration does not name"
    ]


@pytest.mark.parametrize(("number", "fix"), [(errno.ENOSPC, "free some space there"), (errno.EACCES, "let the bridge's user write there")])
def test_a_store_that_cannot_be_written_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str) -> None:
    def failing(_: Path) -> list[float]:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(doctor, "_sync_times", failing)

    found = doctor._sync(tmp_path)

    assert (found.ok, found.what) == (False, f"cannot write in {tmp_path}: {os.strerror(number)}")
    assert found.fix.startswith(fix)


@pytest.mark.usefixtures("asked")
def test_a_daemon_that_cannot_write_its_ledger_is_not_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be another user than who asks."""
    status = Somebody().status() | {"ledger": {"backlog": 1, "error": "Permission denied"}}
    monkeypatch.setattr(Somebody, "status", lambda _: status)

    found = list(doctor.findings(config(tmp_path), Somebody(), ["one"], probe=False))  # type: ignore[arg-type]

    assert (found[-1].ok, found[-1].what) == (False, "the daemon cannot write its ledger: Permission denied")


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("keys", "named", "fix"),
    [
        ({"needs_restart": ["routes.r.from.gate"], "needs_reload": ["logs.level"]}, "routes.r.from.gate, logs.level", "restart it"),
        ({"needs_reload": ["logs.level"]}, "logs.level", "let it read the file again (SIGHUP)"),
    ],
)
def test_a_daemon_that_does_not_know_yet_what_its_file_says_is_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, list[str]], named: str, fix: str
) -> None:
    """An exchange that is gated before the bridge knows of it sends its delayed messages round, until they are on the shelf."""
    status = Somebody().status() | {"config": "/etc/bridge.yaml"} | keys
    monkeypatch.setattr(Somebody, "status", lambda _: status)

    found = list(doctor.findings(config(tmp_path), Somebody(), ["one"], probe=False))  # type: ignore[arg-type]

    assert found[-1] == Finding(
        False, f"the daemon does not run with what /etc/bridge.yaml says now: {named} changed since it read that", fix
    )


@pytest.mark.usefixtures("asked")
def test_a_daemon_that_would_not_start_again_is_not_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = Somebody().status() | {"config": "/etc/bridge.yaml", "config_usable": False}
    monkeypatch.setattr(Somebody, "status", lambda _: status)

    found = list(doctor.findings(config(tmp_path), Somebody(), ["one"], probe=False))  # type: ignore[arg-type]

    assert (found[-1].ok, found[-1].what) == (False, "the daemon could not start again with what /etc/bridge.yaml says now")


@pytest.mark.usefixtures("asked")
def test_a_route_to_another_broker_is_named_as_one_that_no_probe_went_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaAdapter, "standstills", lambda *_: [])
    given = config(tmp_path, back="two")

    found = list(doctor.findings(given, Somebody(), list(given.brokers), probe=True))  # type: ignore[arg-type]

    assert [each.what for each in found[-3:]] == [
        "one: the probe came back",
        "one: route `r` was not probed, because it delivers on `two`: send a message through it to see it arrive",
        "two: the probe came back",
    ]
    assert all(each.ok for each in found)
    assert not any("not probed" in each.what for each in doctor.findings(given, Somebody(), ["one"], probe=False))  # type: ignore[arg-type]
