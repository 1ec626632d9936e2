"""Files that are named on the command line: what cannot be read, and what is no file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from fake_daemon import Daemon, call

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize("words", ["check-config {}", "check-config --config {}", "run --check --config {}", "status --config {}"])
def test_a_configuration_that_may_not_be_read_is_a_bad_one_and_no_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """The user of the test may be root, who may read everything: the file is a directory, and nobody may read anything."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)

    told = call(*words.format(tmp_path).split())

    assert (told.exit_code, told.stderr) == (78, f"{tmp_path}: cannot be read: Is a directory\n")


def test_a_device_that_gives_without_end_is_no_configuration() -> None:
    told = call("check-config", "/dev/zero")

    assert (told.exit_code, told.stderr) == (78, "/dev/zero: is not a configuration: it has more than 10 MiB\n")


def test_a_configuration_may_come_through_a_pipe() -> None:
    out, into = os.pipe()
    os.write(into, b"http: {port: 1}")
    os.close(into)

    told = call("check-config", f"/dev/fd/{out}")
    os.close(out)

    assert (told.exit_code, told.stdout.startswith(f"/dev/fd/{out}: ok")) == (0, True)


@pytest.mark.parametrize("command", ["check-config", "run --check"])
@pytest.mark.parametrize("text", ["brokers:\nroutes:\n", "http: {port: 8471}"])
def test_a_file_that_names_no_broker_is_told_to_run_on_the_in_process_one(tmp_path: Path, command: str, text: str) -> None:
    (tmp_path / "delaybridge.yaml").write_text(text)

    told = call(*command.split())

    assert (told.exit_code, told.stdout) == (
        0,
        "delaybridge.yaml: ok, but it names no broker: the bridge runs on the in-process one, which keeps nothing for others\n",
    )


def test_a_file_that_names_the_in_process_broker_itself_is_meant_so(tmp_path: Path) -> None:
    named = "brokers: {memory: {type: memory}}\nroutes: [{name: default, from: {broker: memory, queue: in}, to: {broker: memory}}]"
    (tmp_path / "delaybridge.yaml").write_text(named)

    assert call("check-config").stdout == "delaybridge.yaml: ok\n"


def test_nothing_is_observed_that_could_not_be_written(daemon: Daemon, tmp_path: Path) -> None:
    """At a queue it would be gone."""
    (tmp_path / "file").touch()

    told = call("observe", "out", "--to", "file/below", "--take")

    assert (told.exit_code, daemon.asked) == (2, [])
    assert "file/below cannot be written: Not a directory" in told.stderr


def test_without_its_configuration_a_daemons_broker_of_another_name_is_asked_for_by_that(daemon: Daemon, tmp_path: Path) -> None:
    daemon.error("GET /api/v1/observe", 404, "unknown")

    told = call("observe", "out", "--url", "http://bridge:1")
    (tmp_path / "delaybridge.yaml").write_text("http: {port: 1}")
    known = call("observe", "out", "--url", "http://bridge:1")

    assert (told.exit_code, "Invalid value for --config" in told.stderr) == (2, True)
    assert (known.exit_code, known.stderr) == (1, "It is unknown.\n")
