"""ActiveMQ Classic, over STOMP 1.2 with stomp.py.

Text stays text and bytes stay bytes. What STOMP cannot carry is dead-lettered, never altered:

    an empty text of a producer that does not use STOMP, which may have been a map or an object    unsupported_body, unless `empty_messages: carry`
    a header whose name has more than 255 bytes                                                     too_large
    a header with an escape that STOMP does not know                                                header_damaged

When a message was sent is known from its `timestamp`, which ActiveMQ leaves to the producer's client: a relative delay counts from that time, by the producer's
clock. The broker's timeStampPlugin puts its own in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from ..base import NotConnected, Rejected
from ..options import File, Seconds, check_tls, parts_of, scheme_of, texts_of
from ..tls import Tls
from .address import destination, pattern, queue_address
from .incoming import Rules
from .sink import ActiveSink, Settings
from .source import ActiveSource
from .transport import Target, Times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base import Interception, Level, LevelDeclaration, SchedulerRequests
    from .level_source import LevelSource

_STRICT = ConfigDict(extra="forbid", frozen=True)
_PORTS = {"stomp": 61613, "stomp+ssl": 61614}


class ActiveMQ(BaseModel):
    """Options of a broker. Times are in seconds.

    `url` is one stomp:// or stomp+ssl:// URL or a list of them, tried in order at each connect; `username` and `password` (or `password_file`) go
    before those in the URL. `prefetch` messages are held in memory at most: lower it where they are large. All messages are published persistent
    unless `persistent` is off: then each keeps its own delivery mode. `empty_messages: carry` says that no producer sends maps, objects or streams.
    `max_body_bytes` is what the broker's STOMP connector takes (its `wireFormat.maxDataLength`).
    """

    model_config = _STRICT

    url: SecretStr | list[SecretStr]
    username: str | None = None
    password: SecretStr | None = None
    password_file: File | None = None
    tls: Tls = Tls()
    heartbeat: Seconds = Field(default=10, ge=0, le=3600)
    connection_timeout: Seconds = Field(default=10, gt=0)
    blocked_timeout: Seconds = Field(default=60, gt=0)
    prefetch: int = Field(default=2000, ge=1, le=9000)
    persistent: bool = True
    empty_messages: Literal["refuse", "carry"] = "refuse"
    max_body_bytes: int = Field(default=100 << 20, ge=1)
    management: bool = True

    @field_validator("url", mode="after")
    @classmethod
    def _readable(cls, url: SecretStr | list[SecretStr]) -> SecretStr | list[SecretStr]:
        texts = texts_of(url)
        if not texts:
            raise ValueError("name at least one stomp:// or stomp+ssl:// URL")
        for text in texts:
            if scheme_of(text) not in _PORTS:
                raise ValueError("an ActiveMQ URL is stomp://host:port or stomp+ssl://host:port")
            parts = parts_of(text, _PORTS)
            if parts.path.strip("/") or parts.query:
                raise ValueError("an ActiveMQ URL is stomp://host:port or stomp+ssl://host:port")
        return url

    @model_validator(mode="after")
    def _tls_is_used(self) -> ActiveMQ:
        check_tls(self, texts_of(self.url), ["stomp+ssl"])
        return self

    @model_validator(mode="after")
    def _one_password(self) -> ActiveMQ:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give either `password` or `password_file`")
        return self

    def targets(self) -> list[Target]:
        """One for each URL. Reads files anew. Raises NotConnected where one cannot be read."""
        try:
            return [self._target(url) for url in texts_of(self.url)]
        except (OSError, UnicodeError) as error:
            raise NotConnected(f"ActiveMQ: {error}") from error

    def _target(self, url: str) -> Target:
        parts = urlsplit(url)
        login = self.username or (unquote(parts.username) if parts.username is not None else None)
        passcode = unquote(parts.password) if parts.password is not None else None
        if self.password is not None:
            passcode = self.password.get_secret_value()
        elif self.password_file is not None:
            passcode = self.password_file.read_text().strip()
        if any(char in f"{login}{passcode}" for char in "\r\n\0"):
            raise NotConnected("ActiveMQ: a user name and a password are one line each")
        context = self.tls.context() if parts.scheme == "stomp+ssl" else None
        return Target(str(parts.hostname), parts.port or _PORTS[parts.scheme], login, passcode, context)

    @property
    def times(self) -> Times:
        """Time-outs of a connection."""
        return Times(self.connection_timeout, self.heartbeat, self.blocked_timeout)


class Endpoint(BaseModel):
    """Where a route reads: a queue, which ActiveMQ makes where it is missing.

    `gate` names the destinations that ActiveMQ diverts into it when a message is delayed: a queue's name, `/queue/orders.>`, `/topic/events.*`.
    Only for these is the original destination believed, because a producer can write any into a header.
    """

    model_config = _STRICT

    queue: str = Field(min_length=1, max_length=255)
    gate: tuple[str, ...] = ()

    @field_validator("queue", mode="after")
    @classmethod
    def _plain(cls, queue: str) -> str:
        try:
            destination(queue_address(queue))
        except Rejected as error:
            raise ValueError(error.detail) from error
        return queue

    @field_validator("gate", mode="after")
    @classmethod
    def _patterns(cls, gate: tuple[str, ...]) -> tuple[str, ...]:
        for one in gate:
            pattern(one)
        return gate

    @property
    def address(self) -> str:
        """The queue, as an address."""
        return queue_address(self.queue)


class ActiveAdapter:
    """The entry point `activemq`."""

    options = ActiveMQ
    endpoint = Endpoint
    exact = True
    copied = "/topic/"

    def source(self, options: ActiveMQ, route: Endpoint) -> ActiveSource:
        """See base.Adapter."""
        return self._source(options, route.address, route.gate)

    def sink(self, options: ActiveMQ) -> ActiveSink:
        """See base.Adapter."""
        settings = Settings(persistent=options.persistent, largest=options.max_body_bytes)
        return ActiveSink(options.targets, times=options.times, settings=settings)

    def tap(self, options: ActiveMQ, address: str) -> ActiveSource:
        """At a topic: copies of what arrives there. At a queue: its messages themselves, taken away from its consumers.

        Raises Rejected(bad_destination).
        """
        return self._source(options, destination(address))

    def interception(self, options: ActiveMQ, routes: Sequence[Endpoint]) -> Interception:
        """See base.Intercepting."""
        from .composite import Composite  # noqa: PLC0415 - only plan, apply and doctor need it

        return Composite(options, routes)

    def management(self, options: ActiveMQ) -> Sequence[SchedulerRequests]:
        """See base.Manageable."""
        from .scheduler import DESTINATIONS, Scheduler  # noqa: PLC0415 - imports the other way round for the types

        return [Scheduler(options.targets, each, options.times) for each in DESTINATIONS] if options.management else []

    timed = True

    def level_address(self, options: ActiveMQ, level: Level) -> str:
        """See base.Levelled."""
        del options
        return destination(queue_address(level.name))

    def level_source(self, options: ActiveMQ, level: Level) -> LevelSource:
        """See base.Levelled. Keeps back what does not leave yet, so that it can give that back to ActiveMQ."""
        from .level_source import LevelSource  # noqa: PLC0415 - only level queues need it

        address = self.level_address(options, level)
        return LevelSource(options.targets, address, level, prefetch=options.prefetch, times=options.times)

    def level_contents(self, options: ActiveMQ, level: Level) -> list[ActiveSource]:
        """See base.Levelled."""
        return [self._source(options, self.level_address(options, level))]

    def level_queues(self, options: ActiveMQ, levels: Sequence[Level]) -> LevelDeclaration:
        """See base.Levelled."""
        from .levels import ActiveLevels  # noqa: PLC0415 - only level queues need it

        return ActiveLevels(options.targets, options.times, levels)

    def _source(self, options: ActiveMQ, name: str, gate: Sequence[str] = ()) -> ActiveSource:
        rules = Rules([pattern(one) for one in gate], carry_empty=options.empty_messages == "carry")
        return ActiveSource(options.targets, name, prefetch=options.prefetch, times=options.times, rules=rules)


adapter = ActiveAdapter()
