"""The gate's plan: pure, from what stands on the broker to changes."""

from __future__ import annotations

import shlex
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from delaybridge.adapters.base import AdapterError, NotConnected
from delaybridge.adapters.rabbitmq import Endpoint, RabbitMQ, amqp
from delaybridge.adapters.rabbitmq.gate.gate import Change, Gate
from delaybridge.adapters.rabbitmq.gate.refusals import refusal_of, refusal_to_undo, version
from delaybridge.adapters.rabbitmq.gate.surroundings import unnamed
from delaybridge.adapters.rabbitmq.ingress import losses, on_one_node
from delaybridge.adapters.rabbitmq.interception import RabbitInterception, _step
from delaybridge.adapters.rabbitmq.management import Binding, Broker, Call, Calls, Exchange, Policy, Queue, _reason
from delaybridge.adapters.tls import Tls

if TYPE_CHECKING:
    from pathlib import Path

CALLS = Calls("/")
TYPES = ("direct", "topic", "fanout", "headers")


def broker(
    *exchanges: Exchange, bindings: list[Binding] | None = None, policies: list[Policy] | None = None, text: str = "4.2.1"
) -> Broker:
    queues = {name: Queue(name, exclusive=name == "mine") for name in ("q1", "q2", "mine")}
    return Broker(text, 1, {each.name: each for each in exchanges}, queues, bindings or [], policies or [])


def gate(*exchanges: Exchange, name: str = "orders", **rest: Any) -> Gate:
    return Gate(broker(*exchanges, **rest), name, "in", ["x-delay", "x-delay-until"])


def bound(gate: Gate) -> list[Binding]:
    return [change.action for change in gate.build(CALLS) if isinstance(change.action, Binding)]


@pytest.mark.parametrize(
    ("exchange", "rest", "reason"),
    [
        (Exchange("orders", "topic"), {"text": "3.9.29"}, "any-with-x"),
        (Exchange("orders", "topic"), {"name": ""}, "default exchange"),
        (Exchange("amq.topic", "topic"), {"name": "amq.topic"}, "would not take the name"),
        (Exchange("x" * 251, "topic"), {"name": "x" * 251}, "would not take the name"),
        (Exchange("others", "topic"), {}, "does not exist"),
        (Exchange("orders", "x-delayed-message"), {}, "delayed-message plugin"),
        (Exchange("orders", "x-consistent-hash"), {}, "only direct, topic, fanout and headers"),
        (Exchange("orders", "topic", auto_delete=True), {}, "auto-delete"),
        (Exchange("orders", "topic", durable=False), {}, "not durable"),
        (Exchange("orders", "topic", internal=True), {}, "internal"),
        (Exchange("orders", "topic"), {"policies": [Policy("f", "^ord", {"federation-upstream-set": "all"})]}, "federated"),
        (Exchange("orders", "direct", arguments={"alternate-exchange": "lost"}), {}, "wins over a policy"),
    ],
)
def test_an_exchange_that_cannot_be_gated_is_refused_with_what_to_do(exchange: Exchange, rest: dict[str, Any], reason: str) -> None:
    refusal = refusal_of(gate(exchange, **rest).at)
    assert refusal is not None
    assert reason in refusal[0]
    assert refusal[1]


def test_an_exchange_that_another_cluster_federates_is_refused() -> None:
    link = Exchange("federation: orders -> other", "x-federation-upstream", internal=True)
    refusal = refusal_of(gate(Exchange("orders", "topic"), link, bindings=[Binding("orders", link.name, "exchange", "#")]).at)
    assert refusal is not None
    assert "federated" in refusal[0]


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (Exchange("orders.real", "topic", durable=False), "is not durable"),
        (Exchange("orders.real", "topic", auto_delete=True), "is an auto-delete exchange"),
        (Exchange("orders.real", "topic", internal=True), "is internal"),
        (Exchange("orders.gate", "headers", durable=False, arguments={"alternate-exchange": "orders.real"}), "is not durable"),
    ],
)
def test_what_a_consumer_has_declared_as_part_of_the_gate_must_outlive_it_and_take_messages(there: Exchange, reason: str) -> None:
    """pika declares an exchange that is not durable if it is told no more: after a restart of RabbitMQ undelayed messages would lead nowhere."""
    at = gate(Exchange("orders", "topic"), there).at
    refusal = refusal_of(at)
    assert refusal is not None
    assert f"`{there.name}` exists and {reason}" in refusal[0]
    assert refusal_to_undo(at) is None, "it may be in use"


