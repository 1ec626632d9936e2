"""Files that a broker's client reads at each connection: checked where somebody checks, while the bridge starts without them and tries again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.certificates import certificates
from fake_daemon import call
from unit.config.config_problems import SMALL

from delaybridge.bridge.config.file import ConfigError, check, load

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("alone")


def with_broker(folder: Path, file: Path, broker: str) -> None:
    certificates(folder)
    file.write_text(SMALL.replace("routes:", f"  there: {{{broker.replace('AT', str(folder))}}}\nroutes:"))


@pytest.mark.parametrize(
    "broker", ["type: rabbitmq, url: 'amqps://h', ", "type: kafka, bootstrap_servers: 'h:1', ", "type: activemq, url: 'stomp+ssl://h', "]
)
@pytest.mark.parametrize("damage", ["of another", "empty", "unreadable"])
def test_a_key_that_cannot_be_used_is_told_by_a_check_and_not_first_at_a_connection(
    file: Path, tmp_path: Path, broker: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_broker(tmp_path, file, broker + "tls: {cert_file: AT/client.pem, key_file: AT/client.key}")
    check(file)
    if damage == "unreadable":  # also to root, whom no mode keeps out
        monkeypatch.setattr("ssl.SSLContext.load_cert_chain", denied)
    else:
        (tmp_path / "client.key").write_text((tmp_path / "server.key").read_text() if damage == "of another" else "")

    load(file)
    with pytest.raises(ConfigError) as told:
        check(file)

    (problem,) = told.value.problems
    assert problem.startswith(f"{file}:4: brokers.there.tls: TLS cannot use {tmp_path}/client.pem with {tmp_path}/client.key: ")


def denied(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_both_commands_that_check_find_it(file: Path, tmp_path: Path) -> None:
    with_broker(tmp_path, file, "type: kafka, bootstrap_servers: 'h:1', tls: {cert_file: AT/client.pem, key_file: AT/server.key}")

    for command in (("check-config", str(file)), ("run", "--check", "--config", str(file))):
        told = call(*command)
        assert (told.exit_code, "brokers.there.tls: TLS cannot use" in told.stderr) == (78, True)


@pytest.mark.parametrize("content", [b"", b"\xff"])
def test_a_password_that_is_no_password_yet_is_told_as_well(file: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    file.write_text(SMALL.replace("routes:", f"  there: {{type: rabbitmq, url: 'amqp://h', password_file: {tmp_path}/secret}}\nroutes:"))

    load(file)
    with pytest.raises(ConfigError) as told:
        check(file)

    (problem,) = told.value.problems
    assert problem.startswith(f"{file}:4: brokers.there.password_file: ")
