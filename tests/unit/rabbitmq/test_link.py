"""pika's errors in our words, and options that become pika's parameters."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pika
import pytest
from brokers.common import wait_until
from contract.certificates import certificates
from pika import URLParameters, exceptions
from pika.adapters.utils import connection_workflow
from pydantic import ValidationError

from delaybridge.adapters.base import NotConnected, Rejected
from delaybridge.adapters.rabbitmq import Endpoint, RabbitMQ, adapter, amqp
from delaybridge.adapters.rabbitmq.link import Link, not_connected, translated
from delaybridge.adapters.rabbitmq.wire import Wire
from delaybridge.adapters.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def rabbit(**options: Any) -> RabbitMQ:
    return RabbitMQ.model_validate(options)


def errors_of(module: object) -> list[type[Exception]]:
    return [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Exception)]


def raised(kind: type[Exception]) -> Exception:
    if issubclass(kind, exceptions.ConnectionClosed | exceptions.ChannelClosed):
        return kind(320, "CONNECTION_FORCED - by the operator")
    if issubclass(kind, exceptions.UnroutableError | exceptions.NackError):
        return kind([])
    if issubclass(kind, exceptions.BodyTooLongError):
        return kind(3, 2)
    if issubclass(kind, connection_workflow.AMQPConnectionWorkflowFailed):
        return kind([ConnectionRefusedError(111, "Connection refused")])
    return kind(OSError("inner"), OSError("inner"))


FOREIGN = [*errors_of(exceptions), *errors_of(connection_workflow), socket.gaierror, ConnectionRefusedError, TimeoutError, ssl.SSLError]


@pytest.mark.parametrize("kind", FOREIGN, ids=lambda kind: kind.__name__)
def test_every_error_of_pika_and_of_the_socket_means_not_connected(kind: type[Exception]) -> None:
    cause = raised(kind)
    with pytest.raises(NotConnected, match=r"RabbitMQ: .+") as ours, translated():
        raise cause
    assert ours.value.__cause__ is not None


def test_an_error_of_ours_is_no_connection_problem() -> None:
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError


def test_the_text_is_what_the_broker_said() -> None:
    assert str(not_connected(raised(exceptions.ConnectionClosedByBroker))) == "RabbitMQ: CONNECTION_FORCED - by the operator"


def test_the_text_names_what_went_wrong_at_the_bottom() -> None:
    refused = connection_workflow.AMQPConnectorSocketConnectError(ConnectionRefusedError(111, "Connection refused"))
    failed = connection_workflow.AMQPConnectionWorkflowFailed([refused])
    assert str(not_connected(failed)) == "RabbitMQ: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            exceptions.ProbableAuthenticationError("ConnectionClosedByBroker: (403) 'ACCESS_REFUSED - Login was refused'"),
            "it ended the connection at the login: ConnectionClosedByBroker: (403) 'ACCESS_REFUSED - Login was refused'",
        ),
        (
            exceptions.IncompatibleProtocolError(
                "StreamLostError: ('[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired',)"
            ),
            "it ended the connection before the login: StreamLostError: ('[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired',)",
        ),
        (
            exceptions.ProbableAccessDeniedError("ConnectionClosedByBroker: (530) 'NOT_ALLOWED - vhost shop not found'"),
            "it ended the connection at the virtual host: ConnectionClosedByBroker: (530) 'NOT_ALLOWED - vhost shop not found'",
        ),
        (exceptions.StreamLostError("Stream connection lost: ConnectionResetError()"), "Stream connection lost: ConnectionResetError()"),
        (exceptions.StreamLostError(), "StreamLostError: ()"),
    ],
)
def test_the_text_is_a_sentence_and_no_tuple(error: Exception, told: str) -> None:
    assert str(not_connected(error)) == f"RabbitMQ: {told}"


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"amqp://127.0.0.1:{probe.getsockname()[1]}"


def test_a_broker_that_is_not_there_is_not_connected() -> None:
    source = adapter.source(rabbit(url=free_address()), Endpoint(queue="q"))
    with pytest.raises(NotConnected, match=r"^RabbitMQ at 127.0.0.1:\d+: .*refused"):
        source.connect()
    with pytest.raises(NotConnected):
        source.receive(1, 0)
    source.close()


def test_a_blocking_connection_to_a_broker_that_is_not_there_says_where_and_why() -> None:
    with pytest.raises(NotConnected, match=r"^RabbitMQ at 127.0.0.1:\d+: .*refused"), amqp.channel([URLParameters(free_address())]):
        pass


def test_a_host_that_can_have_no_such_name_is_not_connected() -> None:
    options = rabbit(url="amqp://broker..example")
    with pytest.raises(NotConnected, match=r"^RabbitMQ at broker\.\.example:5672: "):
        adapter.source(options, Endpoint(queue="q")).connect()
    with pytest.raises(NotConnected, match=r"^RabbitMQ at broker\.\.example:5672: "), amqp.channel(options.parameters("test")):
        pass


def test_a_broker_that_accepts_and_says_nothing_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = rabbit(url=f"amqp://127.0.0.1:{silent.getsockname()[1]}", connection_timeout=0.3)
        with pytest.raises(NotConnected):
            adapter.sink(options).connect(lambda _: None)


def test_all_addresses_of_a_name_are_tried_however_many_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = socket.getaddrinfo
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        dead, refusing = silent.getsockname(), closed.getsockname()
        closed.close()

        def several(host: str, *args: Any, **kwargs: Any) -> Any:
            if host != "several.test":
                return resolved(host, *args, **kwargs)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where) for where in (*[dead] * 8, refusing)]

        monkeypatch.setattr(socket, "getaddrinfo", several)
        sink = adapter.sink(rabbit(url="amqp://several.test", connection_timeout=0.2))
        with pytest.raises(NotConnected, match="refused"):
            sink.connect(lambda _: None)


class Open(Wire):
    """A connection that is open, without a broker."""

    is_open, is_closed = True, False

    def __init__(self) -> None:
        self.aborted = False
        self._told: Callable[[Any, Exception], object] = lambda *_: None

    def add_on_close_callback(self, callback: Callable[[Any, Exception], object]) -> None:
        self._told = callback

    def close(self, *_: object) -> None:
        """The broker does not answer."""

    def abort(self) -> None:
        self.aborted = True
        self._told(self, exceptions.StreamLostError("given up"))


class Told:
    """A session that is ready at once, unless it `breaks`, and notes why it ended."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.breaks = breaks
        self.reasons: list[str] = []

    def opened(self, link: Link, _: Wire) -> None:
        if self.breaks:
            raise RuntimeError("nobody foresaw this")
        link.ready()

    def heard(self, _: object) -> None: ...

    def closing(self, _: object, then: Callable[[], None]) -> None:
        then()

    def lost(self, reason: NotConnected) -> None:
        self.reasons.append(str(reason))


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Open:
    """What every link opens."""
    one = Open()
    monkeypatch.setattr(Wire, "create_connection", lambda _, done, custom_ioloop, **_options: custom_ioloop.add_callback(lambda: done(one)))
    return one


