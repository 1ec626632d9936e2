"""What tells a topic from an earlier one of its name: its id, in the text that a source commits beside each offset.

Before Kafka 2.8 topics have no ids: while a cluster is made a newer one, one of two texts may lack it.
"""

from __future__ import annotations

from typing import Any

_OF = "of topic "  # before the id: anything else is not ours


def identity(topic_id: Any) -> bytes:
    """A topic's id, as kafka-python tells it, a UUID; empty where it has none."""
    return topic_id.bytes if topic_id is not None and topic_id.int else b""


def text_of(hexadecimal: str) -> str:
    """What is committed beside an offset of the topic with this id."""
    return f"{_OF}{hexadecimal}"


def of_others(committed: str, ours: str) -> bool:
    """Whether these are the texts of two topics."""
    return committed.startswith(_OF) and committed != ours and _OF not in (committed, ours)
