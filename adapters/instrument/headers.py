"""Which headers are delay headers: what the core reads, as Kafka's clients write them. Loaded with the first client, not before."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from ...core.dialects.rabbitmq import HEADER
from ...core.headers import DELAY_NAMES, TO


def _kinds(*names: bytes) -> tuple[frozenset[Any], frozenset[Any]]:
    """The names as text, and as bytes; the index is `isinstance(name, bytes)`.

    Apart, because their hashes are equal, and `python -bb` does not let one be compared with the other.
    """
    return frozenset(name.decode() for name in names), frozenset(names)


_NAMES = _kinds(*DELAY_NAMES)
_PLUGIN = _kinds(HEADER)
_NEGATIVE = re.compile("-[0-9]{1,19}")
_TO = _kinds(TO, TO.replace(b"-", b"_"))


def delayed(headers: Any) -> bool:
    """Whether one of these headers (pairs, or a mapping; text or bytes) asks for a delay. What is no header is left to the client to refuse.

    aiokafka without its C extension takes all that can be counted and gone through twice, such as `table.items()`.
    """
    try:
        for name, value in headers.items() if isinstance(headers, dict) else headers if isinstance(headers, Collection) else ():
            if name in _NAMES[isinstance(name, bytes)] and not _negated(name, value):
                return True
    except (TypeError, ValueError):
        return False
    return False


def _negated(name: Any, value: Any) -> bool:
    """Whether this is an `x-delay` of a delivered message: sent on with its headers copied, it asks for no delay.

    All digits are looked at: the first byte of a binary number (some nine days) can be a minus as well.
    """
    if name not in _PLUGIN[isinstance(name, bytes)] or not isinstance(value, str | bytes):
        return False
    return _NEGATIVE.fullmatch(value if isinstance(value, str) else value.decode("latin-1")) is not None


def addressed(headers: Any, topic: str) -> Any:
    """The same headers with `x-delay-to: <topic>`, unless they say already where the message goes."""
    if any(name in _TO[isinstance(name, bytes)] for name in (headers if isinstance(headers, dict) else (pair[0] for pair in headers))):
        return headers
    if isinstance(headers, dict):
        return {**headers, TO.decode(): topic.encode()}
    pairs = (*headers, (TO.decode(), topic.encode()))
    return pairs if isinstance(headers, tuple) else list(pairs)  # only the application can make an object of a class of its own
