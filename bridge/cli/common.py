"""Options and failures that commands share."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ..text import fits_a_header, without_login

if TYPE_CHECKING:
    from .client import Client

FAILED, USAGE, UNAVAILABLE, STORE_IO, STORE_LOCKED, BAD_CONFIG = 1, 2, 69, 74, 75, 78
"""Exit codes beside 0 (ok); the numbers of sysexits.h."""


_API = {"bad_request": USAGE, "not_connected": UNAVAILABLE}
"""What the daemon answers to wrong usage, and where its broker is away."""


class Output(StrEnum):
    """How a command that reads shows what it read."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="DELAYBRIDGE_CONFIG",
        readable=False,  # typer would call it wrong usage where it is not
        help="Configuration file [default: ./delaybridge.yaml, if it exists]",
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", envvar="DELAYBRIDGE_URL", help="The daemon's address [default: from the configuration]"),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        readable=False,
        help="File that holds the daemon's token [default: DELAYBRIDGE_TOKEN, else from the configuration]",
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Show at most this many.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


def exit_at_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does: what is open is closed first. The exit status is a shell's, 143."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def connect(config: Path | None, url: str | None, token_file: Path | None) -> Client:
    """A client of the daemon that was named, or else of the one that the configuration describes."""
    from .client import Client

    token = _token_of(token_file) if token_file else _token(os.environ.get("DELAYBRIDGE_TOKEN", ""), "DELAYBRIDGE_TOKEN")
    if url is not None:
        url = _address(url)
        if token and without_login(url) != url:
            raise typer.BadParameter(
                f"{without_login(url)} is given with a login, and there is a token as well: a request bears only one of the two."
                " Leave the login out of the address, or the token out of DELAYBRIDGE_TOKEN and --token-file",
                param_hint="--url",
            )
    else:
        from ..config.file import load_http

        http = load_http(config)
        url, configured = http.url, http.token
        token = token or (configured.get_secret_value() if configured else "")
    return Client(url, token)


def _address(url: str) -> str:
    """The URL in full. One that is wrong is wrong usage: to be told that no daemon answers there would not help."""
    import httpx

    whole = url if "://" in url else f"http://{url}"
    try:
        read = httpx.URL(whole)
        read.raw_host.decode().encode("idna")  # as the resolver will
        usable = read.scheme in ("http", "https") and read.host and (read.port is None or 0 < read.port < 65_536)
    except (httpx.InvalidURL, ValueError):
        usable = False
    if not usable:
        raise typer.BadParameter(
            f"{without_login(url)!r} is not a daemon's address; write it as http://localhost:8470 or http://[::1]:8470", param_hint="--url"
        )
    return whole


def _token_of(file: Path) -> str:
    try:
        token = _token(file.read_text(), "--token-file")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise typer.BadParameter(f"{file} cannot be read: {reason}", param_hint="--token-file") from error
    if not token:
        raise typer.BadParameter(f"{file} is empty", param_hint="--token-file")
    return token


def _token(text: str, source: str) -> str:
    """The token without what surrounds it. One that no header can bear is refused, and not shown, because it is a secret all the same."""
    token = text.strip()
    if not fits_a_header(token):
        raise typer.BadParameter("a token is one line of printable ASCII", param_hint=source)
    return token


_Given = TypeVar("_Given", str, list[str])


def utf8(given: _Given) -> _Given:
    """Refuse what no id or name can be, as a parameter's callback: bytes that are not UTF-8 come from the shell as lone surrogates."""
    try:
        "".join(given).encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter("it is not UTF-8") from error
    return given


def reworded(error: typer.BadParameter) -> None:
    """Put what is wrong with an argument as for a key of the configuration; typer says it in pydantic's words, and not what was given."""
    from pydantic import ValidationError

    if isinstance(error.__cause__, ValidationError):
        from ..config.problems import plain

        first = error.__cause__.errors()[0]
        text = plain(first)
        error.message = text.rstrip(".") if first["type"] == "value_error" else f"{first['input']!r} {text}"


IdArgument = Annotated[str, typer.Argument(metavar="ID", callback=utf8, help="The producer's x-delay-id, or the bridge's own.")]


def exit_code(error: Exception) -> int | None:
    """The exit code of a failure that one sentence can tell; None for one that must show where it happened, and for the end of `--help`."""
    if not isinstance(error, OSError) and not any(kind.__module__.startswith("delaybridge.") for kind in type(error).__mro__):
        return None  # before what is needed to tell ours apart is imported
    from ...adapters.base import AdapterError, NotConnected
    from ...core.store import StoreError, StoreLocked
    from ..config.file import ConfigError
    from ..plugins import UnusableAdapter
    from .client import ApiError, UnreachableError

    codes: dict[type[Exception], int] = {
        ConfigError: BAD_CONFIG,
        UnusableAdapter: BAD_CONFIG,
        UnreachableError: UNAVAILABLE,
        NotConnected: UNAVAILABLE,
        StoreLocked: STORE_LOCKED,
        StoreError: STORE_IO,
        ApiError: FAILED,
        AdapterError: FAILED,
        OSError: FAILED,
    }
    if isinstance(error, BrokenPipeError):  # who reads our output has gone: not worth a sentence
        return None
    if isinstance(error, ApiError) and error.code in _API:
        return _API[error.code]
    return next((code for kind, code in codes.items() if isinstance(error, kind)), None)
