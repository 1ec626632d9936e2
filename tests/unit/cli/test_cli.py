"""The command line: which daemon is asked, failures, and the commands that need no daemon."""

from __future__ import annotations

import json
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest
from fake_daemon import STATUS, Daemon, call

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("alone")


def test_an_unknown_option_is_a_usage_error() -> None:
    assert call("status", "--nosuch").exit_code == 2


# --- the daemon is not there, or refuses ---


@pytest.mark.parametrize(
    "command", ["status", "list", "show x", "cancel x", "pause r", "send x", "dead-letter list", "export --to f", "observe x"]
)
def test_a_daemon_that_does_not_run_is_told_in_a_sentence_with_status_69(command: str) -> None:
    told = call(*command.split(), "--url", "http://127.0.0.1:1")

    assert told.exit_code == 69
    assert told.stderr.splitlines()[-1].startswith("no daemon answers at http://127.0.0.1:1 (")
    assert "delaybridge run" in told.stderr


def test_a_missing_token_is_told_with_the_way_to_give_it(daemon: Daemon) -> None:
    daemon.error("GET /api/v1/status", 401, "unauthorized")

    told = call("status")

    assert told.exit_code == 1
    assert told.stderr == "It is unauthorized.; give its token in DELAYBRIDGE_TOKEN or --token-file\n"


@pytest.mark.parametrize(
    ("status", "answer"), [(502, b"<html>"), (200, b"<html>"), (200, {}), (301, b""), (404, {"error": "no such path"})]
)
@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("status", "GET /api/v1/status"),
        ("list", "GET /api/v1/messages"),
        ("show x", "GET /api/v1/messages/x"),
        ("cancel x", "POST /api/v1/messages/x/cancel"),
        ("pause r", "POST /api/v1/routes/r/pause"),
        ("send x", "POST /api/v1/messages"),
    ],
)
def test_something_that_is_no_delaybridge_is_told(daemon: Daemon, command: str, asked: str, status: int, answer: Any) -> None:
    daemon.on(asked, answer, status=status)

    told = call(*command.split())

    assert (told.exit_code, told.output) == (1, f"http://127.0.0.1:8470 answered {status}: is it a delaybridge?\n")


@pytest.mark.parametrize("status", [200, 301])
@pytest.mark.parametrize(("command", "argument"), [("observe", "x"), ("export", "--to=f")])
def test_a_stream_that_is_no_delaybridges_is_told(daemon: Daemon, command: str, argument: str, status: int) -> None:
    daemon.on(f"GET /api/v1/{command}", {"some": "page"}, status=status)

    told = call(command, argument)

    assert (told.exit_code, told.output) == (1, f"http://127.0.0.1:8470 answered {status}: is it a delaybridge?\n")


def test_a_bad_configuration_is_told_with_status_78(tmp_path: Path) -> None:
    (tmp_path / "delaybridge.yaml").write_text("http: {port: x}")

    told = call("status")

    assert told.exit_code == 78
    assert told.stderr == "delaybridge.yaml:1: http.port: must be a whole number\n"


# --- which daemon ---


def test_address_and_token_come_from_the_configuration(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "delaybridge.yaml").write_text("http: {port: 9000, token: a-token-of-length}")
    daemon.on("GET /api/v1/status", STATUS)

    assert call("status").exit_code == 0
    assert daemon.headers[0]["host"] == "127.0.0.1:9000"
    assert daemon.headers[0]["authorization"] == "Bearer a-token-of-length"


def test_an_address_that_is_named_gets_no_token_of_the_configuration(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "delaybridge.yaml").write_text("http: {token: a-token-of-length}")
    (tmp_path / "token").write_text("another\n")
    monkeypatch.setenv("DELAYBRIDGE_URL", "http://bridge:1234")
    daemon.on("GET /api/v1/status", STATUS)

    call("status")
    call("status", "--token-file", "token")

    assert [headers.get("authorization") for headers in daemon.headers] == [None, "Bearer another"]
    assert daemon.headers[0]["host"] == "bridge:1234"


