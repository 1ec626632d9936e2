"""RabbitMQ's management API, as much of it as the gate needs: what stands on the broker, and calls that change it.

A `Call` is at once what `apply` does and what a person can paste, so the two cannot differ. `rabbitmqadmin` is not used for that: its
first and second generation do not understand each other's arguments.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import httpx
import msgspec

from ..base import AdapterError, NotConnected
from ..options import scheme_of

if TYPE_CHECKING:
    from ..tls import Tls

VOID = "undefined"
"""How the API shows an argument without a value, which is None here. Only AMQP can send one: the API answers 500 to JSON's null."""

READS = "RABBITMQ_PASSWORD"
"""The environment variable from which commands read the password."""

Arguments = dict[str, Any]


class Exchange(msgspec.Struct, frozen=True):
    """One exchange; `policy` is the one that RabbitMQ applies to it."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = {}
    policy: str | None = None


class Queue(msgspec.Struct, frozen=True):
    """One queue. `messages` and `consumers` are some seconds old, and None where no node has told yet.

    `delivery_limit` is after how many redeliveries RabbitMQ drops a message, or `unlimited`; None where it does not say, as before 4.0: see `redeliveries`.
    `effective_policy_definition` is what its policy and its operator policy say together; a list where that is nothing.
    """

    name: str
    type: str = "classic"
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    delivery_limit: int | str | None = None
    arguments: Arguments = {}
    policy: str | None = None
    operator_policy: str | None = None
    effective_policy_definition: Any = None
    messages: int | None = None
    consumers: int | None = None

    @property
    def defined(self) -> Arguments:
        """What policies say of it."""
        found = self.effective_policy_definition
        return found if isinstance(found, dict) else {}

    @property
    def redeliveries(self) -> int | None:
        """After how many redeliveries RabbitMQ drops a message; None where it never does. Of argument and policy the lower one counts."""
        said = (
            [self.delivery_limit]
            if self.delivery_limit is not None
            else [self.arguments.get("x-delivery-limit"), self.defined.get("delivery-limit")]
        )
        return min((limit for limit in said if isinstance(limit, int) and limit >= 0), default=None)


class Binding(msgspec.Struct, frozen=True):
    """One binding. `properties_key` is the API's own name for it, percent-encoded; empty on one that is yet to be made."""

    source: str
    destination: str
    destination_type: str
    routing_key: str = ""
    arguments: Arguments = {}
    properties_key: str = ""

    def same(self, other: Binding) -> bool:
        """Whether the two route alike."""
        return self._identity() == other._identity() and _typed(self.arguments) == _typed(other.arguments)

    def _identity(self) -> tuple[object, ...]:
        return self.source, self.destination, self.destination_type, self.routing_key, self.arguments

    def needs_void(self) -> bool:
        """Whether it has an argument without a value, so that it must be made over AMQP."""
        return None in self.arguments.values()


def _typed(arguments: Arguments) -> str:
    """To a headers exchange, and not to Python, 1 and true are two values, and so are 1 and 1.0."""
    return json.dumps(arguments, sort_keys=True)


class Policy(msgspec.Struct, frozen=True, rename={"apply_to": "apply-to"}):
    """One policy; RabbitMQ applies to each object only the one of the highest priority."""

    name: str
    pattern: str
    definition: Arguments
    priority: int = 0
    apply_to: str = "all"


class Broker(msgspec.Struct, frozen=True):
    """What stands on the broker at one moment, in one virtual host."""

    version: str
    nodes: int
    exchanges: dict[str, Exchange]
    queues: dict[str, Queue]
    bindings: list[Binding]
    policies: list[Policy]


class Call(msgspec.Struct, frozen=True):
    """One request that changes something; `path` comes after `/api`."""

    method: str
    path: str
    body: Any = None

    def command(self, url: str, user: str, tls: Tls) -> str:
        """The same as a command to paste; the password is read from the environment."""
        encrypted = tls.curl() if scheme_of(url) == "https" else []
        words = ["curl", "-fsS", *encrypted, "-u", f"{user}:${READS}", "-X", self.method, f"{url}/api{self.path}"]
        if self.body is not None:
            words += ["-H", "content-type: application/json", "-d", json.dumps(self.body, ensure_ascii=False)]
        return " ".join(f'"{word}"' if f"${READS}" in word else shlex.quote(word) for word in words)


