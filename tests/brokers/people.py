"""The three brokers as a person wants them: started at once, at their usual ports, with a configuration to begin with."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions

from brokers import activemq, kafka, rabbitmq
from brokers.common import Unavailable, usual_port
from delaybridge.adapters.activemq.interception import ActiveInterception
from delaybridge.adapters.activemq.options import ActiveMQ, Endpoint
from delaybridge.adapters.activemq.statistics import PLUGIN
from delaybridge.adapters.kafka.interception import SETTINGS

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

BROKERS: dict[str, Any] = {"RabbitMQ": rabbitmq, "Kafka": kafka, "ActiveMQ": activemq}
PARTITIONS = 3
DIVERTED = Endpoint(queue="DELAYBRIDGE.IN", gate=("/queue/orders.>",))
"""Where the README's route on ActiveMQ reads."""


def run(stack: ExitStack) -> str:
    """Start the brokers that can be had, to be stopped by `stack`, and print where they are. Returns a configuration; exits where there is none."""
    with ThreadPoolExecutor() as pool:
        starting = {name: pool.submit(_start, module, stack) for name, module in BROKERS.items()}
    running = {}
    for name, future in starting.items():
        try:
            running[name] = future.result()
            print(f"{name:<9} {running[name].url}   ({running[name].provider})", flush=True)
        except Unavailable as reason:
            print(f"{name:<9} is left out: {reason}", flush=True)
    if not running:
        raise SystemExit("No broker could be started.")
    return configuration(running)


def missing() -> str:
    """The modules of those brokers that nobody gives, Docker does not run, and that are not installed: of ActiveMQ the current release, not Debian's."""
    return " ".join(module.__name__.removeprefix("brokers.") for module in BROKERS.values() if not _there(module))


def _there(module: Any) -> bool:
    try:
        broker = module.choose()
    except Unavailable:
        return False
    broker.stop()  # which removes what choosing made
    return not isinstance(broker, activemq.Native) or broker.libraries != activemq.DEBIAN


def _start(module: Any, stack: ExitStack) -> Any:
    broker = module.choose(usual_port)
    stack.callback(broker.stop)
    if isinstance(broker, activemq.Native):
        gate = ActiveInterception(ActiveMQ.model_validate({"url": broker.url}), [DIVERTED]).xml()
        broker.configure(xml=gate + PLUGIN)  # no client can do this later; the plug-in counts what waits in level queues
    broker.start()
    if module is kafka:
        kafka.create_topic(broker.url, "orders", PARTITIONS)
        kafka.create_topic(broker.url, "orders.delayed", PARTITIONS, 1, **SETTINGS)  # as `apply` makes it, so that `doctor` is content
    if module is rabbitmq:
        create_orders(broker.url)
    return broker


def create_orders(url: str) -> None:
    """What the README's walk begins with: the exchange `orders`, which it gates, and a queue. An exchange of that name that is there stays as it is."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        try:
            connection.channel().exchange_declare("orders", passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            channel = connection.channel()
            channel.exchange_declare("orders", "topic", durable=True)
            channel.queue_declare("billing", durable=True)
            channel.queue_bind("billing", "orders", "#")


def configuration(running: dict[str, Any]) -> str:
    """A delaybridge.yaml for these brokers: each has an ingress queue or topic of its own, and `x-delay-to` may name any destination."""
    brokers, routes = [], []
    if broker := running.get("RabbitMQ"):
        brokers.append(_line("rabbit", type="rabbitmq", url=broker.url, management_url=broker.management_url))
        routes.append('{name: rabbitmq, from: {broker: rabbit, queue: delaybridge.in}, to: {broker: rabbit}, allow_to: ["*"]}')
    if broker := running.get("Kafka"):
        brokers.append(_line("kafka", type="kafka", bootstrap_servers=broker.url))
        routes.append('{name: kafka, from: {broker: kafka, topic: orders.delayed}, to: {broker: kafka}, allow_to: ["*"]}')
    if broker := running.get("ActiveMQ"):
        brokers.append(_line("amq", type="activemq", url=broker.url))
        place = f"queue: {DIVERTED.queue}, gate: {json.dumps(DIVERTED.gate if isinstance(broker, activemq.Native) else [])}"
        routes.append(f'{{name: activemq, from: {{broker: amq, {place}}}, to: {{broker: amq}}, allow_to: ["*"]}}')
    return "\n".join(["brokers:", *(f"  {each}" for each in brokers), "routes:", *(f"  - {each}" for each in routes), ""])


def _line(name: str, **options: str) -> str:
    return f"{name}: {{{', '.join(f'{key}: {json.dumps(value)}' for key, value in options.items())}}}"


def told(file: Path) -> str:
    """The configuration, and what to do with it."""
    return f"""{file}:

{file.read_text()}
    .venv/bin/delaybridge run --config {file}
    .venv/bin/delaybridge send --route kafka --header x-delay=5s hello
    make brokers-stop
"""
