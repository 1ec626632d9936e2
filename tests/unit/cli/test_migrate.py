"""`delaybridge migrate-store`: what it asks for, and what it says when it is done."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest
import yaml
from contract.stores import HOUR, record
from fake_daemon import alone, call
from msgspec.structs import replace

from delaybridge.adapters.base import AdapterError
from delaybridge.adapters.clock import wall_clock
from delaybridge.adapters.memory import MemoryLevels, MemorySource, adapter, broker
from delaybridge.bridge.migration import into
from delaybridge.core.store import Put, Withdraw
from delaybridge.core.time_index import TimeIndex

if TYPE_CHECKING:
    from pathlib import Path


class House:
    """A configuration in a file, and what is on its disk and on its broker."""

    def __init__(self, directory: Path) -> None:
        self.name = secrets.token_hex(4)
        self._file = directory / "delaybridge.yaml"
        self._path = directory / "store"
        self.on(kind="time_index")

    def on(self, **store: str) -> None:
        config = {
            "store": {"path": str(self._path), "min_free_disk": 0} | store,
            "brokers": {"here": {"type": "memory", "name": self.name}},
            "routes": [{"name": "jobs", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here"}}],
        }
        self._file.write_text(yaml.safe_dump(config))

    def index(self) -> TimeIndex:
        return TimeIndex(self._path, bridge="test", min_free_disk=0, reserve_bytes=0)

    def waiting(self, queue: str) -> int:
        return len(broker(self.name).queue(queue))

    def fill(self) -> None:
        index, now = self.index(), wall_clock()
        index.put([Put(record("a", now + 3 * HOUR)), Put(record("b", now + 3 * HOUR)), Withdraw("gone")], now)
        index.close()


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    alone(tmp_path, monkeypatch)
    for name in ("WAKING", "UNKNOWN", "QUIET"):
        monkeypatch.setattr(into, name, 0.0)
    made = House(tmp_path)
    made.fill()
    return made


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The in-process broker stands for one that outlives the command, as it does here: both are in the process of the test."""
    monkeypatch.setattr(type(adapter), "traits", replace(adapter.traits, embedded=False))


@pytest.mark.usefixtures("lasting")
def test_it_moves_there_and_back_and_says_how_much(house: House) -> None:
    house.on(kind="level_queues", broker="here", prefix="mine")
    there = call("migrate-store", "--to", "level_queues")
    assert there.exit_code == 0, there.output
    assert there.stdout.splitlines() == [
        "messages moved: 2",
        "cancellations that no longer apply, as their messages have not come: 1",
    ]
    assert house.waiting("mine.2h") == 2

    house.on(kind="time_index")
    back = call("migrate-store", "--to", "time_index", "--broker", "here", "--prefix", "mine", "-o", "json")
    assert back.exit_code == 0, back.output
    assert json.loads(back.stdout) == [{"records": 2, "again": 0, "strange": 0, "ended": 0, "left": 0}]
    index = house.index()
    assert index.counts().pending == 2
    index.close()


@pytest.mark.usefixtures("lasting")
def test_a_move_that_is_interrupted_says_how_far_it_came_and_the_next_one_goes_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.on(kind="level_queues", broker="here")
    shelf = TimeIndex.dead_letters

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TimeIndex, "dead_letters", interrupted)
    told = call("migrate-store", "--to", "level_queues")
    assert (told.exit_code, told.stderr) == (
        130,
        "interrupted after 2 messages; nothing is lost, and the same command goes on with the rest\n",
    )

    monkeypatch.setattr(TimeIndex, "dead_letters", shelf)
    assert "messages moved: 0" in call("migrate-store", "--to", "level_queues").stdout
    assert house.waiting("delaybridge.level.2h") == 2


