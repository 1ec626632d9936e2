"""Bridges that had other names. What one store numbered, under all its names, is one ledger, and is called by the name that the bridge has now.

A bridge's mark says which names it had before (`earlier`), and with which row each one began. Names are joined if their ledgers follow each other, also where
a name is used again: host A, host B, and A once more.

Two bridges that had one store once are not joined, as a copy of a store and its original; or a store that was put back from a backup under a new name: the
bridge with the old name went on to number the rows with which the new one begins.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

    from .reach import Mark


def joined(marks: Mapping[str, Mark]) -> tuple[dict[str, str], dict[str, Mark]]:
    """For each former name of a bridge the present one; and the marks without those of former names."""
    following = list(_follow(marks))
    group = {name: name for name in (*marks, *(before for _, before in following))}
    for name, before in following:
        old, new = group[before], group[name]
        group = {one: new if found == old else found for one, found in group.items()}
    latest: dict[str, str] = {}
    for name in sorted(marks, key=lambda one: (marks[one].sequence, marks[one].at_ms)):
        latest[group[name]] = name
    names = {name: latest[found] for name, found in group.items() if name != latest[found]}
    return names, {name: mark for name, mark in marks.items() if name not in names}


def _follow(marks: Mapping[str, Mark]) -> Iterator[tuple[str, str]]:
    """For each name the one whose ledger it goes on with: that one ends where this one begins, and no other one's begins there."""
    links = {(name, before, first) for own, mark in marks.items() for (name, first), (before, _) in pairwise(mark.names(own))}
    begin = Counter((before, first) for _, before, first in links)
    for name, before, first in sorted(links):
        if begin[before, first] == 1 and not (before in marks and _bears(before, marks[before], first)):
            yield name, before


def _bears(name: str, mark: Mark, row: int) -> bool:
    """Whether a bridge numbered this row under this name, by its own mark."""
    end = mark.sequence
    for one, first in mark.names(name):
        if one == name and first <= row <= end:
            return True
        end = first - 1
    return False


def by_present_name(rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """The same rows, each under the name that its bridge has now."""
    if not names:
        return rows
    present = F.create_map(*(F.lit(word) for pair in names.items() for word in pair))
    return rows.withColumn("bridge", F.coalesce(present[F.col("bridge")], F.col("bridge")))
