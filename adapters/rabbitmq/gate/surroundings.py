"""What stands on the broker around one exchange, as far as its gate has to do with it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..address import GATE_SUFFIX, gate_of, real_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..management import Arguments, Binding, Broker, Exchange, Policy

ALTERNATE = "alternate-exchange"
MATCH_ALL: dict[str, tuple[str, Arguments]] = {"topic": ("#", {}), "fanout": ("", {}), "headers": ("", {"x-match": "all"})}
"""The types of which one binding matches everything, and its key and arguments."""


class Surroundings:
    """The exchange `name`, its `gate` and its `real` exchange, whether they are there or not, in what `broker` has. `gated` are all those with a gate."""

    def __init__(self, broker: Broker, name: str, gated: Collection[str] = ()) -> None:
        self.broker = broker
        self.name = name
        self.gated = gated
        self.gate = gate_of(name)
        self.real = real_of(name)

    @property
    def exchange(self) -> Exchange:
        """The gated exchange itself. KeyError where it is missing: see refusals.py."""
        return self.broker.exchanges[self.name]

    def bindings_of(self, source: str) -> list[Binding]:
        """What an exchange is bound to."""
        return [binding for binding in self.broker.bindings if binding.source == source]

    def bindings_to(self, exchange: str) -> list[Binding]:
        """What leads to an exchange."""
        return [each for each in self.broker.bindings if (each.destination_type, each.destination) == ("exchange", exchange)]

    def has(self, binding: Binding) -> bool:
        """Whether such a binding is there, whoever made it."""
        return any(binding.same(other) for other in self.broker.bindings)

    def bypasses(self) -> list[Binding]:
        """Bindings that lead messages past the gate."""
        return [
            binding for binding in self.bindings_of(self.name) if (binding.destination_type, binding.destination) != ("exchange", self.gate)
        ]

    def stuck(self) -> list[Binding]:
        """By-passes to queues that are exclusive to a connection: nobody else may bind them."""
        return [binding for binding in self.bypasses() if self.is_exclusive(binding)]

    def is_exclusive(self, binding: Binding) -> bool:
        """Whether it leads to a queue that only the connection of its consumer can bind."""
        queue = self.broker.queues.get(binding.destination)
        return binding.destination_type == "queue" and queue is not None and queue.exclusive

    def movable(self) -> list[Binding]:
        """By-passes that anybody may take away."""
        return [binding for binding in self.bypasses() if not self.is_exclusive(binding)]

    def consumers(self) -> list[Binding]:
        """The bindings of `.real`."""
        return self.bindings_of(self.real)

    def leads_nowhere(self) -> bool:
        """Whether the gate stands, and no message that passes it can reach a queue."""
        real = self.broker.exchanges.get(self.real)
        return real is not None and not (self.consumers() or self.bypasses() or self.alternate_of(real))

    def other_ways_in(self) -> list[str]:
        """Exchanges whose alternate is the gated one: the bridge would see their names, not this one. A gated exchange never asks its own."""
        return [
            each.name for each in self.broker.exchanges.values() if each.name not in self.gated and self.alternate_of(each) == self.name
        ]

    def alternate_of(self, exchange: Exchange) -> str | None:
        """The alternate exchange that RabbitMQ uses: an argument wins over a policy."""
        said = [each.definition.get(ALTERNATE) for each in self.broker.policies if each.name == exchange.policy]
        found = exchange.arguments.get(ALTERNATE) or next(iter(said), None)
        return None if found is None else str(found)

    def stray(self) -> tuple[str, str] | None:
        """What to say, and what to do, if unroutable messages go from `.real` to another place than from `name`; None where they do not.

        An alternate exchange that was set on `name` after it was gated is never asked there: the gate takes everything.
        """
        real, wanted = self.broker.exchanges.get(self.real), self.alternate()
        if real is None:
            return None
        found, declared = self.alternate_of(real), ALTERNATE in real.arguments
        if found == wanted or (wanted is None and not declared):  # a policy for `.real` alone is the user's own
            return None
        what = f"what `{self.name}` cannot route goes {_to(found)}, not {_to(wanted)}: only the alternate exchange of `{self.real}` counts"
        if not declared:
            return what, f"let a policy set `{ALTERNATE}` to `{wanted}` for `{self.real}` as well"
        return what, (
            f"`{self.real}` was declared with it, and arguments cannot be changed: without producers of delayed messages, run "
            f"`delaybridge apply --undo --only interception`, delete `{self.real}`, run `delaybridge apply`"
        )

    def is_federated(self) -> bool:
        """Whether federation follows its bindings."""
        policy = self.base_policy()
        types = {name: exchange.type for name, exchange in self.broker.exchanges.items()}
        return any(key.startswith("federation-upstream") for key in (policy.definition if policy else ())) or any(
            types.get(binding.destination) == "x-federation-upstream" for binding in self.bindings_of(self.name)
        )

    def rivals(self) -> list[Policy]:
        """Other policies that match the exchange; RabbitMQ would apply the one of the highest priority."""
        return [each for each in self._policies() if self._matches(each)]

    def highest(self) -> int:
        """The highest priority of all policies that match the exchange, or may."""
        return max((each.priority for each in self._policies() if not _reads_alike(each) or self._matches(each)), default=0)

    def _policies(self) -> list[Policy]:
        """Those for exchanges, but for the gate's own."""
        return [each for each in self.broker.policies if each.name != self.gate and each.apply_to in ("all", "exchanges")]

    def _matches(self, policy: Policy) -> bool:
        if _reads_alike(policy):
            return re.search(policy.pattern, self.name) is not None
        return policy.name == self.exchange.policy  # RabbitMQ's own choice tells

    def base_policy(self) -> Policy | None:
        """The one of these that RabbitMQ would apply."""
        return max(self.rivals(), key=lambda each: each.priority, default=None)

    def alternate(self) -> str | None:
        """Where `.real` has to send what it cannot route: to the user's alternate exchange of `name`; past the gate of one that is gated, too.

        What falls due bears its delay header still: that gate would catch it, and the bridge deliver it to `.real` again and again.
        """
        found = self.chosen_alternate()
        return real_of(found) if found is not None and found in self.gated else found

    def chosen_alternate(self) -> str | None:
        """Where the user sends what `name` cannot route."""
        base = self.base_policy()
        found = self.exchange.arguments.get(ALTERNATE) or (base.definition.get(ALTERNATE) if base else None)
        return None if found is None else str(found)


def unnamed(broker: Broker, queues: Sequence[str], named: Collection[str]) -> list[str]:
    """Exchanges outside `named` that are gated all the same, and whose gates lead to one of `queues`."""
    gates = {each.source for each in broker.bindings if each.destination_type == "queue" and each.destination in queues}
    reached = {each.destination for each in broker.bindings if each.destination_type == "exchange"}
    reached |= {each.definition.get(ALTERNATE, "") for each in broker.policies}
    found = {gate.removesuffix(GATE_SUFFIX) for gate in gates & reached if gate.endswith(GATE_SUFFIX)}
    return sorted(found.difference(named))


def _reads_alike(policy: Policy) -> bool:
    """Whether Python reads the pattern, and as RabbitMQ does, which reads PCRE: `[[:alpha:]]` is another set to Python."""
    if "[:" in policy.pattern:
        return False
    try:
        re.compile(policy.pattern)
    except re.error:
        return False
    return True


def _to(exchange: str | None) -> str:
    return f"to `{exchange}`" if exchange else "nowhere"
