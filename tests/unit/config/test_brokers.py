"""What a configuration says of brokers and routes, and how it is told what is wrong with that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.config.config_problems import problems

from delaybridge.bridge.config.file import load

if TYPE_CHECKING:
    from pathlib import Path

SECRET = (
    "cannot be read: it is scheme://user:password@host:port, the password percent-encoded, or given as `username` and `password_file`,"
    " and a port from 1 to 65535"
)
NO_FILE = "there is no such file, or this user may not see it"

HINT = ": give it an `address` (any one, if only cancellations come), or let producers choose with `allow_to`"


def on(broker: str, route: str = "") -> str:
    place = "topic" if "kafka" in broker else "queue"
    route = route or f"{{name: r, from: {{broker: b, {place}: in}}, to: {{broker: b, address: out}}}}"
    return f"brokers: {{b: {{{broker}}}}}\nroutes: [{route}]"


def test_a_queue_without_a_name_is_told(file: Path) -> None:
    assert problems(file, on("type: memory", "{name: r, from: {broker: b, queue: ''}, to: {broker: b, address: out}}")) == [
        "2: routes[0].from.queue: must not be empty"
    ]


@pytest.mark.parametrize(
    ("broker", "own"),
    [
        ("type: kafka, bootstrap_servers: 'h:1'", True),
        ("type: kafka, bootstrap_servers: 'h:1', own_processes: false", False),
        ("type: rabbitmq, url: 'amqp://h'", False),
        ("type: activemq, url: 'stomp://h', own_processes: true", True),
        ("type: memory", False),
        ("type: memory, own_processes: false", False),
    ],
)
def test_clients_have_processes_of_their_own_where_they_are_slow_or_where_it_is_asked_for(file: Path, broker: str, own: bool) -> None:
    file.write_text(on(broker))
    assert load(file).brokers["b"].own_processes is own


@pytest.mark.parametrize(
    ("broker", "told"),
    [
        ("type: memory, own_processes: true", "a broker of type memory lives in this process: leave it out"),
        ("type: kafka, bootstrap_servers: 'h:1', own_processes: perhaps", "must be true or false"),
    ],
)
def test_processes_of_their_own_that_cannot_be_are_told(file: Path, broker: str, told: str) -> None:
    assert problems(file, on(broker)) == [f"1: brokers.b.own_processes: {told}"]


@pytest.mark.parametrize("secret", ["S3cr/et", "S3cr#et", "S3cr?et"])
@pytest.mark.parametrize("key", ["type: rabbitmq, url: 'amqp:", "type: activemq, url: 'stomp:"])
def test_a_url_that_cannot_be_read_is_told_without_a_piece_of_its_password(file: Path, key: str, secret: str) -> None:
    assert problems(file, on(f"{key}//bridge:{secret}@host'")) == [f"1: brokers.b.url: {SECRET}"]


@pytest.mark.parametrize(
    ("broker", "told"),
    [
        ("type: rabbitmq, url: 'amqp://h', management_url: 'http://bridge:S3cr/et@h'", f"management_url: {SECRET}"),
        (
            "type: rabbitmq, url: 'amqp://h', management_url: '127.0.0.1:15672'",
            "management_url: begins with http:// or https://, as in http://127.0.0.1:15672",
        ),
        ("type: rabbitmq, url: 'amqp://h', password_file: nowhere", f"password_file: {NO_FILE}"),
        (f"type: rabbitmq, url: 'amqp://h', password_file: {'x' * 300}", f"password_file: {NO_FILE}"),
        ("type: activemq, url: 'stomp://h', password_file: nowhere", f"password_file: {NO_FILE}"),
        ("type: rabbitmq, url: 'amqps://h', tls: {ca_file: nowhere}", f"tls.ca_file: {NO_FILE}"),
        ("type: kafka, bootstrap_servers: 'h:1', tls: {ca_file: nowhere}", f"tls.ca_file: {NO_FILE}"),
        (
            "type: rabbitmq, url: 'amqp://h', connection_timeout: soon",
            "connection_timeout: 'soon' is not a duration such as 90s, 1d12h or PT15M",
        ),
        ("type: kafka, bootstrap_servers: 'h:1', connection_timeout: inf", "connection_timeout: must be at most 86400"),
        (
            "type: kafka, bootstrap_servers: 'SASL://u:hidden@h:1'",
            "bootstrap_servers: a server is host:port, and who logs in there is said as `username` and `password_file`",
        ),
        *(
            (
                f"type: kafka, bootstrap_servers: 'h:1', sasl: OAUTHBEARER, oauth: {{token_url: '{url}', client_id: x, client_secret: x}}",
                "oauth.token_url: is not the URL of a token endpoint, such as https://login.example/oauth2/token",
            )
            for url in ("x", "login.example/token", "https:///token", "ftp://login.example", "https://login.example:x/")
        ),
        ("type: activemq, url: 'stomp://h', connection_timeout: 400d", "connection_timeout: must be at most 86400"),
        ("type: rabbitmq, url: 'amqp://h', heartbeat: 1500ms", "heartbeat: must be whole seconds, such as 30 or 30s"),
        ("type: rabbitmq, url: 'amqp://h', heartbeat: 2h", "heartbeat: must be at most 3600"),
    ],
)
def test_a_brokers_options_are_checked_before_anything_connects(file: Path, broker: str, told: str) -> None:
    assert problems(file, on(broker)) == [f"1: brokers.b.{told}"]


@pytest.mark.parametrize(
    ("broker", "schemes"),
    [
        ("type: rabbitmq, url: 'amqp://h'", "amqps:// or https://"),
        ("type: rabbitmq, url: 'amqp://h', management_url: 'http://h'", "amqps:// or https://"),
        ("type: activemq, url: 'stomp://h'", "stomp+ssl://"),
    ],
)
def test_tls_is_not_silently_left_out_where_no_url_asks_for_it(file: Path, broker: str, schemes: str) -> None:
    (told,) = problems(file, on(f"{broker}, tls: {{verify: false}}"))
    assert told == f"1: brokers.b: `tls` is for URLs that begin with {schemes}, and there is none: nothing would be encrypted"


@pytest.mark.parametrize("broker", ["url: 'amqps://h'", "url: [amqps://h, amqp://h], tls: {cert_file: us.pem}"])
def test_a_login_by_certificate_needs_one_and_a_url_that_shows_it(file: Path, broker: str) -> None:
    (file.parent / "us.pem").touch()
    broker = broker.replace("us.pem", str(file.parent / "us.pem"))
    (told,) = problems(file, on(f"type: rabbitmq, external: true, {broker}"))
    assert told == "1: brokers.b: `external` logs in by the certificate in `tls.cert_file`, over amqps:// only"


@pytest.mark.parametrize(
    "broker",
    [
        "type: rabbitmq, url: 'amqp://h', management_url: 'https://h'",
        "type: rabbitmq, url: 'AMQPS://h'",
        "type: activemq, url: 'STOMP+SSL://h'",
    ],
)
def test_tls_is_for_every_url_that_uses_it_however_its_scheme_is_written(file: Path, broker: str) -> None:
    file.write_text(on(f"{broker}, tls: {{verify: false}}"))
    assert not load(file).brokers["b"].options.tls.verify


@pytest.mark.parametrize(
    "broker",
    [
        "type: rabbitmq, url: 'amqp://h', password_file: hidden",
        "type: activemq, url: 'stomp://h', password_file: hidden",
        "type: kafka, bootstrap_servers: 'h:1', sasl: PLAIN, username: u, password_file: hidden",
        "type: activemq, url: 'stomp+ssl://h', tls: {key_file: hidden}",
        "type: kafka, bootstrap_servers: 'h:1', sasl: OAUTHBEARER, oauth: {token_url: 'https://h', client_id: x, client_secret_file: hidden}",
    ],
)
def test_a_file_in_a_directory_that_this_user_may_not_enter_is_told_as_any_other(
    file: Path, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.is_file", denied)

    (told,) = problems(file, on(broker))

    assert told.startswith("1: brokers.b.")
    assert told.endswith(f"_file: {NO_FILE}")


@pytest.mark.parametrize("broker", ["type: rabbitmq, url: 'amqp:", "type: activemq, url: 'stomp:"])
def test_a_url_whose_host_is_no_text_for_one_is_told_without_its_password(file: Path, broker: str) -> None:
    assert problems(file, on(f"{broker}//bridge:S3cr\u2100et@host'")) == [f"1: brokers.b.url: {SECRET}"]


@pytest.mark.parametrize(
    "parameters", ["heartbeat=S3cret", "client_properties=S3cret(", "ssl_options=1", "S3cret=1", "locale=S3cret&locale=b"]
)
def test_a_parameter_of_a_url_that_cannot_be_used_is_told_without_its_value(file: Path, parameters: str) -> None:
    (told,) = problems(file, on(f"type: rabbitmq, url: 'amqp://host/?{parameters}'"))
    assert told.startswith("1: brokers.b.url: has a parameter behind the `?`")
    assert "S3cret" not in told


@pytest.mark.parametrize("path", ["//", "/a/b", "//a"])
def test_a_virtual_host_whose_slash_is_not_escaped_is_refused_rather_than_another_one_used(file: Path, path: str) -> None:
    assert problems(file, on(f"type: rabbitmq, url: 'amqp://h{path}'")) == [
        "1: brokers.b.url: may name a virtual host behind the host, and nothing behind that: a `/` in its name is written `%2F`"
    ]


@pytest.mark.parametrize(("path", "named"), [("", "/"), ("/", "/"), ("/%2F", "/"), ("/a%2Fb", "a/b")])
def test_a_virtual_host_is_named_or_it_is_the_usual_one(file: Path, path: str, named: str) -> None:
    file.write_text(on(f"type: rabbitmq, url: 'amqp://h{path}'"))
    (parameters,) = load(file).brokers["b"].options.parameters("test")
    assert parameters.virtual_host == named


@pytest.mark.parametrize("given", ["30", "30s", "PT30S", "'30'", "30.0"])
def test_rabbitmqs_heartbeat_is_whole_seconds_written_as_other_times_are(file: Path, given: str) -> None:
    file.write_text(on(f"type: rabbitmq, url: 'amqp://h', heartbeat: {given}"))
    assert load(file).brokers["b"].options.heartbeat == 30


@pytest.mark.parametrize(("given", "seconds"), [("10", 10.0), ("0.5", 0.5), ("10s", 10.0), ("PT1M", 60.0), ("'7'", 7.0)])
def test_time_outs_of_brokers_are_seconds_or_durations_as_text(file: Path, given: str, seconds: float) -> None:
    file.write_text(on(f"type: rabbitmq, url: 'amqp://h', connection_timeout: {given}"))
    assert load(file).brokers["b"].options.connection_timeout == seconds


@pytest.mark.parametrize(
    ("brokers", "told"),
    [
        ("", "routes[0].frm: unknown key; did you mean `from`?"),
        ("brokers:\n", "routes[0].frm: unknown key; did you mean `from`?"),
        ("brokers: []\n", "routes[0].frm: unknown key; did you mean `from`?"),
        ("brokers: {b: }\n", "routes[0].frm: unknown key; did you mean `from`?"),
        ("brokers: {b: {url: x}}\n", "routes[0].frm: unknown key; did you mean `from`?"),
    ],
)
def test_a_file_that_is_half_written_is_told_what_it_lacks(file: Path, brokers: str, told: str) -> None:
    route = "{name: r, frm: {broker: b, queue: in}, from: {broker: b, queu: in}, to: {broker: b, adress: x}}"
    assert any(told in problem for problem in problems(file, f"{brokers}routes: [{route}]"))


@pytest.mark.parametrize("address", ["", ", address: ''", ", address: '${NOTHING:}'"])
def test_a_route_to_another_broker_says_where_its_messages_go_there(file: Path, address: str) -> None:
    brokers = "brokers: {here: {type: memory}, there: {type: memory}}"
    (told,) = problems(file, f"{brokers}\nroutes: [{{name: r, from: {{broker: here, queue: in}}, to: {{broker: there{address}}}}}]")
    assert told == (f"2: routes[0].to: leads to another broker, without an address there{HINT}")


@pytest.mark.parametrize(
    ("kind", "address", "why"),
    [
        ("rabbitmq, url: 'amqp://h'", "/queue/orders", "is neither /queues/<queue> nor"),
        ("activemq, url: 'stomp://h:1'", "/queues/orders", "is neither /queue/<name> nor"),
        ("kafka, bootstrap_servers: 'h:1'", "no topic", "is illegal"),
    ],
)
def test_an_address_to_which_nothing_can_be_sent_is_refused(file: Path, kind: str, address: str, why: str) -> None:
    """Every message would be dead-lettered, or shelved as a dead letter."""
    brokers = f"brokers: {{m: {{type: memory}}, b: {{type: {kind}}}}}"
    for place, key in (
        (f"to: {{broker: b, address: '{address}'}}", "to.address"),
        (f"to: {{broker: b, address: x}}, dead_letter: '{address}'", "dead_letter"),
    ):
        (told,) = problems(file, f"{brokers}\nroutes: [{{name: r, from: {{broker: m, queue: in}}, {place}}}]")
        assert told.startswith(f"2: routes[0].{key}: '{address}'")
        assert why in told


@pytest.mark.parametrize("topic", ["'.'", "'..'", "[a, '..']", "''", "a/b", "a" * 250])
def test_a_name_that_no_topic_of_kafka_can_have_is_refused_where_a_route_reads(file: Path, topic: str) -> None:
    route = f"{{name: r, from: {{broker: b, topic: {topic}}}, to: {{broker: b, address: out}}}}"
    (told,) = problems(file, f"brokers: {{b: {{type: kafka, bootstrap_servers: 'h:1'}}}}\nroutes: [{route}]")

    assert "is not a topic: 1 to 249 of A-Z a-z 0-9 . _ -" in told


def test_where_brokers_is_misspelt_nothing_is_said_of_what_a_route_says_of_its_broker(file: Path) -> None:
    told = problems(file, "broker: {b: {type: memory}}\nroutes: [{name: r, from: {broker: b, queue: in}, to: {broker: b}}]")
    assert [problem.partition(": ")[2].partition(":")[0] for problem in told] == ["brokers", "broker"]


KAFKA, RABBIT, ACTIVE = "type: kafka, bootstrap_servers: 'h:1'", "type: rabbitmq, url: 'amqp://h'", "type: activemq, url: 'stomp://h:1'"


@pytest.mark.parametrize(
    ("broker", "source", "why"),
    [
        (KAFKA, "topic: [a, .delayed]", "no topic that it reads is called `<destination>.delayed`"),
        (f"{KAFKA}, delayed_suffix: -later", "topic: a.delayed", "no topic that it reads is called `<destination>-later`"),
        (ACTIVE, "queue: in", "it has no `gate`"),
    ],
)
def test_a_route_in_which_no_message_can_have_a_destination_is_refused(file: Path, broker: str, source: str, why: str) -> None:
    """Each would be shelved."""
    told = f"says no address, and neither does any message, because {why}{HINT}"
    assert problems(file, on(broker, f"{{name: r, from: {{broker: b, {source}}}, to: {{broker: b}}}}")) == [f"2: routes[0].to: {told}"]


@pytest.mark.parametrize(
    ("broker", "route"),
    [
        (KAFKA, "from: {broker: b, topic: [a, b.delayed]}, to: {broker: b}"),
        (KAFKA, "from: {broker: b, topic: ^a.*}, to: {broker: b}"),
        (KAFKA, "from: {broker: b, topic: a}, to: {broker: b, address: out}"),
        (KAFKA, "from: {broker: b, topic: a}, to: {broker: b}, allow_to: ['*']"),
        (ACTIVE, "from: {broker: b, queue: in, gate: [/queue/a]}, to: {broker: b}"),
        (RABBIT, "from: {broker: b, queue: in}, to: {broker: b}"),
    ],
)
def test_a_route_in_which_a_message_may_have_a_destination_is_none_of_them(file: Path, broker: str, route: str) -> None:
    """A RabbitMQ queue may be bound to any exchange, to which its messages go on."""
    file.write_text(on(broker, f"{{name: r, {route}}}"))
    assert load(file).routes


def test_an_address_that_is_empty_is_none(file: Path) -> None:
    file.write_text(on("type: memory", "{name: r, from: {broker: b, queue: in}, to: {broker: b, address: ''}, dead_letter: ''}"))
    (route,) = load(file).routes
    assert (route.to.address, route.dead_letter) == (None, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("25", "is 25 ms, too short to drain: write a unit, as in 25s"),
        ("'500'", "is 500 ms, too short to drain: write a unit, as in 500s"),
        ("500ms", "must be at least 1s: less is too short to drain"),
        ("PT0.5S", "must be at least 1s: less is too short to drain"),
    ],
)
def test_a_drain_that_is_over_at_once_is_taken_for_a_slip(file: Path, given: str, told: str) -> None:
    assert problems(file, on("type: memory") + f"\nshutdown_timeout: {given}") == [f"3: shutdown_timeout: {told}"]


@pytest.mark.parametrize(("given", "wait"), [("0", 0), ("1s", 1_000), ("1000", 1_000)])
def test_a_drain_may_take_a_second_or_be_left_out(file: Path, given: str, wait: int) -> None:
    file.write_text(on("type: memory") + f"\nshutdown_timeout: {given}")
    assert load(file).shutdown_timeout == wait


@pytest.mark.parametrize(
    ("broker", "one", "other"),
    [
        ("{type: memory}", "{broker: here, queue: in}", "{broker: here, queue: in}"),
        ("{type: rabbitmq, url: 'amqp://host'}", "{broker: here, queue: in, gate: [a]}", "{broker: here, queue: in, gate: [b]}"),
        ("{type: kafka, bootstrap_servers: 'host:1'}", "{broker: here, topic: in}", "{broker: here, topic: [in], instance: two}"),
        ("{type: kafka, bootstrap_servers: 'host:1'}", "{broker: here, topic: [a, b]}", "{broker: here, topic: [c, b]}"),
        ("{type: kafka, bootstrap_servers: 'host:1'}", "{broker: here, topic: '^a[.].*'}", "{broker: here, topic: [c, a.b]}"),
    ],
)
def test_two_routes_that_read_the_same_place_are_refused(file: Path, broker: str, one: str, other: str) -> None:
    routes = f"routes:\n  - {{name: a, from: {one}, to: {{broker: here}}}}\n  - {{name: b, from: {other}, to: {{broker: here}}}}\n"

    assert problems(file, f"brokers: {{here: {broker}}}\n{routes}") == [
        "4: routes[1].from: is already read by route 'a': each would get some of the other's messages"
    ]


def test_two_groups_on_kafka_may_read_the_same_topic(file: Path) -> None:
    routes = [f"{{name: {name}, from: {{broker: k, topic: in, group: {name}}}, to: {{broker: k, address: out}}}}" for name in ("a", "b")]
    file.write_text(f"brokers: {{k: {{type: kafka, bootstrap_servers: 'host:1'}}}}\nroutes: [{', '.join(routes)}]")

    assert len(load().routes) == 2


@pytest.mark.parametrize(
    ("broker", "route", "key"),
    [
        ("{type: memory}", "from: {broker: here, queue: in}, to: {broker: here, address: in}", "to.address"),
        ("{type: memory}", "from: {broker: here, queue: in}, to: {broker: here}, dead_letter: in", "dead_letter"),
        ("{type: rabbitmq, url: 'amqp://host'}", "from: {broker: here, queue: in}, to: {broker: here, address: /queues/in}", "to.address"),
        ("{type: rabbitmq, url: 'amqp://host'}", "from: {broker: here, queue: in}, to: {broker: here, address: in}", "to.address"),
        ("{type: activemq, url: 'stomp://host'}", "from: {broker: here, queue: in}, to: {broker: here, address: in}", "to.address"),
        ("{type: kafka, bootstrap_servers: 'h:1'}", "from: {broker: here, topic: [a, b]}, to: {broker: here, address: b}", "to.address"),
        (
            "{type: kafka, bootstrap_servers: 'h:1'}",
            "from: {broker: here, topic: ^a.*}, to: {broker: here}, dead_letter: ab",
            "dead_letter",
        ),
    ],
)
def test_a_route_that_leads_to_what_it_reads_is_refused(file: Path, broker: str, route: str, key: str) -> None:
    assert problems(file, f"brokers: {{here: {broker}}}\nroutes:\n  - {{name: a, {route}}}\n") == [
        f"3: routes[0].{key}: is what this route reads: what goes there would come back"
    ]
