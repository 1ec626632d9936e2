"""Bridges whose messages wait in level queues on ActiveMQ, and plain clients that know nothing of it."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from crash import compare
from crash.ends_activemq import ActiveEnds

from integration.active import App
from integration.level_queues import BRIDGES, config, run_rounds, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.active import Arrival
    from integration.daemon import Daemon

KIND = "levels"


@pytest.fixture
def ends(activemq: Any) -> Iterator[ActiveEnds]:
    made = ActiveEnds(activemq)
    yield made
    made.close()


@pytest.fixture
def settings(ends: ActiveEnds) -> dict[str, Any]:
    return config(ends, KIND)


@pytest.fixture
def bridge(tmp_path: Path, settings: dict[str, Any]) -> Iterator[Daemon]:
    with running(tmp_path, settings) as daemon:
        yield daemon


@pytest.fixture
def app(activemq: Any, ends: ActiveEnds, bridge: Daemon) -> Iterator[App]:
    """Consumes what the bridge delivers."""
    assert bridge.process is not None
    with App(activemq.url) as made:
        made.subscribe(f"/queue/{ends.prefix}.{KIND}.out")
        yield made


@pytest.fixture
def door(ends: ActiveEnds) -> str:
    """Where producers send."""
    return f"/queue/{ends.prefix}.{KIND}.in"


def test_a_delay_of_any_length_arrives_on_time_and_never_early(app: App, door: str) -> None:
    delays = [1, 40, 99, 100, 130, 349, 350, 999, 1_000, 1_777, 2_600, 5_000, 6_850]
    sent = {str(delay): app.send(door, str(delay), **{"x-delay": delay}) for delay in delays}
    arrivals = app.receive(len(delays))
    assert {arrival.body for arrival in arrivals} == set(sent)
    for arrival in arrivals:
        assert arrival.at >= arrival.due >= sent[arrival.body] - 50 + int(arrival.body)
    late = sorted(arrival.at - arrival.due for arrival in arrivals)
    print(f"late by {late[0]:.1f} to {late[-1]:.1f} ms")
    assert late[len(late) // 2] < 10_000  # how late is for `make bench` to say: here, other tests have the machine as well


def test_a_message_of_a_key_and_one_without_go_the_same_way(app: App, door: str) -> None:
    headers: dict[str, str | int] = {"x-delay": 400, "JMSXGroupID": "a", "x-delay-key": "customer"}
    app.send(door, "grouped", **headers)
    app.send(door, "plain", **{"x-delay": 500})
    assert {arrival.body for arrival in app.receive(2)} == {"grouped", "plain"}


def test_a_period_repeats_without_drift(app: App, door: str) -> None:
    app.send(door, "tick", **{"x-delay-period": 400, "x-delay-repeat": 4})
    ticks = app.receive(5)
    assert [tick.headers["x-delay-occurrence"] for tick in ticks] == ["1", "2", "3", "4", "5"]
    assert {later.due - earlier.due for earlier, later in itertools.pairwise(ticks)} == {400}
    assert all(tick.at >= tick.due for tick in ticks)


def test_a_cancellation_is_refused_by_its_name(activemq: Any, app: App, door: str, settings: dict[str, Any]) -> None:
    with App(activemq.url) as shelf:
        shelf.subscribe(f"/queue/{settings['store']['prefix']}.dead-letters")
        headers: dict[str, str | int] = {"x-delay": 700, "x-delay-id": "order-7"}
        app.send(door, "later", **headers)
        app.send(door, "", **{"x-delay-cancel": "order-7"})
        assert shelf.one().headers["x-delay-reason"] == "unsupported_in_level_queues"
    assert app.one().body == "later"


def test_what_waits_survives_a_bridge_that_is_killed_and_one_that_stops(app: App, door: str, bridge: Daemon) -> None:
    sent = time.time() * 1000
    for number in range(50):
        app.post(door, str(number), **{"x-delay-until": round(sent) + 6_000})
    wait_until(lambda: bridge.get("/status")["routes"][0]["received"] == 50, "the messages to be taken in")
    bridge.kill()
    bridge.start()
    assert bridge.terminate() == 0
    bridge.start()
    arrivals: list[Arrival] = []
    while {arrival.body for arrival in arrivals} != {str(number) for number in range(50)}:
        arrivals += app.receive(1)  # what was not acknowledged before the kill may come twice
    assert min(arrival.at - arrival.due for arrival in arrivals) >= 0


@pytest.mark.parametrize("count", BRIDGES)
def test_bridges_share_the_work_and_lose_nothing_when_they_are_killed_and_the_broker_is_restarted(
    ends: ActiveEnds, tmp_path: Path, settings: dict[str, Any], count: int
) -> None:
    rounds = run_rounds(ends, KIND, tmp_path, settings, count=count)
    rounds.check()
    assert compare.renamed(rounds.arrivals) == {}
