"""What a configuration says of RabbitMQ: the options of a broker, and where a route reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pika
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from ..options import File, Seconds, WholeSeconds, check_password, check_tls, parts_of, password_of, scheme_of, texts_of
from ..tls import Tls
from .address import parse, queue_address
from .link import translated

if TYPE_CHECKING:
    from pika.connection import Parameters


_STRICT = ConfigDict(extra="forbid", frozen=True)
_SCHEMES = ("amqp", "amqps", "http", "https")


class RabbitMQ(BaseModel):
    """Options of a broker. Times are in seconds.

    `url` is one amqp(s) URL or a list of them, tried in order; `username` and `password` (or `password_file`) go before those in the URL;
    `external` logs in by the client certificate. `prefetch` messages are held in memory at most: lower it where they are large.
    `management_url` is needed by `plan`, `apply` and `doctor` only. `stamped` says that RabbitMQ writes `timestamp_in_ms` onto each message, over what a
    producer wrote there: a delay counts from then. `blocked_connection_timeout` is for an alarm of RabbitMQ: the next connection would be blocked as well, and
    what was sent before the alarm RabbitMQ may still read from the one that was given up.
    """

    model_config = _STRICT

    url: SecretStr | list[SecretStr]
    username: str | None = None
    password: SecretStr | None = None
    password_file: File | None = None
    external: bool = False
    impersonate: bool = False
    tls: Tls = Tls()
    heartbeat: WholeSeconds = Field(default=30, ge=0, le=3600)
    connection_timeout: Seconds = Field(default=10, gt=0)
    blocked_connection_timeout: Seconds = Field(default=86_400, gt=0)
    prefetch: int = Field(default=2000, ge=1, le=9000)
    stamped: bool = False
    management_url: SecretStr | None = None

    @field_validator("url", mode="after")
    @classmethod
    def _readable(cls, url: SecretStr | list[SecretStr]) -> SecretStr | list[SecretStr]:
        texts = texts_of(url)
        if not texts:
            raise ValueError("name at least one amqp:// or amqps:// URL")
        for text in texts:
            if scheme_of(text) not in ("amqp", "amqps"):
                raise ValueError("a RabbitMQ URL begins with amqp:// or amqps://")
            if parts_of(text, _SCHEMES).path.count("/") > 1:
                raise ValueError("may name a virtual host behind the host, and nothing behind that: a `/` in its name is written `%2F`")
            _check_parameters(text)
        return url

    @field_validator("management_url", mode="after")
    @classmethod
    def _management(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            if scheme_of(url.get_secret_value()) not in ("http", "https"):
                raise ValueError("begins with http:// or https://, as in http://127.0.0.1:15672")
            parts_of(url.get_secret_value(), _SCHEMES)
        return url

    @model_validator(mode="after")
    def _tls_is_used(self) -> RabbitMQ:
        management = [] if self.management_url is None else [self.management_url]
        check_tls(self, [*texts_of(self.url), *texts_of(management)], ["amqps", "https"])
        return self

    @model_validator(mode="after")
    def _certificate_is_shown(self) -> RabbitMQ:
        if self.external and (self.tls.cert_file is None or any(scheme_of(url) != "amqps" for url in texts_of(self.url))):
            raise ValueError("`external` logs in by the certificate in `tls.cert_file`, over amqps:// only")
        return self

    @model_validator(mode="after")
    def _one_password(self) -> RabbitMQ:
        check_password(self)
        return self

    def parameters(self, purpose: str) -> list[Parameters]:
        """What pika needs, one for each URL. Reads files anew. Raises NotConnected where one cannot be read."""
        with translated():
            return [self._parameters(url, purpose) for url in texts_of(self.url)]

    def _parameters(self, url: str, purpose: str) -> Parameters:
        parameters = _url_parameters(url)
        parameters.heartbeat = self.heartbeat
        parameters.socket_timeout = parameters.stack_timeout = self.connection_timeout
        parameters.blocked_connection_timeout = self.blocked_connection_timeout
        parameters.client_properties = {"product": "delaybridge", "connection_name": f"delaybridge {purpose}"}
        if parameters.ssl_options is not None:
            parameters.ssl_options = pika.SSLOptions(self.tls.context(), parameters.host)
        parameters.credentials = self._credentials(parameters.credentials)
        return parameters

    def _credentials(self, given: Any) -> Any:
        if self.external:
            return pika.credentials.ExternalCredentials()
        password = password_of(self)
        return pika.PlainCredentials(self.username or given.username, given.password if password is None else password)


def _url_parameters(url: str) -> pika.URLParameters:
    """Raises ValueError. A user without a password has the empty one, which pika does not read."""
    parts = urlsplit(url)
    if parts.username is not None and parts.password is None:
        url = urlunsplit(parts._replace(netloc=parts.netloc.replace("@", ":@")))
    return pika.URLParameters(url)


def _check_parameters(url: str) -> None:
    """Raises ValueError, whose text shows nothing of the URL, where pika cannot use what stands behind its `?`."""
    try:
        _url_parameters(url)
    except Exception:  # noqa: BLE001 - pika reads Python there, and opens files: anything may come of it
        raise ValueError("has a parameter behind the `?` that RabbitMQ's client does not know, or cannot use with this value") from None


class Endpoint(BaseModel):
    """Where a route reads: a queue, declared durable where it is missing and `declare` is set; `gate` names the exchanges that are gated."""

    model_config = _STRICT

    queue: str = Field(min_length=1, max_length=255)
    gate: tuple[str, ...] = ()
    declare: bool = True

    @field_validator("queue", mode="after")
    @classmethod
    def _plain(cls, queue: str) -> str:
        if queue.startswith(("/queues/", "/exchanges/")):  # it would be a queue that is called so
            raise ValueError(f"{queue!r} is an address: name the queue alone, without what stands before it; no route reads an exchange")
        return queue

    @property
    def address(self) -> str:
        """The queue, as an address."""
        return queue_address(self.queue)

    def reads(self, address: str) -> bool:
        """Whether it is one of the queue, however it is written. Raises Rejected(bad_destination)."""
        return parse(address) == parse(self.address)
