"""A daemon behind a proxy that terminates TLS."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from contract.certificates import certificates, serving
from fake_daemon import STATUS, call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("alone")


class Answer(BaseHTTPRequestHandler):
    """Whatever is asked, this is the daemon's status."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(STATUS).encode())

    def log_message(self, *_: object) -> None:
        """Standard error is for the test's own."""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[str]:
    """Its address; the folder has the certificate of its authority, `ca.pem`, which nobody else trusts."""
    certificates(tmp_path)
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = serving(tmp_path).wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"https://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_command_line_trusts_the_authorities_that_the_machine_is_told_to_trust(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    assert "b1 (0.1.0)" in call("status", "--url", proxy).stdout


def test_a_proxy_of_an_unknown_authority_is_told_with_status_69(proxy: str) -> None:
    told = call("status", "--url", proxy)

    assert (told.exit_code, "certificate verify failed" in told.stderr) == (69, True)
