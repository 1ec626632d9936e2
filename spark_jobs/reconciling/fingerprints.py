"""Do two collections hold the same ids, each equally often? Answered by sums that do not depend on order, without looking at a single id.

Every row adds its sign, and its sign times the two halves of a 64-bit hash of its id: +1 on one side, -1 on the other. Where both sides hold the
same, all three sums are zero. Where they do not, that they are zero all the same has a chance of about 2^-64 for ids that nobody chose for that.

Are numbers without a hole, each there once? Answered in the same way: each adds its hash and takes off its predecessor's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..frames import sent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

PARTS = 64
"""A bucket that disagrees is looked at in so many parts: one lost message out of a million costs a join of its part only."""

HALVES = ("low", "high")
CHAIN = ("chain_low", "chain_high")
SUMS = ("rows", *HALVES)
_HALF = 0xFFFF_FFFF


def hashed(frame: DataFrame, *key: str) -> DataFrame:
    """Adds the two halves of the key's hash, and `part`, which follows from it."""
    whole = F.xxhash64(*key)
    low, high = _halves(whole)
    return frame.withColumns({"low": low, "high": high, "part": F.pmod(whole, F.lit(PARTS)).cast("int")})


def _halves(whole: Column) -> tuple[Column, Column]:
    return whole.bitwiseAND(F.lit(_HALF)), F.shiftrightunsigned(whole, 32)


def chained(frame: DataFrame, number: str) -> DataFrame:
    """Adds the halves of a number's hash less those of its predecessor's: in the sum over neighbouring numbers all cancel out but those of the two ends."""
    low, high = _ends(F.col(number), F.col(number))
    return frame.withColumns({"chain_low": low, "chain_high": high})


def unbroken(first: Column, last: Column) -> Column:
    """Whether each number from the first to the last stands there once, by the sums of what `chained` adds. Chances are as above."""
    low, high = _ends(first, last)
    return (F.col("chain_low") == low) & (F.col("chain_high") == high)


def _ends(first: Column, last: Column) -> tuple[Column, Column]:
    (low_before, high_before), (low, high) = _halves(F.xxhash64(first - 1)), _halves(F.xxhash64(last))
    return low - low_before, high - high_before


def with_sign(frame: DataFrame, sign: Column | int, *key: str) -> DataFrame:
    """Adds what `sums` adds up, and `part`."""
    rows = (F.lit(sign) if isinstance(sign, int) else sign).cast("bigint")
    return hashed(frame, *key).withColumns({"rows": rows, **{name: rows * F.col(name) for name in HALVES}})


def sums(frame: DataFrame, by: Sequence[str]) -> DataFrame:
    """The three sums of each bucket. Sums of sums are sums."""
    return frame.groupBy(*by).agg(*(F.sum(name).alias(name) for name in SUMS)).select(*by, *SUMS)


def unequal(frame: DataFrame, by: Sequence[str]) -> DataFrame:
    """The buckets whose two sides differ."""
    return sums(frame, by).where(" or ".join(f"{name} <> 0" for name in SUMS)).select(*by)


def unequal_parts(frame: DataFrame, buckets: DataFrame, number: int, by: Sequence[str]) -> DataFrame:
    """Of these buckets, `number` of them, the parts whose two sides differ. Few are sent to every executor, so that no row is moved.

    A semi join keeps each row once, however often its bucket is named.
    """
    return unequal(frame.join(sent(buckets, number), on=list(by), how="left_semi"), [*by, "part"])


def suspects(frame: DataFrame, parts: DataFrame, number: int, by: Sequence[str]) -> DataFrame:
    """The rows of `unequal_parts`, of so many buckets."""
    return frame.join(sent(parts, number * PARTS), on=[*by, "part"], how="left_semi")
