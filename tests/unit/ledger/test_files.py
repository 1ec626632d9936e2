"""Ledger files: whole, each row once, also after a crash at any point."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.dataset as ds
import pytest

from delaybridge.bridge.ledger import files as ledger_files
from delaybridge.bridge.ledger import marks
from delaybridge.bridge.ledger.files import LedgerFiles, arrow_schema
from delaybridge.bridge.ledger.observed import ObservedFiles
from delaybridge.bridge.ledger.parquet import write, write_mark
from delaybridge.core.ledger import COLUMNS, NAMES, BridgeNames, Row
from delaybridge.core.time_index.unfiled import Unfiled

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3_600_000
T0 = 1_750_000_000_000 // HOUR * HOUR


def _row(sequence: int, at: int) -> Row:
    return Row(
        event="delivered", event_time=at, id=f"id-{sequence}", occurrence=1, due_time=at - 3, kind="once", dialect="own", route="orders",
        source_broker="rabbit", source="in", destination_broker="rabbit", destination="/queues/a", lateness_ms=3, attempts=1, bridge="b",
        sequence=sequence,
    )  # fmt: skip


class InMemory(Unfiled):
    """Rows in memory, with a switch that kills the writer where a crash would."""

    def __init__(self, rows: list[Row]) -> None:
        self.left = rows
        self.intended: tuple[int, int] | None = None
        self.crash_before_forgetting = False
        self.written = 0
        self.named = BridgeNames("b")

    def intent(self) -> tuple[int, int] | None:
        return self.intended

    def intend(self, first: int, last: int) -> None:
        self.intended = first, last

    def rows(self, limit: int, start: int = 0) -> list[Row]:
        return [row for row in self.left if row.sequence >= start][:limit]

    def forget(self, up_to: int) -> None:
        if self.crash_before_forgetting:
            raise KeyboardInterrupt
        self.left = [row for row in self.left if row.sequence > up_to]
        self.intended = None
        self.written = up_to

    def first(self) -> int:
        return self.written + 1


def test_the_highest_number_is_that_of_a_bridges_own_files_or_of_its_mark(tmp_path: Path) -> None:
    folder = tmp_path / "date=2026-11-21" / "hour=10"
    folder.mkdir(parents=True)
    assert ledger_files.highest(tmp_path, "north") == 0
    for name in (
        "north-000000000001-000000000040.parquet",
        "north-1-000000000001-000000000900.parquet",
        ".north-000000000041-000000000950.parquet.tmp",
    ):
        (folder / name).touch()
    assert ledger_files.highest(tmp_path, "north") == 40
    assert ledger_files.highest(tmp_path, "north-1") == 900
    (tmp_path / "_reach").mkdir()
    (tmp_path / "_reach" / "north.json").write_text("half of a mar")
    assert ledger_files.highest(tmp_path, "north") == 40
    (tmp_path / "_reach" / "north.json").write_bytes(b'{"bridge": "\xff"}')
    assert ledger_files.highest(tmp_path, "north") == 40
    (tmp_path / "_reach" / "north.json").write_text(json.dumps({"bridge": "north", "sequence": 55, "at_ms": 1}))
    assert ledger_files.highest(tmp_path, "north") == 55


def test_files_that_the_mark_does_not_tell_of_yet_are_looked_for_from_its_day_on_however_many_days_others_wrote_since(
    tmp_path: Path,
) -> None:
    for day, name in ((20, "b-1-30"), (21, "b-31-40"), (22, "other-1-2"), (23, "other-3-4"), (24, "other-5-6")):
        folder = tmp_path / f"date=2026-11-{day}" / "hour=10"
        folder.mkdir(parents=True)
        (folder / f"{name}.parquet").touch()
    assert ledger_files.highest(tmp_path, "b") == 0
    assert ledger_files.highest(tmp_path, "b", whole=True) == 40
    write_mark(tmp_path, "b", {"bridge": "b", "sequence": 30, "at_ms": 1795219200000})  # 2026-11-21T00:00Z
    assert ledger_files.highest(tmp_path, "b") == 40


def test_files_of_the_day_before_the_mark_are_looked_for_as_after_a_clock_that_was_set_back(tmp_path: Path) -> None:
    for day in range(1, 22):
        (tmp_path / f"date=2026-11-{day:02}" / "hour=10").mkdir(parents=True)
    write_mark(tmp_path, "b", {"bridge": "b", "sequence": 30, "at_ms": 1795219200000})  # 2026-11-21T00:00Z
    (tmp_path / "date=2026-11-20" / "hour=10" / "b-31-40.parquet").touch()
    assert ledger_files.highest(tmp_path, "b") == 40


def _sequences(root: Path) -> list[int]:
    return sorted(row["sequence"] for row in ds.dataset(sorted(root.rglob("*.parquet"))).to_table(columns=["sequence"]).to_pylist())


def test_rows_lie_in_the_folder_of_their_hour(tmp_path: Path) -> None:
    unfiled = InMemory([_row(1, T0), _row(2, T0 + HOUR - 1), _row(3, T0 + HOUR)])

    assert LedgerFiles(tmp_path, unfiled, "b").flush_all() == 3

    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*.parquet"))] == [
        "date=2025-06-15/hour=15/b-000000000001-000000000003.parquet",
        "date=2025-06-15/hour=16/b-000000000001-000000000003.parquet",
    ]


def test_a_file_has_the_declared_columns_and_nothing_of_the_row_is_lost(tmp_path: Path) -> None:
    rows = [_row(1, T0), msgspec.structs.replace(_row(2, T0), lateness_ms=None, event="scheduled")]

    LedgerFiles(tmp_path, InMemory(list(rows)), "b").flush_all()

    table = ds.dataset(sorted(tmp_path.rglob("*.parquet"))).to_table()
    assert table.schema.equals(arrow_schema())
    assert table.column_names == [name for name, _, _ in COLUMNS]
    times = ("event_time", "due_time", "taken_time")
    read = [Row(**{**row, **{name: _ms(row[name]) for name in times}}) for row in table.to_pylist()]
    assert read == rows


def _ms(instant: object) -> int:
    return round(instant.timestamp() * 1000)  # type: ignore[attr-defined, no-any-return]  # pyarrow gives datetimes


def test_a_crash_between_writing_and_forgetting_leaves_each_row_once(tmp_path: Path) -> None:
    unfiled = InMemory([_row(number, T0) for number in range(1, 4)])
    unfiled.crash_before_forgetting = True
    with pytest.raises(KeyboardInterrupt):
        LedgerFiles(tmp_path, unfiled, "b").flush_all()
    unfiled.crash_before_forgetting = False
    unfiled.left += [_row(number, T0) for number in range(4, 6)]

    LedgerFiles(tmp_path, unfiled, "b").flush_all()

    assert _sequences(tmp_path) == [1, 2, 3, 4, 5]


def test_a_file_is_named_by_the_rows_of_its_bridge_and_not_by_those_of_another_name_in_the_same_flush(tmp_path: Path) -> None:
    rows = [msgspec.structs.replace(_row(number, T0 + number % 2 * HOUR), bridge=name) for number, name in enumerate("bbccbd", 1)]

    assert LedgerFiles(tmp_path, InMemory(rows), "d").flush_all() == 6

    assert [path.stem for path in sorted(tmp_path.rglob("*.parquet"))] == [
        f"{name}-{first:012d}-{last:012d}" for name, first, last in (("b", 1, 5), ("c", 3, 4), ("d", 6, 6), ("b", 1, 5), ("c", 3, 4))
    ]
    assert _sequences(tmp_path) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("written", [[], ["b"], ["c"], ["b", "c"]], ids=" and ".join)
def test_what_an_earlier_version_noted_and_wrote_under_the_name_of_the_whole_flush_stands_once_after_the_upgrade(
    tmp_path: Path, written: list[str]
) -> None:
    rows = [_row(1, T0), _row(2, T0), *(msgspec.structs.replace(_row(number, T0), bridge="c") for number in (3, 4))]
    for name in written:
        part = [ledger_files.table_of([row for row in rows if row.bridge == name])]
        write(tmp_path, T0 // HOUR, f"{name}-000000000001-000000000004.parquet", part)
    unfiled = InMemory([*rows, _row(5, T0)])
    unfiled.intended = 1, 4

    LedgerFiles(tmp_path, unfiled, "c").flush_all()

    assert _sequences(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("full", [5, 4], ids=["within a page", "at a page's end"])
def test_rows_are_read_a_page_at_a_time_and_files_end_where_they_are_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    monkeypatch.setattr(ledger_files, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(ledger_files, "ROWS_PER_FLUSH", full)
    unfiled = InMemory([_row(number, T0) for number in range(1, 8)])

    assert LedgerFiles(tmp_path, unfiled, "b").flush_all() == 7

    assert [path.name for path in sorted(tmp_path.rglob("*.parquet"))] == [
        f"b-000000000001-{full:012d}.parquet",
        f"b-{full + 1:012d}-000000000007.parquet",
    ]
    assert _sequences(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


def test_a_noted_range_is_written_whole_even_where_files_are_smaller_by_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_files, "ROWS_PER_FLUSH", 2)
    unfiled = InMemory([_row(number, T0) for number in range(1, 6)])
    unfiled.intended = 1, 4

    assert LedgerFiles(tmp_path, unfiled, "b").flush() == 4

    assert _sequences(tmp_path) == [1, 2, 3, 4]
    assert [row.sequence for row in unfiled.left] == [5]


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    unfiled = InMemory([_row(1, T0)])
    monkeypatch.setattr("os.fsync", disk_full)

    with pytest.raises(OSError, match="No space"):
        LedgerFiles(tmp_path, unfiled, "b").flush_all()

    assert list(tmp_path.rglob("*.parquet")) == []
    assert len(unfiled.left) == 1


def _ledger(root: Path) -> None:
    files = LedgerFiles(root, InMemory([_row(1, T0)]), "b")
    files.flush_all()
    files.mark(T0)


def _observation(root: Path) -> None:
    files = ObservedFiles(root, "rabbit", "out", "b")
    files.add({"at": T0, "address": "out", "body": "a"})
    files.seen(T0, T0)
    files.flush()


@pytest.mark.parametrize("write", [_ledger, _observation])
def test_no_mark_is_written_before_the_folders_of_the_files_that_it_tells_of_are_durable(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of power, what the mark says is in files and in none would pass for lost."""
    synced: list[Path] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)

    write(tmp_path / "ledger")

    [file] = tmp_path.glob("ledger/date=*/hour=*/*.parquet")
    marked = next(number for number, path in enumerate(synced) if path.parent.name == "_reach")
    assert {file.parent, *file.parents[1:4]} <= set(synced[:marked])


