"""The bridge as an operator starts it: a process of its own, on a configuration file."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brokers.common import free_port

READY_WITHIN = 60.0
STOPPED_WITHIN = 40.0
COMMAND = Path(sys.executable).with_name("delaybridge")


class Bridge:
    """One running daemon. `ready_after` is the time in seconds from its start to the first 200 of /readyz."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        self.store = directory / "store"
        self.log = directory / "log"
        self._port = free_port()
        self._file = directory / "delaybridge.yaml"
        directory.mkdir(parents=True, exist_ok=True)
        paths = {"store": config.get("store", {}) | {"path": str(self.store)}, "ledger": {"path": str(directory / "ledger")}}
        self._file.write_text(json.dumps(config | paths | {"http": {"port": self._port}}))  # JSON is YAML
        self.ready_after = self._start()

    def _start(self) -> float:
        began = time.perf_counter()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([COMMAND, "run", "--config", self._file], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        while not self._ready():
            if self.process.poll() is not None or time.perf_counter() - began > READY_WITHIN:
                self.process.kill()
                raise RuntimeError(f"the bridge did not become ready:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.005)
        return time.perf_counter() - began

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def rss(self) -> float:
        """Resident memory in MiB."""
        return self._memory("VmRSS")

    def peak(self) -> float:
        """The most resident memory since the start or the last `forget_peak`, in MiB."""
        return self._memory("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _memory(self, name: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

    def cpu(self) -> float:
        """Seconds of processor time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """SIGTERM and an exit with 0; anything else is a failure of the measurement."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if code:
            raise RuntimeError(f"the bridge ended with {code}:\n{self.log.read_text()[-4000:]}")


@contextlib.contextmanager
def bridge(directory: Path, config: dict[str, Any]) -> Iterator[Bridge]:
    """A daemon for the length of the `with` block; killed where the measurement fails."""
    running = Bridge(directory, config)
    try:
        yield running
        running.stop()
    finally:
        running.process.kill()
        running.process.wait()


def route(name: str, source: str, broker: str, queue: str, destination: str) -> dict[str, Any]:
    return {"name": name, "from": {"broker": source, "queue": queue}, "to": {"broker": broker, "address": f"/queues/{destination}"}}


def disk_bytes(directory: Path) -> int:
    """Bytes that a directory takes on the disk; files that vanish meanwhile count as nothing."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(folder) / name).stat().st_blocks * 512
    return total
