"""Several URLs for one RabbitMQ: which one is taken, and what is told where none is."""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import free_port

from delaybridge.adapters.base import LoginRefused, NotConnected
from delaybridge.adapters.rabbitmq import Endpoint, RabbitMQ, adapter, amqp

if TYPE_CHECKING:
    from brokers.rabbitmq import Broker

DEAD = f"amqp://127.0.0.1:{free_port()}"
QUEUE = f"urls-{secrets.token_hex(6)}"


def options(*urls: str) -> RabbitMQ:
    return RabbitMQ.model_validate({"url": list(urls), "connection_timeout": 15})


def connect(*urls: str) -> None:
    """As a bridge does."""
    with contextlib.closing(adapter.source(options(*urls), Endpoint(queue=QUEUE))) as source:
        source.connect()


def ask(*urls: str) -> None:
    """As a command does."""
    amqp.consumers(options(*urls).parameters("doctor"), QUEUE)


both = pytest.mark.parametrize("use", [connect, ask])


@both
def test_a_wrong_password_and_a_missing_virtual_host_are_said_in_plain_words(rabbitmq: Broker, use: Any) -> None:
    with pytest.raises(LoginRefused, match=r"(?i)auth|refused"):
        use(rabbitmq.url.replace("guest:guest", "guest:wrong"))
    with pytest.raises(NotConnected, match=r"(?i)denied|not_allowed|not found"):
        use(rabbitmq.url.rpartition("/")[0] + "/nowhere")


@both
def test_the_first_that_answers_is_taken(rabbitmq: Broker, use: Any) -> None:
    use(DEAD, rabbitmq.url)
    with pytest.raises(NotConnected, match="refused"):
        use(DEAD, DEAD)


@both
@pytest.mark.parametrize("before", [(), (DEAD,)], ids=["first", "behind one that is away"])
def test_a_host_whose_name_nobody_knows_keeps_nobody_from_the_next_one(
    rabbitmq: Broker, monkeypatch: pytest.MonkeyPatch, use: Any, before: tuple[str, ...]
) -> None:
    """As that of a pod that was stopped."""
    resolve = socket.getaddrinfo

    def resolved(host: str, *more: Any, **asked: Any) -> Any:
        if host == "gone":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *more, **asked)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    use(*before, "amqp://gone", rabbitmq.url)
    with pytest.raises(NotConnected, match="Name or service not known"):
        use(*before, "amqp://gone")


@both
@pytest.mark.parametrize("first", [True, False])
def test_a_refused_login_is_told_though_another_host_is_away(rabbitmq: Broker, use: Any, first: bool) -> None:
    """Else it is tried again as often as one that is away, until the account is locked."""
    refusing = rabbitmq.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(LoginRefused):
        use(*((refusing, DEAD) if first else (DEAD, refusing)))
