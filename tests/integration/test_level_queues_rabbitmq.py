"""`delaybridge run` whose messages wait in level queues on a real RabbitMQ: one bridge, and several that share the work."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from brokers.common import wait_until
from brokers.rabbitmq import AFTER_RESTART
from crash.ends_rabbitmq import RabbitEnds

from delaybridge.core.fields import plain
from delaybridge.core.message import Message
from integration import level_queues
from integration.daemon import Daemon
from integration.rabbit import Arrival, Rabbit, config, rabbit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KIND = "quorum"


class Stage(NamedTuple):
    """A route from queue `in` to queue `out`, and the bridge. The level queues' names begin with that of `level`."""

    place: Rabbit
    daemon: Daemon

    def send(self, body: bytes = b"", **headers: Any) -> int:
        return self.place.send("in", body, **headers)

    def level(self, name: str) -> str:
        """The short name of a level queue."""
        return f"level.{name}"


@pytest.fixture(scope="module")
def stage(rabbitmq: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with rabbit(rabbitmq.url) as place:
        place.queue("out")
        source = place.queue("in", x_queue_type=KIND)
        for name in ("0", "dead-letters", *(f"{level}{end}" for level in level_queues.LEVELS.split() for end in ("", ".out"))):
            place.expected(f"level.{name}")
        route = {
            "name": "delayed",
            "from": {"broker": "rabbit", "queue": source},
            "to": {"broker": "rabbit", "address": place.address("out")},
        }
        store = {"kind": "level_queues", "broker": "rabbit", "prefix": place.name("level")}
        limits = {"min_period": 100, "levels": level_queues.LEVELS}
        settings = config(rabbitmq.url, "", [route], store=store, limits=limits)
        with Daemon(tmp_path_factory.mktemp("daemon"), settings) as daemon:
            applied = daemon.run("apply")
            assert applied.returncode == 0, applied.stderr
            daemon.start()
            yield Stage(place, daemon)
            assert daemon.terminate() == 0


def late(arrival: Arrival) -> int:
    return arrival.at - arrival.due


def test_delays_of_several_hops_are_never_early_and_hardly_late(stage: Stage) -> None:
    rng = random.Random(5)
    asked = {}
    for number in range(60):
        delay = rng.randrange(1, 4_000)
        asked[number] = stage.send(b"%d" % number, x_delay=delay) + delay
    arrivals = stage.place.receive("out", 60)
    assert sorted(int(each.body) for each in arrivals) == list(range(60))
    assert all(asked[int(each.body)] <= each.due <= each.at for each in arrivals)
    assert sorted(late(each) for each in arrivals)[54] < 10_000  # how late is for `make bench` to say


def test_a_message_arrives_as_it_was_sent(stage: Stage) -> None:
    stage.place.publish(
        "",
        stage.place.name("in"),
        b"\x00\xff",
        {"x-delay": 900, "colour": "red", "count": 7},
        content_type="a/b",
        priority=3,
        message_id="m",
    )
    (arrival,) = stage.place.receive("out")
    assert arrival.body == b"\x00\xff"
    assert {name: value for name, value in arrival.headers.items() if not name.startswith("x-delay")} == {"colour": "red", "count": 7}
    assert (arrival.properties.content_type, arrival.properties.priority, arrival.properties.message_id) == (b"a/b", 3, b"m")
    assert not any(name.startswith((b"x-death", b"delaybridge")) for name in (field.name for field in arrival.own))


def test_undelayed_messages_pass_through_at_once(stage: Stage) -> None:
    sent = stage.send(b"now")
    assert stage.place.one("out").at - sent < 30_000


def test_a_period_repeats_without_drift(stage: Stage) -> None:
    stage.send(b"again", x_delay_period=300, x_delay_repeat=4, x_delay_misfire="all")
    arrivals = stage.place.receive("out", 5)
    assert [each.occurrence for each in arrivals] == [1, 2, 3, 4, 5]
    assert len({each.id for each in arrivals}) == 1
    assert [after.due - before.due for before, after in itertools.pairwise(arrivals)] == [300] * 4
    assert all(each.at >= each.due for each in arrivals)


def test_a_cancellation_is_dead_lettered_with_the_reason(stage: Stage) -> None:
    stage.send(x_delay_cancel="order-1")
    letter = stage.place.one(stage.level("dead-letters"))
    assert letter.headers["x-delay-reason"] == "unsupported_in_level_queues"
    assert letter.headers["x-delay-cancel"] == "order-1"


def test_a_dead_letter_whose_headers_do_not_fit_a_frame_with_the_reason_is_enclosed_and_keeps_nothing_waiting(stage: Stage) -> None:
    large = "x" * 130_950  # it fits as it comes, but not with the reason beside it
    stage.send(b"refused", x_delay=1, x_delay_id="", large=large)
    stage.send(b"behind it", x_delay=1)
    letter = stage.place.one(stage.level("dead-letters"))
    assert "large" not in letter.headers
    assert letter.headers["x-delay-reason"] == "bad_id"
    message = msgspec.msgpack.decode(letter.body, type=Message)
    assert (message.body, plain(message.headers)["large"]) == (b"refused", large)
    assert stage.place.one("out").body == b"behind it"


def test_what_no_bridge_put_into_a_level_queue_is_dead_lettered(stage: Stage) -> None:
    stage.place.publish("", stage.place.name(stage.level("100ms")), b"stray", {"mine": "yes"})
    letter = stage.place.one(stage.level("dead-letters"))
    assert (letter.body, letter.headers["mine"], letter.headers["x-delay-reason"]) == (b"stray", "yes", "rejected_by_broker")


def test_a_bridge_with_a_time_index_on_the_same_broker_and_this_one_do_not_disturb_each_other(stage: Stage, tmp_path: Path) -> None:
    """Also where both are started anew: neither takes up what waits for the other."""
    place = stage.place
    place.queue("indexed.out")
    start = {"broker": "rabbit", "queue": place.queue("indexed.in", x_queue_type=KIND)}
    route = {"name": "indexed", "from": start, "to": {"broker": "rabbit", "address": place.address("indexed.out")}}
    with level_queues.running(tmp_path, config(place.url, "", [route])) as indexed:
        due = {}
        for number, door in enumerate(("in", "indexed.in") * 50):
            due[number] = place.send(door, b"%d" % number, x_delay=1_500 + number) + 1_500 + number
        wait_until(lambda: not place.waiting("in") and not place.waiting("indexed.in"), "all to be taken")
        for daemon in (stage.daemon, indexed):
            assert daemon.terminate() == 0
            daemon.start()
        found = {place_of: [int(each.body) for each in place.receive(place_of, 50)] for place_of in ("out", "indexed.out")}
    assert sorted(found["out"]) == [number for number in due if number % 2 == 0]
    assert sorted(found["indexed.out"]) == [number for number in due if number % 2]


def test_what_waits_outlives_a_bridge_that_is_killed(stage: Stage) -> None:
    due = {number: stage.send(b"%d" % number, x_delay=1_500 + number) + 1_500 + number for number in range(200)}
    stage.daemon.wait_for(lambda: stage.place.waiting("in") == 0, "all to be taken")
    stage.daemon.kill()
    stage.daemon.start()
    seen: dict[int, Arrival] = {}
    while len(seen) < len(due):
        arrival = stage.place.one("out")
        seen.setdefault(int(arrival.body), arrival)
    assert all(due[number] <= each.at for number, each in seen.items())
    stage.place.channel.queue_purge(stage.place.name("out"))  # duplicates that the kill made


# --- several bridges ---


@pytest.fixture
def ends(rabbitmq: Any) -> Iterator[RabbitEnds]:
    made = RabbitEnds(rabbitmq)
    yield made
    made.close()


@pytest.mark.parametrize("count", level_queues.BRIDGES)
def test_bridges_share_the_work_and_lose_nothing_when_they_are_killed_and_the_broker_is_restarted(
    ends: RabbitEnds, tmp_path: Path, count: int
) -> None:
    settings = level_queues.config(ends, KIND)
    level_queues.run_rounds(ends, KIND, tmp_path, settings, count=count, patience=AFTER_RESTART).check()
