"""A stage for the gate: exchanges, consumers and producers on a real RabbitMQ, and traffic that never stops."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx
import pika
import pika.exceptions
from brokers.common import wait_until
from brokers.rabbitmq import user
from pika.exchange_type import ExchangeType

from delaybridge.adapters.preparing import Finding
from delaybridge.adapters.rabbitmq import adapter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pika.adapters.blocking_connection import BlockingChannel

    from delaybridge.adapters.rabbitmq.interception import RabbitInterception


TYPES = ("direct", "topic", "fanout", "headers")

# Per exchange type: the bindings of each queue (key, arguments), the messages that go round (key, headers), and the queues that each reaches.
BINDINGS: dict[str, dict[str, list[tuple[str, dict[str, Any]]]]] = {
    "direct": {"1": [("a", {})], "2": [("a", {}), ("b", {})], "3": [("c", {})]},
    "topic": {"1": [("a.*", {})], "2": [("*.b", {})], "3": [("#", {})], "4": [("a.#", {}), ("a.b", {})]},
    "fanout": {"1": [("", {})], "2": [("any", {}), ("", {})], "3": [("", {})]},
    "headers": {
        "1": [("", {"x-match": "all", "kind": 1, "colour": "red"})],
        "2": [("", {"x-match": "any", "kind": 2, "colour": "red"})],
        "3": [("", {"x-match": "any", "size": None})],
        "4": [("", {"x-match": "all", "ratio": 0.5})],
    },
}
MESSAGES: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "direct": [("a", {}, "12"), ("b", {}, "2"), ("c", {}, "3")],
    "topic": [("a.b", {}, "1234"), ("a.c", {}, "134"), ("x.b", {}, "23"), ("x", {}, "3"), ("a.b.c", {}, "34")],
    "fanout": [("", {}, "123"), ("any", {}, "123")],
    "headers": [("", {"kind": 1, "colour": "red"}, "12"), ("", {"kind": 2, "size": 7}, "23"), ("", {"size": "large"}, "3")],
}


def gated(url: str, management_url: str | None, queue: str, *exchanges: str) -> RabbitInterception:
    options = adapter.options.model_validate({"url": url, "management_url": management_url})
    return adapter.interception(options, [adapter.endpoint(queue=queue, gate=exchanges)])


class Stage:
    """One exchange of a user's with queues, on names of its own."""

    def __init__(self, url: str, management_url: str) -> None:
        self.url, self.management_url = url, management_url
        self.exchange = f"gate-{secrets.token_hex(6)}"
        self.ingress = f"{self.exchange}.in"
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.http = httpx.Client(base_url=f"{management_url}/api", timeout=60, trust_env=False)

    def gate(self, *exchanges: str, management: bool = True) -> RabbitInterception:
        return gated(self.url, self.management_url if management else None, self.ingress, *(exchanges or (self.exchange,)))

    def name(self, queue: str) -> str:
        return f"{self.exchange}.q{queue}"

    def declare(self, kind: str, name: str = "", **options: Any) -> None:
        self.channel.exchange_declare(name or self.exchange, ExchangeType(kind), durable=True, **options)

    def queue(self, queue: str, source: str, bindings: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self.channel.queue_declare(self.name(queue), durable=True)
        for key, arguments in bindings:
            self.bind(source, self.name(queue), key, arguments)

    def bind(self, source: str, queue: str, key: str, arguments: dict[str, Any]) -> None:
        """Floats go over the management API, as a Java client would send them: pika cannot."""
        if not any(isinstance(value, float) for value in arguments.values()):
            self.channel.queue_bind(queue, source, key, arguments)
            return
        self.http.post(f"/bindings/%2F/e/{source}/q/{queue}", json={"routing_key": key, "arguments": arguments}).raise_for_status()

    def build(self, kind: str, **options: Any) -> None:
        self.declare(kind, **options)
        for queue, bindings in BINDINGS[kind].items():
            self.queue(queue, self.exchange, bindings)

    def publish(self, exchange: str, key: str, headers: dict[str, Any] | None = None, body: bytes = b"") -> bool:
        """Whether some queue took it."""
        with self.connected() as channel:
            channel.confirm_delivery()
            try:
                channel.basic_publish(exchange, key, body, pika.BasicProperties(headers=headers or {}), mandatory=True)
            except pika.exceptions.UnroutableError:
                return False
            return True

    @contextlib.contextmanager
    def connected(self) -> Iterator[BlockingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            yield connection.channel()
        finally:
            connection.close()

    def count(self, queue: str) -> int:
        return self.channel.queue_declare(queue, passive=True).method.message_count or 0

    def wait_for(self, queue: str, least: int) -> None:
        wait_until(lambda: self.count(self.name(queue)) >= least, f"{least} messages in queue {queue}")

    def take(self, queue: str) -> list[Any]:
        """All (method, properties, body) that wait in a queue."""
        count = self.count(queue)
        found = list(itertools.islice(self.channel.consume(queue, auto_ack=True), count)) if count else []
        self.channel.cancel()
        return found

    def bodies(self, queue: str) -> list[int]:
        return [int(body) for _, _, body in self.take(self.name(queue))]

    def bindings(self, source: str) -> set[tuple[str, str]]:
        found = self.http.get(f"/exchanges/%2F/{source}/bindings/source").raise_for_status().json()
        return {(each["destination"], each["routing_key"]) for each in found}

    def policy(self, name: str, **policy: Any) -> None:
        self.http.put(f"/policies/%2F/{name}", json=policy).raise_for_status()

    @contextlib.contextmanager
    def user(self, tags: str, **permissions: str) -> Iterator[tuple[str, str]]:
        """The two URLs of a user of its own, who may do everything but for `permissions`."""
        with user(self.management_url, f"{self.exchange}-user", tags, **permissions) as name:
            yield tuple(f"{url.partition('//')[0]}//{name}:secret@{url.rpartition('@')[2]}" for url in (self.url, self.management_url))  # type: ignore[misc]

    def clear(self) -> None:
        mine = [each for kind in ("queues", "exchanges", "policies") for each in self._listed(kind)]
        for kind, name in mine:
            answer = self.http.delete(f"/{kind}/%2F/{quote(name, safe='')}")
            if answer.status_code != httpx.codes.NOT_FOUND:  # RabbitMQ 4.3 lists exclusive queues that have just gone with their connection
                answer.raise_for_status()
        self.connection.close()
        self.http.close()

    def _listed(self, kind: str) -> list[tuple[str, str]]:
        return [(kind, each["name"]) for each in self.http.get(f"/{kind}/%2F").json() if each["name"].startswith(self.exchange)]


class Traffic:
    """A producer of undelayed messages on its own thread, numbered, as fast as it can."""

    LIMIT = 30_000
    PAUSE = 0.0003  # seconds; some five messages pass while one change is made

    def __init__(self, stage: Stage, kind: str) -> None:
        self.stage, self.kind = stage, kind
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait(self, more: int = 50) -> None:
        """Until `more` further messages are on their way."""
        goal = min(self.sent + more, self.LIMIT)
        wait_until(lambda: self.sent >= goal, "the producer to go on")

    def _run(self) -> None:
        with self.stage.connected() as channel:
            for number, (key, headers, _) in enumerate(itertools.cycle(MESSAGES[self.kind])):
                if self._stop.is_set() or number == self.LIMIT:
                    return
                channel.basic_publish(self.stage.exchange, key, str(number).encode(), pika.BasicProperties(headers=headers))
                self.sent = number + 1
                time.sleep(self.PAUSE)

    def expected(self, queue: str) -> list[int]:
        messages = MESSAGES[self.kind]
        return [number for number in range(self.sent) if queue in messages[number % len(messages)][2]]

    def assert_each_once(self) -> None:
        for queue in BINDINGS[self.kind]:
            expected = self.expected(queue)
            self.stage.wait_for(queue, len(expected))
            assert self.stage.bodies(queue) == expected, f"queue {queue}"
        assert self.stage.take(self.stage.ingress) == []


def problems(findings: Sequence[Finding]) -> list[str]:
    return [finding.what for finding in findings if not finding.ok]
