"""What a configuration says of Kafka: the options of a broker, and where a route reads."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from ..options import File, Seconds, check_password, password_of
from ..tls import Tls
from .security import Mechanism, OAuth, sasl

_STRICT = ConfigDict(extra="forbid", frozen=True)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NO_TOPICS = (".", "..")
"""Kafka has a folder for each topic."""
_ANSWER = 128 << 20
"""Bytes of the largest answer. A broker takes requests of 100 MiB, and whoever reads gets more with a record than it came with."""


class Kafka(BaseModel):
    """Options of a broker. Times are in seconds.

    `bootstrap_servers` is `host:port`, a list of them, or several in one text with commas. `tls: true`, or a section, turns TLS on; `sasl` names the
    mechanism, with `username` and `password` (or `password_file`), or with `oauth`. A message that no broker has confirmed for `delivery_timeout`
    is due again. A bridge that died is missed by its group after `session_timeout`. `prefetch` messages are held in memory at most, and about
    32 MiB. `delayed_suffix` is what `<topic>.delayed` has and `<topic>` has not. Each topic of level queues is made with `level_partitions`
    partitions: so many bridges can share one level, and six divides evenly among two and three. With `exactly_once` what leaves a level and what
    it becomes on the same cluster are one transaction. `level_instance`, unlike for each bridge, lets one that was killed go on where it was.
    """

    model_config = _STRICT

    bootstrap_servers: str | tuple[str, ...]
    tls: Tls | None = None
    sasl: Mechanism | None = None
    username: str | None = None
    password: SecretStr | None = None
    password_file: File | None = None
    oauth: OAuth | None = None
    connection_timeout: Seconds = Field(default=10, gt=0)
    delivery_timeout: Seconds = Field(default=30, ge=1)
    session_timeout: Seconds = Field(default=10, ge=1)
    prefetch: int = Field(default=5000, ge=1, le=9000)
    delayed_suffix: str = ".delayed"
    level_partitions: int = Field(default=6, ge=1, le=10_000)
    level_instance: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,249}$")
    exactly_once: bool = True
    api_version: str | None = Field(default=None, pattern=r"^\d+(\.\d+){1,2}$")

    @field_validator("bootstrap_servers", mode="after")
    @classmethod
    def _addresses(cls, given: str | tuple[str, ...]) -> tuple[str, ...]:
        servers = tuple(part.strip() for part in (given.split(",") if isinstance(given, str) else given))
        for server in servers:
            if "@" in server:  # not shown: a password may stand before it
                raise ValueError("a server is host:port, and who logs in there is said as `username` and `password_file`")
            if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s:/@]+):\d{1,5}", server):
                raise ValueError(f"{server!r} is not host:port")
        return servers

    @field_validator("tls", mode="before")
    @classmethod
    def _switch(cls, given: Any) -> Any:
        return {"true": Tls(), "false": None}.get(str(given).lower(), given)  # from the environment it is text

    @model_validator(mode="after")
    def _credentials(self) -> Kafka:
        check_password(self)
        if self.sasl == "OAUTHBEARER" and self.oauth is None:
            raise ValueError("sasl: OAUTHBEARER needs a section `oauth`")
        if self.sasl not in (None, "OAUTHBEARER") and (self.username is None or (self.password or self.password_file) is None):
            raise ValueError(f"sasl: {self.sasl} needs `username` and `password` or `password_file`")
        if self.sasl is None and (self.username or self.oauth):
            raise ValueError("`username` and `oauth` need `sasl`, the mechanism")
        return self

    def client(self, purpose: str) -> dict[str, Any]:
        """What every client of kafka-python is given. Reads files anew. Raises OSError where one cannot be read, NotConnected where there is no token."""
        configs: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "client_id": f"delaybridge-{purpose}",
            "security_protocol": ("SASL_" if self.sasl else "") + ("PLAINTEXT" if self.tls is None else "SSL"),
            "request_timeout_ms": self._milliseconds(self.delivery_timeout / 2),
            "receive_message_max_bytes": _ANSWER,
            "reconnect_backoff_max_ms": 1000,
            "metadata_max_age_ms": 60_000,
            "api_version": tuple(map(int, self.api_version.split("."))) if self.api_version else None,
        }
        if self.tls is not None:
            configs |= {"ssl_context": self.tls.context(), "ssl_check_hostname": self.tls.verify}
        if self.sasl is not None:
            configs |= sasl(self.sasl, self.username, password_of(self) or "", self.oauth)
        return configs

    def waiting_client(self, purpose: str) -> dict[str, Any]:
        """As `client`, for one that looks for the cluster when it is made, and waits for `connection_timeout` at most."""
        return self.client(purpose) | {"bootstrap_timeout_ms": self._milliseconds(self.connection_timeout)}

    def renewed(self) -> dict[str, Any]:
        """What of `client` stands in files, read anew: for each connection that a client makes later. Raises OSError where one cannot be read."""
        found: dict[str, Any] = {}
        if self.tls is not None and self.tls.model_fields_set & {"ca_file", "cert_file"}:
            found["ssl_context"] = self.tls.context()
        if self.password_file is not None:
            found["sasl_plain_password"] = password_of(self)
        return found

    @staticmethod
    def _milliseconds(seconds: float) -> int:
        return int(seconds * 1000)


def destination(topic: str, suffix: str) -> str:
    """For which topic the messages in this one are, where `suffix` is `delayed_suffix`; empty where its name does not say."""
    return topic.removesuffix(suffix) if suffix and topic != suffix and topic.endswith(suffix) else ""


class Endpoint(BaseModel):
    """Where a route reads: a topic, a list of topics, or a pattern, which begins with `^` and must match a topic's whole name.

    Bridges of one `group` share the work. `instance`, unlike for each bridge of the group, lets a bridge that was killed go on where it was as soon
    as it is back, instead of after the session time-out.
    """

    model_config = _STRICT

    topic: str | tuple[str, ...]
    group: str = Field(default="delaybridge", min_length=1)
    instance: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,240}$")

    @field_validator("topic", mode="after")
    @classmethod
    def _known(cls, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(given, str) and given.startswith("^"):
            try:
                re.compile(given)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from error
            return given
        names = (given,) if isinstance(given, str) else given
        for name in names:
            if not _TOPIC.fullmatch(name) or name in _NO_TOPICS:
                raise ValueError(f"{name!r} is not a topic: 1 to 249 of A-Z a-z 0-9 . _ -, or a pattern that begins with ^")
        if not names:
            raise ValueError("name at least one topic")
        return given

    @property
    def pattern(self) -> str | None:
        """The pattern, if it is one."""
        return self.topic if isinstance(self.topic, str) and self.topic.startswith("^") else None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are named; none for a pattern."""
        if self.pattern is not None:
            return ()
        return (self.topic,) if isinstance(self.topic, str) else self.topic

    def reads(self, address: str) -> bool:
        """Whether what goes to this topic comes in here."""
        return address in self.topics or self.matches(address)

    def matches(self, topic: str) -> bool:
        """Whether it is a pattern, and this topic is one that it stands for."""
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None

    def overlaps(self, other: Endpoint) -> bool:
        """Whether both read the same topic for one group, as far as can be known: of two patterns only that they are the same."""
        if self.group != other.group:
            return False
        mine, theirs = set(self.topics), set(other.topics)
        return self.topic == other.topic or not mine.isdisjoint(theirs) or any(map(self.matches, theirs)) or any(map(other.matches, mine))

    @property
    def address(self) -> str:
        """The topic, as an address; several with commas between them."""
        return self.pattern or ",".join(self.topics)
