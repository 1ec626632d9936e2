"""How late messages arrive at a thousand a second: from an ordinary producer, through the bridge, to an ordinary consumer."""

from __future__ import annotations

from pathlib import Path

from .daemon import bridge, route
from .figures import Figure, at_most
from .queues import Queues
from .traffic import Lateness, Traffic, flowing

SOURCE, DESTINATION = "bench.lateness.in", "bench.lateness.out"


def lateness(url: str, directory: Path, traffic: Traffic) -> list[Figure]:
    """Measured at the consumer: arrival less `x-delay-due`."""
    config = {"brokers": {"rabbit": {"type": "rabbitmq", "url": url}}, "routes": [route("bench", "rabbit", "rabbit", SOURCE, DESTINATION)]}
    with Queues(url) as queues:
        queues.empty(SOURCE, DESTINATION)
    with bridge(directory, config), flowing(url, SOURCE, DESTINATION, traffic) as flow:
        seen = Lateness.of(flow.arrivals())
    at = f"lateness at {traffic.rate} messages/s"
    return [
        at_most(f"{at}, p50", seen.p50, "ms", 2),
        at_most(f"{at}, p99", seen.p99, "ms", 5),
        Figure(f"{at}, worst", seen.worst, "ms"),
        at_most(f"{at}, early", seen.early, "messages", 0),
    ]
