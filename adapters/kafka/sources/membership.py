"""Whether any node coordinates a consumer's group, and whether that still has it as the member that it was: only the coordinator knows, when it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka import errors
from kafka.protocol.consumer import HeartbeatRequest

from ...base import NotConnected
from ..link import Patience, translated

if TYPE_CHECKING:
    from kafka.structs import ConsumerGroupMetadata


_STILL = (errors.NoError, errors.RebalanceInProgressError)
"""What a member of this generation is answered: in a rebalance it is one until all have joined the next."""

_WITHOUT = 3
"""Sessions for which a group may be without a coordinator. Where its node dies another one takes over within one, and then has to read what it must know."""


def found(consumer: Any, timeout: float) -> None:
    """Wait until the group's coordinator is known. Raises NotConnected where the cluster names none within `timeout` seconds."""
    if not consumer._coordinator.ensure_coordinator_ready(timeout_ms=timeout * 1000):  # noqa: SLF001 - nothing public asks, and a poll only goes on asking
        raise NotConnected(_nobody(consumer, timeout))


class Coordinated:
    """Whether a node coordinates the group. Where none does, nobody is given anything, and kafka-python says nothing: it asks for one again and again."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._patience = Patience(_WITHOUT * consumer.config["session_timeout_ms"] / 1000)

    def check(self) -> None:
        """Raises NotConnected where none has been known for as long as the patience."""
        if self._patience.over(self._consumer.config["group_id"] is None or self._consumer._coordinator.coordinator_id is not None):  # noqa: SLF001 - as above
            raise NotConnected(_nobody(self._consumer, self._patience.seconds))


def _nobody(consumer: Any, seconds: float) -> str:
    group = consumer.config["group_id"]
    return f"no node has coordinated the group {group!r} for {seconds:g} s: look whether each partition of __consumer_offsets has a leader"


def present(consumer: Any, member: ConsumerGroupMetadata, timeout: float) -> bool:
    """Whether the group has this member, in this generation, when the coordinator answers: nobody else had its partitions before that.

    By a heartbeat of our own: kafka-python's is sent now and then, and does not say of which generation it was. False where another generation has begun,
    with this member or without. Any thread; blocks for `timeout` seconds at most. Raises NotConnected where the group has forgotten it, or nobody answers.
    """
    with translated():
        error = errors.for_code(consumer._net.run(_answer, consumer._coordinator, member, int(timeout * 1000)))  # noqa: SLF001 - nothing public asks
    if error is errors.IllegalGenerationError:
        return False
    if error in (errors.UnknownMemberIdError, errors.FencedInstanceIdError):
        raise NotConnected(f"the group has forgotten this bridge: {error.__name__}")
    if error not in _STILL:
        raise NotConnected(f"the group does not say whether it still has this bridge: {error.__name__}")
    return True


async def _answer(coordinator: Any, member: ConsumerGroupMetadata, timeout: int) -> int:
    """The coordinator's error code. On the consumer's own thread."""
    await coordinator.ensure_coordinator_ready_async(timeout)
    request = HeartbeatRequest(
        group_id=member.group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )
    manager = coordinator._manager  # noqa: SLF001 - as kafka-python does
    answer = await manager.wait_for(manager.send(request, node_id=coordinator.coordinator_id), timeout)
    return int(answer.error_code)
