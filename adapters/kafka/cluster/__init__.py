"""Administration of a Kafka cluster: topics and their settings (`cluster`), how far a group is (`groups`), where a transaction is open (`transactions`)."""

from .cluster import OFFSETS, Cluster, opened
from .topic import Topic
from .transactions import COMMITTED, Open, Owner

__all__ = ["COMMITTED", "OFFSETS", "Cluster", "Open", "Owner", "Topic", "opened"]
