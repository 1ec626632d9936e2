"""TLS, configured alike on every broker."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, model_validator

from .options import File  # noqa: TC001  pydantic reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Tls(BaseModel):
    """What differs from TLS by the system's authorities with a checked host name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None
    verify: bool = True

    @model_validator(mode="after")
    def _key_is_used(self) -> Tls:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError(
                "`key_file` is for the certificate in `cert_file`, and there is none: the broker would be shown no certificate"
            )
        return self

    def context(self) -> ssl.SSLContext:
        """Reads the files anew. Raises OSError, which names them, where one cannot be read or used."""
        with _named(self.ca_file):
            context = ssl.create_default_context(cafile=self.ca_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            with _named(self.cert_file, self.key_file):
                context.load_cert_chain(self.cert_file, self.key_file, password=self._refuse)
        return context

    def curl(self) -> list[str]:
        """The same as options of curl."""
        files = {"--cacert": self.ca_file, "--cert": self.cert_file, "--key": self.key_file}
        given = [word for option, file in files.items() if file is not None for word in (option, str(file))]
        return given if self.verify else [*given, "--insecure"]

    def _refuse(self) -> str:
        """Asked for where the key is encrypted. Without this OpenSSL asks the terminal, at each connection, and the thread waits for it."""
        raise OSError(f"the key in {self.key_file or self.cert_file} is encrypted: give one without a passphrase")


@contextlib.contextmanager
def _named(*files: Path | None) -> Iterator[None]:
    """Say which files an error is about: OpenSSL does not, and one that is half written while it is replaced is `[SSL] PEM lib`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # our own words
            raise
        raise OSError(f"TLS cannot use {' with '.join(str(file) for file in files if file)}: {error}") from error
