"""A daemon for tests: `delaybridge run` as a process of its own, with a configuration, a store and an HTTP port of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import pyarrow.parquet as pq
import pytest
import yaml
from brokers.common import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = Path(sys.executable).with_name("delaybridge")
PATIENCE = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.1
ENDING = 60.0
"""Seconds. A daemon drains for up to 25 (its `shutdown_timeout`) before it ends."""


LIMITS = httpx.Limits(max_connections=48)
"""A daemon serves 64."""


class Daemon:
    """Started, asked, killed and started again; `directory` keeps its configuration, store and log. `config` lacks store and http."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        self.directory = directory
        self.file = directory / "delaybridge.yaml"
        self.port = free_port()
        self.store = directory / "store"
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, limits=LIMITS, trust_env=False)
        self.process: subprocess.Popen[bytes] | None = None
        defaults = {"bridge": "test", "store": {"path": str(self.store)}, "http": {"port": self.port}, "logs": {"format": "json"}}
        self.config: dict[str, Any] = defaults | config
        self.config["store"] = defaults["store"] | config.get("store", {})
        self.write()

    def write(self) -> None:
        """Write the configuration; a running daemon reads it at SIGHUP."""
        self.file.write_text(yaml.safe_dump(self.config))

    def start(self, *, ready: bool = True) -> Daemon:
        """Start it, and wait until it is ready unless told otherwise."""
        with (self.directory / "log").open("ab") as output:
            self.process = subprocess.Popen(
                [COMMAND, "run", "--config", self.file], cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=os.environ | {"PYTHONFAULTHANDLER": "1"},
            )  # fmt: skip
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Wait for /readyz."""
        self.wait_for(self.ready, "the daemon to be ready")

    def wait_for(self, condition: Callable[[], bool], what: str | Callable[[], str], timeout: float = PATIENCE) -> None:
        """Wait for a condition while the daemon runs; shows its log where that does not come. `what` may tell how far it has come.

        It asks more and more seldom: most conditions are requests, which take of the daemon's time what it would do its work in.
        """
        deadline, pause = time.monotonic() + timeout, FIRST_PAUSE
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"waited {timeout} s for {what if isinstance(what, str) else what()}:\n{self.tail()}"
            time.sleep(pause)
            pause = min(pause * 1.25, LONGEST_PAUSE)

    def ready(self) -> bool:
        """Whether /readyz says so."""
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def stand_still(self, seconds: float) -> None:
        """As on a machine that was suspended: stop the process for so long, and let it go on where it was."""
        self.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.send_signal(signal.SIGCONT)

    def ended(self, timeout: float = ENDING) -> int:
        """Wait for its end; the exit code. One that does not end says where its threads are."""
        assert self.process is not None
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGABRT)
            self.process.wait()
            self.process = None
            pytest.fail(f"the daemon did not end within {timeout} s:\n{self.tail()}")
        self.process = None
        return code

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)
        assert self.ended() == -signal.SIGKILL

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.send_signal(signal.SIGTERM)
        return self.ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process is not None:
            self.process.kill()
            self.ended()
        self.http.close()

    def get(self, path: str, **query: Any) -> Any:
        """A GET of the API that succeeds."""
        return self.http.get(f"/api/v1{path}", params=query).raise_for_status().json()

    def post(self, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """A POST to the API."""
        return self.http.post(f"/api/v1{path}", json=body)

    def ask(self, verb: str, id_: str, body: dict[str, Any] | None = None) -> str:
        """Cancel, reschedule or release: the answer's word."""
        answer = self.post(f"/messages/{id_}/{verb}", body).json()
        word: str = answer["error"]["code"] if "error" in answer else answer["outcome"]
        return word

    def pending(self) -> int:
        """How many messages wait; 0 where the broker of level queues does not say."""
        count: int | None = self.get("/status")["pending"]
        return count or 0

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        lines = self.http.get("/metrics").raise_for_status().text.splitlines()
        return float(next(line for line in lines if line.startswith(f"delaybridge_{name} ")).split()[1])

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command with the same configuration."""
        command = [str(COMMAND), *arguments, "--config", str(self.file)]
        return subprocess.run(command, cwd=self.directory, capture_output=True, text=True, timeout=60, check=False)

    def tail(self) -> str:
        """The end of the log."""
        return (self.directory / "log").read_text()[-6000:]

    def log(self, event: str | None = None) -> list[dict[str, Any]]:
        """The log so far, or one kind of line; each line must be a JSON object."""
        text = (self.directory / "log").read_text()
        complete = text[: text.rfind("\n") + 1]
        lines = [json.loads(line) for line in complete.splitlines()]
        return [line for line in lines if event is None or line["event"] == event]

    def ledger(self) -> list[dict[str, Any]]:
        """All rows that are in files, in their order."""
        files = sorted((self.store / "ledger").rglob("*.parquet"))
        rows: list[dict[str, Any]] = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
        return sorted(rows, key=lambda row: row["sequence"])
