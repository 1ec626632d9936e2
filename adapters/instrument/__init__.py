"""Producers of Kafka that divert what carries a delay header to the bridge: kafka-python, confluent-kafka and aiokafka, unmodified.

    import delaybridge
    delaybridge.instrument()

A message with a delay header goes to `<topic>.delayed`, all others where they went before. Each client is patched when it is imported, or at
once if it is there already; none is imported from here. What stays as it was, and what cannot be diverted: docs/interception.md.
"""

from __future__ import annotations

import threading
from types import ModuleType

from . import aiokafka, confluent, divert, kafka_python, watch

__all__ = ["instrument", "uninstrument"]

_CLIENTS = {client.MODULE: client for client in (kafka_python, confluent, aiokafka)}
_LOCK = threading.Lock()


def instrument(suffix: str = divert.SUFFIX, ingress: str = "") -> None:
    """Divert messages that carry a delay header, to `<topic><suffix>`, or, where `ingress` is given, to that one topic with `x-delay-to`.

    May be called at any time, from any thread, and again: the last call's arguments hold. Raises ValueError where no topic can be called so.
    """
    rule = divert.Rule(suffix, ingress)
    with _LOCK:
        divert.use(rule)
        watch.start(dict.fromkeys(_CLIENTS, _patch))


def uninstrument() -> None:
    """Take everything back; producers that exist go on undiverted. Does nothing where nothing was instrumented."""
    with _LOCK:
        divert.use(None)
        for module in watch.stop():
            if not _stands_in(module):
                _CLIENTS[module.__name__].restore(module)


def _patch(module: ModuleType) -> None:
    if not _stands_in(module):
        _CLIENTS[module.__name__].patch(module)


def _stands_in(module: ModuleType) -> bool:
    """Whether it is a module of another kind, whose producer is no class: Sphinx puts such ones in the place of clients. They send nothing."""
    return type(module) is not ModuleType and not isinstance(_CLIENTS[module.__name__].sender(module), type)
