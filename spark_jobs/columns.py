"""The shapes of the inputs, and the check at the door."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.ledger import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

_SPARK = {"string": "string", "int64": "bigint", "timestamp_ms": "timestamp"}

LEDGER: dict[str, str] = {name: _SPARK[kind] for name, kind, _ in COLUMNS}
"""Column and Spark type of a ledger."""

NEEDED = (
    "event",
    "event_time",
    "id",
    "occurrence",
    "due_time",
    "taken_time",
    "kind",
    "dialect",
    "destination_broker",
    "destination",
    "bridge",
    "sequence",
)
"""Ledger columns without which a row cannot be judged. The others are only told of, in histories."""

OBSERVED: dict[str, str] = {
    name: LEDGER[name] for name in ("event", "event_time", "id", "occurrence", "due_time", "destination_broker", "destination")
}
"""What the audit needs of an observation. A ledger has all of these, too: only the event tells them apart."""


def ddl(columns: Mapping[str, str]) -> str:
    """As Spark reads a schema."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


class UnusableInput(Exception):
    """The audit cannot say anything: the message says why, and what to do."""


def require(frame: DataFrame, columns: Mapping[str, str], what: str) -> DataFrame:
    """The frame with these columns only. Raises UnusableInput, which names every column that is missing or of another type."""
    found = dict(frame.dtypes)
    problems = [f"{name} is missing" for name in columns if name not in found]
    problems += [f"{name} is {found[name]}, not {kind}" for name, kind in columns.items() if name in found and found[name] != kind]
    if problems:
        raise UnusableInput(f"{what}: {'; '.join(problems)}; its columns are: {', '.join(found)}")
    return frame.select(*columns)
