"""TLS and SASL for kafka-python: how a client proves who it is, and what nobody may overhear."""

from __future__ import annotations

import ssl
import time
from pathlib import Path  # noqa: TC003  pydantic reads the annotations
from typing import Any, Literal

from kafka.net.sasl.oauth import AbstractTokenProvider
from pydantic import BaseModel, ConfigDict, SecretStr, field_validator, model_validator

from ..base import NotConnected
from ..options import File, parts_of

_STRICT = ConfigDict(extra="forbid", frozen=True)
_RENEW = 0.8  # of a token's life
_PATIENCE = 10  # s, for a token endpoint's answer

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class OAuth(BaseModel):
    """Where a bearer token comes from: a file that somebody keeps fresh, or an endpoint that gives one for client credentials (RFC 6749, 4.4)."""

    model_config = _STRICT

    token_file: Path | None = None
    token_url: str | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None
    client_secret_file: File | None = None
    scope: str | None = None

    @field_validator("token_url", mode="after")
    @classmethod
    def _endpoint(cls, url: str | None) -> str | None:
        try:
            parts_of(url or "https://none", ("http", "https"))
        except ValueError as error:
            raise ValueError("is not the URL of a token endpoint, such as https://login.example/oauth2/token") from error
        return url

    @model_validator(mode="after")
    def _one_way(self) -> OAuth:
        if (self.token_file is None) == (self.token_url is None):
            raise ValueError("give either `token_file` or `token_url`")
        if self.token_url and (self.client_id is None or (self.client_secret is None) == (self.client_secret_file is None)):
            raise ValueError("`token_url` needs `client_id` and one of `client_secret` and `client_secret_file`")
        return self

    def secret(self) -> str:
        """The client's secret. Raises OSError."""
        if self.client_secret_file is not None:
            return self.client_secret_file.read_text().strip()
        return "" if self.client_secret is None else self.client_secret.get_secret_value()


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Gives kafka-python a bearer token whenever it connects. A token of the endpoint is used again for most of its life."""

    def __init__(self, oauth: OAuth) -> None:
        super().__init__()
        self._oauth = oauth
        self._token = ""
        self._until = 0.0

    def token(self) -> str:
        """A token. Blocks while the endpoint is asked. Raises NotConnected; the connection then fails with it."""
        if self._oauth.token_file is not None:
            return self._read(self._oauth.token_file)
        if time.monotonic() >= self._until:
            self._fetch(self._oauth.token_url or "")
        return self._token

    @staticmethod
    def _read(file: Path) -> str:
        try:
            token = file.read_text().strip()
        except OSError as error:
            raise NotConnected(f"no bearer token: {error}") from error
        if not token:
            raise NotConnected(f"no bearer token: {file} is empty")
        return token

    def _fetch(self, url: str) -> None:
        import httpx  # noqa: PLC0415 - only where a token endpoint is used

        form = {"grant_type": "client_credentials"} | ({"scope": self._oauth.scope} if self._oauth.scope else {})
        began = time.monotonic()
        try:
            login = (self._oauth.client_id or "", self._oauth.secret())
            # httpx's own authorities lack those of a company, and so its identity provider's
            answer = httpx.post(url, data=form, auth=login, timeout=_PATIENCE, verify=ssl.create_default_context())
            answer.raise_for_status()
            grant = answer.json()
            token, life = str(grant["access_token"]), float(grant.get("expires_in", 60))
        except (OSError, httpx.HTTPError) as error:
            raise NotConnected(f"no bearer token from {url}: {type(error).__name__}: {error}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise NotConnected(f"no bearer token from {url}: its answer holds no access_token") from error
        self._token, self._until = token, began + _RENEW * life


def sasl(mechanism: Mechanism, username: str | None, password: str, oauth: OAuth | None) -> dict[str, Any]:
    """kafka-python's settings for a mechanism. Raises NotConnected where there is no token: kafka-python would not say why it cannot connect."""
    if oauth is not None and mechanism == "OAUTHBEARER":
        tokens = Tokens(oauth)
        tokens.token()
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": tokens}
    return {"sasl_mechanism": mechanism, "sasl_plain_username": username, "sasl_plain_password": password}
