"""Logs: one line per event on standard error, JSON unless that is a terminal; the libraries' own logs come the same way.

Never bodies or header values: callers log ids, sizes, destinations, due times and reasons. What a line holds all the same is made safe:
loaded secrets are masked (also URL-encoded, in base64 and JSON-escaped) and control characters are escaped, so that nothing can forge a line.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

import structlog

from .config.secrets import MASK
from .text import printable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from structlog.typing import EventDict, Processor, WrappedLogger

    from .config import Logs

PINNED = {
    "stomp.py": logging.CRITICAL,  # the adapter says what happens; and at DEBUG it logs whole CONNECT frames, passcode and all
    "kafka": logging.CRITICAL,  # logs each failure once a second while a broker is away; the adapter logs it once, with its reason
    "kafka.net.selector": logging.ERROR,  # unexpected errors: a task of its own has ended, and something will wait for it in vain
    "pika": logging.CRITICAL,  # tells each failure several times, with tracebacks; the adapter says it once
    "httpcore": logging.INFO,  # logs request headers at DEBUG
    "httpx": logging.WARNING,
    "uvicorn": logging.WARNING,  # tells of its own start and stop
    "uvicorn.access": logging.WARNING,
}
"""The lowest level that a library's logger logs at, whatever level is configured."""

_SHORTEST_SECRET = 4
_FIRST = ("timestamp", "level", "event")
_KEPT = {"\n", "\t"}
"""Control characters that a traceback needs."""


def configure(logs: Logs, secrets: Iterable[str | Path] = (), stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream` (standard error). May be called again. `secrets`: see `Redactor`."""
    target = stream or sys.stderr
    as_json = logs.format == "json" or (logs.format == "auto" and not target.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        tidy,
    ]
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(as_json=as_json), Redactor(secrets)],
        )
    )
    logging.root.handlers[:] = [handler]
    logging.captureWarnings(capture=True)
    set_level(logs.level)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def set_level(level: str) -> None:
    """Change the level of everything that may speak at it."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.root.setLevel(number)
    for name, least in PINNED.items():
        logging.getLogger(name).setLevel(max(number, least))


def _renderers(*, as_json: bool) -> list[Processor]:
    if as_json:
        return [structlog.processors.JSONRenderer(default=str)]
    return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]


def tidy(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Time, level and event first; control characters escaped in every text, so that an id that holds a line break cannot forge a line."""
    event["event"] = str(event["event"]).strip()
    ordered = {key: event[key] for key in _FIRST if key in event} | dict(event)
    return {key: _printable(value, _KEPT if key == "exception" else ()) for key, value in ordered.items()}


def _printable(value: Any, kept: Container[str]) -> Any:
    if isinstance(value, str):
        return printable(value, kept)
    return repr(value) if isinstance(value, bytes) else value


class Redactor:
    """Masks known secrets in a rendered line, and what any of their files, given as paths, holds now or held at an earlier line.

    Texts under four characters are left: masking them would hide everything else.
    """

    def __init__(self, secrets: Iterable[str | Path]) -> None:
        given = list(secrets)
        self._files = [secret for secret in given if isinstance(secret, Path)]
        self._texts = {secret for secret in given if isinstance(secret, str)}
        self._pattern = _pattern(self._texts)

    def __call__(self, _logger: WrappedLogger, _method: str, line: Any) -> str:
        """The line without secrets. `line` is text: this stands last in a chain that is typed for event dictionaries."""
        if fresh := {_content(file) for file in self._files} - self._texts:  # each time: an adapter may have connected by a new password
            self._texts = self._texts | fresh  # a new set: another thread may be looking through this one
            self._pattern = _pattern(self._texts)
        return self._pattern.sub(MASK, line) if self._pattern else str(line)


def _content(file: Path) -> str:
    """What an adapter finds in a file that it reads itself. If it cannot be read, the adapter reports that."""
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text().strip()
    return ""


def _pattern(secrets: Iterable[str]) -> re.Pattern[str] | None:
    forms = {form for secret in secrets if len(secret) >= _SHORTEST_SECRET for form in _forms(secret)}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if forms else None


def _forms(secret: str) -> tuple[str, ...]:
    return (
        secret,
        quote(secret, safe=""),
        base64.b64encode(secret.encode()).decode(),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    )
