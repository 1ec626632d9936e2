"""The shape of a gate, and the changes that lead to it and back. Pure: from what stands on the broker to a list of changes.

    orders ---> orders.gate --a delay header is present--> ingress queue --> the bridge, which publishes to orders.real when due
                     |                                                                                        |
                     +--else (alternate exchange)--> orders.real --the bindings that `orders` had--> consumers <+

A topic, fanout or headers exchange leads to its gate by one binding that matches everything. A direct exchange cannot have such a binding: it leads there by
one binding for each key in use, and for all other keys by an alternate exchange, set by a policy.

Why nothing is lost or doubled while bindings move: RabbitMQ collects the queues that a message reaches over *all* paths and delivers once to each. So first
the second path is made complete (`build`), and only then is the first one taken away (`move`).

When a consumer binds its queue to `orders` again, as one does that declares its binding at each start, the way to the gate stays. That consumer then gets
delayed messages too early, but takes nothing away from other consumers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from .address import GATE_SUFFIX, gate_of, real_of
from .management import Arguments, Binding, Broker, Call, Calls, Exchange, Policy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

GUIDE = "docs/migrating/rabbitmq-delayed-message-exchange.md"
PLUGIN = "x-delayed-message"
MATCH_ALL: dict[str, tuple[str, Arguments]] = {"topic": ("#", {}), "fanout": ("", {}), "headers": ("", {"x-match": "all"})}
ALTERNATE = "alternate-exchange"
OLDEST = (3, 10)
"""RabbitMQ 3.10 brought `any-with-x`; before it a headers exchange steps over every name that begins with `x-`."""


class Change(msgspec.Struct, frozen=True):
    """One change: `what` in a sentence; a Binding stands for making it, which may need AMQP."""

    what: str
    action: Call | Binding
    done: bool = False


class Gate:
    """The gate of one exchange, leading to `queue`. `headers` are the names that ask something of the bridge."""

    def __init__(self, broker: Broker, name: str, queue: str, headers: Sequence[str]) -> None:
        self._broker = broker
        self.name = name
        self.queue = queue
        self.gate = gate_of(name)
        self.real = real_of(name)
        self._headers = headers

    # --- what stands there ---

    @property
    def exchange(self) -> Exchange:
        """The gated exchange itself. KeyError where it is missing: see `refusal`."""
        return self._broker.exchanges[self.name]

    def _bindings_of(self, source: str) -> list[Binding]:
        return [binding for binding in self._broker.bindings if binding.source == source]

    def _bindings_to(self, exchange: str) -> list[Binding]:
        return [each for each in self._broker.bindings if (each.destination_type, each.destination) == ("exchange", exchange)]

    def _has(self, binding: Binding) -> bool:
        return any(binding.same(other) for other in self._broker.bindings)

    def bypasses(self) -> list[Binding]:
        """Bindings that lead messages past the gate."""
        return [
            binding
            for binding in self._bindings_of(self.name)
            if (binding.destination_type, binding.destination) != ("exchange", self.gate)
        ]

    def stuck(self) -> list[Binding]:
        """By-passes to queues that are exclusive to a connection: nobody else may bind them."""
        return [binding for binding in self.bypasses() if self._is_exclusive(binding)]

    def _is_exclusive(self, binding: Binding) -> bool:
        queue = self._broker.queues.get(binding.destination)
        return binding.destination_type == "queue" and queue is not None and queue.exclusive

    def _movable(self) -> list[Binding]:
        return [binding for binding in self.bypasses() if not self._is_exclusive(binding)]

    def consumers(self) -> list[Binding]:
        """The bindings of `.real`."""
        return self._bindings_of(self.real)

    def leads_nowhere(self) -> bool:
        """Whether the gate stands, and no message that passes it can reach a queue."""
        real = self._broker.exchanges.get(self.real)
        return real is not None and not (self.consumers() or self.bypasses() or self._alternate_of(real))

    def other_ways_in(self) -> list[str]:
        """Exchanges whose alternate is the gated one: the bridge would see their names, not this one."""
        return [exchange.name for exchange in self._broker.exchanges.values() if self._alternate_of(exchange) == self.name]

    def _alternate_of(self, exchange: Exchange) -> str | None:
        """The alternate exchange that RabbitMQ uses: an argument wins over a policy."""
        said = [each.definition.get(ALTERNATE) for each in self._broker.policies if each.name == exchange.policy]
        found = exchange.arguments.get(ALTERNATE) or next(iter(said), None)
        return None if found is None else str(found)

    def stray(self) -> tuple[str, str] | None:
        """What to say, and what to do, if unroutable messages go from `.real` to another place than from `name`; None where they do not.

        An alternate exchange that was set on `name` after it was gated is never asked there: the gate takes everything.
        """
        real, wanted = self._broker.exchanges.get(self.real), self._alternate()
        if real is None:
            return None
        found, declared = self._alternate_of(real), ALTERNATE in real.arguments
        if found == wanted or (wanted is None and not declared):  # a policy for `.real` alone is the user's own
            return None
        what = f"what `{self.name}` cannot route goes {_to(found)}, not {_to(wanted)}: only the alternate exchange of `{self.real}` counts"
        if not declared:
            return what, f"let a policy set `{ALTERNATE}` to `{wanted}` for `{self.real}` as well"
        return what, (
            f"`{self.real}` was declared with it, and arguments cannot be changed: without producers of delayed messages, run "
            f"`delaybridge apply --undo --only interception`, delete `{self.real}`, run `delaybridge apply`"
        )

    # --- why not ---

    def refusal(self) -> tuple[str, str] | None:
        """Why this exchange cannot be gated, and what to do; None where it can."""
        return next(self._refusals(), None)

    def _refusals(self) -> Iterator[tuple[str, str]]:
        name = self.name
        if version(self._broker.version) < OLDEST:
            yield (
                f"RabbitMQ {self._broker.version} has no `any-with-x`",
                "upgrade to RabbitMQ 3.10 or later, or publish to the ingress queue",
            )
        if not name:
            yield (
                "the default exchange cannot be gated",
                "publish delayed messages to a named exchange, or to the ingress queue with x-delay-to",
            )
        elif name.startswith("amq.") or len(name.encode()) > 250:
            yield f"`{name}` cannot be gated: RabbitMQ would not take the name `{self.real}`", "use an exchange of another name"
        elif name not in self._broker.exchanges:
            yield f"exchange `{name}` does not exist", "let its producer or consumer declare it (only they know its type), then apply again"
        else:
            yield from self._unfit()

    def _unfit(self) -> Iterator[tuple[str, str]]:
        exchange, name = self.exchange, self.name
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
        if self._is_federated():
            yield f"`{name}` is federated: federation follows its bindings, and they move away", "use the ingress queue"
        if exchange.type == "direct" and ALTERNATE in exchange.arguments:
            yield (
                f"`{name}` was declared with an alternate exchange, which wins over a policy",
                "set that alternate exchange by policy instead",
            )
        yield from self._taken()

    def _is_federated(self) -> bool:
        policy = self._base_policy()
        types = {name: exchange.type for name, exchange in self._broker.exchanges.items()}
        return any(key.startswith("federation-upstream") for key in (policy.definition if policy else ())) or any(
            types.get(binding.destination) == "x-federation-upstream" for binding in self._bindings_of(self.name)
        )

    def _taken(self) -> Iterator[tuple[str, str]]:
        real, gate = self._broker.exchanges.get(self.real), self._broker.exchanges.get(self.gate)
        if real is not None and real.type != self.exchange.type:
            yield f"`{self.real}` exists and is of type {real.type}, not {self.exchange.type}", "delete it, then apply again"
        if gate is not None and (gate.type, gate.arguments.get(ALTERNATE)) != ("headers", self.real):
            yield f"`{self.gate}` exists and is not this gate", "delete it, then apply again"

    # --- there ---

    def build(self, calls: Calls) -> list[Change]:
        """The second path: from `name` over the gate to all that `name` is bound to. Each change is harmless alone, in this order."""
        return [*self._exchanges(calls), *self._copies(), *self._ways_to_gate(), *self._policies(calls)]

    def _exchanges(self, calls: Calls) -> list[Change]:
        known = self._broker.exchanges
        alternate = self._alternate()
        arguments = {ALTERNATE: alternate} if alternate else {}
        kept = f"; what cannot be routed goes on to `{alternate}`" if alternate and not self.stray() else ""
        return [
            Change(
                f"exchange `{self.real}` holds the bindings of `{self.name}`{kept}",
                calls.exchange(self.real, self.exchange.type, arguments),
                self.real in known,
            ),
            Change(
                f"exchange `{self.gate}` lets messages without a delay header through to `{self.real}`",
                calls.exchange(self.gate, "headers", {ALTERNATE: self.real}),
                self.gate in known,
            ),
            self._make(self._catch(), f"`{self.gate}` leads messages with a delay header to queue `{self.queue}`"),
        ]

    def _catch(self) -> Binding:
        """Any of the headers, whatever its value."""
        return Binding(self.gate, self.queue, "queue", "", {"x-match": "any-with-x"} | dict.fromkeys(self._headers))

    def _copies(self) -> list[Change]:
        own = [msgspec.structs.replace(each, source=self.real) for each in self._movable()]
        incoming = [msgspec.structs.replace(each, destination=self.real) for each in self._bindings_to(self.name)]
        return [
            *(self._make(each, f"`{self.real}` has the binding of `{self.name}` to {_target(each)}") for each in own),
            *(self._make(each, f"`{each.source}` leads to `{self.real}` as it leads to `{self.name}`") for each in incoming),
        ]

    def _ways_to_gate(self) -> list[Change]:
        if self.exchange.type in MATCH_ALL:
            ways = [MATCH_ALL[self.exchange.type]]
        else:
            keys = {binding.routing_key for binding in (*self.bypasses(), *self.consumers())}
            ways = [(key, {}) for key in sorted(keys)]
        return [
            self._make(
                Binding(self.name, self.gate, "exchange", key, arguments), f"`{self.name}` leads to `{self.gate}`" + (key and f" ({key})")
            )
            for key, arguments in ways
        ]

    def _make(self, binding: Binding, what: str) -> Change:
        return Change(what, binding, self._has(binding))

    # --- policy, for direct exchanges ---

    def _policies(self, calls: Calls) -> list[Change]:
        if self.exchange.type in MATCH_ALL:
            return []
        base, policy = self._base_policy(), self._policy()
        merged = f", with all that policy `{base.name}` says" if base else ""
        what = f"policy `{policy.name}`: other keys of `{self.name}` lead to `{self.gate}`{merged}"
        return [Change(what, calls.policy(policy), policy in self._broker.policies and self.exchange.policy == policy.name)]

    def _policy(self) -> Policy:
        rivals = self._rivals()
        base = self._base_policy()
        definition = (base.definition if base else {}) | {ALTERNATE: self.gate}
        priority = max((rival.priority for rival in rivals), default=0) + 1
        return Policy(self.gate, f"^{re.escape(self.name)}$", definition, priority, "exchanges")

    def _rivals(self) -> list[Policy]:
        """Other policies that match the exchange; RabbitMQ would apply the one of the highest priority."""
        return [
            each
            for each in self._broker.policies
            if each.name != self.gate and each.apply_to in ("all", "exchanges") and self._matches(each)
        ]

    def _matches(self, policy: Policy) -> bool:
        try:
            return re.search(policy.pattern, self.name) is not None
        except re.error:  # RabbitMQ's expressions are PCRE; where Python cannot read one, RabbitMQ's own choice tells
            return policy.name == self.exchange.policy

    def _base_policy(self) -> Policy | None:
        return max(self._rivals(), key=lambda each: each.priority, default=None)

    def _alternate(self) -> str | None:
        """Where the user sends what `name` cannot route."""
        base = self._base_policy()
        found = self.exchange.arguments.get(ALTERNATE) or (base.definition.get(ALTERNATE) if base else None)
        return None if found is None else str(found)

    # --- taking the first path away ---

    def move(self, calls: Calls) -> list[Change]:
        """What leads past the gate, or from it to somewhere else; to be removed when `build` is complete."""
        return [*(remove(each, calls) for each in self._movable()), *self.leftovers(calls)]

    def leftovers(self, calls: Calls) -> list[Change]:
        """The part of `move` that is no by-pass: sources that meet the gate a second time, and what an older gate caught or led to."""
        catch = self._catch()
        stale = [binding for binding in self._bindings_of(self.gate) if not binding.same(catch)]
        return [remove(each, calls) for each in (*self._bindings_to(self.name), *stale)]

    # --- and back ---

    def build_back(self) -> list[Change]:
        """The first path again: `name` and its sources lead where `.real` and its sources lead."""
        own = [msgspec.structs.replace(each, source=self.name) for each in self.consumers()]
        incoming = [msgspec.structs.replace(each, destination=self.name) for each in self._sources_of_real()]
        return [self._make(each, f"`{each.source}` leads to {_target(each)}") for each in (*own, *incoming)]

    def move_back(self, calls: Calls) -> list[Change]:
        """The ways to the gate, to be removed when `build_back` is complete. `.real` keeps its bindings: what waits in the bridge goes there."""
        ways = [binding for binding in self._bindings_to(self.gate) if binding.source == self.name]
        clear = [
            Change(f"policy `{policy.name}` is gone", calls.clear_policy(policy.name))
            for policy in self._broker.policies
            if policy.name == self.gate
        ]
        return [*clear, *(remove(each, calls) for each in (*ways, *self._sources_of_real()))]

    def _sources_of_real(self) -> list[Binding]:
        return [binding for binding in self._bindings_to(self.real) if binding.source != self.gate]


def unnamed(broker: Broker, queues: Sequence[str], named: Collection[str]) -> list[str]:
    """Exchanges outside `named` that are gated all the same, and whose gates lead to one of `queues`."""
    gates = {each.source for each in broker.bindings if each.destination_type == "queue" and each.destination in queues}
    reached = {each.destination for each in broker.bindings if each.destination_type == "exchange"}
    reached |= {each.definition.get(ALTERNATE, "") for each in broker.policies}
    found = {gate.removesuffix(GATE_SUFFIX) for gate in gates & reached if gate.endswith(GATE_SUFFIX)}
    return sorted(found.difference(named))


def _to(exchange: str | None) -> str:
    return f"to `{exchange}`" if exchange else "nowhere"


def remove(binding: Binding, calls: Calls) -> Change:
    """Take one binding away."""
    return Change(f"`{binding.source}` no longer leads to {_target(binding)}", calls.unbind(binding))


def _target(binding: Binding) -> str:
    key = f" ({binding.routing_key})" if binding.routing_key else ""
    return f"{binding.destination_type} `{binding.destination}`{key}"


def version(text: str) -> tuple[int, ...]:
    """The first two numbers of a version: `3.10.8`, `4.3.0-rc.1`."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
