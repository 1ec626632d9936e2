"""What the bridge and a client's process say to each other: frames, each of a kind, with content in msgpack."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...adapters.base import AdapterError, BackOff, NotConnected, Outgoing, Received, Rejected
from ...core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..config import Logs


class Kind(IntEnum):
    """The first byte of a frame. First what the bridge says, below that the answers."""

    CONNECT = 1
    CLOSE = 2
    RECEIVE = 3
    ACK = 4
    PUBLISH = 5
    AFFIRM = 6

    CONNECTED = 11
    LOST = 12
    NOTHING = 13
    BATCH = 14
    CONFIRMED = 15
    FAILED = 16
    CLOSED = 17
    BLOCKED = 18
    AFFIRMED = 19
    REFUSED = 20


class Setup(NamedTuple):
    """The first thing that a process is told, pickled: which client it runs. Without an endpoint that is a sink."""

    kind: str
    options: Any
    endpoint: Any
    logs: Logs
    secrets: frozenset[str | Path]


class Receive(msgspec.Struct, frozen=True, array_like=True):
    """What Kind.RECEIVE asks for: at most so many messages, and so many seconds to wait for the first; and what Gathering says."""

    limit: int
    timeout: float
    calm: bool = False


Failure = tuple[bytes, str, str, str, int]
"""A tag and why: the error's name, that of its reason, its detail, and a BackOff's partitions."""


def _hook(value: object) -> object:
    if isinstance(value, Rejected):
        return [value.reason.name, value.detail]
    raise TypeError(f"{type(value).__name__} does not go between processes")


def _unhook(kind: type, value: Any) -> object:
    if kind is Rejected:
        return Rejected(Reason[value[0]], value[1])
    raise TypeError(f"{kind.__name__} does not go between processes")


_encode = msgspec.msgpack.Encoder(enc_hook=_hook).encode
receive = msgspec.msgpack.Decoder(Receive).decode
batch = msgspec.msgpack.Decoder(tuple[int, list[Received]], dec_hook=_unhook).decode
outgoing = msgspec.msgpack.Decoder(list[Outgoing]).decode
tags = msgspec.msgpack.Decoder(list[bytes]).decode
text = msgspec.msgpack.Decoder(str).decode
parted = msgspec.msgpack.Decoder(bool).decode
_failures = msgspec.msgpack.Decoder(list[Failure]).decode


def frame(kind: Kind, content: object = None) -> bytes:
    """Ready to send."""
    return bytes((kind,)) if content is None else bytes((kind,)) + _encode(content)


def failure(tag: bytes, error: AdapterError) -> Failure:
    """Why a message was not confirmed, as it goes between processes."""
    if isinstance(error, BackOff | Rejected):
        return tag, type(error).__name__, error.reason.name, error.detail, error.partitions if isinstance(error, BackOff) else 0
    return tag, NotConnected.__name__, "", str(error), 0


def failures(content: memoryview) -> Sequence[tuple[bytes, AdapterError]]:
    """The same, as it was."""
    return [(tag, _error(name, reason, detail, partitions)) for tag, name, reason, detail, partitions in _failures(content)]


def _error(name: str, reason: str, detail: str, partitions: int) -> AdapterError:
    if name == NotConnected.__name__:
        return NotConnected(detail)
    return BackOff(Reason[reason], detail, partitions) if name == BackOff.__name__ else Rejected(Reason[reason], detail)
