"""TLS settings that all brokers share."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from delaybridge.adapters.tls import Tls

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_an_encrypted_key_is_told_and_nobody_is_asked_for_its_passphrase(tmp_path: Path) -> None:
    """OpenSSL would ask the terminal, at each connection; a daemon has nobody there."""
    key, certificate = tmp_path / "client.key", tmp_path / "client.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:secret", "-subj", "/CN=client"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)

    with pytest.raises(OSError, match=r"client\.key is encrypted: give one without a passphrase"):
        Tls(cert_file=certificate, key_file=key).context()
