"""A network between a client and its broker."""

from __future__ import annotations

import socket
import threading
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """A way to the broker that can fall silent."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = target.port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{target.port}", f":{self._server.getsockname()[1]}")
        self._frozen = False
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def freeze(self) -> None:
        self._frozen = True

    def _accept(self) -> None:
        try:
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()
        except OSError:
            return

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                if not self._frozen:
                    other.sendall(data)
        except OSError:
            return

    def __exit__(self, *_: object) -> None:
        for each in (self._server, *self._sockets):
            each.close()
