"""What an operator can set: one frozen `Config`, checked as a whole. Durations are milliseconds, sizes are bytes.

These modules know plain data and the environment's `DELAYBRIDGE__A__B`; `file.py` reads files and says where a problem stands.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, PrivateAttr, model_validator
from pydantic_settings import SettingsConfigDict

from ...adapters.base import Rejected
from .. import plugins
from .checks import refuse
from .environment import Overridden
from .places import Broker, From, Raw, Route, To
from .sections import Http, Intake, Lane, Ledger, Limits, Logs, Name, Retry, Store, TimeToDrain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ...core.by_target import PartitionOf

__all__ = ["EMBEDDED", "PREFIX", "Broker", "Config", "From", "Http", "Limits", "Logs", "Route", "To"]

PREFIX = "DELAYBRIDGE__"


class Config(Overridden):
    """The whole configuration. `DELAYBRIDGE__HTTP__PORT` in the environment goes before `http: {port: …}` in the data."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, env_prefix=PREFIX, env_nested_delimiter="__")
    _file: Path | None = PrivateAttr(None)
    _brokerless: bool = PrivateAttr(False)

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
    shutdown_timeout: TimeToDrain = 25_000

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

    @model_validator(mode="after")
    def _distinct_sources(self) -> Self:
        """Two routes that read from one place would split its messages at random; on Kafka only within one group."""
        for index, route in enumerate(self.routes):
            first = next((other.name for other in self.routes[:index] if route.source.shares(other.source)), None)
            if first is not None:
                refuse(
                    ("routes", index, "from"),
                    f"is already read by route {first!r}: each would get some of the other's messages",
                )
        return self

    @model_validator(mode="after")
    def _routes_that_lead_somewhere(self) -> Self:
        for index, route in enumerate(self.routes):
            if (why := self._undirected(route)) is not None:
                refuse(
                    ("routes", index, "to"),
                    f"{why}: give it an `address` (any one, if only cancellations come), or let producers choose with `allow_to`",
                )
        return self

    def _undirected(self, route: Route) -> str | None:
        """Why no message has a destination there."""
        if route.to.address is not None or route.allow_to:
            return None
        if route.source.broker != route.to.broker:
            return "leads to another broker, without an address there"
        broker = self.brokers[route.source.broker]
        found = plugins.undirected(broker.type, broker.options, route.source.endpoint)
        return None if found is None else f"says no address, and neither does any message, because {found}"

    @model_validator(mode="after")
    def _addresses_of_their_brokers(self) -> Self:
        """Refuse addresses that the sink would refuse anyway, message by message."""
        for index, route in enumerate(self.routes):
            for key, address in route.destinations:
                try:
                    plugins.check_address(self.brokers[route.to.broker].type, address)
                except Rejected as error:
                    refuse(("routes", index, *key), error.detail)
        return self

    @model_validator(mode="after")
    def _routes_without_a_circle(self) -> Self:
        for index, route in enumerate(self.routes):
            for key, address in route.destinations:
                if route.source.broker == route.to.broker and route.source.reads(address):
                    refuse(("routes", index, *key), "is what this route reads: what goes there would come back")
        return self

    @model_validator(mode="after")
    def _broker_of_the_store(self) -> Self:
        if self.store.broker is not None and self.store.broker not in self.brokers:
            refuse(("store", "broker"), f"there is no broker {self.store.broker!r}; the brokers are: {', '.join(self.brokers)}")
        return self

    @model_validator(mode="after")
    def _levels_of_the_store(self) -> Self:
        self.__dict__["limits"] = self.limits.with_levels(self.store.levels)  # nobody has seen this configuration yet
        return self

    @property
    def ledger_path(self) -> Path:
        """The directory of the ledger's files."""
        return self.ledger.path or self.store.path / "ledger"

    @property
    def partition_of(self) -> PartitionOf:
        """See `plugins.partition_of`, for the lanes of these brokers."""
        return plugins.partition_of({name: broker.type for name, broker in self.brokers.items()})

    @property
    def file(self) -> Path | None:
        """The file that this was read from; None where there was none."""
        return self._file

    @property
    def embedded(self) -> bool:
        """Whether nothing is configured but what `EMBEDDED` holds."""
        names = (list(self.brokers), [route.name for route in self.routes])
        return names == (["memory"], ["default"]) and plugins.traits(self.brokers["memory"].type).embedded

    @property
    def brokerless(self) -> bool:
        """Whether there is a file that names no broker, and nothing else does, so that the in-process one runs."""
        return self._brokerless

    def read_from(self, file: Path | None, *, names_brokers: bool = True) -> Self:
        """Remember the file, for a reload, and whether it names brokers."""
        self._file = file
        self._brokerless = file is not None and not names_brokers and self.embedded
        return self


def _with_kinds(route: object, kinds: Mapping[str, str]) -> object:
    if not isinstance(route, dict):
        return route
    return route | {key: Raw(route[key], kinds) for key in ("from", "to") if key in route}


EMBEDDED: dict[str, Any] = {
    "brokers": {"memory": {"type": "memory"}},
    "routes": [
        {
            "name": "default",
            "from": {"broker": "memory", "queue": "delaybridge.in"},
            "to": {"broker": "memory", "address": "delaybridge.out"},
            "allow_to": ["*"],
        }
    ],
}
"""What runs where neither brokers nor routes are configured: the in-process broker. `delaybridge send` works on it as it is."""
