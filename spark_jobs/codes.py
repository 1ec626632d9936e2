"""Replaces words by numbers while rows are grouped: a number is hashed and compared in one step, a word letter by letter, for each row anew."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column


def code(of: Column, words: Sequence[str]) -> Column:
    """The place of a word among these; null where it is none of them."""
    return first([of == word for word in words])


def first(conditions: Sequence[Column]) -> Column:
    """The place of the first condition that holds; null where none does."""
    numbered = list(enumerate(conditions))
    return reduce(lambda whens, one: whens.when(one[1], one[0]), numbered[1:], F.when(numbered[0][1], 0))


def word(code: Column, words: Sequence[str]) -> Column:
    """What stands at that place; null for null."""
    return F.get(F.array(*map(F.lit, words)), code)
