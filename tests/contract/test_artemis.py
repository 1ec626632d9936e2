"""The sentences of the contract on a real Apache Artemis, through the ActiveMQ adapter. Not required.

They are skipped where nobody has run `python -m brokers.artemis --install` (in tests/).

Two are left out because they do not hold, see docs/interception.md: Artemis gives `receipt` and `transaction`, which belong to a SEND, to the receiver
as headers of the message.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import pytest
from brokers.artemis import Artemis
from brokers.common import Unavailable, wait_until
from brokers.private import running
from pydantic import SecretStr

from contract.activemq_stage import out
from contract.stages import ActiveStage
from contract.taking import batches, taken
from contract.test_adapter import *  # noqa: F403 - the same sentences, on the stage below
from delaybridge.adapters import activemq
from delaybridge.adapters.activemq import incoming, probe
from delaybridge.adapters.levelled import SINCE, Level
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaybridge.adapters.base import Outcome

del stage, test_each_header_keeps_its_type_and_value, test_all_properties_come_out_as_they_went_in  # noqa: F821 - imported above; pytest would take that stage


SETTINGS = """
    <address-settings><address-setting match="unlimited"><max-delivery-attempts>-1</max-delivery-attempts></address-setting></address-settings>"""


@pytest.fixture(scope="module")
def artemis() -> Iterator[Artemis]:
    try:
        broker = Artemis(SETTINGS)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with running(broker):
        yield broker


@pytest.fixture(name="stage")
def on_artemis(artemis: Artemis) -> Iterator[ActiveStage]:
    queue = f"contract-{secrets.token_hex(6)}"
    options = activemq.ActiveMQ(url=SecretStr(artemis.url), connection_timeout=15)
    one = ActiveStage(activemq.adapter, options, activemq.Endpoint(queue=queue), f"/queue/{queue}")
    one.source().close()  # declares the queue
    yield one
    one.close()


def test_what_doctor_sends_through_the_ingress_queue_is_taken_in(artemis: Artemis) -> None:
    """An empty text would be refused there: unlike ActiveMQ, Artemis does not tell that a STOMP client sent it."""
    options = activemq.ActiveMQ(url=SecretStr(artemis.url))
    with probe._Post(options.targets(), options.times, "/temp-queue/delaybridge") as post:
        post.send(post.destination, x_delay=300)
        [(frame, _)] = post.first(1, 20)
    assert incoming.received(frame, incoming.Rules()).defect is None


@pytest.mark.parametrize("level", [False, True], ids=["ingress", "level"])
def test_what_waits_outlives_more_stops_of_a_bridge_than_artemis_delivers_anything(stage: ActiveStage, *, level: bool) -> None:
    """By default Artemis drops what it has delivered ten times."""
    stage.send(*(Message(b"x", fields.table([(SINCE, time.time_ns() // 1_000_000)])) for _ in range(3)))
    adapter, options = stage.adapter, stage.options
    for _ in range(25):
        source = adapter.level_source(options, Level(stage.endpoint.queue, 3_600_000)) if level else adapter.source(options, stage.endpoint)
        source.connect()
        while not (source.first_leaves if level else batches(source, 1, 3)):
            source.receive(3, 0.1)
        source.close()
    assert len(taken(stage.source(), lambda got: len(got) >= 3, 10)) == 3


@pytest.mark.parametrize("size", [1, 10_000])
def test_what_leaves_a_level_and_waits_for_its_destination_keeps_no_other_message_there(stage: ActiveStage, size: int) -> None:
    stage.send(*(Message(bytes(size), fields.table([(SINCE, 0)])) for _ in range(5)))
    source = stage.adapter.level_source(stage.options, Level(stage.endpoint.queue, 3_600_000))
    source.connect()
    assert len(batches(source, 5, 1)) == 5
    source.close()


def test_doctor_names_the_queues_from_which_artemis_drops_what_killed_bridges_held(artemis: Artemis) -> None:
    options, endpoints = activemq.ActiveMQ(url=SecretStr(artemis.url)), [activemq.Endpoint(queue="limited")]
    [finding] = activemq.adapter.standstills(
        options, endpoints, [], [*(Level(f"level.{number}", 1000) for number in range(30)), Level("unlimited", 1000)]
    )
    assert not finding.ok
    assert finding.what.endswith("`, `".join(["from `limited", *(f"level.{number}" for number in range(30))]) + "`")


def test_doctor_is_content_where_artemis_has_no_limit_of_deliveries(artemis: Artemis) -> None:
    options = activemq.ActiveMQ(url=SecretStr(artemis.url))
    assert [each.ok for each in activemq.adapter.standstills(options, [activemq.Endpoint(queue="unlimited")], [], [])] == [True]


def test_artemis_counts_what_waits_at_each_level(artemis: Artemis) -> None:
    options = activemq.ActiveMQ(url=SecretStr(artemis.url))
    names = [f"level.{secrets.token_hex(6)}" for _ in range(2)]
    sink = activemq.adapter.sink(options)
    outcomes: list[Outcome] = []
    sink.connect(outcomes.extend)
    sink.publish([out(str(number), names[0]) for number in range(3)])
    wait_until(lambda: [error for _, error in outcomes] == [None] * 3, "three messages to be there")
    sink.close()

    queues = activemq.adapter.level_queues(options, [Level(name, 1000) for name in names])
    assert queues.depths() == [3, 0]
    assert [step.done for step in queues.plan()] == [True] * 3
    assert [step.done for step in queues.undo()] == [False, True]


def test_a_text_stays_a_text_and_bytes_stay_bytes(stage: ActiveStage) -> None:
    """Artemis gives both with their length, and does not say which they are; to it a text is what comes without."""
    source = stage.source()
    stage.send(Message(b"x", properties=Properties(text=True)), Message(b"x"))
    once = taken(source, lambda got: len(got) == 2)
    stage.send(*(one.message for one in once))
    twice = taken(source, lambda got: len(got) == 2)
    assert [[one.message.properties.text for one in some] for some in (once, twice)] == [[True, False]] * 2
