"""Values of the configuration that are read otherwise than they look, or are nobody's wish."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.config.config_problems import SMALL, problems

from delaybridge.bridge.config.file import load
from delaybridge.bridge.config.secrets import secrets

pytestmark = pytest.mark.usefixtures("alone")


def test_a_variable_that_is_set_to_nothing_puts_the_ledger_where_it_is_without_one(file: Path) -> None:
    file.write_text('store: {path: st}\nledger: {path: "${LEDGER:}"}')

    assert load().ledger_path == Path("st/ledger")


def test_a_store_in_no_directory_is_not_made_in_the_current_one(file: Path) -> None:
    assert problems(file, 'store: {path: "${STORE:}"}') == ["1: store.path: is empty: name a directory, or leave the key out"]


@pytest.mark.parametrize("key", ["store", "ledger"])
def test_a_path_that_no_system_takes_is_told_before_it_is_used(file: Path, key: str) -> None:
    assert problems(file, f'{key}: {{path: "a\\0b"}}') == [f"1: {key}.path: holds a NUL, which no path can"]


@pytest.mark.parametrize(
    ("written", "read"), [("1:00:00", "3600"), ("010", "8"), ("-010", "-8"), ("1:30.5", "90.5"), ("0x10", "16"), ("0b11", "3")]
)
def test_a_number_that_yaml_reads_to_another_base_is_told_and_not_taken_for_milliseconds(file: Path, written: str, read: str) -> None:
    (told,) = problems(file, f"retry: {{give_up_after: {written}}}")

    assert told.startswith(
        f"1: retry.give_up_after: '{written}' is the number {read} in YAML, which does not read it as decimal: write a plain number"
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("password: !hunter2", "3: is not YAML: could not determine a constructor for the tag '***'; put the secret in quotes"),
        ("password: *hunter2", "3: is not YAML: found undefined alias '***'; put the secret in quotes"),
        ("'password': !!bool hunter2", "3: is not YAML: '***' looks like a value of type bool and is not: "),
        (
            "client_secret: 01234567",
            "3: brokers.r.client_secret: it is a number in YAML, which does not read it as decimal: write a plain number, ",
        ),
    ],
)
def test_what_is_wrong_with_a_secret_is_told_without_it(file: Path, line: str, told: str) -> None:
    found = "\n".join(problems(file, f"brokers:\n  r:\n    {line}"))

    assert told in found
    assert "hunter2" not in found
    assert "1234567" not in found


def test_numbers_to_the_base_of_ten_and_text_in_quotes_are_what_they_look_like(file: Path) -> None:
    file.write_text("retry: {give_up_after: 0, first: '010', cap: 1_000}")

    assert tuple(dict(load().retry).values()) == (10, 1000, 0)


def test_a_variable_whose_file_holds_no_text_is_told(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(b"\xff")
    monkeypatch.setenv("TOKEN_FILE", str(tmp_path / "secret"))

    (told,) = problems(file, 'http: {token: "${TOKEN}"}')

    assert told.startswith("1: http.token: TOKEN_FILE cannot be read: ")


def test_a_variable_for_a_file_that_is_set_to_nothing_names_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose passes on so what is not set. It named the current directory, which cannot be read."""
    monkeypatch.setenv("TOKEN_FILE", "")
    file.write_text('http: {token: "${TOKEN:a-token-of-length}"}')
    config = load(file)

    assert (config.http.token and config.http.token.get_secret_value()) == "a-token-of-length"
    (told,) = problems(file, 'http: {token: "${TOKEN}"}')
    assert told.startswith("1: http.token: ${TOKEN} is not set: ")


def test_what_an_anchor_names_may_stand_in_several_places_and_be_changed_in_some(file: Path) -> None:
    file.write_text("""
brokers: {here: {type: memory}}
routes:
  - {name: a, from: {broker: here, queue: a}, to: &main {broker: here, address: out}}
  - {name: b, from: {broker: here, queue: b}, to: &other {<<: *main, address: elsewhere}}
  - {name: c, from: {broker: here, queue: c}, to: *other}
  - {name: d, from: {broker: here, queue: d}, to: *other}
""")

    assert [route.to.address for route in load().routes] == ["out", "elsewhere", "elsewhere", "elsewhere"]


@pytest.mark.parametrize(
    "key",
    [
        *(
            "store.min_free_disk",
            "store.max_size",
            "store.memory",
            "limits.max_delay",
            "limits.min_period",
            "limits.max_repeat",
            "retry.first",
        ),
        *("retry.cap", "retry.give_up_after", "intake.batch", "lane.window", "ledger.flush_interval", "http.port", "shutdown_timeout"),
    ],
)
def test_a_switch_is_no_number(file: Path, key: str) -> None:
    section, _, name = key.partition(".")

    assert problems(file, f"{section}: {{{name}: yes}}" if name else f"{section}: on") == [
        f"1: {key}: is the switch true in YAML, and must be a number"
    ]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("null", "names no file: name one, or leave the key out"),
        ('"${TOKEN:}"', "names no file: name one, or leave the key out"),
        ("/dev/null", "/dev/null is empty: a secret must not be"),
        ('"a\\0b"', "cannot read the secret: embedded null byte"),
    ],
)
def test_a_secret_that_no_file_holds_is_told_and_not_taken_for_none(file: Path, written: str, told: str) -> None:
    assert problems(file, f"http: {{token_file: {written}}}") == [f"1: http.token_file: {told}"]


@pytest.mark.parametrize("token", ["sixteen-and-more ", " sixteen-and-more"])
def test_a_token_that_a_header_would_lose_a_blank_of_is_refused_for_no_client_could_send_it(file: Path, tmp_path: Path, token: str) -> None:
    """Else each client was answered 401, and the commands showed the token in an error of the HTTP client's."""
    (tmp_path / "token").write_text(f"{token}\n")

    (told,) = problems(file, f"http: {{token_file: {tmp_path}/token}}")

    assert told == "1: http.token: is one line of printable ASCII with no blank at either end: a client sends it in a header"


def test_what_a_comma_cuts_off_a_secret_without_quotes_is_told_and_not_shown(file: Path) -> None:
    """It was called an unknown key, by its name."""
    told = problems(file, "http: {token: sixteen-and-more,rest-of-it, port: 1}")

    assert told == ["1: http: holds a key without a colon: inside of { } a value that holds a comma must be in quotes"]


@pytest.mark.parametrize("text", ["http: {token: , port: 1}", "http: {port: 1, token: }", "http:\n  token:\n  port: 1"])
def test_a_key_with_a_colon_and_without_a_value_has_none(file: Path, text: str) -> None:
    file.write_text(text)

    assert (load(file).http.token, load(file).http.port) == (None, 1)


def test_the_passwords_of_all_nodes_of_a_broker_are_known_to_the_logs_and_nothing_else_is_one(file: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("third")
    first, second = "amqp://u:first@a", "amqp://u:second@b"
    file.write_text(SMALL.replace("memory", f"rabbitmq, url: ['{first}', '{second}'], password_file: {tmp_path}/password"))
    config = load(file)

    assert secrets(config) == {first, "first", second, "second", tmp_path / "password"}
