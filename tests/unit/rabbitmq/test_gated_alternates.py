"""Exchanges that are gated together with their alternate exchanges."""

from __future__ import annotations

import pytest
from unit.rabbitmq.test_gate import CALLS, broker

from delaybridge.adapters.rabbitmq.gate.gate import Gate, alternates_first
from delaybridge.adapters.rabbitmq.management import Call, Exchange


def gates(alternates: dict[str, str], *missing: str) -> dict[str, Gate]:
    """All of these are gated, each with its alternate exchange, if it has one."""
    there = [
        Exchange(name, "topic", arguments={"alternate-exchange": to} if to else {})
        for name, to in alternates.items()
        if name not in missing
    ]
    known = broker(*there)
    return {name: Gate(known, name, "in", ["x-delay"], alternates) for name in alternates}


@pytest.mark.parametrize(
    ("alternates", "order"),
    [
        ({"a": "", "b": ""}, ["a", "b"]),
        ({"a": "b", "b": "c", "c": ""}, ["c", "b", "a"]),
        ({"a": "c", "b": "c", "c": "", "d": ""}, ["c", "a", "b", "d"]),
        ({"a": "b", "b": "a"}, ["b", "a"]),
        ({"a": "a"}, ["a"]),
        ({"a": "elsewhere", "b": "a"}, ["a", "b"]),
    ],
)
def test_a_gate_is_built_after_that_of_its_alternate_exchange(alternates: dict[str, str], order: list[str]) -> None:
    """Else what it cannot route is lost until that stands."""
    assert [gate.name for gate in alternates_first(gates(alternates))] == order


def test_an_exchange_that_is_missing_is_told_of_later() -> None:
    assert [gate.name for gate in alternates_first(gates({"a": "b", "b": "c", "c": ""}, "b"))] == ["b", "a", "c"]


def test_what_a_gated_exchange_cannot_route_goes_past_the_gate_of_its_alternate_exchange() -> None:
    real = next(change.action for change in gates({"a": "b", "b": ""})["a"].build(CALLS) if isinstance(change.action, Call))
    assert real.body is not None
    assert real.body["arguments"] == {"alternate-exchange": "b.real"}


def test_a_gated_exchange_is_no_other_way_into_a_gate() -> None:
    assert gates({"a": "b", "b": ""})["b"].at.other_ways_in() == []
