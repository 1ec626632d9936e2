"""The secrets in a configuration: found for the logs' redaction, masked for showing it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pydantic import BaseModel, SecretBytes, SecretStr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import Config

MASK = "***"
_PYDANTICS_MASK = "*" * 10
_IN_URL = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^:/?#@\s]*:)(?P<password>[^/?#\s]*)(?=@)", re.IGNORECASE)
_WORD = re.compile(r"(^|_)(password|passcode|passphrase|secret|token)$")


def secrets(config: Config) -> frozenset[str | Path]:
    """Every secret in use: secret fields, keys that are called so, and passwords in URLs, as written and as decoded.

    A path is that of a file which an adapter reads at each connection: what is secret is whatever stands in it then.
    """
    return frozenset(secret for secret in _found(config, "") if secret)


def masked(config: Config) -> dict[str, Any]:
    """The configuration as plain data, defaults filled in, secrets as `***`."""
    shown: dict[str, Any] = _masked(config.model_dump(mode="json", by_alias=True), "")
    return shown


def _found(value: Any, name: str) -> Iterator[str | Path]:
    if isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _found(getattr(value, field), field)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _found(each, str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _found(each, name)
    else:
        yield from _in_scalar(value, name)


def _in_scalar(value: Any, name: str) -> Iterator[str | Path]:
    if isinstance(value, SecretStr):
        yield from _in_text(value.get_secret_value(), secret=True)
    elif isinstance(value, SecretBytes):
        yield value.get_secret_value().decode(errors="replace")
    elif isinstance(value, Path) and _WORD.search(name.removesuffix("_file")):
        yield value
    elif value is not None and not isinstance(value, bool | int | float):
        yield from _in_text(str(value), secret=bool(_WORD.search(name)))


def _in_text(text: str, *, secret: bool) -> Iterator[str]:
    passwords = [match["password"] for match in _IN_URL.finditer(text)]
    yield from passwords
    yield from map(unquote, passwords)
    if secret:
        yield text


def _masked(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _masked(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, name) for each in value]
    if isinstance(value, str):
        return MASK if value and (_WORD.search(name) or value == _PYDANTICS_MASK) else _IN_URL.sub(rf"\g<before>{MASK}", value)
    return value
