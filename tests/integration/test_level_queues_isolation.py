"""Eighteen levels loaded at once, with a destination that takes nothing: at first it has a level of its own, then its share of all that is sent."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import Unavailable, wait_until
from conftest import unavailable
from crash import compare
from crash.traffic import Arrival, Sent

from delaybridge.core.durations import duration
from integration.daemon import Daemon
from integration.level_queues import config, lateness
from integration.refusing import FULL, IN_THE_WAY, ActiveRefusing, KafkaRefusing, RabbitRefusing, limited

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from crash.traffic import Consumer, Producer

    from integration.refusing import Refusing

KIND = "quorum"
LEVELS = [100 * number for number in range(1, 19)]
REFUSING = 700
BURSTS = 10
CALM = BURSTS * len(LEVELS)
"""So many messages are sent before the first one for a destination that refuses."""

WARM = 2 * len(LEVELS)
"""So many at first, of which some are slow because they are the first."""

BESIDE = 2 * CALM
"""So many are sent before the destination that refuses gets its SHARE of what is sent to one level, in bursts of MANY."""

SHARE, MANY, ALL = 20, 300, BESIDE + 6_000
"""One in SHARE is refused. A bridge has 2,000 or 4,000 messages of a level at most: so others are left when it has taken so many."""


def on_rabbitmq(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    yield RabbitRefusing(request.getfixturevalue("rabbitmq"))


def on_kafka(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    yield KafkaRefusing(request.getfixturevalue("kafka"))


def on_activemq(_: pytest.FixtureRequest) -> Iterator[Refusing]:
    try:
        with limited() as broker:
            yield ActiveRefusing(broker)
    except Unavailable as reason:
        unavailable("activemq", reason)


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
    """Each burst is one message for each level; after a while those of one level are for a destination that refuses; then some of one level."""
    producer = ends.producer(KIND, random.Random(0), 1)
    producer.burst = len(LEVELS)

    def ask() -> tuple[int, dict[str, Any]]:
        number, now = len(producer.sent), time.time_ns() // 1_000_000
        level = LEVELS[number % len(LEVELS)] if number < BESIDE else REFUSING
        refused = level == REFUSING and number >= CALM if number < BESIDE else number % SHARE == 0
        to = {"x-delay-to": refusing} if refused else {}
        producer.sent[number] = Sent({"x-delay": level} | to, 1, now + level)
        return number, producer.sent[number].headers

    producer.ask = ask  # type: ignore[method-assign]  # of this producer alone
    return producer


def late_by(arrivals: list[Arrival]) -> tuple[int, int]:
    """Half of them, and all but one in a hundred (ms at most)."""
    late = lateness(arrivals)
    return late[len(late) // 2], late[len(late) * 99 // 100]


def refused_of(producer: Producer) -> set[int]:
    return {number for number, sent in producer.sent.items() if "x-delay-to" in sent.headers}


def wait_for_the_others(producer: Producer, consumer: Consumer) -> None:
    wait_until(
        lambda: producer.confirmed - refused_of(producer) <= {each.number for each in consumer.arrivals}, "all that is not refused", 60
    )


def test_a_destination_that_refuses_delays_no_other_level_and_no_other_message_of_its_own(ends: Refusing, bridge: Daemon) -> None:
    producer, consumer = loading(ends, ends.shut()), ends.consumer(KIND)
    with consumer:
        with producer:
            wait_until(lambda: len(producer.sent) >= BESIDE, "all levels to be loaded", 30)
            producer.burst = 0
            wait_for_the_others(producer, consumer)
            producer.burst = MANY
            wait_until(lambda: len(producer.sent) >= ALL, "all to be sent", 60)
        wait_for_the_others(producer, consumer)
    calm = late_by([each for each in consumer.arrivals if WARM <= each.number < CALM])
    beside = late_by([each for each in consumer.arrivals if CALM <= each.number < BESIDE])
    print(f"late by {calm} ms (p50, p99), beside one that refuses by {beside} ms")
    assert compare.early(producer, consumer.arrivals) == []
    assert beside[0] <= 2 * calm[0] + 100, "100 ms for what else the machine does"
    assert beside[1] <= 2 * calm[1] + 2_000, "p99 is two messages, and goes by the machine's stalls"

    bridge.wait_for(lambda: bridge.get("/status")["lanes"][0]["held"], "the destination to be held back")
    ends.open()
    refused = refused_of(producer)
    with ends.consumer(FULL) as kept:
        wait_until(lambda: {each.number for each in kept.arrivals} - {IN_THE_WAY} == refused, "what was refused", 30)
    doubled = compare.duplicates([*consumer.arrivals, *kept.arrivals])
    may_double = not isinstance(ends, KafkaRefusing) and bridge.log("connection_lost")
    assert not doubled or may_double, "only what was under way over a lost connection may come twice, and on Kafka nothing"