@pytest.mark.parametrize("value", [["a", 1], [0.5], {"a": "b", "c": "d"}, ["undefined"], [[{"a": 1}]]])
@pytest.mark.parametrize(
    ("kind", "destination", "copied", "refused"),
    [("headers", "q1", False, True), ("headers", "q1", True, False), ("headers", "mine", False, False), ("topic", "q1", False, False)],
    ids=["not copied", "copied by its user", "not to be copied", "not looked at by RabbitMQ"],
)
def test_a_binding_that_cannot_be_copied_is_refused_until_its_user_has_copied_it(
    value: object, kind: str, destination: str, copied: bool, refused: bool
) -> None:
    bindings = [Binding(source, destination, "queue", "", {"v": value}) for source in (["orders", "orders.real"] if copied else ["orders"])]
    refusal = refusal_of(gate(Exchange("orders", kind), bindings=bindings).at)
    assert (refusal is not None and "an array or a table (`v`)" in refusal[0]) == refused


@pytest.mark.parametrize("value", [["a", "b"], [True], {"a": "b"}, [["a"]], [], {}])
def test_arrays_and_tables_of_which_the_management_api_tells_all_are_copied(value: object) -> None:
    assert refusal_of(gate(Exchange("orders", "headers"), bindings=[Binding("orders", "q1", "queue", "", {"v": value})]).at) is None


@pytest.mark.parametrize("kind", TYPES)
def test_an_ordinary_exchange_can_be_gated(kind: str) -> None:
    assert refusal_of(gate(Exchange("orders", kind)).at) is None


@pytest.mark.parametrize("kind", ["topic", "fanout", "headers"])
def test_one_binding_leads_everything_to_the_gate_where_the_type_can_say_so(kind: str) -> None:
    changes = gate(Exchange("orders", kind), bindings=[Binding("orders", "q1", "queue", "a")]).build(CALLS)
    ways = [change.action for change in changes if isinstance(change.action, Binding) and change.action.destination == "orders.gate"]
    assert len(ways) == 1
    assert not any("policy" in change.what for change in changes)


def test_a_direct_exchange_has_one_way_for_each_key_that_it_or_real_knows_and_a_policy_for_the_rest() -> None:
    bindings = [Binding("orders", "q1", "queue", "a"), Binding("orders", "mine", "queue", "b"), Binding("orders.real", "q2", "queue", "c")]
    built = gate(Exchange("orders", "direct"), Exchange("orders.real", "direct"), bindings=bindings)
    assert [binding.routing_key for binding in bound(built) if binding.destination == "orders.gate"] == ["a", "b", "c"]
    assert "policy" in built.build(CALLS)[-1].what


def test_everything_is_built_before_anything_is_taken_away() -> None:
    bindings = [Binding("orders", "q1", "queue", "a", {}, "a"), Binding("orders", "q2", "queue", "b", {}, "b")]
    built = gate(Exchange("orders", "topic"), bindings=bindings)
    assert not any(isinstance(change.action, Call) and change.action.method == "DELETE" for change in built.build(CALLS))
    assert [change.action.path for change in built.move(CALLS) if isinstance(change.action, Call)] == [
        "/bindings/%2F/e/orders/q/q1/a",
        "/bindings/%2F/e/orders/q/q2/b",
    ]


def test_bindings_are_copied_with_their_arguments() -> None:
    arguments = {"x-match": "any", "kind": 1, "ratio": 0.5, "any": None}
    built = gate(Exchange("orders", "headers"), bindings=[Binding("orders", "q1", "queue", "", arguments)])
    assert Binding("orders.real", "q1", "queue", "", arguments) in bound(built)


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), (["a", 1], ["a", True])])
def test_values_that_only_python_takes_for_equal_make_two_bindings(one: object, other: object) -> None:
    bindings = [Binding("orders", "q1", "queue", "", {"v": other}), Binding("orders.real", "q1", "queue", "", {"v": one})]
    built = gate(Exchange("orders", "headers"), bindings=bindings)
    assert not built.at.has(msgspec.structs.replace(bindings[0], source="orders.real"))


def test_a_queue_that_is_exclusive_to_its_consumer_is_left_where_it_is() -> None:
    binding = Binding("orders", "mine", "queue", "a")
    built = gate(Exchange("orders", "topic"), bindings=[binding])
    assert built.at.stuck() == [binding]
    assert built.move(CALLS) == []