def test_without_rows_nothing_is_written(tmp_path: Path) -> None:
    assert LedgerFiles(tmp_path, InMemory([]), "b").flush_all() == 0
    assert list(tmp_path.iterdir()) == []


def test_rows_that_come_while_a_flush_is_under_way_wait_for_the_next(tmp_path: Path) -> None:
    """Else a busy bridge writes one small file after another without end, and nothing else gets its turn."""

    class Busy(InMemory):
        def forget(self, up_to: int) -> None:
            super().forget(up_to)
            assert up_to < 100, "there is no end of it"
            self.left.append(_row(up_to + 1, T0))

    unfiled = Busy([_row(1, T0)])

    assert LedgerFiles(tmp_path, unfiled, "b").flush_all() == 1
    assert [row.sequence for row in unfiled.left] == [2]


def test_what_a_crash_left_is_followed_by_the_rest_at_once(tmp_path: Path) -> None:
    unfiled = InMemory([_row(number, T0) for number in range(1, 6)])
    unfiled.intended = (1, 2)

    assert LedgerFiles(tmp_path, unfiled, "b").flush_all() == 5


def test_a_bridge_marks_how_far_its_files_reach_and_goes_on_when_nothing_happens(tmp_path: Path) -> None:
    unfiled = InMemory([_row(1, T0), _row(2, T0)])
    files = LedgerFiles(tmp_path, unfiled, "b")
    mark = tmp_path / "_reach" / "b.json"

    files.mark(T0)
    assert not mark.exists()

    for at in (T0 + 1, T0 + 2):
        files.flush_all()
        files.mark(at)
        assert json.loads(mark.read_text()) == {"bridge": "b", "first": 1, "earlier": [], "sequence": 2, "at_ms": at}

    restarted = LedgerFiles(tmp_path, unfiled, "b")
    restarted.flush_all()
    restarted.mark(T0 + 3)
    assert json.loads(mark.read_text()) == {"bridge": "b", "first": 1, "earlier": [], "sequence": 2, "at_ms": T0 + 3}


