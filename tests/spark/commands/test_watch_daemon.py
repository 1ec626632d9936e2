"""The watch as its user runs it, beside a real daemon; both are killed, and both come back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from integration.daemon import Daemon

from spark.conftest import CONF
from spark.java import needs_java

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("pyspark")

RULES = ("--sla", "10s", "--grace", "1s", "--silent", "20s", "--every", "200ms")
PATIENCE = 120.0


@contextmanager
def _watching(daemon: Daemon, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(Path(sys.executable).with_name("delaybridge")), "audit", "watch", "--ledger", str(daemon.store / "ledger"), *RULES]
    more = [
        "--checkpoint",
        str(folder / "checkpoint"),
        "--alerts",
        str(folder / "alerts"),
        *CONF,
    ]
    process = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _told(folder: Path) -> list[tuple[str, str, str]]:
    file = folder / "alerts"
    text = file.read_text() if file.exists() else ""
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [(line["event"], line["kind"], line.get("id") or line["bridge"]) for line in lines]


def _wait_for(folder: Path, watch: subprocess.Popen[str], *line: str) -> None:
    def there() -> bool:
        assert watch.poll() is None, watch.communicate()[0]
        return line in _told(folder)

    wait_until(there, f"{line} among {_told(folder)}", PATIENCE)


def _send(daemon: Daemon, id_: str) -> None:
    asked: dict[str, Any] = {"route": "jobs", "body": "x", "headers": {"x-delay": "1", "x-delay-id": id_}}
    daemon.post("/messages", asked).raise_for_status()


@needs_java
def test_what_a_held_and_then_killed_bridge_owes_is_alerted_and_resolved_once_although_the_watch_is_killed_too(tmp_path: Path) -> None:
    route = {"name": "jobs", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here", "address": "out"}}
    config = {"brokers": {"here": {"type": "memory"}}, "routes": [route], "ledger": {"flush_interval": "100ms"}}
    with Daemon(tmp_path, config) as daemon, ExitStack() as watches:
        daemon.start()
        _send(daemon, "fine")
        wait_until(lambda: {row["event"] for row in daemon.ledger()} == {"scheduled", "delivered"}, "the first message in the ledger")
        first = watches.enter_context(_watching(daemon, tmp_path))
        daemon.post("/routes/jobs/pause").raise_for_status()
        _send(daemon, "held")
        _wait_for(tmp_path, first, "alert", "not_delivered", "held")
        daemon.kill()
        _wait_for(tmp_path, first, "alert", "bridge_silent", "test")
        first.kill()

        daemon.start()
        daemon.post("/routes/jobs/resume").raise_for_status()
        second = watches.enter_context(_watching(daemon, tmp_path))
        _wait_for(tmp_path, second, "resolved", "not_delivered", "held")
        _wait_for(tmp_path, second, "resolved", "bridge_silent", "test")
        os.killpg(second.pid, signal.SIGTERM)  # Java with it, as systemd does
        output, _ = second.communicate(timeout=PATIENCE)

    assert (second.returncode, output) == (0, "")
    assert sorted(_told(tmp_path)) == [
        ("alert", "bridge_silent", "test"),
        ("alert", "not_delivered", "held"),
        ("resolved", "bridge_silent", "test"),
        ("resolved", "not_delivered", "held"),
    ]