def test_a_gate_leads_nowhere_while_neither_a_binding_nor_an_alternate_exchange_takes_what_passes_it() -> None:
    orders, real = Exchange("orders", "topic"), Exchange("orders.real", "topic")
    assert gate(orders, real).at.leads_nowhere()
    assert not gate(orders).at.leads_nowhere()  # the missing exchange is told already
    assert not gate(orders, real, bindings=[Binding("orders.real", "q1", "queue", "a")]).at.leads_nowhere()
    assert not gate(orders, real, bindings=[Binding("orders", "mine", "queue", "a")]).at.leads_nowhere()
    assert not gate(orders, Exchange("orders.real", "topic", arguments={"alternate-exchange": "lost"})).at.leads_nowhere()


def test_the_gates_policy_says_what_the_users_strongest_says_and_outranks_it() -> None:
    policies = [
        Policy("weak", ".*", {"alternate-exchange": "lost"}, 1),
        Policy("strong", "^orders", {"alternate-exchange": "found", "other": 1}, 5, "exchanges"),
        Policy("queues", ".*", {"max-length": 9}, 9, "queues"),
        Policy("others", "^bills", {}, 9),
    ]
    changes = gate(Exchange("orders", "direct"), policies=policies).build(CALLS)
    policy, real = changes[-1].action, changes[0].action
    assert isinstance(policy, Call)
    assert policy.body == {
        "pattern": "^orders$",
        "definition": {"alternate-exchange": "orders.gate", "other": 1},
        "priority": 6,
        "apply-to": "exchanges",
    }
    assert isinstance(real, Call)
    assert real.body["arguments"] == {"alternate-exchange": "found"}


@pytest.mark.parametrize(
    ("policies", "real", "told"),
    [
        ([], {}, None),
        ([("orders", "x")], {"alternate-exchange": "x"}, None),
        ([("orders", "x"), ("orders.real", "x")], {}, None),
        ([("orders.real", "x")], {}, None),
        ([("orders", "x")], {}, "goes nowhere, not to `x`"),
        ([("orders", "x"), ("orders.real", "y")], {}, "goes to `y`, not to `x`"),
        ([("orders", "y")], {"alternate-exchange": "x"}, "goes to `x`, not to `y`"),
        ([], {"alternate-exchange": "x"}, "goes to `x`, not nowhere"),
    ],
)
def test_what_nobody_takes_goes_where_the_user_says_or_it_is_told(
    policies: list[tuple[str, str]], real: dict[str, str], told: str | None
) -> None:
    names = {name for name, _ in policies}
    exchanges = [
        Exchange(name, "topic", arguments=arguments, policy=name if name in names else None)
        for name, arguments in (("orders", {}), ("orders.real", real))
    ]
    stray = gate(*exchanges, policies=[Policy(name, f"^{name}$", {"alternate-exchange": to}) for name, to in policies]).at.stray()
    assert (stray is None) == (told is None)
    if stray and told:
        assert told in stray[0]
        assert ("delete `orders.real`" in stray[1]) == bool(real)


def test_a_gate_that_no_route_names_any_more_is_found_until_it_is_undone() -> None:
    caught = Binding("orders.gate", "in", "queue")
    ways = [Binding("orders", "orders.gate", "exchange", "#")], [Policy("orders.gate", "^orders$", {"alternate-exchange": "orders.gate"})]
    by_binding, by_policy = broker(bindings=[caught, *ways[0]]), broker(bindings=[caught], policies=ways[1])
    for found in (by_binding, by_policy):
        assert unnamed(found, ["in"], []) == ["orders"]
        assert unnamed(found, ["in"], ["orders"]) == []
        assert unnamed(found, ["others"], []) == []
    assert unnamed(broker(bindings=[caught]), ["in"], []) == []


def test_a_name_is_taken_literally_in_the_policys_pattern() -> None:
    call = gate(Exchange("a.b+", "direct"), name="a.b+").build(CALLS)[-1].action
    assert isinstance(call, Call)
    assert call.body["pattern"] == r"^a\.b\+$"


