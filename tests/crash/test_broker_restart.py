"""A broker goes away and comes back, orderly and by kill -9, while producers, consumers and the daemon are at work."""

from __future__ import annotations

import contextlib
import math
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from integration.daemon import Daemon

from crash import compare, traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from crash.traffic import Ends

RATE = 100
ROUNDS = int(os.environ.get("DELAYBRIDGE_TEST_RESTARTS", "20"))
"""Of each broker, both endings together."""

WINDOW = 150
"""Messages on the wire: what a broker that goes away may leave in doubt."""


def killed(broker: Any) -> None:
    broker.kill()
    broker.start()


def restarted(broker: Any) -> None:
    broker.restart()


CASES = [
    ("rabbitmq", restarted, ("classic", "quorum"), 1 / 4),  # an orderly end takes RabbitMQ six seconds
    ("rabbitmq", killed, ("classic",), 3 / 4),  # RabbitMQ 3.10 itself can lose a young quorum queue on a single node when it is killed
    ("kafka", restarted, ("topic",), 1 / 2),
    ("kafka", killed, ("topic",), 1 / 2),
    ("activemq", restarted, ("queue",), 1 / 2),
    ("activemq", killed, ("queue",), 1 / 2),
]
"""Which broker, how it goes, what carries the messages, and how many of the rounds."""


@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("ends", "ending", "kinds", "share"), CASES, indirect=["ends"], ids=[f"{name}-{how.__name__}" for name, how, _, _ in CASES]
)
def test_nothing_is_lost_early_or_unrecognisably_doubled_when_the_broker_goes_and_comes(
    ends: Ends, tmp_path: Path, ending: Callable[[Any], None], kinds: Sequence[str], share: float
) -> None:
    if not ends.broker.restartable:
        pytest.skip("this broker is not ours to restart")
    rounds = math.ceil(ROUNDS * share)
    seed = traffic.seed()
    rng = random.Random(seed)
    daemon = Daemon(tmp_path, ends.config(*kinds, lane={"window": WINDOW}, retry={"cap": 500}, ledger={"flush_interval": 500}))
    producers = {kind: ends.producer(kind, random.Random(seed), RATE) for kind in kinds}
    consumers = {kind: ends.consumer(kind) for kind in kinds}
    returns: list[int] = []
    with daemon, contextlib.ExitStack() as consuming:
        for consumer in consumers.values():
            consuming.enter_context(consumer)
        daemon.start()
        with contextlib.ExitStack() as publishing:
            for producer in producers.values():
                publishing.enter_context(producer)
            for _ in range(rounds):
                enough = [len(consumer.arrivals) + RATE for consumer in consumers.values()]
                traffic.wait_for_more(consumers.values(), enough)
                traffic.any_moment(rng, 0, 0.5)
                returns.append(traffic.now_ms())
                ending(ends.broker)
                daemon.wait_for(daemon.ready, "the daemon to be connected again", 60)

        def left() -> dict[str, int]:
            return {kind: ends.waiting(kind) for kind in kinds} | {"pending": daemon.pending()}

        daemon.wait_for(lambda: not any(left().values()), lambda: f"the rest: {left()}", 60)

        def lost() -> bool:
            return any(compare.lost(producers[kind], consumers[kind].arrivals) for kind in kinds)

        daemon.wait_for(lambda: not lost(), "what RabbitMQ has given and does not count", 60)
        assert daemon.terminate() == 0

    arrivals = [arrival for consumer in consumers.values() for arrival in consumer.arrivals]
    for kind in kinds:
        producer, arrived = producers[kind], consumers[kind].arrivals
        doubled = compare.after_each(returns, [arrival.at for arrival in compare.duplicates(arrived)])
        print(
            f"{kind}: {len(producer.sent)} sent, {len(producer.confirmed)} confirmed, {len(arrived)} arrived, {doubled.total()} duplicates"
        )
        assert len(producer.confirmed) > rounds * RATE / 2
        assert compare.lost(producer, arrived) == []
        assert compare.early(producer, arrived) == []
        assert compare.renamed(arrived) == {}
        assert max(doubled.values(), default=0) <= WINDOW
    assert compare.ledger_problems(daemon.ledger(), arrivals) == []
