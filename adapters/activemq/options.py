"""What a configuration says of ActiveMQ: the options of a broker, and where a route reads."""

from __future__ import annotations

from typing import Literal
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from ..base import NotConnected, Rejected
from ..options import File, Seconds, check_password, check_tls, parts_of, password_of, scheme_of, texts_of
from ..tls import Tls
from .address import PREFIXES, destination, pattern, queue_address
from .transport import Target, Times

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
        check_password(self)
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
        passcode = password_of(self)
        if passcode is None and parts.password is not None:
            passcode = unquote(parts.password)
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
        if queue.startswith(PREFIXES):  # it would be a queue that is called so
            raise ValueError(f"{queue!r} is an address: name the queue alone, without what stands before it; no route reads a topic")
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

    def reads(self, address: str) -> bool:
        """Whether it is one of the queue, however it is written. Raises Rejected(bad_destination)."""
        return destination(address) == self.address