def test_an_idle_bridge_whose_ledger_was_moved_away_marks_its_reach_where_it_was(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path / "ledger", InMemory([_row(1, T0)]), "b")
    files.flush_all()
    (tmp_path / "ledger").rename(tmp_path / "archived")

    files.mark(T0 + 1)

    assert json.loads((tmp_path / "ledger" / "_reach" / "b.json").read_text()) == {
        "bridge": "b",
        "first": 1,
        "earlier": [],
        "sequence": 1,
        "at_ms": T0 + 1,
    }


def _told(folder: Path, bridge: str) -> dict[str, Any]:
    return json.loads((folder / "_reach" / f"{bridge}.json").read_text())  # type: ignore[no-any-return]


def test_a_bridge_of_another_name_is_told_by_the_old_one_until_its_first_row_and_leaves_its_predecessors_their_files(
    tmp_path: Path,
) -> None:
    """Also where that was killed between the files and their note."""
    unfiled = InMemory([_row(1, T0), _row(2, T0)])
    before = LedgerFiles(tmp_path, unfiled, "b")
    before.flush_all()
    before.mark(T0)
    unfiled.left, unfiled.crash_before_forgetting = [_row(3, T0)], True
    with pytest.raises(KeyboardInterrupt):
        before.flush()
    unfiled.crash_before_forgetting, unfiled.named = False, unfiled.named.renamed("c", 4)
    renamed = LedgerFiles(tmp_path, unfiled, "c")
    renamed.flush_all()
    renamed.mark(T0)
    renamed.mark(T0 + 1)  # nothing has happened meanwhile
    assert sorted(file.name for file in tmp_path.rglob("*.*") if file.is_file()) == [
        "b-000000000001-000000000002.parquet", "b-000000000003-000000000003.parquet", "b.json",
    ]  # fmt: skip
    assert _told(tmp_path, "b") == {"bridge": "b", "first": 1, "earlier": [], "sequence": 3, "at_ms": T0 + 1}

    unfiled.left = [msgspec.structs.replace(_row(4, T0), bridge="c")]
    renamed.flush_all()
    renamed.mark(T0 + 2)
    assert _told(tmp_path, "c") == {"bridge": "c", "first": 4, "earlier": [["b", 1]], "sequence": 4, "at_ms": T0 + 2}
    assert _told(tmp_path, "b")["at_ms"] == T0 + 1


