"""The console script `delaybridge`. With `run`, signals are held back from the first moment on: the commands take a quarter of a second to import."""

from __future__ import annotations

import sys
from contextlib import nullcontext

from . import tuning
from .signals import held_back


def main() -> None:
    """Run the command that was asked for."""
    tuning.for_imports()
    with held_back() if sys.argv[1:2] == ["run"] else nullcontext():
        from .cli import main as commands  # noqa: PLC0415 - see above

        commands()
