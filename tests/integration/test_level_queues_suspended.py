"""Bridges that stand still and go on, as on a machine that was suspended: what they were about to do comes too late, and harms nothing."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from crash import compare
from crash.ends_activemq import ActiveEnds
from crash.ends_kafka import KafkaEnds
from crash.ends_rabbitmq import RabbitEnds
from crash.traffic import Ends, any_moment, seed

from integration.level_queues import bridges, config, run_rounds
from integration.test_level_queues_cancel import House
from integration.test_level_queues_kafka import KIND, App, prepared, shared

if TYPE_CHECKING:
    from pathlib import Path

    from crash.traffic import Consumer, Producer

ROUNDS = 8
SESSION = 1.5
"""Seconds after which Kafka's group gives away what a bridge has that stands still."""

HEARTBEAT = 1
"""Seconds; after twice as many a broker closes the connection of a bridge that stands still."""


def on_kafka(ends: KafkaEnds, directory: Path) -> dict[str, Any]:
    settings = shared(config(ends, KIND), directory)
    settings["brokers"]["it"]["session_timeout"] = SESSION
    return settings


def test_what_bears_an_id_is_delivered_once_though_bridges_stand_still_in_turn(kafka: Any, tmp_path: Path) -> None:
    """Each for longer than its session, at any moment, so also between what it receives and what it claims; another one takes that in meanwhile."""
    rng = random.Random(seed())
    names, over = list[str](), threading.Event()

    def send(app: App) -> None:
        while not over.wait(0.02):
            more = [f"order-{number}" for number in range(len(names), len(names) + 10)]
            for name in more:
                app.send(name, key=name, x_delay_id=name, x_delay=rng.randrange(500, 6_000))
            names.extend(more)

    with (
        contextlib.closing(KafkaEnds(kafka)) as ends,
        bridges(tmp_path, on_kafka(ends, tmp_path), 2) as daemons,
        contextlib.closing(App(kafka.url, f"{ends.prefix}.{KIND}.in", f"{ends.prefix}.{KIND}.out")) as app,
    ):
        house = House(daemons, app)
        house.start()
        producer = threading.Thread(target=send, args=(app,))
        producer.start()
        for number in range(ROUNDS):
            any_moment(rng, 1, 2)
            daemons[number % 2].stand_still(SESSION * 2)
        over.set()
        producer.join()
        arrived = Counter(each.body for each in app.receive(len(names)))
        assert arrived == Counter(names)
        house.nothing_more()


def test_bridges_that_stand_still_in_turn_deliver_once_from_kafka(kafka: Any, tmp_path: Path) -> None:
    with contextlib.closing(KafkaEnds(kafka)) as ends:
        rounds = run_rounds(
            ends, KIND, tmp_path, on_kafka(ends, tmp_path), rounds=ROUNDS // 2, restart=False, kill=False, still=SESSION * 2
        )
    rounds.check()
    assert compare.duplicates(rounds.arrivals) == []
    assert compare.ledger_problems(rounds.rows, rounds.arrivals) == []


@pytest.mark.parametrize(("broker", "made", "kind"), [("rabbitmq", RabbitEnds, "quorum"), ("activemq", ActiveEnds, "levels")])
def test_bridges_that_stand_still_and_are_killed_when_they_go_on_lose_nothing(
    broker: str, made: type[Ends], kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with contextlib.closing(made(request.getfixturevalue(broker))) as ends:
        settings = config(ends, kind)
        settings["brokers"]["it"]["heartbeat"] = HEARTBEAT
        run_rounds(ends, kind, tmp_path, settings, rounds=ROUNDS // 2, restart=False, still=HEARTBEAT * 5).check()


class Across(Ends):
    """From ActiveMQ to Kafka; each message bears an id."""

    def __init__(self, kafka: Any, activemq: Any) -> None:
        super().__init__(kafka)
        self.source, self.destination = ActiveEnds(activemq), KafkaEnds(kafka)

    def options(self) -> dict[str, Any]:
        return self.destination.options()

    def route(self, kind: str) -> tuple[dict[str, Any], str]:
        return self.source.route(kind)[0], self.destination.route(kind)[1]

    def producer(self, kind: str, rng: random.Random, rate: int) -> Producer:
        made = self.source.producer(kind, rng, rate)
        plain = made.ask

        def ask() -> tuple[int, dict[str, Any]]:
            number, headers = plain()
            return number, headers | {"x-delay-id": f"order-{number}"}

        made.ask = ask  # type: ignore[method-assign]  # of this producer alone
        return made

    def consumer(self, kind: str) -> Consumer:
        return self.destination.consumer(kind)

    def waiting(self, kind: str) -> int:
        return self.source.waiting(kind)

    def close(self) -> None:
        self.source.close()
        self.destination.close()


def test_what_bears_an_id_is_not_lost_where_bridges_are_killed_when_they_go_on(kafka: Any, activemq: Any, tmp_path: Path) -> None:
    """What they claim then, another bridge has taken in from the same queue meanwhile; and their own copies do not enter any more."""
    with contextlib.closing(Across(kafka, activemq)) as ends:
        settings = config(ends, KIND)
        settings["brokers"]["it"]["session_timeout"] = SESSION
        settings["brokers"]["source"] = ends.source.options() | {"heartbeat": HEARTBEAT}
        settings["routes"][0]["from"]["broker"] = "source"
        run_rounds(ends, KIND, tmp_path, prepared(settings, tmp_path), rounds=ROUNDS, rate=400, restart=False, still=HEARTBEAT * 4).check()
