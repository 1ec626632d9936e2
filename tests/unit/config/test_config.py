"""Configuration: what is accepted, what it becomes, and what is told about what is refused."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest
from unit.config.config_problems import SMALL, problems

from delaybridge.bridge import plugins
from delaybridge.bridge.config.file import ConfigError, load, load_http, load_limits
from delaybridge.bridge.config.secrets import masked, secrets
from delaybridge.core.schedule import Limits

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("alone")


def test_without_a_file_the_in_process_broker_runs_with_a_store_beside_us() -> None:
    config = load()

    assert config.file is None
    assert config.brokers["memory"].type == "memory"
    assert [(route.name, route.source.broker, route.source.endpoint.queue, route.to.broker) for route in config.routes] == [
        ("default", "memory", "delaybridge.in", "memory")
    ]
    assert str(config.ledger_path) == "delaybridge-data/ledger"
    assert config.limits.core().levels[:2] == (1_000, 5_000)


def test_the_file_in_the_working_directory_is_read_and_remembered(file: Path) -> None:
    file.write_text(SMALL)

    config = load()

    assert [route.name for route in config.routes] == ["orders"]
    assert config.file is not None
    assert config.file.resolve() == file


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}"])
def test_a_file_in_which_nothing_stands_is_no_wish_for_the_in_process_broker(file: Path, text: str) -> None:
    """A template that came out empty must not end in a bridge that runs beside no broker."""
    file.write_text(text)

    with pytest.raises(ConfigError, match="is empty: name brokers and routes in it"):
        load(file)


def test_durations_are_text_or_milliseconds_and_sizes_have_units(file: Path) -> None:
    file.write_text(
        SMALL
        + "shutdown_timeout: 10s\nretry: {first: 250, cap: PT2M}\nstore: {min_free_disk: 1GiB, max_size: 2 GiB}\nlimits: {max_delay: 1d12h, levels: 1s 2m}"
    )

    config = load(file)

    assert (config.shutdown_timeout, config.retry.first, config.retry.cap) == (10_000, 250, 120_000)
    assert (config.store.min_free_disk, config.store.max_size) == (1024**3, 2 * 1024**3)
    assert config.limits.core() == Limits(max_delay=129_600_000, levels=(1_000, 120_000))


def test_a_tilde_is_a_home_and_not_a_directory_of_that_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    file.write_text(f"store: {{path: ~/waiting}}\nledger: {{path: ~/ledger}}\n{SMALL}")
    config = load()
    assert (str(config.store.path), str(config.ledger_path)) == ("/home/alice/waiting", "/home/alice/ledger")

    (told,) = problems(file, f"store: {{path: ~nobody-of-that-name/waiting}}\n{SMALL}")
    assert "home" in told


def test_a_key_that_is_written_as_problems_name_their_places_is_unknown_like_any_other(file: Path) -> None:
    told = problems(file, f"'routes[0]': {{}}\nhttp: {{'po[rt': 1}}\n{SMALL}")

    assert [one.partition(" unknown key")[0] for one in told] == ["1: routes[0]:", "2: http.po[rt:"]


def test_a_configuration_cannot_be_changed(file: Path) -> None:
    file.write_text(SMALL)

    with pytest.raises(ValueError, match="frozen"):
        load(file).http.port = 1


def test_every_problem_is_told_at_once_with_line_key_and_remedy(file: Path) -> None:
    told = problems(
        file,
        """stor: {}
http: {port: 84700, toke: x}
retry: {first: 2m}
brokers:
  here: {type: memory, capasity: 1}
  there: {type: nosuch}
routes:
  - name: a b
    from: {broker: here, queu: in}
    to: {broker: her}
