"""Interception on ActiveMQ Classic: composite destinations that lead delayed messages, and no others, into the ingress queue.

ActiveMQ's interceptors stand in its XML, which no client can change: `plan` prints them, `apply` tells what is left to do by hand. Beside each
intercepted name stands a sibling for `doctor` in the same element (`orders.>` and `delaybridge.doctor.gate.orders.>`): what is true of it is true of both, and
no consumer sees what is sent there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from ...core.dialects.activemq import DIALECT, JOB
from ...core.headers import DELAY_NAMES
from ..base import AdapterError
from ..preparing import Finding, Step
from .address import pattern, queue_address
from .probe import SIBLING, Prober, Way
from .scheduler import NAME as MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .options import ActiveMQ, Endpoint

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
NAMED = sorted(name.decode() for name in DELAY_NAMES if _IDENTIFIER.fullmatch(name.decode()))
"""The delay headers that a selector can name: none with a hyphen."""

PASTE = "paste what `delaybridge plan` prints into the element <broker> of activemq.xml, and restart the broker"
SCHEDULER = 'set schedulerSupport="false" in the element <broker> of activemq.xml, and restart the broker'

_GOES = {
    Way.TO_THE_BRIDGE: "goes to the bridge when it is delayed, and straight on when it is not",
    Way.STRAIGHT_ON: "goes past the bridge",
    Way.ELSEWHERE: "goes elsewhere than to `{}` when it is delayed: activemq.xml names another queue",
}

_TAKEN = {
    "/topic/VirtualTopic.>": "ActiveMQ sends messages there to its consumers' queues as well: intercept those, /queue/Consumer.NAME.VirtualTopic.…, "
    "each with a route and an ingress queue of its own",
    "/topic/ActiveMQ.>": "that name is ActiveMQ's own",
    "/queue/ActiveMQ.>": "that name is ActiveMQ's own",
    "/queue/delaybridge.doctor.>": "that name is `doctor`'s",
    "/topic/delaybridge.doctor.>": "that name is `doctor`'s",
}

_CONSUMERS = "/queue/Consumer.*.VirtualTopic.>"
_COPIES = (
    "would lead several copies of one message to a virtual topic into one ingress queue, which keeps one of them, as they share an id: "
    "name the queue of each consumer, in a route with an ingress queue of its own"
)


class ActiveInterception:
    """See preparing.Interception. `endpoints`: the `from` sections; each names an ingress `queue`, and in `gate` the destinations that lead there.

    Raises AdapterError where the gates cannot be told apart: ActiveMQ would send a message through each interceptor that matches. Also where it would lose
    copies of one.
    """

    def __init__(self, options: ActiveMQ, endpoints: Sequence[Endpoint]) -> None:
        self._prober = Prober(options.targets, options.times)
        self._management = options.management
        self._queues = list(dict.fromkeys(endpoint.queue for endpoint in endpoints))
        self._gates = {_full(gate): endpoint.queue for endpoint in endpoints for gate in endpoint.gate}
        for number, gate in enumerate(self._gates):
            for queue in self._queues:
                if pattern(gate).fullmatch(queue_address(queue)):
                    raise AdapterError(f"`{gate}` matches the ingress queue `{queue}` itself: messages would go round for ever")
            for other, because in _TAKEN.items():
                if overlap(gate, other):
                    raise AdapterError(f"`{gate}` cannot be intercepted: {because}")
            for other in list(self._gates)[:number]:
                if overlap(gate, other):
                    raise AdapterError(f"`{gate}` and `{other}` overlap: ActiveMQ would send undelayed messages to both, twice")
            for other in list(self._gates)[: number + 1]:
                if self._gates[other] == self._gates[gate] and _share(gate, other):
                    raise AdapterError(f"{_named(gate, other)} {_COPIES}")

    # --- plan and apply ---

    def plan(self) -> list[Step]:
        """See preparing.Interception. Prints what to paste though the broker cannot be asked; then nothing counts as done, and the steps say why."""
        steps = [Step(f"queue `{queue}` takes in delayed messages; ActiveMQ makes it", "", True) for queue in self._queues]
        if not self._gates:
            return steps
        off, missing, blind = self._state()
        what = f'ActiveMQ\'s own scheduler is off: <broker … schedulerSupport="false">{blind}'
        steps.append(Step(what, 'schedulerSupport="false"', off, by_hand=True))
        names = ", ".join(f"`{gate}`" for gate in missing or self._gates)
        what = f"delayed messages to {names} go to the bridge: activemq.xml, in the element <broker>; takes effect when the broker starts"
        return [*steps, Step(what + blind, self.xml(), not missing, by_hand=True)]

    def apply(self) -> list[Step]:
        """See preparing.Interception: nothing can be changed from here, so what is not done has to be done by hand."""
        return self.plan()

    def undo(self) -> list[Step]:
        """See preparing.Interception: the same by hand, the other way round; while the broker cannot be asked it does not count as done."""
        what = (
            "take delaybridge's interceptors out of activemq.xml, and restart the broker; keep the bridge running until nothing is pending"
        )
        try:
            return [Step(what, "", all(self._prober.way(*each) is Way.STRAIGHT_ON for each in self._gates.items()))]
        except AdapterError as error:
            return [Step(what + _blind(error), "", False)]

    def _state(self) -> tuple[bool, list[str], str]:
        """Whether the scheduler is off, the gates that are not intercepted, and what kept us from looking."""
        try:
            off = self._prober.scheduler_is_off()
            return off, [gate for gate, queue in self._gates.items() if self._prober.way(gate, queue) is not Way.TO_THE_BRIDGE], ""
        except AdapterError as error:
            return False, list(self._gates), _blind(error)

    def xml(self) -> str:
        """The interceptors of all gates. They replace ActiveMQ's default one, which is therefore among them."""
        virtual = [_composite(gate, queue) for gate, queue in self._gates.items()]
        if self._management:
            virtual.append(
                f'<compositeTopic name="{MANAGEMENT}">\n  <forwardTo><queue physicalName="{MANAGEMENT}"/></forwardTo>\n</compositeTopic>'
            )
        virtual.append('<virtualTopic name="VirtualTopic.&gt;" prefix="Consumer.*." selectorAware="false"/>')
        inside = "\n".join("    " + line for each in virtual for line in each.splitlines())
        first = "<destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>"
        return f"{first}\n{inside}\n</virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>"

    # --- check and probe ---

    def check(self) -> list[Finding]:
        """See preparing.Interception. Sends undelayed messages of its own to itself."""
        off = self._prober.scheduler_is_off()
        findings = [Finding(off or not self._gates, _told(off=off), SCHEDULER)]
        for gate, queue in self._gates.items():
            way = self._prober.way(gate, queue)
            findings.append(Finding(way is Way.TO_THE_BRIDGE, f"what is sent to `{gate}` {_GOES[way].format(queue)}", PASTE))
        return findings

    def probe(self) -> list[Finding]:
        """See preparing.Interception."""
        plain = [self._prober.probe(queue_address(queue)) for queue in self._queues]
        return [*plain, *(self._prober.probe_gate(gate) for gate in self._gates)]


