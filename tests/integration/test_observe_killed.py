"""`delaybridge observe --take`, killed: the queue has forgotten what it took."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from brokers.common import wait_until
from brokers.rabbitmq import kept
from contract.activemq_stage import native
from pyarrow.dataset import dataset

from delaybridge.adapters.activemq import ActiveMQ
from delaybridge.adapters.activemq.statistics import PLUGIN, Statistics
from delaybridge.bridge.ledger.observed import SCHEMA
from integration.brokers_ends import ActiveEnd, End, RabbitEnd
from integration.daemon import COMMAND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from brokers.activemq import Native

QUEUE = "out"
PATIENCE = 30.0


def _in_activemq(broker: Any, queue: str) -> int:
    options = ActiveMQ(url=broker.url)
    with Statistics(options.targets(), options.times) as statistics:
        return statistics.depths([queue])[0]


class World:
    """A queue on a broker, how many messages it has, those that a consumer holds included, and observers of it."""

    def __init__(self, end: End, depth: Callable[[], int], directory: Path) -> None:
        self.end = end
        self.depth = depth
        self.directory = directory
        (directory / "seen").mkdir()
        route = {"name": "r", "from": {"broker": "b", "queue": f"{end.prefix}.in"}, "to": {"broker": "b", "address": end.address(QUEUE)}}
        (directory / "delaybridge.yaml").write_text(yaml.safe_dump({"brokers": {"b": end.options()}, "routes": [route]}))

    def send(self, first: int, last: int) -> None:
        self.end.send(QUEUE, [{"#body": b"", "#text": False, "x-delay-id": f"m-{number}"} for number in range(first, last)])

    @contextmanager
    def observer(self) -> Iterator[subprocess.Popen[str]]:
        """One that observes; killed at the end."""
        command: list[str | Path] = [COMMAND, "observe", self.end.address(QUEUE), "--take", "--to", "seen"]
        with subprocess.Popen(command, cwd=self.directory, stderr=subprocess.PIPE, text=True) as observer:
            try:
                assert observer.stderr is not None
                told = [observer.stderr.readline()]
                while "now" in told[-1]:  # of what an earlier one had taken
                    told.append(observer.stderr.readline())
                assert told[-1].startswith("observing "), told
                yield observer
            finally:
                observer.kill()

    def seen(self) -> list[str]:
        """The ids that are in files."""
        return sorted(dataset(self.directory / "seen", SCHEMA, format="parquet").to_table()["id"].to_pylist())


ENDS: dict[str, tuple[Callable[[Any], End], Callable[[Any, str], int]]] = {
    "rabbitmq": (RabbitEnd, kept),
    "counting_activemq": (ActiveEnd, _in_activemq),
}


@pytest.fixture(scope="module")
def counting_activemq() -> Iterator[Native]:
    yield from native(xml=PLUGIN)


@pytest.fixture(params=ENDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    broker = request.getfixturevalue(request.param)
    made, depth = ENDS[request.param]
    end = made(broker)
    queue = end.declare(QUEUE)["queue"]
    yield World(end, lambda: depth(broker, queue), tmp_path)
    end.close()


def test_what_was_taken_from_a_queue_is_in_files_though_its_observer_was_killed(world: World) -> None:
    with world.observer():
        world.send(0, 1)
        wait_until(lambda: world.seen() == ["m-0"], "the first file, which is written at once", PATIENCE)
        world.send(1, 10)
        wait_until(lambda: world.depth() == 0, "the queue to forget what was taken", PATIENCE)
    assert world.seen() == ["m-0"], "the next file would have come after a minute"

    with world.observer():
        assert world.seen() == [f"m-{number}" for number in range(10)]


def test_what_an_observer_has_taken_that_lives_is_left_to_it(world: World) -> None:
    with world.observer() as first:
        world.send(0, 1)
        wait_until(lambda: world.seen() == ["m-0"], "the first file", PATIENCE)
        world.send(1, 10)
        wait_until(lambda: world.depth() == 0, "the queue to forget what was taken", PATIENCE)
        with world.observer():
            assert world.seen() == ["m-0"]
        first.terminate()
        first.wait()
        assert world.seen() == [f"m-{number}" for number in range(10)]