logs: {level: loud}
""",
    )

    known = "bridge, store, brokers, routes, limits, retry, intake, lane, ledger, http, logs, shutdown_timeout"
    assert told == [
        f"1: stor: unknown key; did you mean `store`? known keys: {known}",
        "2: http.port: must be at most 65535",
        "2: http.toke: unknown key; did you mean `token`? known keys: bind, port, token, read_token",
        "3: retry.first: the first wait is 120000 ms: it must be above 0 and at most `cap` (60000 ms)",
        "5: brokers.here.capasity: unknown key; did you mean `capacity`? known keys: name, create_queues, capacity",
        f"6: brokers.there.type: there is no broker type 'nosuch'; the known ones are: {', '.join(plugins.types())}",
        "8: routes[0].name: may hold letters, digits, `.`, `_` and `-` only",
        "9: routes[0].from.queue: is missing: add it",
        "9: routes[0].from.queu: unknown key; did you mean `queue`? known keys: queue",
        "10: routes[0].to.broker: there is no broker named 'her'; the brokers here are: here, there",
        "11: logs.level: must be 'debug', 'info', 'warning' or 'error'",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("brokers: {here: {}}\nroutes: []", "1: brokers.here.type: is missing; the known types are: activemq, kafka, memory, rabbitmq"),
        ("brokers: {here: {type: memory}}", "1: routes: is missing: add it"),
        ("brokers: {here: {type: memory}}\nroutes: []", "2: routes: is empty: add a route"),
        ("store: {memory: 5x}", "1: store.memory: '5x' is not a duration such as 90s, 1d12h or PT15M"),
        ("limits: {max_delay: 999999w}", "1: limits.max_delay: must be at most 1000 years"),
        (
            "store: {max_size: 511MiB}",
            "1: store.max_size: must be at least 512.0 MiB: twice min_free_disk, and what the store needs for itself",
        ),
        (
            "store: {max_size: 2GiB, min_free_disk: 2GiB}",
            "1: store.max_size: must be at least 4.0 GiB: twice min_free_disk, and what the store needs for itself",
        ),
        ("shutdown_timeout: 6000w", "1: shutdown_timeout: must be at most 100 years"),
        ("limits: {max_delay: -1}", "1: limits.max_delay: must be at least 0"),
        ("- 1", "1: must be a mapping of `key: value` lines"),
        ("store: 3", "1: store: must be a mapping of `key: value` lines"),
        ("http: {port: 1}\nhttp: {port: 2}", "2: http: stands on line 1 already: keep one of the two"),
        ("http: {port: 1\nlogs: {", "2: is not YAML: expected ',' or '}', but got ':'"),
        (
            "http: {port: ${P:1}}",
            "1: is not YAML: expected ',' or '}', but got '{'; inside { } and [ ], put a value that holds ${ } in quotes",
        ),
        ("http: {", "1: is not YAML: expected the node content, but found '<stream end>'"),
        ("http: {}\n---\nlogs: {}", "2: is not YAML: expected a single document in the stream, but found another document"),
        (
            "a: !!python/object:os.system x",
            "1: is not YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object:os.system'",
        ),
        ("a: &here [*here]", "1: is not YAML: an alias stands inside of what it names"),
        ("? {a: 1}\n: 2", "1: is not YAML: a key must be plain text"),
        (
            "logs: {}\nbridge: 2024-02-30",
            "2: is not YAML: '2024-02-30' looks like a value of type timestamp and is not: put it in quotes if text is meant",
        ),
        (
            "bridge: !!bool maybe",
            "1: is not YAML: 'maybe' looks like a value of type bool and is not: put it in quotes if text is meant",
        ),
        ("a: " + "[" * 5000, " is nested too deep"),
    ],
)
def test_a_problem_is_told_in_words_that_say_what_to_do(file: Path, text: str, told: str) -> None:
    assert problems(file, text) == [told]


def test_alternatives_of_one_key_are_one_problem(file: Path) -> None:
    told = problems(file, SMALL.replace("{type: memory}", "{type: rabbitmq, url: 5, tls: {ca_fil: x}}"))
    kafka = problems(file, SMALL.replace("{type: memory}", "{type: kafka, bootstrap_servers: [9092]}").replace("queue: in", "topic: {}"))

    assert kafka == [
        "3: brokers.here.bootstrap_servers: must be text: put it in quotes",
        "5: routes[0].from.topic: must be text: put it in quotes; or it must be a list: lines that begin with `- `",
    ]
    assert told == [
        "3: brokers.here.url: must be text: put it in quotes; or it must be a list: lines that begin with `- `",
        "3: brokers.here.tls.ca_fil: unknown key; did you mean `ca_file`? known keys: ca_file, cert_file, key_file, verify",
    ]


def test_two_routes_of_one_name_are_refused(file: Path) -> None:
    told = problems(file, SMALL + "  - {name: orders, from: {broker: here, queue: other}, to: {broker: here}}\n")

    assert told == ["6: routes[1].name: there is a route 'orders' above already: give each its own name"]


LEVEL_QUEUES = SMALL + "store: {kind: level_queues, broker: here}\n"


def test_level_queues_name_the_broker_that_holds_them(file: Path) -> None:
    file.write_text(LEVEL_QUEUES)

    config = load(file)

    assert (config.store.kind, config.store.broker, config.store.prefix) == ("level_queues", "here", "delaybridge.level")


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("{kind: level_queues}", "store.broker: is missing: name the broker that holds the level queues"),
        ("{kind: level_queues, broker: there}", "store.broker: there is no broker 'there'; the brokers are: here"),
        ("{broker: here}", "store.kind: a time index is on no broker: set kind: level_queues, or leave `broker` and `prefix` out"),
        ("{kind: level_queue}", "store.kind: must be 'time_index' or 'level_queues'"),
    ],
)
def test_a_store_of_no_kind_is_told_what_is_missing(file: Path, store: str, told: str) -> None:
    (problem,) = problems(file, f"{SMALL}store: {store}\n")
    assert told in problem


def test_the_store_can_say_the_levels_of_its_queues(file: Path) -> None:
    said = SMALL + 'store: {kind: level_queues, broker: here, levels: "1s 5s"}\n'
    for text in (said, f"{said}limits: {{levels: [1s, 5s]}}\n"):
        file.write_text(text)
        assert load(file).limits.levels == load_limits(file).levels == (1_000, 5_000)

    told = "store.levels: is another table than `limits.levels`, and the two are one setting: keep one of them"
    assert told in problems(file, f"{said}limits: {{levels: 1s}}\n")[0]


def test_a_time_index_has_no_levels_of_its_own(file: Path) -> None:
    (problem,) = problems(file, f"{SMALL}store: {{levels: 1s}}\n")
    assert "store.levels: a time index has no level queues: set kind: level_queues, or say it as `limits.levels`" in problem


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ("5s 1s", "'5s 1s': levels are durations in rising order"),
        ("1s 1s", "'1s 1s': levels are durations in rising order"),
        ("0s 5s", "'0s 5s': levels are durations in rising order"),
        ("''", "'': levels are durations in rising order"),
        ("1s five", "'five' is not a duration"),
    ],
)
def test_a_table_that_is_none_is_refused_with_the_reason(file: Path, levels: str, told: str) -> None:
    (problem,) = problems(file, f"{LEVEL_QUEUES}limits: {{levels: {levels}}}\n")
    assert f"limits.levels: {told}" in problem


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "nowhere.yaml")


def test_variables_are_filled_in_from_the_environment_or_a_secret_file_or_a_default(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("from-a-mounted-file\n")
    monkeypatch.setenv("TOKEN_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("PORT", "9000")
    monkeypatch.setenv("PORT_FILE", "nowhere")
    file.write_text(SMALL + 'bridge: "${WHO:b}-1"\nhttp: {port: "${PORT}", token: "${TOKEN}"}\nstore: {path: "a$${b}"}')

    config = load(file)

    assert (config.bridge, config.http.port, str(config.store.path)) == ("b-1", 9000, "a${b}")
    assert config.http.token is not None
    assert config.http.token.get_secret_value() == "from-a-mounted-file"


def test_what_was_filled_in_stays_text(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password of digits is no number, and a value cannot bring YAML of its own."""
    monkeypatch.setenv("NAME", "12345")
    monkeypatch.setenv("QUEUE", "in}, to: {broker: other")
    file.write_text(SMALL.replace("memory", 'memory, name: "${NAME}"').replace("queue: in", 'queue: "${QUEUE}"'))

    config = load(file)

    assert config.brokers["here"].options.name == "12345"
    assert config.routes[0].source.endpoint.queue == "in}, to: {broker: other"


