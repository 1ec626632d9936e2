"""What the options of several brokers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, BeforeValidator, SecretStr

from ..core.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Container


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return float(value)  # from the environment everything is text
    except ValueError:
        return parse_duration(value) / 1000


Seconds = Annotated[float, BeforeValidator(_seconds)]
"""A number of seconds, or a duration as text: `10`, `10s`, `PT1M`."""


def parts_of(url: str, schemes: Container[str]) -> SplitResult:
    """A URL's parts; its port can be read. Raises ValueError, whose text shows nothing of the URL: a password may stand in it."""
    parts = urlsplit(url)
    try:
        readable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        readable = False
    if not readable:
        raise ValueError(
            "cannot be read: it is scheme://user:password@host:port, the password percent-encoded, or given as `username` and `password_file`"
        )
    return parts


def texts_of(url: SecretStr | list[SecretStr]) -> list[str]:
    """The URLs of a broker, or of its nodes, with what is secret in them."""
    return [one.get_secret_value() for one in (url if isinstance(url, list) else [url])]


def check_tls(options: BaseModel, url: SecretStr | list[SecretStr], scheme: str) -> None:
    """Raises ValueError where `tls` is set and no URL of this scheme would use it."""
    if "tls" in options.model_fields_set and not any(one.startswith(f"{scheme}://") for one in texts_of(url)):
        raise ValueError(f"`tls` is for URLs that begin with {scheme}://, and there is none: nothing would be encrypted")
