"""How often Artemis delivers a message of a queue, and then drops it, as it tells through its management address. ActiveMQ Classic has no such limit for us.

What a bridge holds counts as delivered each time that the bridge is killed, or loses its connection.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from ..base import NotConnected
from ..preparing import Finding
from .frames import frame
from .listener import Listener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .transport import Target, Times

USUAL = 10
"""What Artemis has where nothing is said."""

ENOUGH = 1000
"""So many kills and lost connections do no message meet. Who fears messages that Artemis cannot give to anybody may set this instead of no limit."""

_QUESTION = (
    (b"destination", b"activemq.management"),
    (b"_AMQ_ResourceName", b"broker"),
    (b"_AMQ_OperationName", b"getAddressSettingsAsJSON"),
)
_UNTOLD = "Artemis does not tell this user after how many deliveries it drops messages: see to `max-delivery-attempts` yourself"
_FIX = "set <max-delivery-attempts>-1</max-delivery-attempts> for each of these in the <address-settings> of broker.xml"


class Untold(Exception):
    """Artemis does not answer, or refuses."""


def limited(targets: Sequence[Target], times: Times, queues: Sequence[str]) -> list[Finding]:
    """Whether Artemis drops what a bridge holds in these queues; nothing on ActiveMQ Classic. Changes nothing. Raises NotConnected."""
    answers = f"/temp-queue/{secrets.token_hex(8)}"  # Artemis shares one of a plain name among connections
    listener = Listener(targets, times, "activemq doctor")
    listener.link.start()
    try:
        if not listener.link.artemis:
            return []
        listener.ask_for(listener.link.mark.encode(), answers, b"auto", 1000)
        few = [f"`{queue}`" for queue in queues if 0 < _attempts(listener, answers, queue, times.connect) < ENOUGH]
    except Untold:
        return [Finding(True, _UNTOLD)]
    finally:
        listener.link.close()
    what = "what a bridge holds that is killed, or loses its connection, a few times"
    if not few:
        return [Finding(True, f"Artemis does not drop {what}")]
    return [Finding(False, f"Artemis drops {what} (`max-delivery-attempts`), from {', '.join(few)}", _FIX)]


def _attempts(listener: Listener, answers: str, queue: str, timeout: float) -> int:
    """The limit of one queue; none is zero or below. Raises Untold."""
    listener.changed.clear()
    try:
        listener.link.write(frame(b"SEND", *_QUESTION, (b"reply-to", answers.encode()))[:-1] + json.dumps([queue]).encode() + b"\0")
        listener.changed.wait(timeout)
        (settings,) = json.loads(listener.inbox.popleft().body)
        return int(json.loads(settings).get("maxDeliveryAttempts", USUAL))
    except (NotConnected, IndexError, ValueError, TypeError, AttributeError) as error:
        raise Untold from error