@pytest.mark.parametrize("taken", [None, {"bridge": "b", "first": 1, "earlier": [], "sequence": 9, "at_ms": T0}])
def test_a_bridge_of_another_name_does_not_touch_an_old_mark_that_is_gone_or_anothers(tmp_path: Path, taken: dict[str, Any] | None) -> None:
    unfiled = InMemory([])
    unfiled.written, unfiled.named = 3, BridgeNames("c", 4, BridgeNames("b"))
    if taken:
        write_mark(tmp_path, "b", taken)
    LedgerFiles(tmp_path, unfiled, "c").mark(T0 + 1)
    assert [json.loads(file.read_text()) for file in tmp_path.rglob("*.json")] == ([taken] if taken else [])


def test_a_bridge_that_gets_an_earlier_name_again_leaves_the_mark_of_that_time_as_it_is_until_its_first_row(tmp_path: Path) -> None:
    then = {"bridge": "a", "first": 1, "earlier": [], "sequence": 4, "at_ms": T0}
    write_mark(tmp_path, "a", then)
    write_mark(tmp_path, "b", {"bridge": "b", "first": 5, "earlier": [["a", 1]], "sequence": 9, "at_ms": T0})
    unfiled = InMemory([])
    unfiled.written, unfiled.named = 9, BridgeNames("a", 10, BridgeNames("b", 5, BridgeNames("a")))

    LedgerFiles(tmp_path, unfiled, "a").mark(T0 + 1)

    assert _told(tmp_path, "a") == then
    assert _told(tmp_path, "b") == {"bridge": "b", "first": 5, "earlier": [["a", 1]], "sequence": 9, "at_ms": T0 + 1}


def test_an_idle_bridge_whose_store_is_new_renews_the_mark_that_its_ledger_has(tmp_path: Path) -> None:
    """Else it could not be told from a dead one."""
    write_mark(tmp_path, "b", {"bridge": "b", "sequence": 9, "at_ms": T0})
    unfiled = InMemory([])
    unfiled.written, unfiled.named = 9, BridgeNames("b", 10)

    LedgerFiles(tmp_path, unfiled, "b").mark(T0 + 1)

    assert _told(tmp_path, "b") == {"bridge": "b", "first": 1, "earlier": [], "sequence": 9, "at_ms": T0 + 1}


def test_the_names_of_a_ledger_are_told_by_its_mark_and_by_theirs(tmp_path: Path) -> None:
    write_mark(tmp_path, "a", {"bridge": "a", "first": 5, "earlier": [["z", 1]], "sequence": 8, "at_ms": T0})
    write_mark(tmp_path, "c", {"bridge": "c", "first": 20, "earlier": [["b", 12], ["a", 9]], "sequence": 29, "at_ms": T0})
    (tmp_path / "_reach" / "b.json").write_text("not ours")

    told = {("b", 12): 20, ("a", 9): 12, ("z", 1): 5}
    assert marks.known(tmp_path, "c") == told
    assert marks.lineage(tmp_path, BridgeNames("d", 40, BridgeNames("c", 20))) == told | {("c", 20): 40}
    assert marks.known(tmp_path, "nobody") == {}


def test_so_many_names_are_remembered_in_one_place() -> None:
    named = BridgeNames("host-0")
    for number in range(1, 3 * NAMES):
        named = named.renamed(f"host-{number}", named.since + 2)
    assert [one.bridge for one in (named, *named.earlier())] == [f"host-{number}" for number in range(3 * NAMES - 1, 2 * NAMES - 1, -1)]
