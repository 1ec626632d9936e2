"""Why an exchange cannot be gated."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import msgspec

from ..management import VOID
from .surroundings import ALTERNATE, MATCH_ALL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..management import Binding
    from .surroundings import Surroundings

GUIDE = "docs/migrating/rabbitmq-delayed-message-exchange.md"
PLUGIN = "x-delayed-message"
OLDEST = (3, 10)
"""RabbitMQ 3.10 brought `any-with-x`; before it a headers exchange steps over every name that begins with `x-`."""


def refusal_of(at: Surroundings) -> tuple[str, str] | None:
    """Why this exchange cannot be gated, and what to do; None where it can."""
    return next(_refusals(at, _unfit(at)), None)


def refusal_to_undo(at: Surroundings) -> tuple[str, str] | None:
    """Why the gate of this exchange cannot be taken away, and what to do; None where it can, also where another one could not be made by now."""
    return next(_refusals(at, itertools.chain(_taken(at), _locked(at), _uncopied(at, at.consumers(), at.name))), None)


def _refusals(at: Surroundings, others: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """`others`: where the exchange is there."""
    name = at.name
    if version(at.broker.version) < OLDEST:
        yield (
            f"RabbitMQ {at.broker.version} has no `any-with-x`",
            "upgrade to RabbitMQ 3.10 or later, or publish to the ingress queue",
        )
    if not name:
        yield (
            "the default exchange cannot be gated",
            "publish delayed messages to a named exchange, or to the ingress queue with x-delay-to",
        )
    elif name.startswith("amq.") or len(name.encode()) > 250:
        yield f"`{name}` cannot be gated: RabbitMQ would not take the name `{at.real}`", "use an exchange of another name"
    elif name not in at.broker.exchanges:
        yield f"exchange `{name}` does not exist", "let its producer or consumer declare it (only they know its type), then apply again"
    else:
        yield from others


def _unfit(at: Surroundings) -> Iterator[tuple[str, str]]:
    exchange, name = at.exchange, at.name
    if exchange.type == PLUGIN:
        yield f"`{name}` is an exchange of the delayed-message plugin", f"follow {GUIDE}"
    elif exchange.type not in (*MATCH_ALL, "direct"):
        yield f"`{name}` is of type {exchange.type}: only direct, topic, fanout and headers can be gated", "use the ingress queue"
    if exchange.auto_delete:
        yield f"`{name}` is an auto-delete exchange: it would vanish with its last binding", "declare it without auto_delete"
    if not exchange.durable:
        yield (
            f"`{name}` is not durable: a restart of the broker would take it away, and what leads to its gate",
            "declare it as durable",
        )
    if exchange.internal:
        yield f"`{name}` is internal: nobody publishes to it", "gate the exchange that producers publish to"
    if at.is_federated():
        yield f"`{name}` is federated: federation follows its bindings, and they move away", "use the ingress queue"
    if exchange.type == "direct" and ALTERNATE in exchange.arguments:
        yield (
            f"`{name}` was declared with an alternate exchange, which wins over a policy",
            "set that alternate exchange by policy instead",
        )
    yield from _uncopied(at, at.movable(), at.real)
    yield from _taken(at)
    yield from _fleeting(at)


def _uncopied(at: Surroundings, bindings: Sequence[Binding], target: str) -> Iterator[tuple[str, str]]:
    """Of these, what nobody could lead to `target` as well so that it matches what it matches now.

    RabbitMQ compares arrays and tables by the types of what is in them, and tables by their order as well: see `_is_whole`.
    """
    for binding in bindings if at.exchange.type == "headers" else ():
        nested = sorted(name for name, value in binding.arguments.items() if isinstance(value, list | dict) and not _is_whole(value))
        if nested and not at.has(msgspec.structs.replace(binding, source=target)):
            to = f"the binding of {binding.destination_type} `{binding.destination}` to `{binding.source}`"
            yield (
                f"{to} has an array or a table (`{nested[0]}`) that cannot be copied: the management API does not tell what RabbitMQ compares",
                f"bind it to `{target}` yourself, with the client that made it (declare `{target}` as a durable headers exchange if it is not there)",
            )


def _locked(at: Surroundings) -> Iterator[tuple[str, str]]:
    """Of the bindings of `.real`, what stands in the way of an undo, because nobody else can lead it back to `name`."""
    for binding in at.consumers():
        if at.is_exclusive(binding) and not at.has(msgspec.structs.replace(binding, source=at.name)):
            yield (
                f"queue `{binding.destination}` is bound to `{at.real}` and exclusive to its consumer",
                f"let that consumer bind it to `{at.name}` instead, then undo",
            )


def _is_whole(value: Any) -> bool:
    """Whether the management API tells all of it. Of a number it tells no type, of a table no order, and what has no value looks like text."""
    if isinstance(value, dict):
        return len(value) < 2 and all(map(_is_whole, value.values()))
    if isinstance(value, list):
        return all(map(_is_whole, value))
    return isinstance(value, bool) or (isinstance(value, str) and value != VOID)


def _taken(at: Surroundings) -> Iterator[tuple[str, str]]:
    real, gate = at.broker.exchanges.get(at.real), at.broker.exchanges.get(at.gate)
    if real is not None and real.type != at.exchange.type:
        yield f"`{at.real}` exists and is of type {real.type}, not {at.exchange.type}", "delete it, then apply again"
    if gate is not None and (gate.type, gate.arguments.get(ALTERNATE)) != ("headers", at.real):
        yield f"`{at.gate}` exists and is not this gate", "delete it, then apply again"


def _fleeting(at: Surroundings) -> Iterator[tuple[str, str]]:
    """A client may have declared these before; as pika does if it is told no more, not durable."""
    real, gate = at.broker.exchanges.get(at.real), at.broker.exchanges.get(at.gate)
    for found in (each for each in (real, gate) if each is not None):
        if not found.durable or found.auto_delete:
            kind = "an auto-delete exchange" if found.durable else "not durable"
            yield (
                f"`{found.name}` exists and is {kind}: when it vanishes, RabbitMQ drops what it confirms to producers of `{at.name}`",
                "let whoever declares it declare it as durable, without auto_delete; delete it, then apply again",
            )
    if real is not None and real.internal:
        yield (
            f"`{at.real}` exists and is internal: the bridge may not publish to it",
            "let whoever declares it declare it without internal; delete it, then apply again",
        )


def version(text: str) -> tuple[int, ...]:
    """The first two numbers of a version: `3.10.8`, `4.3.0-rc.1`."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