@pytest.mark.parametrize("pattern", ["(?|orders|bills)", r"^orders\z", "^[[:alpha:]]+$"])
def test_a_pattern_that_only_rabbitmq_can_read_counts_where_rabbitmq_applies_it_and_is_always_outranked(pattern: str) -> None:
    odd = Policy("odd", pattern, {"alternate-exchange": "lost", "other": 1}, 3)
    calls = [gate(Exchange("orders", "direct", policy=name), policies=[odd]).build(CALLS)[-1].action for name in ("odd", None)]
    assert [(call.body["priority"], "other" in call.body["definition"]) for call in calls if isinstance(call, Call)] == [
        (4, True),
        (4, False),
    ]


def test_a_command_to_paste_survives_the_shell_and_shows_no_password() -> None:
    call = CALLS.bind(Binding("it's", "q 1", "queue", "$key", {"x": "ü"}))
    words = shlex.split(call.command("http://broker:15672", "guest", Tls()))
    assert words[3] == "guest:$RABBITMQ_PASSWORD"
    assert words[-1] == '{"routing_key": "$key", "arguments": {"x": "ü"}}'
    assert words[6] == "http://broker:15672/api/bindings/%2F/e/it%27s/q/q%201"


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, []),
        ({"ca_file": "ca.pem"}, ["--cacert", "ca.pem"]),
        ({"cert_file": "us.pem", "key_file": "us.key"}, ["--cert", "us.pem", "--key", "us.key"]),
        ({"cert_file": "both.pem", "verify": False}, ["--cert", "both.pem", "--insecure"]),
    ],
)
def test_a_command_to_paste_knows_the_authority_and_shows_the_certificate_that_the_bridge_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in options:
        (tmp_path / name).touch()
    call = CALLS.bind(Binding("orders.real", "q1", "queue", "", {}))
    tls = Tls(**given)
    words = shlex.split(call.command("https://broker:15671", "guest", tls))

    assert words[2 : words.index("-u")] == options
    assert call.command("http://broker:15672", "guest", tls) == call.command("http://broker:15672", "guest", Tls())


@pytest.mark.parametrize(("arguments", "variable"), [({"kind": 1}, "RABBITMQ_PASSWORD"), ({"kind": None}, "RABBITMQ_URL")])
def test_a_step_names_the_variable_that_its_command_reads(arguments: dict[str, Any], variable: str) -> None:
    api: Any = SimpleNamespace(calls=CALLS, command=lambda call: call.command("http://broker:15672", "guest", Tls()))
    step = _step(api, Change("a binding", Binding("orders.real", "q1", "queue", "", arguments)))
    assert step.reads == (variable,)
    assert variable in step.command


def test_without_a_management_api_there_is_nothing_to_undo_unless_an_exchange_is_gated() -> None:
    options = RabbitMQ.model_validate({"url": "amqp://127.0.0.1:1"})

    assert RabbitInterception(options, [Endpoint(queue="in")]).undo() == []
    with pytest.raises(AdapterError, match="set the broker's `management_url`"):
        RabbitInterception(options, [Endpoint(queue="in", gate=("orders",))]).undo()


def test_without_a_management_api_the_plan_says_how_to_enable_it_and_where_to_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp, "consumers", lambda *_: 0)
    options = RabbitMQ.model_validate({"url": "amqp://127.0.0.1:1"})

    _, step = RabbitInterception(options, [Endpoint(queue="in", gate=("orders",))]).plan()

    assert "set the broker's `management_url`" in step.what
    assert "`rabbitmq-plugins enable rabbitmq_management`" in step.what
    assert step.command == ""  # `apply` refuses, so `plan` has to fail as well


@pytest.mark.parametrize(("method", "path"), [("GET", "/bindings/nope"), ("POST", "/bindings/nope/e/orders/q/billing")])
def test_what_cannot_be_read_may_be_in_a_virtual_host_that_does_not_exist(method: str, path: str) -> None:
    answer = httpx.Response(404, json={"reason": "Not Found"}, request=httpx.Request(method, f"http://127.0.0.1{path}"))

    assert ("the virtual host in the broker's `url`" in _reason(answer, "guest")) == (method == "GET")


def test_a_page_in_the_place_of_the_management_api_is_told_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(200, html="<p>Log in</p>"))
    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=page))
    options = RabbitMQ.model_validate({"url": "amqp://127.0.0.1:1", "management_url": "http://127.0.0.1:1"})
    with pytest.raises(AdapterError, match=r"at http://127\.0\.0\.1:1 is not RabbitMQ's management API"):
        RabbitInterception(options, [Endpoint(queue="in", gate=("orders",))]).plan()