def test_an_address_may_be_named_without_its_scheme(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/status", STATUS)

    assert call("status", "--url", "localhost:8471").exit_code == 0
    assert daemon.headers[0]["host"] == "localhost:8471"


def test_a_token_file_that_cannot_be_read_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")

    told = [call("status", "--token-file", name) for name in ("nope", "binary")]

    assert [each.exit_code for each in told] == [2, 2]
    assert "nope cannot be read: No such file or directory" in told[0].stderr
    assert "binary cannot be read: it is not text" in told[1].stderr


@pytest.mark.parametrize(
    "url", ["localhost:abc", "::1", "http://[::1", "http://", "ftp://bridge", "localhost:99999", "http://..", "http://xn--a", "a\nb"]
)
def test_what_is_no_address_is_told_as_wrong_usage_with_the_form_of_one(url: str) -> None:
    told = call("status", "--url", url)

    assert told.exit_code == 2
    assert f"{url!r} is not a daemon's address; write it as http://localhost:8470" in told.stderr


@pytest.mark.parametrize(
    ("url", "code", "shown"),
    [
        ("http://me:secret@127.0.0.1:1/bridge", 69, "no daemon answers at http://127.0.0.1:1/bridge ("),
        ("http://me:secret@127.0.0.1:99999", 2, "'http://127.0.0.1:99999' is not a daemon's address"),
        ("me:se/cret@127.0.0.1:99999", 2, "'127.0.0.1:99999' is not a daemon's address"),
    ],
)
def test_a_password_in_an_address_as_a_proxy_may_ask_for_one_is_not_shown(url: str, code: int, shown: str) -> None:
    """Cron sends what stands on standard error by mail."""
    told = call("status", "--url", url)

    assert (told.exit_code, shown in told.stderr, "cret" in told.stderr) == (code, True, False)


def test_an_address_with_a_login_is_refused_beside_a_token_which_would_not_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx makes of the login the header that the token should be in."""
    monkeypatch.setenv("DELAYBRIDGE_TOKEN", "a-token-of-length")

    told = call("status", "--url", "http://me:secret@127.0.0.1:1")

    assert told.exit_code == 2
    assert "http://127.0.0.1:1 is given with a login, and there is a token as well" in " ".join(told.stderr.split())
    assert "secret" not in told.stderr


@pytest.mark.parametrize("url", ["bridge", "[::1]:8470", "https://bridge/behind/a/proxy", "http://bücher.example"])
def test_an_address_may_be_any_that_can_be_asked(daemon: Daemon, url: str) -> None:
    path = "/behind/a/proxy" if "proxy" in url else ""
    daemon.on(f"GET {path}/api/v1/status", STATUS)

    assert call("status", "--url", url).exit_code == 0


def test_an_address_of_the_configuration_that_cannot_be_asked_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "delaybridge.yaml").write_text("http: {bind: '::1::2', token: a-token-of-length}")

    told = call("status")

    assert told.exit_code == 69
    assert told.stderr.startswith("no daemon answers at http://[::1::2]:8470 (")


@pytest.mark.parametrize("token", ["schlüssel", "first\nsecond", "a\tb", "a\x00b"])
def test_a_token_that_no_header_can_bear_is_refused_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    (tmp_path / "token").write_text(token)
    told = [call("status", "--token-file", "token")]
    if "\x00" not in token:
        monkeypatch.setenv("DELAYBRIDGE_TOKEN", token)
        told.append(call("status"))

    for each, source in zip(told, ("--token-file", "DELAYBRIDGE_TOKEN"), strict=False):
        assert each.exit_code == 2
        assert f"Invalid value for {source}: a token is one line of printable ASCII" in each.stderr
        assert token[:5] not in each.stderr


def test_a_token_of_the_configuration_is_refused_just_as_well(tmp_path: Path) -> None:
    (tmp_path / "delaybridge.yaml").write_text("http: {token: schlüssel-zum-haus}")

    told = call("status")

    assert told.exit_code == 78
    assert "delaybridge.yaml:1: http.token: is one line of printable ASCII" in told.stderr
    assert "haus" not in told.stderr


def test_a_token_file_that_is_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")

    told = call("status", "--token-file", "token")

    assert (told.exit_code, "token is empty" in told.stderr) == (2, True)


def test_a_token_is_read_without_the_end_of_its_line(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYBRIDGE_TOKEN", "a-token\r\n")
    daemon.on("GET /api/v1/status", STATUS)

    assert call("status").exit_code == 0
    assert daemon.headers[0]["authorization"] == "Bearer a-token"


# --- without a daemon ---


def test_explain_lists_the_next_deliveries() -> None:
    told = call(
        "explain",
        "x-delay-cron=0 9 * * 1-5",
        "x-delay-timezone=Europe/Berlin",
        "--at",
        "2026-11-20T12:00:00Z",
        "--count",
        "2",
        "-o",
        "json",
    )

    found = json.loads(told.stdout)
    assert (told.exit_code, found["verdict"], found["more"]) == (0, "delayed", True)
    assert [each["due"] for each in found["deliveries"]] == [1_795_420_800_000, 1_795_507_200_000]


def test_explain_tells_why_a_message_is_refused_with_status_1() -> None:
    told = call("explain", "x-delay=abc")

    assert told.exit_code == 1
    assert "refused" in told.stdout


def test_explain_tells_how_late_an_instant_is_that_has_passed() -> None:
    told = call("explain", "x-delay-until=2026-11-20T11:00:00Z", "--at", "2026-11-20T12:00:00Z")

    assert "2026-11-20T11:00:00.000Z  at once, 1h late" in told.stdout


def test_explain_follows_the_configured_limits(tmp_path: Path) -> None:
    (tmp_path / "delaybridge.yaml").write_text("limits: {max_delay: 1h}")

    assert call("explain", "x-delay=59m").exit_code == 0
    assert call("explain", "x-delay=61m").exit_code == 1


def _explained(*words: str) -> dict[str, str]:
    """The table, by heading."""
    return dict(line.split("  ", 1) for line in call("explain", *words).stdout.splitlines() if line[0] != " ")


@pytest.mark.parametrize(
    ("header", "note"),
    [
        ("X-Delay=5", "no delay header here; did you mean `x-delay`? Names are case-sensitive"),
        ("x-dealy=5", "no delay header here; did you mean `x-delay`? Names are case-sensitive"),
        ("delayseconds=5", "no delay header here; did you mean `DelaySeconds`? Names are case-sensitive"),
        ("x-delay-id=a", "no delay header here"),
        ("tenant=a", "no delay header here"),
        ("x-delay=0", ""),
        ("x-delay=5", ""),
    ],
)
def test_explain_tells_that_a_name_is_misspelt(header: str, note: str) -> None:
    assert _explained(header).get("note", "").strip() == note


def test_explain_shows_the_way_through_level_queues_to_those_who_have_some(tmp_path: Path) -> None:
    assert "in level queues" not in _explained("x-delay=17m30s")
    assert _explained("x-delay=17m30s", "--levels")["in level queues"].strip() == "10m + 7m + 30s (3 hops)"
    assert _explained("x-delay-until=2020-01-01T00:00:00Z", "--levels")["in level queues"].strip() == "at once"

    (tmp_path / "delaybridge.yaml").write_text("store: {kind: level_queues, levels: 1s 5m}")
    assert _explained("x-delay=6m")["in level queues"].strip() == "5m + 1s x 60 (61 hops)"
    found = json.loads(call("explain", "x-delay=5m", "-o", "json", "--at", "2026-11-20T12:00:00Z").stdout)
    assert found["level_queues"] == {"hops": [{"level": 300_000, "times": 1}], "in_memory": 0}


def test_explain_shows_a_crons_deliveries_in_its_own_zone_as_well() -> None:
    told = call("explain", "x-delay-cron=0 9 * * *", "x-delay-timezone=Europe/Berlin", "--at", "2026-11-20T12:00:00Z").stdout

    assert "2026-11-21T08:00:00.000Z  2026-11-21T09:00:00+01:00  in 20h" in told


def test_check_config_tells_of_each_file_and_shows_it_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("http: {token: a-token-of-length}")
    (tmp_path / "bad.yaml").write_text("http: {port: x}\nstor: 1")

    told = call("check-config", "--show", "good.yaml", "bad.yaml")

    assert told.exit_code == 78
    assert told.stdout.partition("\nbridge: ")[0].startswith("good.yaml: ok, but it names no broker: ")
    assert "token: '***'" in told.stdout
    assert [line.rpartition(": unknown")[0] or line for line in told.stderr.splitlines()] == [
        "bad.yaml:1: http.port: must be a whole number",
        "bad.yaml:2: stor",
    ]


def test_run_with_a_bad_configuration_exits_with_78(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("http: {port: x}")

    assert call("run", "--config", "bad.yaml").exit_code == 78
    assert call("run", "--check").stdout == "no delaybridge.yaml here: the in-process broker, for trying out: ok\n"


def test_check_config_tells_where_a_configuration_without_a_file_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("check-config").stdout == "no delaybridge.yaml here: the in-process broker, for trying out: ok\n"
    assert json.loads(call("check-config", "-o", "json").stdout) == [{"file": None, "ok": True, "problems": []}]

    monkeypatch.setenv("DELAYBRIDGE__BROKERS", '{"m": {"type": "memory"}}')
    monkeypatch.setenv("DELAYBRIDGE__ROUTES", '[{"name": "r", "from": {"broker": "m", "queue": "in"}, "to": {"broker": "m"}}]')
    assert call("check-config").stdout == "the environment's variables: ok\n"


def test_a_wrong_option_of_the_audit_is_wrong_usage_also_beside_help() -> None:
    assert call("audit", "reconcile", "--ledger", "--help").exit_code == 2


def test_plan_has_nothing_to_do_for_the_in_process_broker() -> None:
    told = call("plan", "-o", "json")

    assert (told.exit_code, json.loads(told.stdout)) == (0, [])
    assert told.stderr.startswith("no delaybridge.yaml here: the in-process broker, for trying out\nmemory: nothing to do")


def test_an_unknown_broker_is_a_usage_error() -> None:
    assert call("plan", "--broker", "nosuch").exit_code == 2
    assert call("observe", "x", "--broker", "nosuch").exit_code == 2


def test_doctor_is_content_with_a_ready_daemon(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/status", STATUS | {"lanes": [], "by_address": []})

    told = call("doctor", "-o", "json")

    assert told.exit_code == 0
    assert [finding["ok"] for finding in json.loads(told.stdout)] == [True] * 6


def test_doctor_fails_where_the_daemon_is_not_ready(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/status", STATUS | {"ready": False})

    told = call("doctor")

    assert told.exit_code == 1
    assert "FAIL  the daemon runs (b1, 0.1.0) and is not ready" in told.stdout


def test_doctor_sees_that_the_stores_path_is_a_file(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "delaybridge.yaml").write_text("store: {path: afile}")
    (tmp_path / "afile").touch()
    daemon.on("GET /api/v1/status", STATUS)

    told = call("doctor")

    assert told.exit_code == 1
    assert f"FAIL  {tmp_path}/afile is not a directory: the store cannot be there" in told.stdout


def test_the_version_is_told_as_other_commands_tell_it() -> None:
    assert call("--version").stdout == f"delaybridge {metadata.version('delaybridge')}\n"
    assert "Delayed, repeated and cron messages for the broker that you already run." in call("--help").stdout


def test_version_names_our_own_and_the_clients() -> None:
    found = json.loads(call("version", "-o", "json").stdout)

    assert {"delaybridge", "python", "platform", "pika"} <= found.keys()


def test_version_names_the_clients_that_are_instrumented_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "aiokafka":
            raise metadata.PackageNotFoundError
        return "7"

    monkeypatch.setattr(metadata, "version", version)
    found = json.loads(call("version", "-o", "json").stdout)

    assert (found["confluent-kafka"], "aiokafka" in found) == ("7", False)
