"""What is told about a configuration file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delaybridge.bridge.config.file import ConfigError, load

if TYPE_CHECKING:
    from pathlib import Path


SMALL = """
brokers:
  here: {type: memory}
routes:
  - {name: orders, from: {broker: here, queue: in}, to: {broker: here}}
"""


def problems(file: Path, text: str) -> list[str]:
    """What is told about a file, less the path before each line number."""
    file.write_text(text)
    with pytest.raises(ConfigError) as told:
        load(file)
    return [problem.removeprefix(f"{file}:") for problem in told.value.problems]
