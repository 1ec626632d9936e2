"""RabbitMQ goes away and comes back, orderly and by kill -9, while producers, consumers and the daemon are at work."""

from __future__ import annotations

import contextlib
import gc
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from integration.daemon import Daemon
from integration.rabbit import Rabbit, config, rabbit

from crash import traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

RATE = 300
ROUNDS = 2


def killed(broker: Any) -> None:
    broker.kill()
    broker.start()


def restarted(broker: Any) -> None:
    broker.restart()


def route(place: Rabbit, kind: str) -> dict[str, Any]:
    source = place.queue(f"{kind}.in", x_queue_type=kind)
    place.queue(f"{kind}.out", x_queue_type=kind)
    return {
        "name": kind,
        "from": {"broker": "rabbit", "queue": source},
        "to": {"broker": "rabbit", "address": place.address(f"{kind}.out")},
    }


@pytest.fixture
def pika_litter() -> Iterator[None]:
    """pika leaves the sockets of failed attempts to the garbage collector: let them be found here, not in the next test."""
    yield
    gc.collect()


# RabbitMQ 3.10 itself can lose a young quorum queue on a single node when it is killed: it never finds a leader again.
@pytest.mark.usefixtures("pika_litter")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("ending", "kinds"), [(restarted, ("classic", "quorum")), (killed, ("classic",))])
def test_nothing_is_lost_early_or_unrecognisably_doubled_when_rabbitmq_goes_and_comes(
    rabbitmq: Any, tmp_path: Path, ending: Callable[[Any], None], kinds: Sequence[str]
) -> None:
    if not rabbitmq.restartable:
        pytest.skip("this RabbitMQ is not ours to restart")
    seed = traffic.seed()
    rng = random.Random(seed)
    with rabbit(rabbitmq.url) as place:
        routes = [route(place, kind) for kind in kinds]
        limits = {"min_period": 100}
        daemon = Daemon(tmp_path, config(rabbitmq.url, "", routes, limits=limits, retry={"cap": 500}, ledger={"flush_interval": 500}))
        producers = {kind: traffic.Producer(rabbitmq.url, place.name(f"{kind}.in"), random.Random(seed), RATE) for kind in kinds}
        consumers = {kind: traffic.Consumer(rabbitmq.url, place.name(f"{kind}.out")) for kind in kinds}
        with daemon, contextlib.ExitStack() as consuming:
            for consumer in consumers.values():
                consuming.enter_context(consumer)
            daemon.start()
            with contextlib.ExitStack() as publishing:
                for producer in producers.values():
                    publishing.enter_context(producer)
                for _ in range(ROUNDS):
                    enough = [len(consumer.arrivals) + RATE for consumer in consumers.values()]
                    traffic.wait_for_more(consumers.values(), enough)
                    time.sleep(rng.uniform(0, 0.5))
                    ending(rabbitmq)
                    daemon.wait_for(daemon.ready, "the daemon to be connected again", 60)
            place.reconnect()
            daemon.wait_for(lambda: not any(place.waiting(f"{kind}.in") for kind in kinds) and daemon.pending() == 0, "the rest", 60)
            assert daemon.terminate() == 0

        arrivals = [arrival for consumer in consumers.values() for arrival in consumer.arrivals]
        for kind in kinds:
            producer, arrived = producers[kind], consumers[kind].arrivals
            print(f"{kind}: {len(producer.sent)} sent, {len(producer.confirmed)} confirmed, {len(arrived)} arrived")
            assert len(producer.confirmed) > ROUNDS * RATE
            assert traffic.lost(producer, arrived) == []
            assert traffic.early(producer, arrived) == []
            assert traffic.renamed(arrived) == {}
        assert traffic.ledger_problems(daemon.ledger(), arrivals) == []
