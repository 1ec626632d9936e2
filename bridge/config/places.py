"""Brokers and routes: the sections that are read by the adapter of each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, Field, model_serializer, model_validator

from ...adapters.options import password_of
from ...adapters.tls import Tls
from .. import plugins
from .checks import refuse, with_secret_files
from .sections import Name, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Broker(Section):
    """One broker: its `type`, and the rest as its adapter reads it. With `own_processes` each source and sink has one."""

    type: str
    own_processes: bool
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
            adapter = plugins.adapter(str(kind))
        except plugins.UnusableAdapter as error:
            refuse(("type",), str(error))
        model: type[BaseModel] = adapter.options
        given = rest.pop("own_processes", None)
        return {
            "type": kind,
            "own_processes": adapter.traits.own_processes if given in (None, "") else given,
            "options": model.model_validate(with_secret_files(rest, model), extra="forbid"),
        }

    @model_validator(mode="after")
    def _in_this_process(self) -> Self:
        if self.own_processes and plugins.traits(self.type).embedded:
            refuse(("own_processes",), f"a broker of type {self.type} lives in this process: leave it out")
        return self

    def unusable(self) -> Iterator[tuple[str, str]]:
        """Keys whose files the client reads at each connection and cannot use as they are now, with the reason."""
        tls = getattr(self.options, "tls", None)
        try:
            if isinstance(tls, Tls):
                tls.context()
        except OSError as error:
            yield "tls", str(error)
        try:
            if getattr(self.options, "password_file", None) is not None:
                password_of(self.options)
        except (OSError, ValueError) as error:  # ValueError: no text
            yield "password_file", str(error)

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"type": self.type, "own_processes": self.own_processes, **self.options.model_dump(mode="json", by_alias=True)}


Address = Annotated[str, AfterValidator(lambda address: address or None)]
"""A place on a broker; an empty one, as a variable that is set to nothing leaves it, is none."""


class Raw(NamedTuple):
    """A `from` or `to` as it was written. To read it, each broker's type is needed."""

    value: object
    brokers: Mapping[str, str]


class To(Section):
    """Where a route's messages go: a broker, and the address for those that name none."""

    broker: str
    address: Address | None = None

    @model_validator(mode="before")
    @classmethod
    def _on_known_broker(cls, data: object) -> object:
        if not isinstance(data, Raw) or not isinstance(data.value, dict):
            return data.value if isinstance(data, Raw) else data
        _broker_type(data.value, data.brokers)
        return data.value


class From(Section):
    """Where a route's messages come from: a broker, and the rest as its adapter reads it."""

    broker: str
    endpoint: Any

    @model_validator(mode="before")
    @classmethod
    def _by_adapter(cls, data: object) -> object:
        if isinstance(data, dict):  # without brokers nobody can read the rest, and their absence is told
            return {"endpoint": None} | {key: data[key] for key in ("broker", "endpoint") if key in data}
        if not isinstance(data, Raw):
            return data
        if not isinstance(data.value, dict):
            return data.value
        rest = dict(data.value)
        try:
            model: type[BaseModel] = plugins.adapter(_broker_type(rest, data.brokers)).endpoint
        except plugins.UnusableAdapter:  # reported where the broker stands
            return {"broker": rest["broker"], "endpoint": None}
        return {"broker": rest.pop("broker"), "endpoint": model.model_validate(rest, extra="forbid")}

    def shares(self, other: From) -> bool:
        """Whether the two would take messages away from each other: of a broker's queue, or of a topic for one group of consumers."""
        if self.broker != other.broker:
            return False
        overlaps = getattr(self.endpoint, "overlaps", None)
        return bool(overlaps(other.endpoint)) if overlaps else bool(self.endpoint.address == other.endpoint.address)

    def reads(self, address: str) -> bool:
        """Whether what goes to this address of its broker comes in here, as far as the adapter can tell. Raises Rejected(bad_destination)."""
        reads = getattr(self.endpoint, "reads", None)
        return bool(reads(address) if reads else address == self.endpoint.address)

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
    dead_letter: Address | None = None

    @property
    def destinations(self) -> list[tuple[tuple[str, ...], str]]:
        """The addresses that it names on the broker of `to`, each after the keys where it stands."""
        named = ((("to", "address"), self.to.address), (("dead_letter",), self.dead_letter))
        return [(keys, address) for keys, address in named if address is not None]
