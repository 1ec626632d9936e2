"""What a cluster says of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OWN = "DYNAMIC_TOPIC_CONFIG"


class Topic(NamedTuple):
    """`settings` holds all, `own` those that were set for this topic; both are empty where they may not be read, or were not asked for."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]
    own: Mapping[str, str]


def described(name: str, partitions: Iterable[Mapping[str, Any]], settings: Mapping[str, Any]) -> Topic:
    """From how kafka-python describes its partitions and its settings."""
    replicas = [len(each["replica_nodes"]) for each in partitions]
    own = {key: each["value"] for key, each in settings.items() if each["config_source"] == _OWN}
    return Topic(name, len(replicas), min(replicas), {key: each["value"] for key, each in settings.items()}, own)
