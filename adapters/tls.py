"""TLS, configured alike on every broker."""

from __future__ import annotations

import ssl

from pydantic import BaseModel, ConfigDict

from .options import File  # noqa: TC001  pydantic reads the annotations


class Tls(BaseModel):
    """What differs from TLS by the system's authorities with a checked host name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Reads the files anew. Raises OSError where one cannot be read or used."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file, password=self._refuse)
        return context

    def _refuse(self) -> str:
        """Asked for where the key is encrypted. Without this OpenSSL asks the terminal, at each connection, and the thread waits for it."""
        raise OSError(f"the key in {self.key_file or self.cert_file} is encrypted: give one without a passphrase")