def test_a_file_of_certificates_that_holds_none_is_told_as_any_other_problem_of_the_broker(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    options = {"url": "amqp://127.0.0.1:1", "management_url": "https://127.0.0.1:1", "tls": {"ca_file": tmp_path / "ca.pem"}}
    with pytest.raises(NotConnected, match=r"RabbitMQ: .*CERTIFICATE"):
        RabbitInterception(RabbitMQ.model_validate(options), [Endpoint(queue="in", gate=("orders",))]).plan()


@pytest.mark.parametrize(("limit", "told"), [(20, True), (None, False), ("unlimited", False), (2**31 - 1, False), (-1, False)])
def test_a_queue_that_drops_what_was_redelivered_is_found(limit: int | str | None, told: bool) -> None:
    found = list(losses(Queue("orders.in", delivery_limit=limit)))
    assert [finding.ok for finding in found] == [False] * told
    assert all("set_policy NAME '^orders\\.in$' '{\"delivery-limit\": -1}'" in finding.fix for finding in found)


@pytest.mark.parametrize(
    ("arguments", "policy", "limit"),
    [({"x-delivery-limit": 3}, {}, 3), ({}, {"delivery-limit": 4}, 4), ({"x-delivery-limit": 9}, {"delivery-limit": 5}, 5), ({}, {}, None)],
)
def test_before_rabbitmq_4_a_queue_drops_what_was_redelivered_as_its_argument_or_policy_says(
    arguments: dict[str, Any], policy: dict[str, Any], limit: int | None
) -> None:
    found = list(losses(Queue("in", arguments=arguments, effective_policy_definition=policy)))
    assert [finding.what for finding in found] == [
        f"queue `in` drops a message that it has delivered {limit} times without an acknowledgement"
    ] * (limit is not None)


@pytest.mark.parametrize(
    ("queue", "what"), [(Queue("in", auto_delete=True), "whenever its last bridge"), (Queue("in", type="stream"), "is a stream")]
)
def test_a_queue_that_does_not_wait_for_a_bridge_is_found(queue: Queue, what: str) -> None:
    (finding,) = losses(queue)
    assert not finding.ok
    assert what in finding.what


@pytest.mark.parametrize("limit", ["message-ttl", "expires", "max-length", "max-length-bytes"])
def test_a_queue_that_drops_what_no_bridge_has_taken_is_found_and_who_says_so(limit: str) -> None:
    (by_argument,) = losses(Queue("in", arguments={f"x-{limit}": 5}))
    (by_policy,) = losses(Queue("in", policy="ours", operator_policy="theirs", effective_policy_definition={limit: 5}))
    assert not by_argument.ok
    assert f"argument `x-{limit}`" in by_argument.what
    assert "delete it" in by_argument.fix
    assert not by_policy.ok
    assert f"take `{limit}` out of policy `ours` or `theirs`" in by_policy.fix


def test_a_queue_of_which_no_policy_says_anything_loses_nothing() -> None:
    assert list(losses(Queue("in", arguments={"x-queue-type": "quorum"}, effective_policy_definition=[]))) == []


@pytest.mark.parametrize(
    ("nodes", "type_", "policy", "told"),
    [(1, "classic", {}, 0), (3, "classic", {}, 1), (3, "quorum", {}, 0), (3, "classic", {"ha-mode": "all"}, 0)],
)
def test_a_queue_that_stands_on_one_of_several_nodes_is_named(nodes: int, type_: str, policy: dict[str, Any], told: int) -> None:
    found = list(on_one_node(Queue("in", type=type_, effective_policy_definition=policy), nodes))
    assert [(finding.ok, "on one of 3 nodes" in finding.what) for finding in found] == [(True, True)] * told


def test_where_several_nodes_hold_it_an_ingress_queue_keeps_what_is_redelivered() -> None:
    several = msgspec.structs.replace(broker(), nodes=3)
    options = RabbitMQ.model_validate({"url": "amqp://127.0.0.1:1"})
    api: Any = SimpleNamespace(calls=CALLS)
    (change,) = RabbitInterception(options, [Endpoint(queue="in")])._ingress(api, several)
    assert isinstance(change.action, Call)
    assert change.action.body["arguments"] == {"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1}


@pytest.mark.parametrize(("text", "numbers"), [("3.10.8", (3, 10)), ("4.3.0-rc.1", (4, 3)), ("3.9.29", (3, 9))])
def test_versions_are_compared_by_number(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers
