"""What several files of unit tests begin with."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import fake_daemon
import pytest
from contract.stores import HOUR, T0
from hypothesis import settings

from delaybridge.adapters.levelled import Level
from delaybridge.adapters.memory import Memory, adapter
from delaybridge.bridge.config import Config
from delaybridge.bridge.control import Control
from delaybridge.bridge.engine import Engine
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from delaybridge.adapters.id_log import IdLog

# No deadline: one example would go by the machine's stalls. The same examples each time, so that none that comes by chance fails a change that has
# nothing to do with it; new ones are looked for with DELAYBRIDGE_TEST_RANDOM=1.
settings.register_profile("here", deadline=None, derandomize="DELAYBRIDGE_TEST_RANDOM" not in os.environ)
settings.load_profile("here")


@pytest.fixture
def open_index(tmp_path: Path) -> Iterator[Callable[[], TimeIndex]]:
    """Opens the test's index; opening it again closes it first."""
    opened: list[TimeIndex] = []

    def open_it() -> TimeIndex:
        if opened:
            opened.pop().close()
        opened.append(TimeIndex(tmp_path, bridge="b1", memory_ms=HOUR, min_free_disk=0, reserve_bytes=0))
        return opened[0]

    yield open_it
    opened.pop().close()


@pytest.fixture
def index(open_index: Callable[[], TimeIndex]) -> TimeIndex:
    """The test's index."""
    return open_index()


@pytest.fixture
def open_log() -> Callable[[], IdLog]:
    """Opens the test's log of ids, as each bridge does for itself."""
    name = secrets.token_hex(4)
    return lambda: adapter.id_log(Memory(name=name), Level("levels.ids", 0, "ids"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Not started: only its store is at work."""
    made = Engine(Config.model_validate({"store": {"path": tmp_path}}), lambda: T0, Metrics("0.1.0"), lambda *_: None)
    yield made
    made.store.close()


@pytest.fixture
def control(engine: Engine) -> Control:
    """What people may ask of it."""
    return Control(engine)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory of its own, with nothing of ours in the environment."""
    fake_daemon.alone(tmp_path, monkeypatch)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> fake_daemon.Daemon:
    """What the command line finds in a daemon's place."""
    return fake_daemon.Daemon().instead(monkeypatch)


@pytest.fixture
def file(tmp_path: Path, alone: None) -> Path:  # noqa: ARG001 - it is read in a directory of its own
    """Where the configuration is looked for; there is none yet."""
    return tmp_path / "delaybridge.yaml"
