"""Certificates of an authority that nobody else trusts, for brokers that ask for one."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.tls import Tls

if TYPE_CHECKING:
    from pathlib import Path


def certificates(folder: Path, server: str = "DNS:localhost") -> None:
    """ca.pem, server.pem, client.pem, with their keys; `server` is where that one stands. Skips the test where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    for name, extra in (("ca", []), ("server", ["-addext", f"subjectAltName={server}"]), ("client", [])):
        signed = ["-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key")] if name != "ca" else []
        command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", *extra, *signed]
        subprocess.run([*command, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"], check=True, capture_output=True)


def tls(folder: Path, **changes: Any) -> Tls:
    """The settings of a client that has such a certificate."""
    return Tls(**{"ca_file": folder / "ca.pem", "cert_file": folder / "client.pem", "key_file": folder / "client.key"} | changes)
