"""Interception on RabbitMQ: the ingress queues and the gates of all routes that read from one broker."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from pika import PlainCredentials

from ...core.headers import DELAY_NAMES
from ..base import AdapterError, NotConnected
from ..preparing import Finding, Step
from . import amqp
from .address import real_of
from .gate.gate import Change, Gate, alternates_first
from .gate.refusals import GUIDE, PLUGIN, refusal_of, refusal_to_undo
from .gate.surroundings import unnamed
from .ingress import CLASSIC, losses, on_one_node
from .level_queues import UNLIMITED
from .link import translated
from .management import READS, Binding, Call, Management
from .probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pika.connection import Parameters

    from .management import Broker
    from .options import Endpoint, RabbitMQ

HEADERS = sorted(name.decode() for name in DELAY_NAMES)
ROUNDS = 4
"""How often to look again: exchanges that are bound to each other need a second look, a consumer that binds meanwhile one more."""

NEEDS = "a gate needs RabbitMQ's management API: bindings and policies can be read nowhere else"
SET_URL = "enable it (`rabbitmq-plugins enable rabbitmq_management`) and set the broker's `management_url`"
APPLY = "run `delaybridge apply`"
CHECK_URL = "check `management_url` (and for https:// `tls`), and that the plugin rabbitmq_management runs"


class RabbitInterception:
    """See preparing.Interception. `endpoints`: the `from` sections; each names an ingress `queue`, and the exchanges that it gates."""

    def __init__(self, options: RabbitMQ, endpoints: Sequence[Endpoint]) -> None:
        self._options = options
        self._readers = Counter(endpoint.queue for endpoint in endpoints)
        self._queues = list(self._readers)
        self._gated: dict[str, str] = {}
        for endpoint in endpoints:
            for exchange in endpoint.gate:
                if self._gated.setdefault(exchange, endpoint.queue) != endpoint.queue:
                    raise AdapterError(f"exchange `{exchange}` is gated by two routes: its messages can go to one queue only")

    # --- plan and apply ---

    def plan(self) -> list[Step]:
        """See preparing.Interception. Without the management API it can only tell about queues."""
        if not self._options.management_url:
            return [*self._plan_queues(), *(Step(f"gate exchange `{name}`: {NEEDS}; {SET_URL}", "", False) for name in self._gated)]
        with self._api() as api:
            return self._plan(api, api.broker())

    def _plan_queues(self) -> list[Step]:
        parameters = self._parameters()
        return [
            Step(
                f"queue `{queue}` takes in delayed messages",
                amqp.declare_command(queue, CLASSIC),
                amqp.consumers(parameters, queue) is not None,
                (amqp.READS,),
            )
            for queue in self._queues
        ]

    def _plan(self, api: Management, broker: Broker) -> list[Step]:
        steps = [_step(api, change) for change in self._ingress(api, broker)]
        for gate in self._gates(broker):
            refusal = refusal_of(gate.at)
            if refusal:
                steps.append(Step(f"{refusal[0]}: {refusal[1]}", "", False))
            else:
                steps += [_step(api, change) for change in (*gate.build(api.calls), *gate.move(api.calls))]
            stray = None if refusal else gate.at.stray()
            if stray:
                steps.append(Step(f"{stray[0]}: {stray[1]}", "", False))
        return steps

    def _ingress(self, api: Management, broker: Broker) -> list[Change]:
        """Quorum queues where there is more than one node to hold them."""
        arguments = {"x-queue-type": "quorum", **UNLIMITED} if broker.nodes > 1 else CLASSIC
        return [
            Change(f"queue `{queue}` takes in delayed messages", api.calls.queue(queue, arguments), queue in broker.queues)
            for queue in self._queues
        ]

    def _gates(self, broker: Broker) -> list[Gate]:
        gates = {exchange: Gate(broker, exchange, queue, HEADERS, self._gated) for exchange, queue in self._gated.items()}
        return alternates_first(gates)

    def apply(self) -> list[Step]:
        """See preparing.Interception. Raises NotConnected, and AdapterError where something is in the way; then nothing was changed for any exchange."""
        if not self._options.management_url:
            return self._apply_queues()
        with self._api() as api:
            for _ in range(ROUNDS):
                self._round(api)
                steps = self._plan(api, api.broker())
                if all(step.done for step in steps):
                    break
            return steps

    def _apply_queues(self) -> list[Step]:
        self._refuse_gates()
        for queue in self._queues:
            if amqp.consumers(self._parameters(), queue) is None:  # one that is there is taken as it is
                amqp.declare(self._parameters(), queue)
        return self._plan_queues()

    def _refuse_gates(self) -> None:
        """Where there is no management API."""
        if self._gated:
            raise AdapterError(f"{NEEDS}; {SET_URL}")

    def _round(self, api: Management) -> None:
        broker = api.broker()
        _refuse([refusal_of(gate.at) for gate in self._gates(broker)])
        self._do(api, self._ingress(api, broker))
        self._complete(api, lambda gate: gate.build(api.calls))
        for gate in self._gates(api.broker()):
            self._do(api, gate.move(api.calls))

    def undo(self) -> list[Step]:
        """Give the gated exchanges their bindings back and take the gates away; `.real` stays for what waits in the bridge."""
        if not self._options.management_url:
            self._refuse_gates()
            return []
        with self._api() as api:
            gates = self._gates(api.broker())
            _refuse([refusal_to_undo(gate.at) for gate in gates])
            taken = [change for gate in gates for change in gate.move_back(api.calls)]
            self._complete(api, lambda gate: gate.build_back())
            for gate in self._gates(api.broker()):
                self._do(api, gate.move_back(api.calls))
            changes = [change for gate in self._gates(api.broker()) for change in (*gate.build_back(), *gate.move_back(api.calls))]
            left = {change.what for change in changes}
            changes += [msgspec.structs.replace(change, done=True) for change in taken if change.what not in left]
            return [_step(api, change) for change in changes]

    def _complete(self, api: Management, path: Callable[[Gate], list[Change]]) -> None:
        """Make a path, and look whether it stands: only then, not when it was merely asked for, is it safe to take the other one away."""
        for _ in range(ROUNDS):
            missing = [change for gate in self._gates(api.broker()) for change in path(gate) if not change.done]
            if not missing:
                return
            self._do(api, missing)
        raise AdapterError(f"RabbitMQ took a change and does not show it: {missing[0].what}. Nothing was taken away; run it again")

    def _do(self, api: Management, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.done:
                continue
            if isinstance(change.action, Call):
                api.do(change.action)
            elif change.action.needs_void():
                amqp.bind(self._building(), change.action)
            else:
                api.do(api.calls.bind(change.action))

    # --- check ---

    def check(self) -> list[Finding]:
        """See preparing.Interception."""
        if not self._options.management_url:
            ok = not self._gated
            return [
                Finding(ok, "no `management_url` is set: exchanges, bindings and policies were not looked at", SET_URL),
                *self._check_consumers(),
            ]
        try:
            with self._api() as api:
                return [*self._check_broker(api, api.broker()), *self._check_consumers()]
        except NotConnected as error:
            return [Finding(False, str(error), CHECK_URL), *self._check_consumers()]

    def _check_broker(self, api: Management, broker: Broker) -> Iterator[Finding]:
        yield Finding(True, f"the management API of RabbitMQ {broker.version} answers")
        for name in self._queues:
            queue = broker.queues.get(name)
            if queue is not None:
                yield from list(losses(queue)) or [Finding(True, f"queue `{name}` is durable, and nothing in it expires or is dropped")]
                yield from on_one_node(queue, broker.nodes)
        for gate in self._gates(broker):
            yield from _check_gate(api, gate)
            yield from _check_ends(gate)
        yield from self._check_unnamed(broker)
        yield from self._check_permissions(api)
        for exchange in broker.exchanges.values():
            if exchange.type == PLUGIN:
                yield Finding(
                    True, f"exchange `{exchange.name}` still uses the delayed-message plugin, which ends with RabbitMQ 4.3: see {GUIDE}"
                )

    def _check_unnamed(self, broker: Broker) -> Iterator[Finding]:
        """The bridge takes what such a gate sends for messages to the queue itself: back where they came from, they meet the gate again."""
        for exchange in unnamed(broker, self._queues, self._gated):
            what = f"`{exchange}` is gated, but no route names it under `gate`: its delayed messages go round between gate and bridge"
            fix = f"name it there; or undo its gate, by `delaybridge apply --undo --only interception` with a configuration that gates `{exchange}` only"
            yield Finding(False, what, fix)

    def _check_permissions(self, api: Management) -> Iterator[Finding]:
        user = getattr(self._parameters()[0].credentials, "username", "")  # only RabbitMQ knows the name that a certificate stands for
        allowed = api.permissions(user) if user else None
        if allowed is None:
            return
        wanted = [("read", queue) for queue in self._queues] + [("write", real_of(exchange)) for exchange in self._gated]
        for kind, name in wanted:
            try:
                allows = bool(allowed[kind] and re.search(allowed[kind], name))  # to RabbitMQ, the empty pattern means nothing
            except re.error:
                yield Finding(
                    True, f"the `{kind}` pattern of user `{user}` is none of Python's: whether it matches `{name}` was not looked at"
                )
                continue
            if not allows:
                yield Finding(False, f"user `{user}` may not {kind} `{name}`", f"rabbitmqctl set_permissions: let `{kind}` match {name}")

    def _check_consumers(self) -> Iterator[Finding]:
        parameters = self._parameters()
        for queue in self._queues:
            found = amqp.consumers(parameters, queue)
            if found is None:
                yield Finding(False, f"queue `{queue}` does not exist", APPLY)
            else:
                yield Finding(
                    found > 0,
                    f"queue `{queue}` has {found or 'no'} consumer{'' if found == 1 else 's'}",
                    "start the bridge: `delaybridge run`; one that runs tries again within a minute",
                )

    def crowds(self) -> dict[str, int]:
        """See preparing.Crowded. A connection that was lost counts until RabbitMQ misses its heartbeats."""
        parameters = self._parameters()
        found = {queue: amqp.consumers(parameters, queue) or 0 for queue in self._queues}
        return {queue: count for queue, count in found.items() if count > self._readers[queue]}

    # --- probe ---

    def probe(self) -> list[Finding]:
        """See preparing.Interception. A gate is probed only where it is complete: its own consumers must not see the message."""
        parameters = self._parameters()
        findings = [probe(parameters, "", queue) for queue in self._queues]
        if not all(finding.ok for finding in findings) or not self._options.management_url:
            return findings
        with self._api() as api:
            for gate in self._gates(api.broker()):
                whole = all(finding.ok for finding in _check_gate(api, gate))
                refused = Finding(False, f"no probe was sent through `{gate.name}`: its consumers could see it", APPLY)
                findings.append(probe(parameters, gate.name, gate.queue) if whole else refused)
        return findings

    # --- connections ---

    def _parameters(self) -> list[Parameters]:
        return self._options.parameters("gate")

    def _building(self) -> list[Parameters]:
        """As the user of the management API, who builds all the rest: the bridge's own may need no right to."""
        parameters = self._parameters()
        if urlsplit(_url_of(self._options)).username:
            for each in parameters:
                each.credentials = PlainCredentials(*_login(self._options, each))
        return parameters

    def _api(self) -> contextlib.AbstractContextManager[Management]:
        return management(self._options)


