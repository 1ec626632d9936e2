"""A bridge that is killed: when the group goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.kafka_user import User, bodies, receive
from delaybridge.adapters.kafka import Endpoint, adapter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker

MEMBER = """
import sys
from delaybridge.adapters.kafka import Endpoint, Kafka, adapter
url, topic, group, session, instance = sys.argv[1:]
source = adapter.source(Kafka(bootstrap_servers=url, session_timeout=session), Endpoint(topic=topic, group=group, instance=instance or None))
source.connect()
while True:
    batch = source.receive(1, 1)
    if batch:
        print(batch.messages[0].message.body.decode(), flush=True)
"""


@pytest.fixture
def user(kafka: Broker) -> Iterator[User]:
    one = User(kafka.url)
    yield one
    one.close()


def killed(user: User, session: float, instance: str = "") -> None:
    """A member of the group that has received a message, and dies without a word."""
    arguments = [sys.executable, "-c", MEMBER, user.url, user.topic, user.group, str(session), instance]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) as member:
        try:
            assert member.stdout is not None
            assert member.stdout.readline() == "1\n"
        finally:
            member.kill()


def seconds_until_it_goes_on(user: User, session: float, instance: str | None = None) -> float:
    began = time.monotonic()
    source = adapter.source(user.options(session_timeout=session), Endpoint(topic=user.topic, group=user.group, instance=instance))
    user._opened.append(source)
    source.connect()
    assert bodies(receive(source, 1)) == ["1"]
    return time.monotonic() - began


def test_a_killed_bridge_with_an_instance_goes_on_at_once_when_it_is_back(user: User) -> None:
    user.send(b"1")
    killed(user, 25, "bridge-1")
    assert seconds_until_it_goes_on(user, 25, "bridge-1") < 15


def test_a_killed_bridge_without_one_is_missed_after_the_session_time_out(user: User) -> None:
    user.send(b"1")
    killed(user, 6)
    assert 3 < seconds_until_it_goes_on(user, 6) < 25
