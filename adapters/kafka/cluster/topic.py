"""What a cluster says of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ..identity import identity

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWN = "DYNAMIC_TOPIC_CONFIG"


class Topic(NamedTuple):
    """`settings` holds all, `own` those that were set for this topic; both are empty where they may not be read, or were not asked for.

    `identity` is its id, in hexadecimal; empty where it has none.
    """

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]
    own: Mapping[str, str]
    identity: str = ""


def described(told: Mapping[str, Any], settings: Mapping[str, Any]) -> Topic:
    """From how kafka-python describes it and its settings."""
    replicas = [len(each["replica_nodes"]) for each in told["partitions"]]
    own = {key: each["value"] for key, each in settings.items() if each["config_source"] == _OWN}
    values = {key: each["value"] for key, each in settings.items()}
    return Topic(told["name"], len(replicas), min(replicas), values, own, identity(UUID(told["topic_id"])).hex())
