"""ActiveMQ addresses, as its STOMP connector writes destinations.

    /queue/<name>    a queue; plain text means the queue of that name
    /topic/<name>    a topic

A name that ActiveMQ would read as something else is refused: `,` lists several destinations, `*` and `>` are wildcards, `?` begins options, `://`
begins a scheme. Temporary destinations are none of ours: they end with the connection that made them.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...core.reasons import Reason
from ..base import Rejected

_NO_NAME = re.compile(r"[,*>?\x00-\x1f\x7f]|://|^\s|\s$|^$")
PREFIXES = ("/queue/", "/topic/")
_LONGEST = 512


@lru_cache(maxsize=4096)
def destination(address: str) -> str:
    """What goes into the header `destination`. Raises Rejected(bad_destination)."""
    full = address if address.startswith("/") else queue_address(address)
    kind, name = full[:7], full[7:]
    if kind not in PREFIXES:
        raise Rejected(Reason.BAD_DESTINATION, f"{address!r} is neither /queue/<name> nor /topic/<name> nor a queue's name")
    if _NO_NAME.search(name) or len(name.encode(errors="replace")) > _LONGEST:
        raise Rejected(Reason.BAD_DESTINATION, f"{address!r} does not name exactly one queue or topic")
    return full


def queue_address(queue: str) -> str:
    """The address of a queue."""
    return "/queue/" + queue


def pattern(address: str) -> re.Pattern[str]:
    """What a destination with ActiveMQ's wildcards means: `*` is one part of a name between dots, `>` at the end any number of them, none included.

    So `orders.>` is `orders` as well. Raises ValueError.
    """
    full = address if address.startswith("/") else queue_address(address)
    if not full.startswith(PREFIXES) or re.search(r"[,?\s]|://", full) or not full[7:]:
        raise ValueError(f"{address!r} is neither /queue/<name> nor /topic/<name> nor a queue's name")
    *first, last = parts = full[7:].split(".")
    if ">" in first:
        raise ValueError(f"{address!r}: `>` stands at the end only")
    if any(len(part) > 1 and re.search("[*>]", part) for part in parts):  # to ActiveMQ it is a letter there, and the name is nobody's
        raise ValueError(f"{address!r}: `*` and `>` stand for whole parts between dots, as in `orders.*` and `orders.>`")
    named = r"\.".join(r"[^.]+" if part == "*" else re.escape(part) for part in (first if last == ">" else parts))
    rest = "" if last != ">" else r"(?:\..+)?" if first else ".+"
    return re.compile(re.escape(full[:7]) + named + rest)
