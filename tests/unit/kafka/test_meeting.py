"""Where a source goes on in partitions that have come: where its group is, unless that is said of another topic of the same name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from unit.kafka.poller import client, poller_on

PARTITION = TopicPartition("orders.delayed", 0)


def begun_anew(committed: str, identity: str) -> bool:
    """Whether a partition is read from its beginning beside whose offset this was committed, and whose topic has this id."""
    sought: list[TopicPartition] = []
    consumer: Any = SimpleNamespace(
        config={"group_id": "g", "session_timeout_ms": 10_000},
        _client=client(),
        _coordinator=SimpleNamespace(fetch_committed_offsets=lambda *_, **__: {PARTITION: OffsetAndMetadata(7, committed, 0)}),
        group_metadata=lambda: SimpleNamespace(member_id="me"),
        seek_to_beginning=sought.append,
    )
    poller = poller_on(consumer)
    poller._topics = SimpleNamespace(identity=lambda _: identity)  # type: ignore[assignment]
    return poller._meet({PARTITION}) == set(sought) == {PARTITION}


def test_a_topic_that_was_deleted_and_created_again_is_read_from_its_beginning() -> None:
    assert begun_anew("of topic aa", "bb")


@pytest.mark.parametrize(
    ("committed", "identity"),
    [("of topic aa", "aa"), ("", "bb"), ("another program's", "bb"), ("of topic ", "bb"), ("of topic aa", "")],
    ids=[
        "it is that topic",
        "nothing is said",
        "nothing of ours is said",
        "from before topics had ids",
        "by a broker that knows no ids yet",
    ],
)
def test_nothing_is_read_again_that_may_be_of_the_same_topic(committed: str, identity: str) -> None:
    assert not begun_anew(committed, identity)
