"""What an operator can set: one frozen `Config`, checked as a whole. Durations are milliseconds, sizes are bytes.

This module knows plain data and the environment's `DELAYBRIDGE__A__B`; `config_file.py` reads files and says where a problem stands.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, PrivateAttr, SecretStr, model_serializer, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from ..core import schedule
from ..core.durations import DEFAULT_LEVELS, parse_duration, parse_levels
from . import plugins
from .config_checks import refuse, with_secret_files

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "DELAYBRIDGE__"
_HOUR = 3_600_000
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _milliseconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _levels(value: object) -> object:
    return parse_levels(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


Duration = Annotated[int, BeforeValidator(_milliseconds), Field(ge=0)]
"""Milliseconds, written as such or as text: `90s`, `PT15M`, `1d12h`."""

Name = Annotated[str, Field(pattern=_NAME, max_length=100)]
"""A name that can stand in a URL, a metric and a file name."""


class Section(BaseModel):
    """A part of the configuration: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Store(Section):
    """Where messages wait. `memory`: how long an ended id can still be asked about, and a cancel waits for its schedule."""

    kind: Literal["time_index"] = "time_index"
    path: Path = Path("delaybridge-data")
    min_free_disk: ByteSize = ByteSize(256 * 1024**2)
    memory: Duration = 24 * _HOUR


class Limits(Section):
    """What producers may ask for. `levels` is RocketMQ's table of delay levels."""

    max_delay: Duration = 10 * 366 * 24 * _HOUR
    min_period: Duration = 1_000
    max_repeat: int = Field(default=10_000, ge=0)
    levels: Annotated[tuple[Duration, ...], NoDecode, BeforeValidator(_levels)] = parse_levels(DEFAULT_LEVELS)

    def core(self) -> schedule.Limits:
        """The same in the core's own words."""
        return schedule.Limits(**dict(self))


class Retry(Section):
    """How a refused delivery is tried again: after `first`, doubling up to `cap`, with full jitter.

    What is overdue at a destination that has refused for `give_up_after` is dead-lettered; 0 means never. A broker that cannot be reached never counts.
    """

    first: Duration = 100
    cap: Duration = 60_000
    give_up_after: Duration = _HOUR

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0 < self.first <= self.cap:
            refuse(("first",), f"the first wait is {self.first} ms: it must be above 0 and at most `cap` ({self.cap} ms)")
        return self


class Intake(Section):
    """`batch`: messages made durable in one write."""

    batch: int = Field(default=500, ge=1, le=100_000)


class Lane(Section):
    """`window`: messages published to one broker and not yet confirmed."""

    window: int = Field(default=2_000, ge=1, le=1_000_000)


class Ledger(Section):
    """Where ledger files go (`ledger` inside the store's path unless given), and how often."""

    path: Path | None = None
    flush_interval: Duration = Field(default=10_000, gt=0)


class Http(Section):
    """The daemon's API. Anything but loopback needs a token."""

    bind: str = "127.0.0.1"
    port: int = Field(default=8470, ge=0, le=65_535)
    token: SecretStr | None = Field(default=None, min_length=16)

    @model_validator(mode="before")
    @classmethod
    def _secrets(cls, data: object) -> object:
        return with_secret_files(data, cls)

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if not self.token and not _is_loopback(self.bind):
            refuse(("bind",), f"{self.bind} is reachable from other machines: set http.token_file, or bind to 127.0.0.1")
        return self

    @property
    def url(self) -> str:
        """Where a client on this machine finds the API."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.bind, self.bind)  # noqa: S104 - read, not bound to
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def _is_loopback(bind: str) -> bool:
    try:
        return bind == "localhost" or ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


class Logs(Section):
    """What is logged to standard error. `auto` is JSON unless that is a terminal."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class Broker(Section):
    """One broker: its `type`, and the rest as its adapter reads it."""

    type: str
    options: Any

    @model_validator(mode="before")
    @classmethod
    def _by_adapter(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        rest = dict(data)
        kind = rest.pop("type", None)
        if kind is None:
            refuse(("type",), f"is missing; the known types are: {', '.join(plugins.types())}")
        try:
            model: type[BaseModel] = plugins.adapter(str(kind)).options
        except plugins.UnusableAdapter as error:
            refuse(("type",), str(error))
        return {"type": kind, "options": model.model_validate(with_secret_files(rest, model), extra="forbid")}

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"type": self.type, **self.options.model_dump(mode="json", by_alias=True)}


