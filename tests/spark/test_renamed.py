"""A bridge that got another name: its ledger goes on in the files of that name, and the marks say which name follows which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("pyspark")

from delaybridge.bridge.ledger.parquet import write_mark
from delaybridge.spark_jobs.completeness import renames
from delaybridge.spark_jobs.completeness.beginnings import Beginning
from delaybridge.spark_jobs.completeness.reach import Mark
from delaybridge.spark_jobs.reading import inputs, marks
from delaybridge.spark_jobs.reconciling import verdict
from delaybridge.spark_jobs.reconciling.audit import audit
from delaybridge.spark_jobs.watching import bridges
from delaybridge.spark_jobs.watching.bridges import Island
from spark.ledgers import QUESTION, QUIET, T0, Bridge, write_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MINUTE = 60_000


def _bridge() -> Bridge:
    """What is taken in under one name is delivered under the next one: in the same hour, in which neither ledger began or ended."""
    bridge = Bridge("old")
    bridge.scheduled("before", T0 + 5 * MINUTE)
    bridge.scheduled("across", T0 + 70 * MINUTE, taken=T0)
    bridge.delivered("before", T0 + 5 * MINUTE)
    bridge.both("after", T0 + 75 * MINUTE)
    bridge.delivered("across", T0 + 70 * MINUTE, taken=T0)
    bridge.quiet()
    return bridge


def _mark(folder: Path, bridge: str, sequence: int, first: int = 1, *earlier: tuple[str, int], at_ms: int = T0 + 6 * MINUTE) -> None:
    write_mark(folder, bridge, {"bridge": bridge, "first": first, "earlier": earlier, "sequence": sequence, "at_ms": at_ms})


def _told(spark: SparkSession, folder: Path, *names: tuple[str, int]) -> dict[str, Any]:
    """The audit of all rows, under each of these names up to its number."""
    rows, begin = _bridge().rows, 0
    for number, (name, end) in enumerate(names):
        if name and rows[begin:end]:
            write_ledger(folder, f"{number}-{name}", [msgspec.structs.replace(row, bridge=name) for row in rows[begin:end]])
        begin = end
    said = marks.read(spark, [str(folder)])
    return verdict.report(audit(inputs.ledger(spark, [str(folder)]), None, said, QUESTION), {})


@pytest.mark.parametrize("flushed", [True, False])
def test_hours_before_a_bridge_got_another_name_can_be_judged_and_the_old_one_need_not_be_named_as_ended(
    spark: SparkSession, tmp_path: Path, flushed: bool
) -> None:
    """Also where the old one was killed before it wrote its first mark."""
    if flushed:
        _mark(tmp_path, "old", 3)
    _mark(tmp_path, "new", 7, 5, ("old", 1), at_ms=QUIET)
    told = _told(spark, tmp_path, ("old", 4), ("new", 7))

    assert (told["exit_code"], told["cannot_say"], told["totals"]["delivered"]) == (0, [], 3)
    assert [(one["bridge"], one["rows"], one["begins"], one["hole"]) for one in told["bridges"]] == [("new", 7, None, None)]


def test_a_name_may_be_used_again(spark: SparkSession, tmp_path: Path) -> None:
    """As where two hosts take turns with one store, and bridges are called like their hosts."""
    _mark(tmp_path, "two", 4, 3, ("one", 1))
    _mark(tmp_path, "one", 7, 5, ("two", 3), ("one", 1), at_ms=QUIET)
    told = _told(spark, tmp_path, ("one", 2), ("two", 4), ("one", 7))

    assert (told["exit_code"], told["cannot_say"], [one["bridge"] for one in told["bridges"]]) == (0, [], ["one"])


@pytest.mark.parametrize(("names", "hole"), [([("old", 3), ("", 4), ("new", 7)], 4), ([("old", 4), ("", 5), ("new", 7)], 5)])
def test_rows_that_are_missing_where_one_name_ends_and_the_other_begins_are_a_hole(
    spark: SparkSession, tmp_path: Path, names: list[tuple[str, int]], hole: int
) -> None:
    _mark(tmp_path, "old", 4)
    _mark(tmp_path, "new", 7, 5, ("old", 1), at_ms=QUIET)
    told = _told(spark, tmp_path, *names)

    assert (told["exit_code"], [one["hole"] for one in told["bridges"]]) == (2, [hole])


def test_where_the_rows_of_the_old_name_are_removed_the_ledger_has_lost_its_beginning_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    _mark(tmp_path, "old", 4)
    _mark(tmp_path, "new", 7, 5, ("old", 1), at_ms=QUIET)
    told = _told(spark, tmp_path, ("", 4), ("new", 7))

    assert [(one["bridge"], one["begins"] is not None, one["hole"]) for one in told["bridges"]] == [("new", True, None)]
    assert told["totals"]["never_scheduled"] == 0
    assert not any("old" in reason for reason in told["cannot_say"])


def test_names_are_joined_that_follow_each_other_and_not_those_of_a_store_and_its_copies() -> None:
    one, two, three = Mark(4, T0), Mark(8, T0 + 1, 5, (("one", 1),)), Mark(9, T0 + 2, 9, (("two", 5), ("one", 1)))
    chain = {"one": one, "two": two, "three": three, "other": Mark(4, T0)}

    assert renames.joined(chain) == ({"one": "three", "two": "three"}, {"three": three, "other": Mark(4, T0)})
    assert renames.joined({"two": two, "three": three}) == ({"one": "three", "two": "three"}, {"three": three})
    ahead = {"one": Mark(4, T0 + 5), "two": two}
    assert renames.joined(ahead) == ({"one": "two"}, {"two": two}), "the later rows have the present name, whatever clocks say"
    for apart in ({"one": Mark(5, T0), "two": two}, {"one": one, "two": two, "copy": two}):
        assert renames.joined(apart) == ({}, apart)


def test_a_name_that_is_used_again_after_others_leaves_none_of_them_out() -> None:
    one, three = Mark(4, T0), Mark(12, T0 + 2, 9, (("two", 5), ("one", 1)))
    two = Mark(16, T0 + 3, 13, (("three", 9), ("two", 5), ("one", 1)))

    assert renames.joined({"one": one, "two": two, "three": three}) == ({"one": "two", "three": "two"}, {"two": two})
    original = {"one": Mark(20, T0, 17, (("else", 14), ("one", 1))), "copy": Mark(12, T0, 9, (("one", 1),))}
    assert renames.joined(original)[0] == {"else": "one"}, "the copy's first row was the original's, too, under the name that it had then"
    original = {"one": Mark(9, T0, 5, (("else", 1),)), "copy": Mark(9, T0, 5, (("one", 5), ("else", 1)))}
    assert renames.joined(original)[0] == {"else": "one"}, "as above, and it was the first that the original numbered under its own"


def test_a_watch_hears_a_bridge_under_the_name_that_it_has_now() -> None:
    marks = {"old": Mark(4, T0), "new": Mark(9, T0 + 900, 5, (("old", 1),))}
    read = {"old": [Island(1, 4, T0)], "new": [Island(5, 9, T0 + 800)]}
    cut = {"old": [Island(2, 2, T0 - 1), Island(4, 4, T0)], "new": read["new"]}

    for known, begin in ((read, {"new": Beginning(T0 + 900, 8)}), (cut, {"old": Beginning(T0, 2), "new": Beginning(T0 + 900, 8)})):
        (reach,) = bridges.reached(known, begin, marks, frozenset(), T0 + 1_000)
        assert (reach.bridge, reach.last, reach.reaches_ms, reach.hole, reach.former) == ("new", 9, T0 + 900, None, ("old",))
