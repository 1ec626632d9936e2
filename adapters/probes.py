"""What the probes of `delaybridge doctor` have in common on every broker: messages of our own through the running bridge."""

from __future__ import annotations

from .clock import wall_clock
from .preparing import Finding

DELAY = 300
"""Milliseconds that a probe asks for: long enough to tell a delay from none."""

PATIENCE = 10.0
"""Seconds after which a probe counts as lost."""

NAME = "delaybridge.doctor."
"""How the names of destinations for probes begin; the bridge allows them on every route."""


def ends() -> int:
    """When nobody waits any more for a probe that is sent now (epoch ms): later the bridge lets it expire."""
    return wall_clock() + DELAY + round(PATIENCE * 1000)


def judged(through: str, late: float | None, early: str) -> Finding:
    """What came of a probe `through` something, so many ms after it was due, None where it did not come. `early` says what to do where it came too early."""
    if late is None:
        fix = "start the bridge, or see `delaybridge status` and `delaybridge dead-letter list` for what it did with the probe"
        return Finding(False, f"a probe through {through} did not come back within {PATIENCE:.0f} s", fix)
    if late < 0:
        return Finding(False, f"a probe through {through} came {-late:.0f} ms too early", early)
    return Finding(True, f"a probe through {through}, delayed by {DELAY} ms, came back {late:.1f} ms after it was due")
