"""Log lines: their form, and what never stands in them."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from delaybridge.bridge.config import Logs
from delaybridge.bridge.logs import configure, set_level

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_event_level_and_time() -> None:
    stream = io.StringIO()
    configure(Logs(), stream=stream)

    structlog.get_logger("x").info("delivered", id="order-1", lateness_ms=2)

    (line,) = lines(stream)
    assert {"event": "delivered", "level": "info", "id": "order-1", "lateness_ms": 2}.items() <= line.items()
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert line["timestamp"].endswith("Z")


def test_a_terminal_gets_lines_for_people() -> None:
    stream = Terminal()
    configure(Logs(), stream=stream)

    structlog.get_logger("x").info("delivered", id="order-1")

    assert not stream.getvalue().startswith("{")
    assert "order-1" in stream.getvalue()


def test_a_librarys_own_logs_come_the_same_way() -> None:
    stream = io.StringIO()
    configure(Logs(), stream=stream)

    logging.getLogger("some.library").warning("connection %s lost", 3)

    assert [(line["event"], line["level"], line["logger"]) for line in lines(stream)] == [("connection 3 lost", "warning", "some.library")]


@pytest.mark.parametrize("name", ["stomp.py", "kafka.admin.client", "kafka.conn", "httpcore.http11"])
def test_libraries_that_log_passwords_at_debug_never_speak_at_debug(name: str) -> None:
    stream = io.StringIO()
    configure(Logs(level="debug"), stream=stream)

    logging.getLogger(name).debug("passcode:secret")
    logging.getLogger("ours").debug("heard")

    assert [line["event"] for line in lines(stream)] == ["heard"]


def test_a_library_is_quieter_where_all_are() -> None:
    stream = io.StringIO()
    configure(Logs(level="error"), stream=stream)

    logging.getLogger("stomp.py").warning("not this")

    assert stream.getvalue() == ""


def test_the_level_can_be_changed_while_running() -> None:
    stream = io.StringIO()
    configure(Logs(level="warning"), stream=stream)
    log = structlog.get_logger("x")

    log.info("before")
    set_level("info")
    log.info("after")

    assert [line["event"] for line in lines(stream)] == ["after"]


SECRET = 'p@ss/w"örd+1'


@pytest.mark.parametrize("written", [SECRET, "p%40ss%2Fw%22%C3%B6rd%2B1", "cEBzcy93IsO2cmQrMQ=="], ids=["plain", "in a URL", "base64"])
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_loaded_secret_is_masked_in_every_form(written: str, stream: type[io.StringIO]) -> None:
    target = stream()
    configure(Logs(), [SECRET], target)

    structlog.get_logger("x").info("connecting", url=f"amqp://user:{written}@host", nested={"a": [written]})
    logging.getLogger("lib").error("cannot log in with %s", written)

    assert target.getvalue().count("***") == 3
    assert written not in target.getvalue()


def test_a_secret_in_a_traceback_is_masked() -> None:
    stream = io.StringIO()
    configure(Logs(), ["hunter22"], stream)

    structlog.get_logger("x").error("failed", exc_info=ValueError("bad password hunter22"))

    (line,) = lines(stream)
    assert "bad password ***" in line["exception"]


def test_a_secret_that_is_renewed_in_its_file_is_masked_and_the_old_one_stays_so(tmp_path: Path) -> None:
    stream, file = io.StringIO(), tmp_path / "password"
    file.write_text("hunter22\n")
    configure(Logs(), [file], stream)
    log = structlog.get_logger("x")

    log.info("connecting", password="hunter22")
    file.write_text("winter33\n")
    log.info("connecting again", passwords=["hunter22", "winter33"])

    first, second = lines(stream)
    assert first["password"] == "***"
    assert second["passwords"] == ["***", "***"]


@pytest.mark.parametrize("content", [None, b"\xff", b""], ids=["missing", "no text", "empty"])
def test_a_file_that_holds_no_secret_keeps_no_line_from_being_written(tmp_path: Path, content: bytes | None) -> None:
    stream, file = io.StringIO(), tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    configure(Logs(), [file], stream)

    structlog.get_logger("x").info("connecting", to="host")

    (line,) = lines(stream)
    assert line["to"] == "host"


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_control_characters_from_outside_forge_no_line(stream: type[io.StringIO]) -> None:
    target = stream()
    configure(Logs(), stream=target)

    structlog.get_logger("x").info("cancelled", id='a\n{"event":"forged"}\x1b[2J\u2028')

    assert len(target.getvalue().splitlines()) == 1
    assert "\x1b[2J" not in target.getvalue()
