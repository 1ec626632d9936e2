"""A password that is replaced while the bridge is connected to all brokers of a cluster, and then loses one of them."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from brokers.kafka import Native, admin, create_topic
from brokers.private import running
from kafka.admin import UserScramCredentialUpsertion

from contract.kafka_user import User, out, private
from delaybridge.adapters.base import BackOff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LISTENERS = {"SCRAM": "SASL_PLAINTEXT"}
CONFIG = {
    "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.scram.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
}


@pytest.fixture
def pair() -> Iterator[tuple[Native, Native]]:
    """Two brokers of one cluster, on which alice's password is `first`."""
    with (
        private(CONFIG, LISTENERS, ["SCRAM-SHA-256=[name=alice,password=first]"]) as one,
        running(Native(CONFIG, LISTENERS, first=one)) as two,
    ):
        yield one, two


def leader(client: Any, topic: str) -> int:
    """Who leads a topic that was made a moment ago: the broker that is asked may not have heard of it yet."""
    told: list[Any] = []

    def known() -> bool:
        (found,) = client.describe_topics([topic])
        told[:] = found["partitions"]
        return bool(told)

    wait_until(known, "the broker to hear of the topic")
    return int(told[0]["leader_id"])


def led_by(url: str) -> dict[int, str]:
    """A topic for each of the two brokers, by the broker that leads it."""
    found: dict[int, str] = {}
    with contextlib.closing(admin(url)) as client:
        for number in range(50):
            name = f"topic-{number}"
            create_topic(url, name)
            found.setdefault(leader(client, name), name)
            if len(found) == 2:
                break
    return found


def replace_password(url: str, password: str) -> None:
    with contextlib.closing(admin(url)) as client:
        told = client.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", password)])
    assert told == {"alice": None}


@pytest.fixture
def user(pair: tuple[Native, Native]) -> Iterator[User]:
    one = User(pair[0].url, create=False)
    yield one
    one.close()


def replaced_and_restarted(pair: tuple[Native, Native], user: User, file: Path, *, known: bool, patience: float) -> None:
    """A sink that is connected to both brokers; the password is replaced, in its file too where it is `known`, and the second broker restarts.

    Messages `before` and `after` that go to topics that 1 and 2 lead; all of them have outcomes then.
    """
    one, two = pair
    topics = led_by(one.url)
    file.write_text("first")
    servers = [broker.urls["SCRAM"] for broker in pair]
    sink = user.sink(bootstrap_servers=servers, sasl="SCRAM-SHA-256", username="alice", password_file=file, delivery_timeout=15)
    sink.publish([out("before 1", topics[1]), out("before 2", topics[2])])
    assert set(user.words(2).values()) == {"confirmed"}
    replace_password(one.url, "second")
    if known:
        file.write_text("second")
    two.restart()
    sink.publish([out("after 1", topics[1]), out("after 2", topics[2])])
    wait_until(lambda: len(user.outcomes) == 4, "an outcome for each message", patience)


def test_a_broker_that_comes_back_is_given_the_password_that_is_in_the_file_by_then(
    pair: tuple[Native, Native], user: User, tmp_path: Path
) -> None:
    replaced_and_restarted(pair, user, tmp_path / "password", known=True, patience=40)

    assert set(user.words(4).values()) == {"confirmed"}


def test_a_broker_that_refuses_the_password_is_named_with_the_reason_and_seldom_asked(
    pair: tuple[Native, Native], user: User, tmp_path: Path
) -> None:
    """Others of the cluster are still connected. kafka-python says that time has passed, and would have asked a hundred times by then."""
    replaced_and_restarted(pair, user, tmp_path / "password", known=False, patience=60)

    told = {tag.decode(): error for tag, error in user.outcomes}
    assert told["after 1"] is None
    assert isinstance(told["after 2"], BackOff)
    assert re.search("broker 2 cannot be reached: .*SaslAuthenticationFailed", str(told["after 2"]))
    assert 1 <= pair[1].output.count("Failed authentication") <= 8
