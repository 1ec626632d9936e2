"""What `make install-brokers` asks of the system, where something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "brokers/install.sh"
TOOLS = ("dirname", "grep", "sh", "tr")


class Machine:
    """A directory of programs that is all of PATH; `asked` is what its apt-get was called with."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._asked = directory / "asked"
        for tool in TOOLS:
            (directory / tool).symlink_to(str(shutil.which(tool)))
        self.has("id", "echo 0")
        self.has("apt-get", f'echo "$@" >> {self._asked}')
        self.has("python", "")

    def has(self, program: str, script: str) -> None:
        path = self.directory / program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def asked(self, **environment: str) -> str:
        env = os.environ | {"PATH": str(self.directory), "DELAYBRIDGE_TEST_CHROMIUM": ""} | environment
        subprocess.run(["sh", SCRIPT, self.directory / "python"], env=env, check=True, capture_output=True)
        return self._asked.read_text() if self._asked.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_missing_chromium_is_installed(machine: Machine) -> None:
    assert "install -y -qq --no-install-recommends chromium" in machine.asked()


def test_a_chromium_that_is_there_or_named_is_not_installed(machine: Machine) -> None:
    assert machine.asked(DELAYBRIDGE_TEST_CHROMIUM="/opt/chrome") == ""
    machine.has("chromium", "")
    assert machine.asked() == ""


def test_a_broker_that_the_tests_miss_is_installed(machine: Machine) -> None:
    machine.has("chromium", "")
    machine.has("python", 'test "$3" != missing || echo rabbitmq')
    assert "rabbitmq-server" in machine.asked()