def test_whatever_a_call_raises_ends_the_connection_and_says_so(wire: Open) -> None:
    session = Told()
    link = Link([], session, 5, "test")
    link.start()
    link.post([].pop)
    link.close()
    assert session.reasons == ["RabbitMQ: IndexError('pop from empty list')"]
    assert wire.aborted, "its socket stays open"


def test_whatever_is_raised_while_a_session_opens_ends_the_connection_and_says_so(wire: Open) -> None:
    session = Told(breaks=True)
    with pytest.raises(NotConnected, match="nobody foresaw this"):
        Link([], session, 5, "test").start()
    assert len(session.reasons) == 1
    assert wire.aborted, "its socket stays open"


def test_a_broker_that_does_not_answer_our_farewell_is_left_after_the_timeout(wire: Open) -> None:
    session = Told()
    link = Link([], session, 0.05, "test")
    link.start()
    leaving = threading.Thread(target=link.close, daemon=True)
    leaving.start()
    leaving.join(10)
    assert not leaving.is_alive(), "whoever closes waits for ever"
    assert session.reasons == ["the connection was closed"]
    assert wire.aborted, "its socket stays open"


def test_a_connection_that_a_session_gives_up_ends_with_its_reason_also_where_the_broker_does_not_answer(wire: Open) -> None:
    session = Told()
    link = Link([], session, 0.05, "test")
    link.start()
    link.post(lambda: link.fail(NotConnected("the consumer was cancelled")))
    wait_until(lambda: session.reasons != [], "the session to hear of it")
    assert session.reasons == ["the consumer was cancelled"]
    assert wire.aborted, "its socket stays open"


# --- options ---


