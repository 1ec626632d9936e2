"""How Spark is set for tests: two cores, few partitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delaybridge.bridge.demo.proof import QUICK

if TYPE_CHECKING:
    from collections.abc import Sequence

LEFT_OPEN = pytest.mark.filterwarnings("ignore:unclosed <socket.socket .*127.0.0.1:ResourceWarning")
"""Spark 4.0 leaves the sockets through which it hands over rows to the garbage collector; later ones close them."""

SMALL = QUICK | {"spark.master": "local[2]", "spark.driver.memory": "1g"}
"""As the demo's audit; commands/test_command.py compiles what it runs on a million events."""
CONF = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
"""The same for a command."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Only for the tests beside this file."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(LEFT_OPEN)