@pytest.mark.usefixtures("lasting")
def test_what_does_not_come_although_the_broker_counts_it_is_told_with_what_to_do_and_status_1(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.on(kind="level_queues", broker="here")
    call("migrate-store", "--to", "level_queues")
    house.on(kind="time_index")
    monkeypatch.setattr(MemorySource, "receive", lambda *_: None)

    told = call("migrate-store", "--to", "time_index", "--broker", "here")

    assert told.exit_code == 1
    assert told.stdout.splitlines() == ["messages moved: 0", "still in the level queues, as the broker counts: 2"]
    assert "not moved: 2 that the broker still counts. Look whether a bridge still runs" in told.stderr


@pytest.mark.usefixtures("lasting")
def test_a_broker_that_does_not_count_leaves_nothing_to_tell(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: MemoryLevels) -> list[int]:
        raise AdapterError("no statistics")

    house.on(kind="level_queues", broker="here")
    call("migrate-store", "--to", "level_queues")
    house.on(kind="time_index")
    monkeypatch.setattr(MemoryLevels, "depths", unknown)

    told = call("migrate-store", "--to", "time_index", "--broker", "here")

    assert (told.exit_code, told.output) == (0, "messages moved: 2\n")


@pytest.mark.usefixtures("house", "lasting")
def test_where_nothing_waits_it_names_the_queues_in_which_it_looked() -> None:
    told = call("migrate-store", "--to", "time_index", "--broker", "here", "--prefix", "mien")

    assert (told.exit_code, told.stdout) == (0, "messages moved: 0\n")
    assert "nothing waits on here in mien.LEVEL, with LEVEL 0 1s 5s 10s" in told.stderr
    assert "look at --broker, --prefix and `limits.levels`" in told.stderr


@pytest.mark.usefixtures("lasting")
def test_a_store_in_which_nothing_waits_is_named(house: House, tmp_path: Path) -> None:
    house.on(kind="level_queues", broker="here", path=str(tmp_path / "another"))
    told = call("migrate-store", "--to", "level_queues")

    assert (told.exit_code, told.stdout) == (0, "messages moved: 0\n")
    assert told.stderr == f"nothing waits in {tmp_path / 'another'}; if something should, look at `store.path`\n"


@pytest.mark.usefixtures("house")
def test_the_configuration_must_name_the_store_to_which_it_moves() -> None:
    told = call("migrate-store", "--to", "level_queues")
    assert told.exit_code == 2
    assert "the configuration names a store of kind time_index" in " ".join(told.stderr.split())


@pytest.mark.parametrize("options", [(), ("--broker", "elsewhere")])
def test_the_way_back_needs_the_broker(house: House, options: tuple[str, ...]) -> None:
    house.on(kind="time_index")
    told = call("migrate-store", "--to", "time_index", *options)
    assert told.exit_code == 2
    assert "the brokers are: here" in " ".join(told.stderr.split())


def test_the_way_there_takes_the_broker_from_the_configuration(house: House) -> None:
    house.on(kind="level_queues", broker="here")
    assert call("migrate-store", "--to", "level_queues", "--broker", "here").exit_code == 2


def test_nothing_moves_to_a_broker_that_ends_with_the_command(house: House) -> None:
    house.on(kind="level_queues", broker="here")
    told = call("migrate-store", "--to", "level_queues")

    assert told.exit_code == 2
    assert "here is of type memory, and its queues end with the process that made them" in " ".join(told.stderr.split())
    index = house.index()
    assert index.counts().pending == 2
    index.close()


def test_a_broker_that_no_other_process_can_see_is_not_said_to_be_empty(house: House) -> None:
    house.on(kind="time_index")
    told = call("migrate-store", "--to", "time_index", "--broker", "here")

    assert (told.exit_code, "messages moved: 0" in told.stdout) == (2, False)


@pytest.mark.usefixtures("lasting")
def test_a_store_that_is_open_is_left_alone(house: House) -> None:
    index = house.index()
    told = call("migrate-store", "--to", "time_index", "--broker", "here")
    index.close()
    assert told.exit_code == 75


@pytest.mark.usefixtures("lasting")
def test_a_bridge_that_is_still_at_work_is_told_in_a_sentence_with_status_75(house: House) -> None:
    house.on(kind="level_queues", broker="here")
    index = house.index()

    told = call("migrate-store", "--to", "level_queues")

    index.close()
    assert told.exit_code == 75
    assert told.stderr.endswith(" open: stop the bridge first\n")
    assert "another process has the store in" in told.stderr
