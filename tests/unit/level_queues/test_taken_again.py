"""What its source gives to this bridge again, after another one has had it: it is delivered, once, whatever that one did before it was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import MINUTE, T0
from unit.level_queues.id_bridges import Bridge
from unit.level_queues.sharing import Sharing, log_of
from unit.level_queues.test_terms import Partition

from delaybridge.adapters.base import Batch, Received
from delaybridge.bridge.intake.intake import Intake
from delaybridge.bridge.intake.planner import PlannedRoute, Planner
from delaybridge.bridge.level_queues.ids.claims import named
from delaybridge.bridge.level_queues.ids.register import Claiming, mark_of
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.message import message
from delaybridge.core.schedule import Limits
from delaybridge.core.store import Put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaybridge.adapters.base import Source

ROUTE = "exact"
DUE = T0 + MINUTE
ASKS: dict[str, str | int] = {"x-delay": MINUTE}
SERIES = ASKS | {"x-delay-repeat": 1, "x-delay-period": MINUTE}


def written(place: int, body: str, **headers: str | int) -> Received:
    """What stands at this place of a partition."""
    return Received(message(body.encode(), {**headers}), "", b"topic-0-%08d" % place, log=b"topic-0-")


class Log(Partition):
    """One partition of a topic, which gives all that it has to whoever connects, which begins a tenure."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Received] = []
        self._given = 0

    def write(self, body: str, **headers: str | int) -> Received:
        self.records.append(written(len(self.records), body, **headers))
        return self.records[-1]

    def connect(self) -> None:
        self.generation += 1
        self.known = self.generation
        self.goes_back()

    def goes_back(self) -> None:
        """Within its tenure."""
        self._given = 0

    def receive(self, limit: int, timeout: float) -> Batch | None:  # noqa: ARG002 - the contract's arguments
        records, self._given = self.records[self._given :], len(self.records)
        return Batch(records, lambda: None) if records else None

    def close(self) -> None:
        pass


def taking_in(log: Source, store: Sharing, name: str = ROUTE) -> Intake:
    route = PlannedRoute(name=name, source_broker="kafka", source="in", lane="rabbit", address="/queues/out")
    return Intake(Planner(route, Limits(min_period=1)), log, store, lambda: T0, store.wake, Metrics("test"), exact=name == ROUTE)


@pytest.fixture
def store(sharing: Sharing) -> Sharing:
    return sharing


@pytest.fixture
def other(store: Sharing) -> Iterator[Bridge]:
    made = Bridge(log_of(store.name)).start()
    yield made
    made.stop()


@pytest.fixture
def log(store: Sharing) -> Log:
    made = Log()
    store.doors.hold(ROUTE, made)
    return made


@pytest.fixture
def intake(store: Sharing, log: Log) -> Intake:
    return taking_in(log, store)


def gives(intake: Intake) -> int:
    """The source gives all that it has; how much that is."""
    intake.connect()
    return intake.step(0.0)


def claims(other: Bridge, intake: Intake, received: Received) -> None:
    """Another bridge is given this message, claims its id, and is killed."""
    change = named(intake.planner.plan(received, T0), ROUTE, received.token)
    assert isinstance(change, Put)
    other.register.enter([Claiming(change.record.id, DUE, mark_of(ROUTE, received.token))], T0, Partition())


@pytest.mark.parametrize("headers", [ASKS | {"x-delay-id": "a"}, SERIES], ids=["an id", "a series"])
def test_what_another_bridge_claimed_and_never_took_in_is_not_lost(
    store: Sharing, log: Log, intake: Intake, other: Bridge, headers: dict[str, str | int]
) -> None:
    received = log.write("a", **headers)
    gives(intake)
    claims(other, intake, received)

    gives(intake)

    assert store.handed_out(DUE) == ["a"]


def test_nor_is_it_where_that_comes_to_pass_twice(store: Sharing, log: Log, intake: Intake, other: Bridge) -> None:
    received = log.write("a", **ASKS, **{"x-delay-id": "a"})
    for _ in range(2):
        gives(intake)
        claims(other, intake, received)

    gives(intake)

    assert store.handed_out(DUE) == ["a"]


def test_what_claims_nothing_is_recognised_and_so_is_what_comes_behind_it(store: Sharing, log: Log, intake: Intake) -> None:
    log.write("a", **ASKS)
    log.write("b", **ASKS, **{"x-delay-id": "b"})
    gives(intake)
    log.write("c", **ASKS)

    for _ in range(3):
        assert gives(intake) == 3

    assert sorted(store.handed_out(DUE)) == ["a", "b", "c"]


def test_of_what_comes_again_in_one_tenure_one_copy_is_delivered(store: Sharing, log: Log, intake: Intake) -> None:
    log.write("a", **ASKS, **{"x-delay-id": "a"})
    gives(intake)
    log.goes_back()

    intake.step(0.0)

    assert store.handed_out(DUE) == ["a"]
    assert store.events == {"scheduled": 2, "replaced": 1}


def test_what_has_come_to_its_end_does_not_come_back(store: Sharing, log: Log, intake: Intake) -> None:
    log.write("a", **ASKS, **{"x-delay-id": "a"})
    gives(intake)
    assert store.cancel("a", T0).outcome == "done"
    assert store.handed_out(DUE) == []

    gives(intake)

    assert store.handed_out(DUE) == []
