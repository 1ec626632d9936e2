"""Messages that cannot be told apart, and a broker that says that it sent them before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pika
import pytest
from integration.daemon import Daemon
from integration.rabbit import Rabbit, config, rabbit

if TYPE_CHECKING:
    from pathlib import Path


def touch(place: Rabbit, count: int) -> None:
    """Another consumer takes messages and dies before it acknowledged them: they come again, marked as redelivered."""
    connection = pika.BlockingConnection(pika.URLParameters(place.url))
    channel = connection.channel()
    for _ in range(count):
        assert channel.basic_get(place.name("in"))[0] is not None
    connection.close()


@pytest.mark.parametrize("count", [1, 3])
def test_messages_that_look_like_earlier_ones_are_not_taken_for_their_redelivery(rabbitmq: Any, tmp_path: Path, count: int) -> None:
    """The bridge would lose them: what it stored before was acknowledged, and these are new."""
    with rabbit(rabbitmq.url) as place:
        place.queue("out")
        route = {
            "name": "ticks",
            "from": {"broker": "rabbit", "queue": place.queue("in")},
            "to": {"broker": "rabbit", "address": place.address("out")},
        }
        with Daemon(tmp_path, config(rabbitmq.url, "", [route])) as daemon:
            daemon.start()
            for _ in range(count):
                place.send("in", b"tick", x_delay=50)
            place.receive("out", count)
            assert daemon.terminate() == 0
            for _ in range(count):
                place.send("in", b"tick", x_delay=50)
            touch(place, count)
            daemon.start()
            assert len(place.receive("out", count)) == count
            assert daemon.terminate() == 0
        assert sum(row["event"] == "delivered" for row in daemon.ledger()) == 2 * count