class Calls:
    """Builds calls for one virtual host."""

    def __init__(self, vhost: str) -> None:
        self._vhost = quote(vhost, safe="")

    def path(self, kind: str, *names: str) -> str:
        """`/kind/vhost/name/...`, each name percent-encoded."""
        return "/".join(["", kind, self._vhost, *(quote(name, safe="") for name in names)])

    def exchange(self, name: str, kind: str, arguments: Arguments) -> Call:
        """Declare a durable exchange."""
        return Call("PUT", self.path("exchanges", name), {"type": kind, "durable": True, "arguments": arguments})

    def queue(self, name: str, arguments: Arguments) -> Call:
        """Declare a durable queue."""
        return Call("PUT", self.path("queues", name), {"durable": True, "arguments": arguments})

    def bind(self, binding: Binding) -> Call:
        """Make a binding whose arguments all have values."""
        body = {"routing_key": binding.routing_key, "arguments": binding.arguments}
        return Call("POST", self._ends(binding), body)

    def unbind(self, binding: Binding) -> Call:
        """Remove a binding that the API has listed. Its key stands in the path encoded twice."""
        return Call("DELETE", self._ends(binding) + "/" + quote(binding.properties_key, safe=""))

    def _ends(self, binding: Binding) -> str:
        return self.path("bindings", "e", binding.source, binding.destination_type[0], binding.destination)

    def policy(self, policy: Policy) -> Call:
        """Set a policy."""
        body = {"pattern": policy.pattern, "definition": policy.definition, "priority": policy.priority, "apply-to": policy.apply_to}
        return Call("PUT", self.path("policies", policy.name), body)

    def clear_policy(self, name: str) -> Call:
        """Remove a policy."""
        return Call("DELETE", self.path("policies", name))


class Management:
    """A client of the API. Raises OSError where a file of `tls` cannot be used, NotConnected where it does not answer, AdapterError where it refuses."""

    def __init__(self, url: str, user: str, password: str, vhost: str, timeout: float, tls: Tls) -> None:
        self.url = url.rstrip("/")
        self.user = user
        self.calls = Calls(vhost)
        self._tls = tls
        # The broker stands beside the bridge: a proxy that the environment names is for somewhere else.
        self._http = httpx.Client(base_url=f"{self.url}/api", auth=(user, password), timeout=timeout, verify=tls.context(), trust_env=False)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def do(self, call: Call) -> None:
        """Make a change. What is removed already is removed."""
        self._send(call.method, call.path, call.body, absent_is_fine=call.method == "DELETE")

    def get(self, path: str) -> Any:
        """Read JSON."""
        answer = self._send("GET", path)
        try:
            return answer.json()
        except ValueError as error:  # such as the page of a proxy
            raise AdapterError(f"what answers GET {unquote(path)} at {self.url} is not RabbitMQ's management API: no JSON came") from error

    def command(self, call: Call) -> str:
        """A change as a command to paste."""
        return call.command(self.url, self.user, self._tls)

    def broker(self) -> Broker:
        """What stands there now."""
        path = self.calls.path
        bindings = msgspec.convert(self.get(path("bindings")), list[Binding])
        exchanges = msgspec.convert(self.get(path("exchanges")), list[Exchange])
        return Broker(
            version=self.get("/overview")["rabbitmq_version"],
            nodes=self._nodes(),
            exchanges={exchange.name: exchange for exchange in exchanges},
            queues=self.queues(),
            bindings=[_with_voids(binding) for binding in bindings if binding.source],
            policies=msgspec.convert(self.get(path("policies")), list[Policy]),
        )

    def queues(self) -> dict[str, Queue]:
        """The queues that stand there now, by name."""
        path = self.calls.path("queues") + "?columns=" + ",".join(Queue.__struct_fields__)
        return {queue.name: queue for queue in msgspec.convert(self.get(path), list[Queue])}

    def _nodes(self) -> int:
        """How many nodes run; 1 where the user may not know."""
        try:
            return sum(bool(node.get("running")) for node in self.get("/nodes"))
        except AdapterError as refused:
            if isinstance(refused, NotConnected):
                raise
            return 1

    def permissions(self, user: str) -> dict[str, str] | None:
        """The `configure`, `write` and `read` patterns of a user; None where the API does not tell us, or knows of none, as those of another directory."""
        if "administrator" not in self.get("/whoami")["tags"]:
            return None
        answer = self._send("GET", self.calls.path("permissions", user), absent_is_fine=True)
        return answer.json() if answer.is_success else None

    def _send(self, method: str, path: str, body: Any = None, *, absent_is_fine: bool = False) -> httpx.Response:
        try:
            answer = self._http.request(method, path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # the last: a host that is no name
            raise NotConnected(f"the management API at {self.url} does not answer: {error}") from error
        if answer.is_success or (absent_is_fine and answer.status_code == httpx.codes.NOT_FOUND):
            return answer
        raise AdapterError(f"the management API at {self.url} refused {method} {unquote(path)}: {_reason(answer, self.user)}")


def _with_voids(binding: Binding) -> Binding:
    arguments = {name: None if value == VOID else value for name, value in binding.arguments.items()}
    return msgspec.structs.replace(binding, arguments=arguments)


def _reason(answer: httpx.Response, user: str) -> str:
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return f"user {user!r} may not: it needs the right password and the tag `management` (`policymaker` to set policies), and permissions; {_said(answer)}"
    reason = _said(answer)
    # Whatever is read here is there in each virtual host.
    if answer.status_code == httpx.codes.NOT_FOUND and answer.request.method == "GET":
        return f"{reason}: see that it is RabbitMQ's, and that the virtual host in the broker's `url` exists"
    return reason


def _said(answer: httpx.Response) -> str:
    """RabbitMQ's own reason."""
    try:
        return str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}"
