"""How a Python that `delaybridge-instrument` started begins.

This folder stands on its PYTHONPATH. It holds `sitecustomize.py` and nothing else, so that it hides no other module.
"""

from __future__ import annotations

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would cost each Python that starts some milliseconds
SUFFIX, INGRESS = "DELAYBRIDGE_INGRESS_SUFFIX", "DELAYBRIDGE_INGRESS_TOPIC"


def start() -> None:
    """Instrument as the environment says. Raises ValueError where it names no possible topic."""
    from .. import divert, instrument  # noqa: PLC0415 - the command needs the names alone

    instrument(os.environ.get(SUFFIX) or divert.SUFFIX, os.environ.get(INGRESS, ""))


def start_hidden() -> None:
    """Start where `opentelemetry-instrument` runs behind `delaybridge-instrument`: its `sitecustomize` stands before ours, and goes on to no other.

    An entry point, which it calls in each Python that it instruments, of ours or not.
    """
    if FOLDER in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        start()