def test_a_variable_that_is_not_set_is_told_once_with_the_ways_out(file: Path) -> None:
    told = problems(file, 'http: {token: "${NOT_SET}", port: "${"}')

    assert told == [
        "1: http.token: ${NOT_SET} is not set: set it in the environment, set NOT_SET_FILE, or give a default: ${NOT_SET:default}",
        "1: http.port: `${` begins a variable that does not end: write ${NAME} or ${NAME:default}, or $${ for a plain ${",
    ]


@pytest.mark.parametrize(
    ("text", "value", "name"),
    [
        ("${T:plain}", None, "plain"),
        ("${T:plain}", "set", "set"),
        ("a${T:plain}", "", "a"),
        ("${T:-plain}", None, "plain"),
        ("${T:-plain}", "set", "set"),
        ("${T:-plain}", "", "plain"),
    ],
)
def test_a_default_may_be_written_as_in_shells(
    file: Path, monkeypatch: pytest.MonkeyPatch, text: str, value: str | None, name: str
) -> None:
    if value is not None:
        monkeypatch.setenv("T", value)
    file.write_text(SMALL + f'bridge: "{text}"\n')

    assert load(file).bridge == name


def test_the_environment_goes_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYBRIDGE__HTTP__PORT", "9001")
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HERE__CAPACITY", "7")
    monkeypatch.setenv("DELAYBRIDGE__LIMITS__LEVELS", "1s 2s")
    file.write_text(SMALL + "http: {port: 9000, bind: 127.0.0.2}\n")

    config = load(file)

    assert (config.http.port, config.http.bind) == (9001, "127.0.0.2")
    assert config.brokers["here"].options.capacity == 7
    assert config.limits.levels == (1_000, 2_000)


