r"""Header values for brokers that know no types: Kafka's are bytes, STOMP's are text.

Text goes out as UTF-8, numbers as decimal text, booleans as `true` and `false`, floats by their shortest text, instants as epoch seconds, tables and
arrays as JSON (bytes in them that are not UTF-8 as base64, in names as `\xff`). Bytes stay as they are; nothing is None.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

from ..core.fields import Field, fields, value_of
from ..core.reasons import Reason
from .base import Rejected


def text_of(field: Field) -> bytes | None:
    """A header's value. Raises Rejected(rejected_by_broker) where it is nested too deep, and MalformedTableError."""
    try:
        value = _plain(field)
    except RecursionError as error:
        raise Rejected(Reason.REJECTED_BY_BROKER, f"header {field.name!r} is nested too deep") from error
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool | dict | list):
        return json.dumps(value, default=_in_json, ensure_ascii=False, separators=(",", ":")).encode()
    return str(value).encode()


def _plain(field: Field) -> Any:
    if field.tag == "F":
        return {each.name.decode(errors="backslashreplace"): _plain(each) for each in fields(field.payload)}
    if field.tag == "A":
        return _items(field.payload)
    if field.tag == "T":
        return int.from_bytes(field.payload, "big")
    if field.tag == "D":
        return f"{Decimal(int.from_bytes(field.payload[1:], 'big', signed=True)).scaleb(-field.payload[0]):f}"
    return value_of(field)


def _items(array: bytes) -> list[Any]:
    """An array is a table without names."""
    items, at = [], 0
    while at < len(array):
        field = next(fields(b"\0" + array[at:]))
        at += field.end - 1
        items.append(_plain(field))
    return items


def _in_json(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
