"""The section `http`: what is refused with which words, and where a client finds the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.config.config_problems import problems

from delaybridge.bridge.config.file import load, load_http
from delaybridge.bridge.config.secrets import masked, secrets

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http: {token_file: nowhere}", "1: http.token_file: cannot read the secret: [Errno 2] No such file or directory: 'nowhere'"),
        (
            'http: {token: "sixteen characters \\n and more"}',
            "1: http.token: is one line of printable ASCII with no blank at either end: a client sends it in a header",
        ),
        ("http: {token: short}", "1: http.token: is too short: at least 16 are needed"),
        (
            'http: {token: a-token-of-length, read_token: " another-of-length"}',
            "1: http.read_token: is one line of printable ASCII with no blank at either end: a client sends it in a header",
        ),
        ("http: {token: a-token-of-length, read_token: short}", "1: http.read_token: is too short: at least 16 are needed"),
        (
            "http: {token: a-token-of-length, read_token: a-token-of-length}",
            "1: http.read_token: is the same as http.token: it would not only read",
        ),
        (
            "http: {read_token: a-token-of-length}",
            "1: http.read_token: needs http.token beside it: without that, whoever has no token may do everything",
        ),
        (
            "http: {token: a-token-of-length, read_token_file: nowhere}",
            "1: http.read_token_file: cannot read the secret: [Errno 2] No such file or directory: 'nowhere'",
        ),
        ("http: {token: a-token-of-length, token_file: x}", "1: http.token_file: token is given as well: keep one of the two"),
        ('http: {bind: "127.0.0.1:8571"}', '1: http.bind: 127.0.0.1:8571 holds a port: write `bind: "127.0.0.1"` and `port: 8571`'),
        ('http: {bind: "[::1]:8571"}', '1: http.bind: [::1]:8571 holds a port: write `bind: "::1"` and `port: 8571`'),
        ("http: {bind: 0.0.0.0}", "1: http.bind: 0.0.0.0 is reachable from other machines: set http.token_file, or bind to 127.0.0.1"),
    ],
)
def test_what_would_leave_the_api_open_or_unreachable_is_told_with_what_to_do(file: Path, text: str, told: str) -> None:
    assert problems(file, text) == [told]


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8470"),
        ("::", "http://[::1]:8470"),
        ("[::1]", "http://[::1]:8470"),
        ("localhost", "http://localhost:8470"),
    ],
)
def test_a_client_on_this_machine_finds_the_api_behind_any_bind(file: Path, bind: str, url: str) -> None:
    file.write_text(f'http: {{bind: "{bind}", token: a-token-of-length}}')

    assert load_http(file).url == url


def test_a_token_that_only_reads_comes_from_a_file_or_the_environment_as_the_other_one(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reads").write_text("only-reads-this-one\n")
    file.write_text(f"http: {{token: a-token-of-length, read_token_file: {tmp_path}/reads}}")
    from_file = load(file)
    file.write_text("http: {token: a-token-of-length}")
    monkeypatch.setenv("DELAYBRIDGE__HTTP__READ_TOKEN", "only-reads-that-one")

    assert [each.http.read_token.get_secret_value() for each in (from_file, load(file)) if each.http.read_token] == [
        "only-reads-this-one",
        "only-reads-that-one",
    ]
    assert "only-reads-this-one" in secrets(from_file)
    assert masked(from_file)["http"]["read_token"] == "***"
