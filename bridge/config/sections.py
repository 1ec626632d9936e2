"""The sections of the configuration that know no broker. Durations are milliseconds, sizes are bytes."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

from ...core import schedule
from ...core.durations import DEFAULT_LEVELS, HOUR_MS, INTEGER, parse_duration, parse_levels
from ...core.store import MEMORY_MS
from ..loopback import is_loopback
from ..text import fits_a_header
from .checks import refuse, with_secret_files

_SECOND = 1_000
_YEAR = 366 * 24 * HOUR_MS
_LIMITS = schedule.Limits()
_SMALLEST_STORE = 512 * 1024**2
"""Bytes: the store's reserve and log take up to 112 MiB, and deleted messages that are not compacted yet a part of the rest."""
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _no_switch(value: object) -> object:
    """Refuse what is a switch: pydantic takes true for 1, and YAML `yes` and `on` for true."""
    if isinstance(value, bool):
        raise ValueError(f"is the switch {str(value).lower()} in YAML, and must be a number")  # noqa: TRY004 - what pydantic reports
    return value


Number = Annotated[int, BeforeValidator(_no_switch)]
Size = Annotated[ByteSize, BeforeValidator(_no_switch)]
"""Bytes, written as such or as text: `512MiB`, `2GB`."""


def _milliseconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _levels(value: object) -> object:
    if isinstance(value, str) and value.startswith("["):  # as lists are written in the environment
        with suppress(ValueError):
            value = json.loads(value)
    return parse_levels(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _at_most(years: int) -> AfterValidator:
    def checked(value: int) -> int:
        if value > years * _YEAR:
            raise ValueError(f"must be at most {years} years")
        return value

    return AfterValidator(checked)


_Duration = Annotated[Number, BeforeValidator(_milliseconds), Field(ge=0)]
Duration = Annotated[_Duration, _at_most(100)]
"""Milliseconds, written as such or as text: `90s`, `PT15M`, `1d12h`. At most what a thread can wait for, by far."""
LongDuration = Annotated[_Duration, _at_most(1000)]
"""As long as a message may wait: a due time must fit the time index, which ends in the year 10889."""


def _with_a_unit(value: object) -> object:
    """Refuse a plain number below 1000: as milliseconds it is less than a second, so seconds were meant."""
    text = str(value)
    if INTEGER.fullmatch(text) and 0 < int(text) < _SECOND:
        raise ValueError(f"is {text} ms, too short to drain: write a unit, as in {text}s")
    return value


def _a_second(value: int) -> int:
    if 0 < value < _SECOND:
        raise ValueError("must be at least 1s: less is too short to drain")
    return value


TimeToDrain = Annotated[Duration, BeforeValidator(_with_a_unit), AfterValidator(_a_second)]
"""At least a second, or 0, which waits for nothing."""

Name = Annotated[str, Field(pattern=_NAME, max_length=100)]
"""A name that can stand in a URL, a metric and a file name."""


def _named(path: object) -> object:
    """Refuse an empty path, as a variable that is set to nothing leaves it: it would be the current directory."""
    if path == "":
        raise ValueError("is empty: name a directory, or leave the key out")
    if "\0" in str(path):
        raise ValueError("holds a NUL, which no path can")
    return path


def _at_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{path}: {error}") from error


Directory = Annotated[Path, BeforeValidator(_named), AfterValidator(_at_home)]
"""A directory that is created if it is missing; `~` means the home directory, as in a shell, because nobody wants a directory named `~`."""

Table = Annotated[tuple[Duration, ...], NoDecode, BeforeValidator(_levels)]
"""Delay levels in rising order: `1s 5s 10s`, or a list of these."""


class Section(BaseModel):
    """A part of the configuration: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Store(Section):
    """Where messages wait.

        memory     for how long an ended id can still be asked about, and a cancel waits for its schedule
        max_size   the store behaves as on a disk of that size; None: as large as its disk lets it be
        broker     with `level_queues`, the broker on which they wait
        prefix     how the names of their queues begin
        levels     the levels of which there is one queue each; this is the setting `levels` of Limits, said here

    With level queues `path` holds ledger rows that are in no file yet.
    """

    kind: Literal["time_index", "level_queues"] = "time_index"
    path: Directory = Path("delaybridge-data")
    min_free_disk: Size = ByteSize(256 * 1024**2)
    max_size: Size | None = None
    memory: Duration = MEMORY_MS
    broker: Name | None = None
    prefix: Name = "delaybridge.level"
    levels: Annotated[Table | None, NoDecode] = None

    @model_validator(mode="after")
    def _large_enough(self) -> Self:
        least = max(_SMALLEST_STORE, 2 * self.min_free_disk)
        if self.max_size is not None and self.max_size < least:
            wanted = ByteSize(least).human_readable(separator=" ")
            refuse(("max_size",), f"must be at least {wanted}: twice min_free_disk, and what the store needs for itself")
        return self

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if self.kind == "level_queues" and self.broker is None:
            refuse(("broker",), "is missing: name the broker that holds the level queues")
        if self.kind == "time_index" and self.model_fields_set & {"broker", "prefix"}:
            refuse(("kind",), "a time index is on no broker: set kind: level_queues, or leave `broker` and `prefix` out")
        if self.kind == "time_index" and self.levels is not None:
            refuse(("levels",), "a time index has no level queues: set kind: level_queues, or say it as `limits.levels`")
        return self


class StoreLevels(BaseModel):
    """What `explain` needs of the store's section, whatever is wrong with the rest of it."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)
    kind: Any = None
    levels: Annotated[Table | None, NoDecode] = None


class Limits(Section):
    """What producers may ask for. `levels` is RocketMQ's table of delay levels."""

    max_delay: LongDuration = _LIMITS.max_delay
    min_period: Duration = _LIMITS.min_period
    max_repeat: Number = Field(default=_LIMITS.max_repeat, ge=0)
    levels: Table = parse_levels(DEFAULT_LEVELS)

    def core(self) -> schedule.Limits:
        """The same as the core's type."""
        return schedule.Limits(**dict(self))

    def with_levels(self, levels: tuple[int, ...] | None) -> Self:
        """With the table of `store.levels`, where that is given: they are one setting."""
        if levels is None:
            return self
        if "levels" in self.model_fields_set and self.levels != levels:
            refuse(("store", "levels"), "is another table than `limits.levels`, and the two are one setting: keep one of them")
        return self.model_copy(update={"levels": levels})


class Retry(Section):
    """How a refused delivery is tried again: after `first`, doubling up to `cap`, with full jitter.

    What is overdue at a destination that has refused for `give_up_after` is dead-lettered; 0 means never. A broker that cannot be reached never counts.
    """

    first: Duration = 100
    cap: Duration = 60_000
    give_up_after: Duration = HOUR_MS

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0 < self.first <= self.cap:
            refuse(("first",), f"the first wait is {self.first} ms: it must be above 0 and at most `cap` ({self.cap} ms)")
        return self


class Intake(Section):
    """`batch`: messages made durable in one write."""

    batch: Number = Field(default=500, ge=1, le=100_000)


class Lane(Section):
    """`window`: messages published to one broker and not yet confirmed."""

    window: Number = Field(default=2_000, ge=1, le=1_000_000)


class Ledger(Section):
    """Where ledger files go (`ledger` inside the store's path unless given), and how often."""

    path: Annotated[Directory | None, BeforeValidator(lambda path: path or None)] = None
    flush_interval: Duration = Field(default=10_000, gt=0)


_WITH_PORT = re.compile(r"(\[.*\]|[^:]*):([0-9]+)")


class Http(Section):
    """The daemon's API. Anything but loopback needs a token; with `read_token` one may read, and change nothing."""

    bind: Annotated[str, AfterValidator(lambda host: host[1:-1] if host.startswith("[") and host.endswith("]") else host)] = "127.0.0.1"
    port: Number = Field(default=8470, ge=0, le=65_535)
    token: SecretStr | None = Field(default=None, min_length=16)
    read_token: SecretStr | None = Field(default=None, min_length=16)

    @model_validator(mode="before")
    @classmethod
    def _secrets(cls, data: object) -> object:
        return with_secret_files(data, cls)

    @model_validator(mode="after")
    def _in_a_header(self) -> Self:
        for key in ("token", "read_token"):
            token = getattr(self, key)
            if token and not fits_a_header(token.get_secret_value()):
                refuse((key,), "is one line of printable ASCII with no blank at either end: a client sends it in a header")
        return self

    @model_validator(mode="after")
    def _of_two_rights(self) -> Self:
        if self.read_token and not self.token:
            refuse(("read_token",), "needs http.token beside it: without that, whoever has no token may do everything")
        if self.read_token and self.read_token == self.token:
            refuse(("read_token",), "is the same as http.token: it would not only read")
        return self

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if found := _WITH_PORT.fullmatch(self.bind):
            host, port = found.groups()
            refuse(("bind",), f'{self.bind} holds a port: write `bind: "{host.strip("[]")}"` and `port: {port}`')
        if not self.token and not is_loopback(self.bind):
            refuse(("bind",), f"{self.bind} is reachable from other machines: set http.token_file, or bind to 127.0.0.1")
        return self

    @property
    def url(self) -> str:
        """Where a client on this machine finds the API."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.bind, self.bind)  # noqa: S104 - read, not bound to
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class Logs(Section):
    """What is logged to standard error. `auto` is JSON unless that is a terminal."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