@pytest.mark.parametrize("url", ["http://host", "host:5672", "amqp:/host", [], "amqp://host:port", "amqp://host/?heartbeat=often"])
def test_a_url_that_is_none_is_refused(url: object) -> None:
    with pytest.raises(ValidationError):
        RabbitMQ.model_validate({"url": url})


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValidationError, match="heart_beat"):
        RabbitMQ.model_validate({"url": "amqp://host", "heart_beat": 5})


def test_a_password_is_in_no_text_of_the_options() -> None:
    options = rabbit(url="amqp://me:hidden@host", password="secret", management_url="http://me:hidden@host")
    assert "hidden" not in repr(options)
    assert "secret" not in repr(options)


def test_the_url_gives_host_port_vhost_and_login() -> None:
    (parameters,) = rabbit(url="amqp://m%40e:p%2Fw@host:1234/a%2Fb").parameters("test")
    assert (parameters.host, parameters.port, parameters.virtual_host) == ("host", 1234, "a/b")
    assert (parameters.credentials.username, parameters.credentials.password) == ("m@e", "p/w")  # type: ignore[union-attr]


def test_without_a_path_the_vhost_is_the_default_one() -> None:
    (parameters,) = rabbit(url="amqp://host").parameters("test")
    assert parameters.virtual_host == "/"


def test_urls_of_a_cluster_are_tried_in_order() -> None:
    options = rabbit(url=["amqp://a", "amqp://b:5673"])
    assert [(one.host, one.port) for one in options.parameters("test")] == [("a", 5672), ("b", 5673)]


def test_a_password_file_is_read_at_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch()
    options = rabbit(url="amqp://me@host", password_file=file)
    for password in ("first", "second"):
        file.write_text(password + "\n")
        assert options.parameters("test")[0].credentials.password == password  # type: ignore[union-attr]


def test_a_password_file_that_has_gone_means_not_connected(tmp_path: Path) -> None:
    file = tmp_path / "gone"
    file.touch()
    options = rabbit(url="amqp://host", password_file=file)
    file.unlink()
    with pytest.raises(NotConnected, match="gone"):
        options.parameters("test")


def test_a_password_file_that_holds_no_text_means_not_connected_and_its_bytes_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"hidden\xff")
    with pytest.raises(NotConnected) as error:
        rabbit(url="amqp://host", password_file=file).parameters("test")
    assert "hidden" not in str(error.value)


def test_an_empty_password_file_means_not_connected(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("\n")
    with pytest.raises(NotConnected, match="no password in it yet"):
        rabbit(url="amqp://host", password_file=file).parameters("test")


def test_two_passwords_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch()
    with pytest.raises(ValidationError, match="either"):
        rabbit(url="amqp://host", password="a", password_file=file)


def test_times_and_names_reach_pika() -> None:
    options = rabbit(url="amqp://host", heartbeat=7, connection_timeout=3, blocked_connection_timeout=9)
    (parameters,) = options.parameters("sink")
    assert (parameters.heartbeat, parameters.socket_timeout, parameters.stack_timeout) == (7, 3, 3)
    assert parameters.blocked_connection_timeout == 9
    assert parameters.client_properties is not None
    assert parameters.client_properties["connection_name"] == "delaybridge sink"


def test_an_alarm_of_rabbitmq_costs_no_connection_unless_somebody_says_so() -> None:
    """RabbitMQ may read what was sent over it when the alarm is over, and all of it was sent again by then."""
    (parameters,) = rabbit(url="amqp://host").parameters("sink")
    assert parameters.blocked_connection_timeout == 86_400


def test_amqps_checks_certificate_and_name_unless_told_otherwise() -> None:
    url = "amqps://host"
    for tls, mode in ((Tls(), ssl.CERT_REQUIRED), (Tls(verify=False), ssl.CERT_NONE)):
        (parameters,) = rabbit(url=url, tls=tls).parameters("test")
        assert parameters.ssl_options is not None
        assert parameters.ssl_options.context.verify_mode == mode
        assert parameters.ssl_options.context.check_hostname == tls.verify


def test_external_login_uses_the_certificate(tmp_path: Path) -> None:
    certificates(tmp_path)
    (parameters,) = rabbit(
        url="amqps://host", external=True, tls=Tls(cert_file=tmp_path / "client.pem", key_file=tmp_path / "client.key")
    ).parameters("test")
    assert isinstance(parameters.credentials, pika.credentials.ExternalCredentials)


def test_a_tap_on_what_is_no_address_is_rejected() -> None:
    with pytest.raises(Rejected):
        adapter.tap(rabbit(url="amqp://host"), "/nowhere")
