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

from ..management import Binding, Call, Calls, Policy
from .surroundings import ALTERNATE, MATCH_ALL, Surroundings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..management import Broker


class Change(msgspec.Struct, frozen=True):
    """One change: `what` in a sentence; a Binding stands for making it, which may need AMQP."""

    what: str
    action: Call | Binding
    done: bool = False


class Gate:
    """The gate of one exchange, leading to `queue`; `at` is what stands around it. `headers` are the names that ask something of the bridge.

    `gated` are all exchanges that have a gate.
    """

    def __init__(self, broker: Broker, name: str, queue: str, headers: Sequence[str], gated: Collection[str] = ()) -> None:
        self.at = Surroundings(broker, name, gated)
        self.name = name
        self.queue = queue
        self.gate = self.at.gate
        self.real = self.at.real
        self._headers = headers

    # --- there ---

    def build(self, calls: Calls) -> list[Change]:
        """The second path: from `name` over the gate to all that `name` is bound to. Each change is harmless alone, in this order."""
        return [*self._exchanges(calls), *self._copies(), *self._ways_to_gate(), *self._policies(calls)]

    def _exchanges(self, calls: Calls) -> list[Change]:
        known = self.at.broker.exchanges
        alternate = self.at.alternate()
        arguments = {ALTERNATE: alternate} if alternate else {}
        kept = f"; what cannot be routed goes on to `{alternate}`" if alternate and not self.at.stray() else ""
        return [
            Change(
                f"exchange `{self.real}` holds the bindings of `{self.name}`{kept}",
                calls.exchange(self.real, self.at.exchange.type, arguments),
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
        own = [msgspec.structs.replace(each, source=self.real) for each in self.at.movable()]
        incoming = [msgspec.structs.replace(each, destination=self.real) for each in self.at.bindings_to(self.name)]
        return [
            *(self._make(each, f"`{self.real}` has the binding of `{self.name}` to {_target(each)}") for each in own),
            *(self._make(each, f"`{each.source}` leads to `{self.real}` as it leads to `{self.name}`") for each in incoming),
        ]

    def _ways_to_gate(self) -> list[Change]:
        if self.at.exchange.type in MATCH_ALL:
            ways = [MATCH_ALL[self.at.exchange.type]]
        else:
            keys = {binding.routing_key for binding in (*self.at.bypasses(), *self.at.consumers())}
            ways = [(key, {}) for key in sorted(keys)]
        return [
            self._make(
                Binding(self.name, self.gate, "exchange", key, arguments), f"`{self.name}` leads to `{self.gate}`" + (key and f" ({key})")
            )
            for key, arguments in ways
        ]

    def _make(self, binding: Binding, what: str) -> Change:
        return Change(what, binding, self.at.has(binding))

    # --- policy, for direct exchanges ---

    def _policies(self, calls: Calls) -> list[Change]:
        if self.at.exchange.type in MATCH_ALL:
            return []
        base, policy = self.at.base_policy(), self._policy()
        merged = f", with all that policy `{base.name}` says" if base else ""
        what = f"policy `{policy.name}`: other keys of `{self.name}` lead to `{self.gate}`{merged}"
        return [Change(what, calls.policy(policy), policy in self.at.broker.policies and self.at.exchange.policy == policy.name)]

    def _policy(self) -> Policy:
        base = self.at.base_policy()
        definition = (base.definition if base else {}) | {ALTERNATE: self.gate}
        return Policy(self.gate, f"^{re.escape(self.name)}$", definition, self.at.highest() + 1, "exchanges")

    # --- taking the first path away ---

    def move(self, calls: Calls) -> list[Change]:
        """What leads past the gate, or from it to somewhere else; to be removed when `build` is complete."""
        return [*(remove(each, calls) for each in self.at.movable()), *self.leftovers(calls)]

    def leftovers(self, calls: Calls) -> list[Change]:
        """The part of `move` that is no by-pass: sources that meet the gate a second time, and what an older gate caught or led to."""
        catch = self._catch()
        stale = [binding for binding in self.at.bindings_of(self.gate) if not binding.same(catch)]
        return [remove(each, calls) for each in (*self.at.bindings_to(self.name), *stale)]

    # --- and back ---

    def build_back(self) -> list[Change]:
        """The first path again: `name` and its sources lead where `.real` and its sources lead."""
        own = [msgspec.structs.replace(each, source=self.name) for each in self.at.consumers()]
        incoming = [msgspec.structs.replace(each, destination=self.name) for each in self._sources_of_real()]
        return [self._make(each, f"`{each.source}` leads to {_target(each)}") for each in (*own, *incoming)]

    def move_back(self, calls: Calls) -> list[Change]:
        """The ways to the gate, to be removed when `build_back` is complete. `.real` keeps its bindings: what waits in the bridge goes there."""
        ways = [binding for binding in self.at.bindings_to(self.gate) if binding.source == self.name]
        clear = [
            Change(f"policy `{policy.name}` is gone", calls.clear_policy(policy.name))
            for policy in self.at.broker.policies
            if policy.name == self.gate
        ]
        return [*clear, *(remove(each, calls) for each in (*ways, *self._sources_of_real()))]

    def _sources_of_real(self) -> list[Binding]:
        return [binding for binding in self.at.bindings_to(self.real) if binding.source != self.gate]


def alternates_first(gates: Mapping[str, Gate]) -> list[Gate]:
    """In an order in which a gate is built after that of its alternate exchange: else what it cannot route would be lost meanwhile."""
    ordered: dict[str, Gate] = {}
    for name in gates:
        chain: list[str] = []
        following = name
        while following in gates and following not in chain:
            chain.append(following)
            at = gates[following].at
            following = (at.chosen_alternate() or "") if following in at.broker.exchanges else ""
        ordered |= {each: gates[each] for each in reversed(chain) if each not in ordered}
    return list(ordered.values())


def remove(binding: Binding, calls: Calls) -> Change:
    """Take one binding away."""
    return Change(f"`{binding.source}` no longer leads to {_target(binding)}", calls.unbind(binding))


def _target(binding: Binding) -> str:
    key = f" ({binding.routing_key})" if binding.routing_key else ""
    return f"{binding.destination_type} `{binding.destination}`{key}"
