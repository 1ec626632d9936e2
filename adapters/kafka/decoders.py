"""kafka-python's decoders, and the classes of what they decode, made by one thread at a time.

kafka-python 3.0.12 makes both when the first answer of a kind comes, and all clients of the process share them. Two threads that do so at once may
spoil them, in two ways:

- While it writes the function that decodes an answer, it sets the class of the result in a description that is shared too, and takes it out afterwards. The
  other thread may find it taken out: then the function fails at each answer.
- Of the class for one version of an answer each thread makes its own. One of them is kept; the other one may be what answers are looked up by, weakly:
  once it is collected as garbage, no answer of that kind finds its class (`ReferenceError`).

Either way a connection that such an answer comes from is not read any more. Until the process ends every request of that kind goes unanswered: "Unable to
bootstrap", or "Request timed out", from a broker that is well.
"""

from __future__ import annotations

import threading
from typing import Any

from kafka.protocol.api_message import VersionSubscriptable
from kafka.protocol.schemas.fields.struct import StructField

_compile = StructField.compiled_decode_from
_version = VersionSubscriptable.__getitem__
_making = threading.RLock()


def _compiled_decode_from(struct: Any, version: int, compact: bool = False, tagged: bool = False, data_class: Any = None) -> Any:
    known = struct._compiled_encoders.get(("decode", version, compact, tagged, data_class))  # noqa: SLF001 - there it keeps them; the lock is for the first
    if known is not None:
        return known
    with _making:
        return _compile(struct, version, compact, tagged, data_class)


def _of_version(message: Any, version: int | None) -> Any:
    known = message._VERSIONS.get(version)  # noqa: SLF001 - as above
    if known is not None:
        return known
    with _making:
        return _version(message, version)


def make_singly() -> None:
    """Make each decoder once, when it is first needed, from now on. Idempotent."""
    StructField.compiled_decode_from = _compiled_decode_from
    VersionSubscriptable.__getitem__ = _of_version
