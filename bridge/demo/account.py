"""What the demo knows of one run: `tables` shows it, `books` judges it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .arrivals import Arrivals
    from .faults import Faults


@dataclass(frozen=True, slots=True)
class Account:
    """What was `sent` and is `expected` to arrive, by group, and what arrived at the destination and at the dead-letter destination."""

    arrivals: Arrivals
    dead: Arrivals
    faults: Faults | None
    sent: Counter[str] = field(default_factory=Counter)
    expected: Counter[str] = field(default_factory=Counter)