@contextlib.contextmanager
def management(options: RabbitMQ) -> Iterator[Management]:
    """A client with the broker's own credentials, unless `management_url`, which must be there, brings others."""
    first = options.parameters("gate")[0]
    parts = urlsplit(_url_of(options))
    url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    user, password = _login(options, first)
    with translated():  # a file of certificates may hold none
        api = Management(url, user, password, first.virtual_host, options.connection_timeout, options.tls)
    with contextlib.closing(api):
        yield api


def _url_of(options: RabbitMQ) -> str:
    assert options.management_url is not None
    return options.management_url.get_secret_value()


def _login(options: RabbitMQ, ours: Parameters) -> tuple[str, str]:
    """User and password of `management_url`; what it does not name is our own."""
    parts = urlsplit(_url_of(options))
    user = unquote(parts.username) if parts.username else getattr(ours.credentials, "username", "")
    password = unquote(parts.password) if parts.password else getattr(ours.credentials, "password", "")
    return user, password


def _step(api: Management, change: Change) -> Step:
    if isinstance(change.action, Binding) and change.action.needs_void():
        return Step(change.what, amqp.bind_command(change.action), change.done, (amqp.READS,))
    call = change.action if isinstance(change.action, Call) else api.calls.bind(change.action)
    return Step(change.what, api.command(call), change.done, (READS,))


