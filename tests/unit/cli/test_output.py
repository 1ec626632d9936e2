"""Standard output that takes nothing, and standard input that is closed: told in a sentence, with an exit code that says so."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fake_daemon import Daemon, call

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("alone")
COMMAND = f"{sys.executable} -c 'from delaybridge.bridge.cli import main; main()'"


def shell(words: str) -> tuple[int, list[str]]:
    """The exit code, and what stands on standard error."""
    done = subprocess.run(["sh", "-c", f"{COMMAND} {words}"], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("closed", [">&-", ">/dev/full"])
@pytest.mark.parametrize("words", ["version", "explain x-delay=5 -o json", "explain x-delay=abc", "check-config", "--help", "--version"])
def test_what_cannot_be_written_is_told_without_a_traceback(words: str, closed: str) -> None:
    code, told = shell(f"{words} {closed}")

    assert (code, 0 < len(told) <= 2) == (1, True)
    assert all("Bad file descriptor" in line or "No space left on device" in line for line in told)


def test_a_command_that_prints_nothing_minds_no_closed_output(tmp_path: Path) -> None:
    (tmp_path / "delaybridge.yaml").write_text("http: {port: x}")

    assert shell("status >&-") == (78, ["delaybridge.yaml:1: http.port: must be a whole number"])


@pytest.mark.parametrize("words", ["cancel -", "send -"])
def test_what_cannot_be_read_is_told_without_a_traceback(words: str) -> None:
    code, told = shell(f"{words} <&-")

    assert (code, told) == (1, ["[Errno 9] Bad file descriptor"])


def test_whoever_cannot_answer_because_standard_input_is_closed_is_asked_nothing(tmp_path: Path) -> None:
    (tmp_path / "delaybridge.yaml").write_text("""
brokers: {rabbit: {type: rabbitmq, url: "amqp://127.0.0.1:1"}}
routes: [{name: a, from: {broker: rabbit, queue: in}, to: {broker: rabbit}}]
""")

    code, told = shell("observe /queues/orders <&-")

    assert (code, "Say --take if that is meant" in " ".join(told)) == (2, True)


@pytest.mark.parametrize("words", ["list", "dead-letter list", "cancel a b"])
def test_half_a_json_array_is_not_left_where_the_first_request_fails(daemon: Daemon, words: str) -> None:
    for request in ("GET /api/v1/messages", "GET /api/v1/dead-letters", "POST /api/v1/cancellations"):
        daemon.error(request, 401, "unauthorized")

    told = call(*words.split(), "-o", "json")

    assert (told.exit_code, told.stdout) == (1, "")


def test_top_is_refused_on_a_terminal_on_which_nothing_can_be_drawn() -> None:
    ours, its = pty.openpty()
    command = [sys.executable, "-c", "from delaybridge.bridge.cli import main; main()", "top", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(command, stdout=its, stderr=subprocess.PIPE, env=os.environ | {"TERM": "dumb"}, text=True, check=False)
    os.close(its)
    os.close(ours)

    assert (done.returncode, done.stderr.partition(";")[0]) == (2, "top needs a terminal that it can draw on")
