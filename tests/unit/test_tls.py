"""TLS settings that all brokers share."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from delaybridge.adapters.tls import Tls

if TYPE_CHECKING:
    from pathlib import Path


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@needs_openssl
def test_an_encrypted_key_is_told_and_nobody_is_asked_for_its_passphrase(tmp_path: Path) -> None:
    """OpenSSL would ask the terminal, at each connection; a daemon has nobody there."""
    key, certificate = tmp_path / "client.key", tmp_path / "client.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:secret", "-subj", "/CN=client"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)

    with pytest.raises(OSError, match=r"client\.key is encrypted: give one without a passphrase"):
        Tls(cert_file=certificate, key_file=key).context()


@needs_openssl
@pytest.mark.parametrize("damage", ["half", "of another", "empty", "gone"])
@pytest.mark.parametrize("damaged", ["client.key", "client.pem"])
def test_a_certificate_or_key_that_is_being_replaced_is_named(tmp_path: Path, damaged: str, damage: str) -> None:
    """What is read in the middle of a rotation is half of a file, or the halves of two pairs; OpenSSL's own words name no file."""
    pair(tmp_path, "client")
    pair(tmp_path, "other")
    files = Tls(cert_file=tmp_path / "client.pem", key_file=tmp_path / "client.key")
    files.context()
    content = (tmp_path / damaged).read_bytes()
    contents = {
        "half": content[: len(content) // 2],
        "of another": (tmp_path / damaged.replace("client", "other")).read_bytes(),
        "empty": b"",
    }
    (tmp_path / damaged).unlink()
    if damage in contents:
        (tmp_path / damaged).write_bytes(contents[damage])

    with pytest.raises(OSError, match=r"^TLS cannot use .*client\.pem with .*client\.key: .+"):
        files.context()


@pytest.mark.parametrize("content", [None, "", "-----BEGIN CERTIFICATE-----\nMIID"])
def test_authorities_that_are_being_replaced_are_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    file.touch()
    files = Tls(ca_file=file)
    file.unlink()
    if content is not None:
        file.write_text(content)

    with pytest.raises(OSError, match=r"^TLS cannot use .*ca\.pem: .+"):
        files.context()


def test_a_key_without_its_certificate_is_refused_for_no_broker_would_be_shown_one(tmp_path: Path) -> None:
    key = tmp_path / "client.key"
    key.touch()

    with pytest.raises(ValidationError, match=r"`key_file` is for the certificate in `cert_file`, and there is none"):
        Tls(key_file=key)


def pair(folder: Path, name: str) -> None:
    """A certificate and its key."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"]
    subprocess.run([*command, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"], check=True, capture_output=True)