def _refuse(refusals: Sequence[tuple[str, str] | None]) -> None:
    told = [f"{refusal[0]}: {refusal[1]}" for refusal in refusals if refusal]
    if told:
        raise AdapterError("; ".join(told))


def _check_gate(api: Management, gate: Gate) -> Iterator[Finding]:
    refusal = refusal_of(gate.at)
    if refusal:
        yield Finding(False, *refusal)
        return
    problems = [Finding(False, f"missing: {change.what}", APPLY) for change in gate.build(api.calls) if not change.done]
    stray = gate.at.stray()
    problems += [Finding(False, *stray)] if stray else []
    problems += [_bypass(gate, binding) for binding in gate.at.bypasses()]
    problems += [Finding(False, f"not yet so: {change.what}", APPLY) for change in gate.leftovers(api.calls)]
    problems += [
        Finding(
            False,
            f"`{name}` has `{gate.name}` as its alternate exchange: the bridge would deliver to `{name}`",
            f"point it to `{gate.real}`",
        )
        for name in gate.at.other_ways_in()
    ]
    yield from problems or [
        Finding(True, f"`{gate.name}` is gated; `{gate.real}` holds {_bindings(len(gate.at.consumers()))}, and none goes past the gate")
    ]


def _check_ends(gate: Gate) -> Iterator[Finding]:
    """Complete, and leading nowhere: producers without `mandatory` would not be told that their messages are dropped."""
    if gate.at.leads_nowhere():
        what = f"nothing is bound to `{gate.real}`: RabbitMQ drops what is published to `{gate.name}`, and what falls due is refused as unroutable"
        yield Finding(False, what, f"let its consumers bind their queues to `{gate.name}`, then {APPLY}")


def _bindings(count: int) -> str:
    return f"{count} binding{'' if count == 1 else 's'}"


def _bypass(gate: Gate, binding: Binding) -> Finding:
    what = f"by-pass: {binding.destination_type} `{binding.destination}` is bound to `{gate.name}` ({binding.routing_key!r}) and gets delayed messages at once"
    if binding in gate.at.stuck():
        return Finding(False, what, f"it is exclusive to its consumer: let that consumer bind it to `{gate.real}`")
    return Finding(False, what, f"{APPLY}; and let the consumer that declares this binding declare it on `{gate.real}`")
