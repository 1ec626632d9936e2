"""Where inputs are: a folder of files, by its path, or a topic, `kafka://HOST:PORT[,HOST:PORT]/TOPIC[?broker=NAME]`."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from ..columns import UnusableInput

_SCHEME = "kafka"


def is_topic(place: str) -> bool:
    """Whether a place means a topic, and not a folder, which may be called `kafka`; `address_of` says whether it is well written."""
    return place.lower().startswith(f"{_SCHEME}:")


def broker_of(place: str) -> str:
    """The ledger's name for the broker of a topic."""
    return parse_qs(urlsplit(place).query).get("broker", ["kafka"])[0]


def address_of(place: str) -> tuple[str, str]:
    """Bootstrap servers and name of a topic. Raises UnusableInput."""
    parts = urlsplit(place)
    name = parts.path.strip("/")
    if parts.scheme != _SCHEME or not parts.netloc or not name:
        raise UnusableInput(f"{place}: write it as kafka://HOST:PORT/TOPIC?broker=NAME")
    return parts.netloc, name
