"""Any source to any sink: nine pairs of real brokers, one daemon, and clients that know nothing of it; see docs/across-brokers.md."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from delaybridge.bridge.intake.planner import MAX_HOPS
from integration.across_messages import CASES, expected, sent
from integration.brokers_ends import ActiveEnd, End, KafkaEnd, RabbitEnd, Several
from integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.brokers_ends import Flat
    from integration.stores import Waiting

BROKERS = ("rabbitmq", "kafka", "activemq")
PAIRS = list(itertools.product(BROKERS, repeat=2))
DELAY = "250ms"
TEXT: dict[str, Any] = {"rabbitmq": str, "kafka": str.encode, "activemq": str}
"""How a producer of each broker writes a text into a header."""


class Stage(NamedTuple):
    """Three brokers, and the daemon between them."""

    ends: dict[str, End]
    daemon: Daemon


def route(ends: dict[str, End], source: str, sink: str) -> dict[str, Any]:
    name = f"{source}-{sink}"
    ends[sink].declare(f"{name}.out")
    taken = {"broker": source} | ends[source].declare(f"{name}.in")
    return {"name": name, "from": taken, "to": {"broker": sink, "address": ends[sink].address(f"{name}.out")}}


def circle(ends: dict[str, End], broker: str) -> list[dict[str, Any]]:
    """Two routes that lead into each other; one that leads into itself is refused."""
    end, places = ends[broker], (f"{broker}.circle", f"{broker}.back")
    taken = [{"broker": broker} | end.declare(place) for place in places]
    end.declare(f"{broker}.dead")
    to = [{"broker": broker, "address": end.address(place)} for place in reversed(places)]
    return [
        {"name": place, "from": one, "to": other, "dead_letter": end.address(f"{broker}.dead")}
        for place, one, other in zip(places, taken, to, strict=True)
    ]


@pytest.fixture(scope="module")
def stage(rabbitmq: Any, kafka: Any, activemq: Any, waiting: Waiting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All messages are under way."""
    ends: dict[str, End] = {"rabbitmq": RabbitEnd(rabbitmq), "kafka": KafkaEnd(kafka), "activemq": ActiveEnd(activemq)}
    routes = [route(ends, *pair) for pair in PAIRS] + [each for broker in BROKERS for each in circle(ends, broker)]
    config = {"brokers": {name: end.options() for name, end in ends.items()}, "routes": routes}
    with Daemon(tmp_path_factory.mktemp("daemon"), waiting(config)) as daemon:
        daemon.start()
        for source, sink in PAIRS:
            asked = [{"case": TEXT[source](case), "x-delay": TEXT[source](DELAY)} | sent(source, case) for case in CASES[source]]
            ends[source].send(f"{source}-{sink}.in", asked)
        for broker, end in ends.items():
            end.send(f"{broker}.circle", [{"x-delay": TEXT[broker](DELAY)} | sent(broker, next(iter(CASES[broker])))])
        yield Stage(ends, daemon)
        assert daemon.terminate() == 0
    for end in ends.values():
        end.close()


def plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def arrived(stage: Stage, source: str, sink: str) -> dict[str, Flat]:
    """By case, less what the bridge writes on every delivery, which has to be right."""
    found: dict[str, Flat] = {}
    with_patience = stage.ends[sink].receive(f"{source}-{sink}.out")
    for message, at in itertools.islice(with_patience, len(CASES[source])):
        assert plain(message.pop("x-delay-id"))
        assert int(message.pop("x-delay-occurrence")) == 1
        assert int(message.pop("x-delay-due")) <= at
        case = plain(message.pop("case"))
        assert case not in found
        found[case] = message
    return found


def due_there(stage: Stage, source: str, sink: str, case: str) -> Flat:
    """What the document says, with what RabbitMQ has kept of it."""
    message = expected(source, sink, case)
    rabbitmq = stage.ends["rabbitmq"]
    assert isinstance(rabbitmq, RabbitEnd)
    if "twice" in message and "rabbitmq" in (source, sink) and not rabbitmq.keeps_several:
        twice = message["twice"]
        message["twice"] = twice[0] if isinstance(twice, Several) else "1"  # ActiveMQ is given one of them anyway
    return message


def shown(message: Flat) -> Flat:
    """Without five megabytes."""
    return {name: f"{len(value)} bytes" if isinstance(value, bytes) and len(value) > 1000 else value for name, value in message.items()}


@pytest.mark.parametrize(("source", "sink"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_every_body_header_and_property_arrives_as_the_document_says(stage: Stage, source: str, sink: str) -> None:
    found = arrived(stage, source, sink)
    assert found.keys() == CASES[source].keys(), stage.daemon.get("/dead-letter")
    wanted = {case: due_there(stage, source, sink, case) for case in found}
    wrong = {case: (shown(found[case]), shown(wanted[case])) for case in found if found[case] != wanted[case]}
    for case, (got, said) in wrong.items():
        for name in sorted(got.keys() | said.keys()):
            if (name in got, got.get(name)) != (name in said, said.get(name)):
                print(f"{case}: {name} is {got.get(name, 'not there')!r}, not {said.get(name, 'there')!r}")
    assert not wrong


@pytest.mark.parametrize("broker", BROKERS)
def test_a_message_that_comes_back_again_and_again_ends_as_a_dead_letter(stage: Stage, broker: str) -> None:
    message, _ = next(stage.ends[broker].receive(f"{broker}.dead"))
    assert plain(message["x-delay-reason"]) == "loop"
    assert int(plain(message["x-delay-hops"])) == MAX_HOPS
