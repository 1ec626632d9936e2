"""A message that is larger than ActiveMQ's connector takes holds up no other: ActiveMQ closes the connection over it, and does not say which it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from brokers.common import free_port

from contract.activemq_stage import Stage, named, native, out
from contract.outcomes import words
from contract.stores import record
from delaybridge.adapters.activemq import adapter
from delaybridge.adapters.base import NotConnected, Rejected
from delaybridge.core.message import Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.activemq import Native

LIMIT = 100_000
LIMITS = ("maxFrameSize", "maxDataLength")
KINDS = ("stomp", "stomp+nio")


@pytest.fixture(scope="module")
def ports() -> dict[tuple[str, str], int]:
    """One for each connector."""
    return {(kind, limit): free_port() for kind in KINDS for limit in LIMITS}


@pytest.fixture(scope="module")
def broker(ports: dict[tuple[str, str], int]) -> Iterator[Native]:
    """A private broker with a connector for each kind and each limit."""
    connectors = [
        f'<transportConnector name="limited-{port}" uri="{kind}://127.0.0.1:{port}?transport.tcpNoDelay=true&amp;wireFormat.{limit}={LIMIT}"/>'
        for (kind, limit), port in ports.items()
    ]
    yield from native(connectors="\n".join(connectors))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("size", [LIMIT + 1, 10_000_000], ids=["little", "much"])
def test_a_message_that_is_too_large_for_the_connector_is_rejected_and_all_others_are_delivered(
    broker: Native, ports: dict[tuple[str, str], int], kind: str, limit: str, size: int
) -> None:
    stage = Stage(broker)
    sizes = {"first": 1, "large": size, "text": size + 1, "other": 1, "all but": LIMIT - 1000}
    waiting = {
        tag: out(tag, f"open.{'b' if tag == 'other' else 'a'}", b"x" * length, Properties(text=tag == "text"))
        for tag, length in sizes.items()
    }
    found: dict[str, str] = {}
    for _ in range(5):  # as a lane does: what is unknown is published again, over a new connection
        stage.outcomes.clear()
        stage.sink(url=f"stomp://127.0.0.1:{ports[kind, limit]}").publish(list(waiting.values()))
        told = words(stage.outcomes, len(waiting))
        found |= {tag: word for tag, word in told.items() if word != NotConnected.__name__}
        waiting = {tag: one for tag, one in waiting.items() if tag not in found}
        if not waiting:
            break
    stage.close()
    assert found == dict.fromkeys(("first", "other", "all but"), "confirmed") | dict.fromkeys(("large", "text"), "too_large")


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("largest", [LIMIT, 100 << 20], ids=["declared", "unknown"])
def test_a_scheduled_message_that_is_too_large_for_the_connector_lets_no_request_of_management_come_again_and_again(
    broker: Native, ports: dict[tuple[str, str], int], limit: str, largest: int
) -> None:
    stage = Stage(broker)
    to = f"/queue/{named('open')}"
    user = stage.user()
    user.subscribe(to)
    management, _ = adapter.management(stage.options(url=f"stomp://127.0.0.1:{ports['stomp', limit]}", max_body_bytes=largest))
    jobs = [record("small"), record("large" * 2_000_000), record("last")]
    if largest == LIMIT:
        management.answer(to, [jobs])
        assert [body(user.frame()) for _ in jobs] == [jobs[0].message.body, b"", jobs[2].message.body]
    else:
        with pytest.raises(Rejected, match="was exceeded"):
            management.answer(to, [jobs])
    stage.close()


def body(frame: bytes) -> bytes:
    return frame.partition(b"\n\n")[2]
