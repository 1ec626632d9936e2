"""What a group's coordinator answers to a member that asks whether it still is one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import errors
from kafka.structs import ConsumerGroupMetadata

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka.sources.membership import present

MEMBER = ConsumerGroupMetadata("group", 3, "member")


def asked(answer: type[errors.BrokerResponseError | errors.NoError]) -> bool:
    net = SimpleNamespace(run=lambda *_: answer.errno)
    return present(SimpleNamespace(_net=net, _coordinator=None), MEMBER, 1.0)


@pytest.mark.parametrize("answer", [errors.NoError, errors.RebalanceInProgressError])
def test_a_member_is_present_also_while_the_group_waits_for_the_next_generation(answer: type[errors.BrokerResponseError]) -> None:
    assert asked(answer)


def test_another_generation_is_not_this_one() -> None:
    assert not asked(errors.IllegalGenerationError)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (errors.UnknownMemberIdError, "has forgotten this bridge: UnknownMemberIdError"),
        (errors.FencedInstanceIdError, "has forgotten this bridge: FencedInstanceIdError"),
        (errors.NotCoordinatorError, "does not say whether it still has this bridge: NotCoordinatorError"),
        (errors.CoordinatorNotAvailableError, "does not say whether"),
    ],
)
def test_a_coordinator_that_does_not_know_says_nothing_of_the_member(answer: type[errors.BrokerResponseError], told: str) -> None:
    with pytest.raises(NotConnected, match=told):
        asked(answer)
