"""Certificates of an authority that nobody else trusts, for brokers that ask for one."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.tls import Tls

if TYPE_CHECKING:
    from pathlib import Path


_KINDS = {
    "ca": ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"),
    "server": ("basicConstraints=CA:FALSE",),
    "client": ("basicConstraints=CA:FALSE",),
}
"""With what belongs in each: from Python 3.13 on an authority without `keyUsage` is refused."""


def certificates(folder: Path, server: str = "DNS:localhost") -> None:
    """ca.pem, server.pem, client.pem, with their keys; `server` is where that one stands. Skips the test where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    for name, kind in _KINDS.items():
        signed = ["-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key")] if name != "ca" else []
        added = [*kind, *([f"subjectAltName={server}"] if name == "server" else [])]
        extensions = [word for each in added for word in ("-addext", each)]
        command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", *extensions, *signed]
        subprocess.run([*command, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"], check=True, capture_output=True)


def serving(folder: Path) -> ssl.SSLContext:
    """For a server that stands where its certificate says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context


def tls(folder: Path, **changes: Any) -> Tls:
    """The settings of a client that has such a certificate."""
    return Tls(**{"ca_file": folder / "ca.pem", "cert_file": folder / "client.pem", "key_file": folder / "client.key"} | changes)
