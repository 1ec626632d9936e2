"""Eighteen levels loaded at once, and one of them with a destination that takes nothing: the others must not notice."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import Unavailable, wait_until
from crash import compare
from crash.traffic import Arrival, Sent

from delaybridge.core.durations import duration
from integration.daemon import Daemon
from integration.level_queues import config, lateness
from integration.refusing import FULL, IN_THE_WAY, ActiveRefusing, KafkaRefusing, RabbitRefusing, limited

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from crash.traffic import Producer

    from integration.refusing import Refusing

KIND = "quorum"
LEVELS = [100 * number for number in range(1, 19)]
REFUSING = 700
BURSTS = 10
CALM = BURSTS * len(LEVELS)
"""So many messages are sent before the first one for a destination that refuses."""

WARM = 2 * len(LEVELS)
"""So many at first, of which some are slow because they are the first."""


def on_rabbitmq(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    yield RabbitRefusing(request.getfixturevalue("rabbitmq"))


def on_kafka(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    yield KafkaRefusing(request.getfixturevalue("kafka"))


def on_activemq(_: pytest.FixtureRequest) -> Iterator[Refusing]:
    try:
        with limited() as broker:
            yield ActiveRefusing(broker)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=[on_rabbitmq, on_kafka, on_activemq], ids=["rabbitmq", "kafka", "activemq"])
def ends(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    for made in request.param(request):
        yield made
        made.close()


@pytest.fixture
def bridge(ends: Refusing, tmp_path: Path) -> Iterator[Daemon]:
    names = [duration(level) for level in LEVELS]
    settings = config(ends, KIND, ends.levels(names), " ".join(names), retry={"cap": 500})
    settings["routes"][0]["allow_to"] = ["*"]
    with Daemon(tmp_path, settings) as daemon:
        if isinstance(ends, KafkaRefusing):
            daemon.run("apply")
        daemon.start()
        yield daemon
        assert daemon.terminate() == 0


def loading(ends: Refusing, refusing: str) -> Producer:
    """Each burst is one message for each level; after a while those of one level are for a destination that refuses."""
    producer = ends.producer(KIND, random.Random(0), 1)
    producer.burst = len(LEVELS)

    def ask() -> tuple[int, dict[str, Any]]:
        number, now = len(producer.sent), time.time_ns() // 1_000_000
        level = LEVELS[number % len(LEVELS)]
        to = {"x-delay-to": refusing} if level == REFUSING and number >= CALM else {}
        producer.sent[number] = Sent({"x-delay": level} | to, 1, now + level)
        return number, producer.sent[number].headers

    producer.ask = ask  # type: ignore[method-assign]  # of this producer alone
    return producer


def p99(arrivals: list[Arrival]) -> int:
    late = lateness(arrivals)
    return late[len(late) * 99 // 100]


def test_a_level_whose_destination_refuses_delays_no_other(ends: Refusing, bridge: Daemon) -> None:
    producer, consumer = loading(ends, ends.shut()), ends.consumer(KIND)
    with consumer:
        with producer:
            wait_until(lambda: len(producer.sent) >= 2 * CALM, "all to be sent", 30)
        refused = {number for number, sent in producer.sent.items() if "x-delay-to" in sent.headers}
        wait_until(lambda: len(consumer.arrivals) == len(producer.sent) - len(refused), "all that is not refused", 30)
    calm = p99([each for each in consumer.arrivals if WARM <= each.number < CALM])
    beside = p99([each for each in consumer.arrivals if each.number >= CALM])
    print(f"late by {calm} ms (p99), beside one that refuses by {beside} ms")
    assert compare.early(producer, consumer.arrivals) == []
    assert beside <= 2 * calm + 100, "100 ms for what else the machine does"

    bridge.wait_for(lambda: bridge.get("/status")["lanes"][0]["held"], "the destination to be held back")
    ends.open()
    with ends.consumer(FULL) as kept:
        wait_until(lambda: {each.number for each in kept.arrivals} - {IN_THE_WAY} == refused, "what was refused", 30)
    assert compare.duplicates([*consumer.arrivals, *kept.arrivals]) == []
