"""How often Artemis delivers a message of a queue, and then drops it, as its management tells. ActiveMQ Classic has no such limit for us.

What a bridge holds counts as delivered each time that the bridge is killed, or loses its connection.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..preparing import Finding
from .statistics import Statistics, Unanswered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .transport import Target, Times

USUAL = 10
"""What Artemis has where nothing is said."""

ENOUGH = 1000
"""So many kills and lost connections do no message meet. Who fears messages that Artemis cannot give to anybody may set this instead of no limit."""

_FIX = "set <max-delivery-attempts>-1</max-delivery-attempts> for each of these in the <address-settings> of broker.xml"


def limited(targets: Sequence[Target], times: Times, queues: Sequence[str]) -> list[Finding]:
    """Whether Artemis drops what a bridge holds in these queues; nothing on ActiveMQ Classic. Changes nothing. Raises NotConnected."""
    with Statistics(targets, times) as statistics:
        if not statistics.artemis:
            return []
        try:
            few = [f"`{queue}`" for queue in queues if 0 < _attempts(statistics, queue) < ENOUGH]
        except Unanswered as error:
            return [Finding(True, f"after how many deliveries Artemis drops a message (`max-delivery-attempts`) is unknown. {error}")]
    what = "what a bridge holds that is killed, or loses its connection, a few times"
    if not few:
        return [Finding(True, f"Artemis does not drop {what}")]
    return [Finding(False, f"Artemis drops {what} (`max-delivery-attempts`), from {', '.join(few)}", _FIX)]


def _attempts(statistics: Statistics, queue: str) -> int:
    """The limit of one queue; none is zero or below. Raises Unanswered."""
    settings = json.loads(statistics.managed("broker", b"getAddressSettingsAsJSON", queue))
    return int(settings.get("maxDeliveryAttempts", USUAL))
