"""kafka-python's decoders, made by one thread at a time.

kafka-python 3.0.12 writes the function that decodes one kind of answer when the first such answer comes; all clients of the process share it. While it
writes, it sets the class of the result in a description that is shared too, and takes it out afterwards. Of two threads that do so at once, one may find
it taken out: then the function fails at each answer, and a connection that such an answer comes from is not read any more. Until the process ends every
request of that kind goes unanswered: "Unable to bootstrap", from a broker that is well.
"""

from __future__ import annotations

import threading
from typing import Any

from kafka.protocol.schemas.fields.struct import StructField

_compile = StructField.compiled_decode_from
_compiling = threading.Lock()


def _compiled_decode_from(struct: Any, version: int, compact: bool = False, tagged: bool = False, data_class: Any = None) -> Any:
    known = struct._compiled_encoders.get(("decode", version, compact, tagged, data_class))  # noqa: SLF001 - there it keeps them; the lock is for the first
    if known is not None:
        return known
    with _compiling:
        return _compile(struct, version, compact, tagged, data_class)


def make_singly() -> None:
    """From now on. Idempotent."""
    StructField.compiled_decode_from = _compiled_decode_from
