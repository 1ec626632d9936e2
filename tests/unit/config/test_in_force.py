"""What a running daemon knows of its file: whether it says something else by now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from fake_daemon import STATUS, Daemon, call

from delaybridge.adapters.clock import uptime
from delaybridge.bridge.config import file as files
from delaybridge.bridge.config import in_force
from delaybridge.bridge.config.changes import Changes
from delaybridge.bridge.config.file import load
from delaybridge.bridge.config.in_force import NOTHING, InForce

if TYPE_CHECKING:
    from pathlib import Path

    from delaybridge.bridge.config import Config

TEXT = """
brokers: {here: {type: memory}}
routes: [{name: orders, from: {broker: here, queue: in}, to: {broker: here, address: out}}]
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "delaybridge.yaml").write_text(TEXT)
    return load()


def rewritten(config: Config, text: str) -> None:
    """As an editor does it; a second later, whatever the clock of the disk is worth."""
    assert config.file is not None
    later = config.file.stat().st_mtime + 1
    config.file.write_text(text)
    os.utime(config.file, (later, later))


def test_a_file_that_says_what_is_in_force_has_no_changes(config: Config) -> None:
    assert InForce().since(config) == NOTHING


def test_what_was_changed_is_named_until_it_is_in_force(config: Config) -> None:
    known = InForce()
    rewritten(config, TEXT.replace("queue: in", "queue: other") + "logs: {level: debug}\n")

    assert known.since(config) == Changes(("logs.level",), ("routes.orders.from.queue",))
    assert known.since(load()) == NOTHING


def test_a_change_that_is_taken_back_is_none(config: Config) -> None:
    known = InForce()
    rewritten(config, TEXT + "logs: {level: debug}\n")
    assert known.since(config) == Changes(("logs.level",), ())

    rewritten(config, TEXT)

    assert known.since(config) == NOTHING


def test_a_file_is_read_again_only_where_it_has_changed(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path | None] = []

    def noted(path: Path | None) -> Config:
        read.append(path)
        return config

    monkeypatch.setattr(files, "load", noted)
    known = InForce()

    for _ in range(3):
        known.since(config)
    rewritten(config, TEXT)
    known.since(config)

    assert len(read) == 2


@pytest.mark.parametrize("text", ["brokers: [", "brokers: {here: {type: nobody}}"])
def test_a_file_that_cannot_be_used_is_told_until_it_can(config: Config, text: str) -> None:
    known = InForce()
    rewritten(config, text)
    assert known.since(config) is None

    rewritten(config, TEXT)

    assert known.since(config) == NOTHING


def test_a_file_can_be_used_again_once_the_secret_that_it_names_is_back(config: Config, tmp_path: Path) -> None:
    known, secret = InForce(), tmp_path / "token"
    rewritten(config, TEXT + f"http: {{token_file: {secret}}}\n")
    assert known.since(config) is None

    secret.write_text("0123456789abcdef")

    assert known.since(config) == Changes((), ("http.token",))


def test_that_a_secret_is_gone_is_told_though_the_file_is_the_same(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, secret = InForce(), tmp_path / "token"
    secret.write_text("0123456789abcdef")
    rewritten(config, TEXT + f"http: {{token_file: {secret}}}\n")
    with_token = load()
    assert known.since(with_token) == NOTHING
    secret.unlink()

    assert known.since(with_token) == NOTHING
    monkeypatch.setattr(in_force, "uptime", lambda: uptime() + 10)
    assert known.since(with_token) is None


def test_a_file_that_is_gone_cannot_be_used(config: Config) -> None:
    assert config.file is not None
    config.file.unlink()

    assert InForce().since(config) is None


def test_a_configuration_without_a_file_has_no_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert InForce().since(load()) == NOTHING


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("keys", "how"), [({"needs_restart": ["http.port"]}, "restart"), ({"needs_reload": ["logs.level"]}, "reload")])
def test_status_tells_what_is_not_in_force(daemon: Daemon, keys: dict[str, list[str]], how: str) -> None:
    daemon.on("GET /api/v1/status", STATUS | {"config": "/etc/bridge.yaml"} | keys)

    told = " ".join(call("status").stdout.split())

    assert f"/etc/bridge.yaml; changed since, and not in force until a {how}: {next(iter(keys.values()))[0]}" in told


@pytest.mark.usefixtures("alone")
def test_status_tells_of_a_file_with_which_the_daemon_would_not_start_again(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/status", STATUS | {"config": "/etc/bridge.yaml", "config_usable": False})

    told = " ".join(call("status").stdout.split())

    assert "/etc/bridge.yaml; changed since, and CANNOT BE USED: `delaybridge check-config` says why" in told
