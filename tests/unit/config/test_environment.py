"""Which variable, or which line of the file, a problem is told of where both have a part in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.config.config_problems import SMALL, problems

from delaybridge.bridge.config.file import in_level_queues, load, load_http, load_limits

if TYPE_CHECKING:
    from pathlib import Path


def test_a_variable_is_not_blamed_for_what_the_file_says_beside_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HERE__PASSWORD", "secret")
    monkeypatch.setenv("DELAYBRIDGE__HTTP", '{"port": 1}')
    monkeypatch.setenv("DELAYBRIDGE__LOGS__LEVEL", "debug")
    rabbit = "{type: rabbitmq, url: 'amqp://host', tls: {}}"

    told = problems(file, SMALL.replace("{type: memory}", rabbit) + "http: {bind: 0.0.0.0}\nlogs: {format: loud}\n")

    assert told == [
        "3: brokers.here: `tls` is for URLs that begin with amqps:// or https://, and there is none: nothing would be encrypted",
        "6: http.bind: 0.0.0.0 is reachable from other machines: set http.token_file, or bind to 127.0.0.1",
        "7: logs.format: must be 'auto', 'json' or 'console'",
    ]


def test_of_a_section_and_its_keys_in_the_environment_each_is_blamed_for_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYBRIDGE__HTTP", '{"bind": "0.0.0.0", "prot": 1}')
    monkeypatch.setenv("DELAYBRIDGE__HTTP__PORT", "many")

    assert problems(file, f"{SMALL}http:\n") == [
        "DELAYBRIDGE__HTTP__PORT: must be a whole number",
        "DELAYBRIDGE__HTTP: prot: unknown key; did you mean `port`? known keys: bind, port, token, read_token",
    ]


def test_of_a_section_and_its_keys_in_the_environment_the_one_that_is_no_json_is_blamed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYBRIDGE__STORE__PATH", "/x")
    monkeypatch.setenv("DELAYBRIDGE__STORE", "{bad")

    (told,) = problems(file, SMALL)

    assert told.startswith("DELAYBRIDGE__STORE: is not JSON")


def test_a_variable_that_names_no_broker_of_the_file_is_blamed_for_what_the_broker_that_it_makes_lacks(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HER__PREFETCH", "500")

    (told,) = problems(file, SMALL)

    assert told.startswith("DELAYBRIDGE__BROKERS__HER__PREFETCH: brokers.her.type: is missing; the known types are: ")


def test_a_key_of_the_file_that_is_also_the_name_of_a_variable_is_told_by_its_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")

    assert problems(file, f"{SMALL}HOME: x\n")[0].startswith("6: HOME: unknown key")


@pytest.mark.parametrize("password", ["12345678", "1e5", "true", "null", '"quoted', '"quoted"', "007"])
def test_a_password_in_the_environment_is_text_whatever_it_looks_like(file: Path, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HERE__PASSWORD", password)
    file.write_text(SMALL.replace("{type: memory}", "{type: rabbitmq, url: 'amqp://host'}"))
    assert load(file).brokers["here"].options.password.get_secret_value() == password


def test_numbers_times_switches_and_lists_of_a_broker_can_be_given_in_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HERE__PREFETCH", "77")
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HERE__CONNECTION_TIMEOUT", "3")
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HERE__EXACTLY_ONCE", "false")
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HERE__TLS", "true")
    monkeypatch.setenv("DELAYBRIDGE__BROKERS__HERE__BOOTSTRAP_SERVERS", '["a:1", "b:2"]')
    file.write_text(SMALL.replace("{type: memory}", "{type: kafka, bootstrap_servers: 'h:1'}").replace("queue: in", "topic: in.delayed"))
    options = load(file).brokers["here"].options
    assert (options.prefetch, options.connection_timeout, options.exactly_once) == (77, 3, False)
    assert options.bootstrap_servers == ("a:1", "b:2")
    assert options.tls


def test_the_environment_goes_before_the_file_for_commands_that_need_a_part_of_the_configuration_too(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYBRIDGE__HTTP__PORT", "9000")
    monkeypatch.setenv("DELAYBRIDGE__LIMITS__MAX_DELAY", "2h")
    monkeypatch.setenv("DELAYBRIDGE__STORE__KIND", "level_queues")
    file.write_text(f"{SMALL}http: {{port: 8000}}\nlimits: {{max_delay: 1h}}\nstore: {{kind: time_index}}\n")
    assert (load_http().port, load_limits().max_delay, in_level_queues()) == (9000, 7_200_000, True)


@pytest.mark.parametrize("section", ["limits", "store"])
@pytest.mark.parametrize("levels", ['["1s", "2s"]', "[1000, 2000]", "1s 2s"])
def test_levels_in_the_environment_are_a_list_in_json_as_others_are_or_text(
    file: Path, monkeypatch: pytest.MonkeyPatch, section: str, levels: str
) -> None:
    file.write_text(SMALL + "store: {kind: level_queues, broker: here}")
    monkeypatch.setenv(f"DELAYBRIDGE__{section.upper()}__LEVELS", levels)

    assert load().limits.levels == load_limits().levels == (1_000, 2_000)


def test_levels_that_are_half_a_list_are_told_by_the_variable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYBRIDGE__LIMITS__LEVELS", '["1s"')

    assert problems(file, SMALL)[0].startswith("DELAYBRIDGE__LIMITS__LEVELS: '[\"1s\"' is not a duration")