@pytest.mark.parametrize(
    ("right", "wrong"), [("DELAYBRIDGE__HTTP__PORT", "DELAYBRIDGE__HTPP__PORT"), ("delaybridge__http__port", "delaybridge__x")]
)
def test_a_problem_in_the_environment_is_told_by_the_variable(file: Path, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str) -> None:
    monkeypatch.setenv(right, "many")
    monkeypatch.setenv(wrong, "1")

    told = problems(file, SMALL)

    assert told[0].startswith(f"{wrong}: unknown key; known keys: bridge,")
    assert told[1] == f"{right}: must be a whole number"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (
            "STORE__PTH",
            "/x",
            "unknown key; did you mean `path`? known keys: kind, path, min_free_disk, max_size, memory, broker, prefix, levels",
        ),
        ("HTTP__PROT", "1", "unknown key; did you mean `port`? known keys: bind, port, token, read_token"),
        ("HTTP", '{"prot": 1}', "prot: unknown key; did you mean `port`? known keys: bind, port, token, read_token"),
        ("BROKERS__THERE__NMAE", "1", "unknown key; did you mean `name`? known keys: name, create_queues, capacity"),
        ("BROKERS__HERE__NMAE", "1", "unknown key; did you mean `name`? known keys: name, create_queues, capacity"),
        ("HTTP__PORT__X", "1", "must be a whole number"),
        ("ROUTES__0__NAME", "x", "must be a list: lines that begin with `- `"),
        ("ROUTES", "[]", "is empty: add a route"),
        ("STORE", "x", "is not JSON: a list or a mapping as a whole is written as JSON in the environment"),
    ],
)
def test_a_typo_in_the_environment_is_told_by_the_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__THERE__TYPE", "memory")
    monkeypatch.setenv(f"DELAYBRIDGE__{variable}", value)

    assert problems(file, SMALL) == [f"DELAYBRIDGE__{variable}: {told}"]


def test_commands_find_the_daemon_whatever_is_wrong_elsewhere(file: Path) -> None:
    """Their shell need not know the brokers' passwords."""
    limits = "limits: {max_repeat: 3}\nstore: {kind: 5, levels: 3s}"
    file.write_text(f'http: {{port: 9002}}\n{limits}\nbrokers: {{rabbit: {{type: rabbitmq, url: "${{PASSWORD}}"}}}}\nstor: {{}}')

    assert load_http(file).url == "http://127.0.0.1:9002"
    assert (load_limits(file).max_repeat, load_limits(file).levels) == (3, (3_000,))


def test_secrets_are_found_for_the_logs_and_masked_when_shown(file: Path) -> None:
    file.write_text(SMALL.replace("memory", 'memory, name: "amqp://user:p%40ss@host/"') + "http: {token: a-token-of-length}")

    config = load(file)

    assert secrets(config) == {"a-token-of-length", "p%40ss", "p@ss"}
    shown = masked(config)
    assert shown["http"]["token"] == "***"
    assert shown["brokers"]["here"]["name"] == "amqp://user:***@host/"
    assert shown["routes"][0]["from"] == {"broker": "here", "queue": "in"}


def test_a_password_file_that_the_adapter_reads_itself_is_known_to_the_logs(file: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter22\n")
    file.write_text(SMALL.replace("{type: memory}", f'{{type: rabbitmq, url: "amqp://host/", password_file: {tmp_path}/password}}'))

    assert tmp_path / "password" in secrets(load(file))


def test_an_adapter_whose_library_is_missing_is_told_with_the_command_that_installs_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_found", lambda: {"lost": EntryPoint("lost", "no_such_client", "delaybridge.adapters")})

    assert problems(file, SMALL.replace("memory", "lost")) == [
        "3: brokers.here.type: broker type 'lost' needs no_such_client: pip install '.[lost]' in a clone of delaybridge"
    ]