class _Raw(NamedTuple):
    """A `from` or `to` as it was written, with each broker's type, which is needed to read it."""

    value: object
    brokers: Mapping[str, str]


class To(Section):
    """Where a route's messages go: a broker, and the address for those that name none."""

    broker: str
    address: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _on_known_broker(cls, data: object) -> object:
        if not isinstance(data, _Raw) or not isinstance(data.value, dict):
            return data.value if isinstance(data, _Raw) else data
        _broker_type(data.value, data.brokers)
        return data.value


class From(Section):
    """Where a route's messages come from: a broker, and the rest as its adapter reads it."""

    broker: str
    endpoint: Any

    @model_validator(mode="before")
    @classmethod
    def _by_adapter(cls, data: object) -> object:
        if not isinstance(data, _Raw) or not isinstance(data.value, dict):
            return data.value if isinstance(data, _Raw) else data
        rest = dict(data.value)
        try:
            model: type[BaseModel] = plugins.adapter(_broker_type(rest, data.brokers)).endpoint
        except plugins.UnusableAdapter:  # reported where the broker stands
            return {"broker": rest["broker"], "endpoint": None}
        return {"broker": rest.pop("broker"), "endpoint": model.model_validate(rest, extra="forbid")}

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"broker": self.broker, **self.endpoint.model_dump(mode="json", by_alias=True)}


def _broker_type(place: dict[str, Any], brokers: Mapping[str, str]) -> str:
    name = str(place.get("broker", ""))
    if name not in brokers:
        missing = f"there is no broker named {name!r}" if name else "is missing"
        refuse(("broker",), f"{missing}; the brokers here are: {', '.join(brokers)}")
    return brokers[name]


class Route(Section):
    """From where to where. `allow_to`: patterns that a producer's `x-delay-to` must match. Without `dead_letter` the bridge shelves."""

    name: Name
    source: From = Field(alias="from")
    to: To
    allow_to: tuple[str, ...] = ()
    dead_letter: str | None = None


class Config(BaseSettings):
    """The whole configuration. `DELAYBRIDGE__HTTP__PORT` in the environment goes before `http: {port: …}` in the data."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, env_prefix=PREFIX, env_nested_delimiter="__")
    _file: Path | None = PrivateAttr(None)

    bridge: Name = Field(default_factory=socket.gethostname)
    store: Store = Store()
    brokers: dict[Name, Broker]
    routes: tuple[Route, ...]
    limits: Limits = Limits()
    retry: Retry = Retry()
    intake: Intake = Intake()
    lane: Lane = Lane()
    ledger: Ledger = Ledger()
    http: Http = Http()
    logs: Logs = Logs()
    shutdown_timeout: Duration = 25_000

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings calls by keyword
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment first, then the file."""
        return env_settings, init_settings

    @model_validator(mode="before")
    @classmethod
    def _with_broker_types(cls, data: dict[str, Any]) -> dict[str, Any]:
        if not data.get("brokers") and not data.get("routes"):
            data = data | EMBEDDED
        brokers, routes = data.get("brokers"), data.get("routes")
        if not isinstance(brokers, dict) or not isinstance(routes, list | tuple):
            return data
        kinds = {name: str(broker.get("type")) if isinstance(broker, dict) else "" for name, broker in brokers.items()}
        return data | {"routes": tuple(_with_kinds(route, kinds) for route in routes)}

    @model_validator(mode="after")
    def _distinct_routes(self) -> Self:
        if not self.routes:
            refuse(("routes",), "is empty: add a route")
        names = [route.name for route in self.routes]
        for index, name in enumerate(names):
            if name in names[:index]:
                refuse(("routes", index, "name"), f"there is a route {name!r} above already: give each its own name")
        return self

    @property
    def ledger_path(self) -> Path:
        """The directory of the ledger's files."""
        return self.ledger.path or self.store.path / "ledger"

    @property
    def file(self) -> Path | None:
        """The file that this was read from; None where there was none."""
        return self._file

    def read_from(self, file: Path | None) -> Self:
        """Remember the file, for a reload."""
        self._file = file
        return self


def _with_kinds(route: object, kinds: Mapping[str, str]) -> object:
    if not isinstance(route, dict):
        return route
    return route | {key: _Raw(route[key], kinds) for key in ("from", "to") if key in route}


EMBEDDED: dict[str, Any] = {
    "brokers": {"memory": {"type": "memory"}},
    "routes": [{"name": "default", "from": {"broker": "memory", "queue": "delaybridge.in"}, "to": {"broker": "memory"}}],
}
"""What runs where neither brokers nor routes are configured: the in-process broker."""
