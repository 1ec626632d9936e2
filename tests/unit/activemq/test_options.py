"""Options of an ActiveMQ broker."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.activemq import ActiveMQ, Endpoint, adapter
from delaybridge.adapters.base import NotConnected

if TYPE_CHECKING:
    from pathlib import Path


def options(url: Any = "stomp://broker", **more: Any) -> ActiveMQ:
    return ActiveMQ.model_validate({"url": url} | more)


def test_a_url_has_a_host_a_port_and_maybe_a_user() -> None:
    (target,) = options("stomp://alice:p%3Aw@broker:61999").targets()
    assert target == ("broker", 61999, "alice", "p:w", None)
    assert options().targets()[0][:2] == ("broker", 61613)


def test_hosts_are_tried_in_the_order_in_which_they_stand() -> None:
    assert [target.host for target in options(["stomp://b", "stomp+ssl://a"]).targets()] == ["b", "a"]
    assert [target.context is None for target in options(["stomp://b", "stomp+ssl://a"]).targets()] == [True, False]


def test_a_password_file_is_read_at_each_connect_and_goes_before_the_url(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    one = options("stomp://alice:old@broker", username="bob", password_file=file)
    assert one.targets()[0][2:4] == ("bob", "secret")
    file.write_text("newer\n")
    assert one.targets()[0][3] == "newer"
    file.unlink()
    with pytest.raises(NotConnected, match="No such file"):
        one.targets()


@pytest.mark.parametrize("url", ["tcp://broker", "stomp://", "stomp://broker/queue", "stomp://broker?x=1", "stomp://broker:port", []])
def test_what_is_no_url_of_a_stomp_connector_is_refused(url: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the reasons differ
        options(url)


def test_a_password_cannot_be_given_twice_nor_hold_a_header(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch()
    with pytest.raises(ValueError, match="either"):
        options(password="a", password_file=file)
    with pytest.raises(NotConnected, match="one line"):
        options(password="a\nhost:evil").targets()


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(options("stomp://alice:secret@broker", password="secret"))


def test_a_broker_that_is_not_there_is_named_by_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sink = adapter.sink(options(f"stomp://127.0.0.1:{port}"))
    with pytest.raises(NotConnected, match=rf"refused \(at 127\.0\.0\.1:{port}\)$"):
        sink.connect(lambda _: None)


def test_where_no_host_can_have_a_name_the_next_host_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    source = adapter.source(options(["stomp://broker..example", f"stomp://127.0.0.1:{port}"]), Endpoint(queue="q"))
    with pytest.raises(NotConnected, match=rf"refused \(at 127.0.0.1:{port}\)"):
        source.connect()


def test_an_empty_password_file_means_not_connected(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch()
    with pytest.raises(NotConnected, match="no password in it yet"):
        options(password_file=file).targets()


def test_a_password_file_that_holds_no_text_means_not_connected_and_its_bytes_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"hidden\xff")
    with pytest.raises(NotConnected) as error:
        options(password_file=file).targets()
    assert "hidden" not in str(error.value)