def _blind(error: AdapterError) -> str:
    return f"; could not look: {error}"


def _told(*, off: bool) -> str:
    if off:
        return "ActiveMQ's own scheduler is off"
    return "ActiveMQ's own scheduler is on: it takes every message that bears AMQ_SCHEDULED_DELAY, _PERIOD or _CRON before the bridge can"


def _composite(gate: str, queue: str) -> str:
    kind = "Queue" if gate.startswith("/queue/") else "Topic"
    name = quoteattr(f"{gate[7:]},{SIBLING}{gate[7:]}")
    return (
        f'<composite{kind} name={name} sendWhenNotMatched="true">\n'
        f"  <forwardTo><filteredDestination queue={quoteattr(queue)}\n"
        f'    selector="{escape(selector())}"/></forwardTo>\n'
        f"</composite{kind}>"
    )


def selector() -> str:
    """True for a message that asks for a delay. What bears a job's id was scheduled by ActiveMQ already, which lets it through as well."""
    native = [name.decode() for name in DIALECT.asks]
    others = [name for name in NAMED if name not in native]
    return f"({_any(native)}) AND {JOB.decode()} IS NULL OR {_any(others)}"


def _any(names: Sequence[str]) -> str:
    return " OR ".join(f"{name} IS NOT NULL" for name in names)


def _named(gate: str, other: str) -> str:
    return f"`{gate}`" if gate == other else f"`{other}` and `{gate}`"


def _full(gate: str) -> str:
    return gate if gate.startswith("/") else queue_address(gate)


def _share(one: str, other: str) -> bool:
    """Whether one message to a virtual topic may go to two destinations that these gates match: as two copies with one id."""
    if not (overlap(one, _CONSUMERS) and overlap(other, _CONSUMERS)):
        return False
    first, second = one.split("."), other.split(".")
    return first[1] in {"*", ">"} if one == other else _overlap(first[2:], second[2:])


def overlap(one: str, other: str) -> bool:
    """Whether any destination is matched by both, after ActiveMQ's rules: see address.pattern."""
    return one[:7] == other[:7] and _overlap(one[7:].split("."), other[7:].split("."))


def _overlap(one: list[str], other: list[str]) -> bool:
    for left, right in _pairs(one, other):
        if ">" in {left, right}:
            return True
        if left != right and "*" not in {left, right}:
            return False
    return True


def _pairs(one: list[str], other: list[str]) -> Iterator[tuple[str, str]]:
    """Part by part; a name that has ended is told apart from every part but `>`."""
    for at in range(max(len(one), len(other))):
        pair = (one[at] if at < len(one) else "", other[at] if at < len(other) else "")
        yield pair if "" not in pair or ">" in pair else ("", "\0")
