"""When cron expressions match: by the bridge's own code, in the driver, once for each expression and zone however many messages bear it.

Spark has no function for cron, and a Python function on the executors would need delaybridge installed there, and be asked once per message. A
match does not depend on the message: the few different expressions are enough, and the rest is arithmetic that Spark does.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ...core.cron import matches
from ..columns import UnusableInput
from ..frames import of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MATCHES = {"cron": "string", "zone": "string", "matches": "array<bigint>"}


def with_matches(crons: DataFrame) -> DataFrame:
    """Adds `matches` (epoch ms, rising): all those after `from_ms` of a row and before its `to_ms`, and perhaps others."""
    asked = crons.groupBy("cron", "zone").agg(F.min("from_ms"), F.max("to_ms")).collect()
    told = [{"cron": cron, "zone": zone, "matches": between(cron, zone, first, end)} for cron, zone, first, end in asked]
    # One row for each expression and zone, by the groupBy above.
    return crons.join(F.broadcast(of_rows(crons.sparkSession, told, MATCHES)), on=["cron", "zone"], how="inner")


def between(cron: str, zone: str, after: int, until: int) -> list[int]:
    """The matches after the one instant and before the other. Raises UnusableInput for what is no cron expression."""
    try:
        return list(takewhile(lambda instant: instant < until, matches(cron, zone, after)))
    except ValueError as error:
        raise UnusableInput(f"an export holds a cron that cannot be read: {error}") from error
