"""A checkpoint that is damaged is told in a sentence, and nothing is lost by going on from it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

from pyspark.sql import DataFrameWriter

from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.watching.alerts import LINES
from delaybridge.spark_jobs.watching.state import State
from spark.ledgers import T0
from spark.test_watch import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a watch that has told of a message, and ended."""
    one = Scene(spark, tmp_path_factory.mktemp("watch") / "told")
    one.one.scheduled("stuck", T0)
    one.flush(one.one, T0 + 6_000)
    assert [line["id"] for line in one.look(T0 + 6_000)] == ["stuck"]
    return one.folder


@pytest.fixture
def scene(spark: SparkSession, told: Path) -> Iterator[Scene]:
    """That watch. A checkpoint belongs to the paths of its inputs: each test gets the folder where it was made, and it is put back as it was."""
    copy = told.with_name("copy")
    shutil.copytree(told, copy)
    one = Scene(spark, told, files=1, written={"one": 1})
    one.one.scheduled("stuck", T0)
    yield one
    shutil.rmtree(told)
    copy.rename(told)


def test_one_that_lost_its_stream_is_refused(scene: Scene) -> None:
    """Spark would number its batches from 0 again, and these count as absorbed."""
    shutil.rmtree(scene.folder / "checkpoint" / "stream")
    with pytest.raises(UnusableInput, match="without its stream"):
        scene.look(T0 + 7_000)


def test_one_of_which_somebody_left_only_what_was_told_begins_anew_and_loses_no_alert(scene: Scene) -> None:
    """As where he who is told to remove it removes what the sentence speaks of."""
    shutil.rmtree(scene.folder / "checkpoint" / "stream")
    (scene.folder / "checkpoint" / "state.json").unlink()
    assert [line["id"] for line in scene.look(T0 + 7_000)] == ["stuck"]


def test_a_second_watch_at_the_same_step_takes_nothing_from_the_first_and_is_told_why_it_must_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As where the old one is still ending while the new one begins."""
    first, second = State(spark, str(tmp_path)), State(spark, str(tmp_path))
    for state in (first, second):
        state.open(("ledger",), (), T0)
    lines = [first.frame([{"number": number, "event": "alert", "line": "{}"}], LINES) for number in (1, 2)]
    held = first.write({"lines": lines[0]})
    second.write({"lines": lines[1]})
    first.hold(replace(first.holds, step=1, tables=held))
    with pytest.raises(UnusableInput, match="another watch is at work"):
        second.hold(replace(second.holds, step=1, tables=second.write({"lines": lines[1]})))
    assert [row["number"] for row in first.table("lines").collect()] == [1]


@pytest.mark.parametrize("damaged", ["", '{"num', "[]", '{"number": null}'])
def test_one_that_does_not_say_what_was_told_is_refused_and_tells_nothing_twice_without_it(scene: Scene, damaged: str) -> None:
    told = scene.folder / "checkpoint" / "told.json"
    told.write_text(damaged)
    with pytest.raises(UnusableInput, match="remove it, and the last alerts are told again"):
        scene.look(T0 + 7_000)
    told.unlink()
    scene.restart()
    assert scene.look(T0 + 7_000) == []


@pytest.mark.parametrize("damaged", ["commits/0", "offsets/0", "sources/0/0", "metadata"])
def test_one_in_which_the_notes_of_the_stream_are_damaged_is_refused_with_what_to_do(scene: Scene, damaged: str) -> None:
    """A disk that was full, or a machine that lost its power, leaves files that are empty."""
    notes = scene.folder / "checkpoint" / "stream" / damaged
    notes.write_bytes(b"")
    notes.with_name(f".{notes.name}.crc").unlink()
    with pytest.raises(UnusableInput, match=r"what Spark noted in file:\S+/stream is damaged: give another --checkpoint") as told:
        scene.look(T0 + 7_000)
    assert len(str(told.value)) < 700
    assert "runId" not in str(told.value)


@pytest.mark.parametrize("damage", ["emptied", "removed", "cut off", "without its folder"])
def test_one_in_which_tables_have_lost_rows_is_refused_instead_of_forgetting_what_is_pending(scene: Scene, damage: str) -> None:
    """Spark passes over a file of no bytes, as a machine leaves it that lost its power, and does not miss one that is not there."""
    [table] = scene.folder.glob("checkpoint/tables-*/open")
    for part in table.glob("part-*"):
        part.with_name(f".{part.name}.crc").unlink()
        part.unlink() if damage == "removed" else part.write_bytes(part.read_bytes()[: 50 if damage == "cut off" else 0])
    if damage == "without its folder":
        shutil.rmtree(table)
    with pytest.raises(UnusableInput, match=r"file:\S+/open has lost what was written there: give another --checkpoint"):
        scene.look(T0 + 7_000)


def test_one_whose_state_is_damaged_is_refused_with_what_to_do(scene: Scene) -> None:
    (scene.folder / "checkpoint" / "state.json").write_text("")
    with pytest.raises(UnusableInput, match=r"state\.json is no state of a watch: .*; give another --checkpoint"):
        scene.look(T0 + 7_000)


def test_one_whose_stream_counts_its_batches_anew_is_refused_instead_of_passing_over_what_comes(scene: Scene) -> None:
    scene.one.scheduled("second", T0 + 1)
    scene.flush(scene.one, T0 + 6_500)
    scene.look(T0 + 6_500)
    scene.restart()
    for lost in ("commits", "offsets"):
        shutil.rmtree(scene.folder / "checkpoint" / "stream" / lost)
    scene.one.scheduled("third", T0 + 2)
    scene.flush(scene.one, T0 + 7_000)
    with pytest.raises(UnusableInput, match="has lost notes of what was read: give another --checkpoint"):
        scene.look(T0 + 7_000)


def test_a_step_that_cannot_be_written_leaves_no_tables_and_is_taken_by_the_next_watch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk each further attempt, by a supervisor, would leave more of them."""
    scene.one.scheduled("second", T0 + 1)
    scene.flush(scene.one, T0 + 6_500)
    tables = sorted(scene.folder.glob("checkpoint/tables-*"))
    with monkeypatch.context() as patched:
        patched.setattr(DataFrameWriter, "parquet", _until_full)
        with pytest.raises(OSError, match="No space left"):
            scene.look(T0 + 6_500)
    assert sorted(scene.folder.glob("checkpoint/tables-*")) == tables
    scene.restart()
    assert [line["id"] for line in scene.look(T0 + 7_000)] == ["second"]


def test_one_that_was_put_back_from_a_copy_is_refused_instead_of_taking_its_next_alerts_for_those_that_were_told(scene: Scene) -> None:
    checkpoint, copy = scene.folder / "checkpoint", scene.folder / "copy"
    shutil.copytree(checkpoint, copy)
    scene.one.scheduled("second", T0 + 1)
    scene.flush(scene.one, T0 + 6_500)
    assert [line["id"] for line in scene.look(T0 + 6_500)] == ["second"]
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)
    refused = pytest.raises(UnusableInput, match=r"is older than what it has told: was it put back from a copy\? give another --checkpoint")
    scene.restart()
    with refused:
        scene.look(T0 + 7_000)
    (scene.folder / "alerts.jsonl").unlink()  # put away, as every night
    (checkpoint / "told.json").write_text('{"number": 2}')
    with refused:
        scene.look(T0 + 7_000)


def test_one_that_was_copied_while_a_watch_was_at_work_is_refused_instead_of_lacking_what_that_read(scene: Scene) -> None:
    checkpoint, copy = scene.folder / "checkpoint", scene.folder / "copy"
    shutil.copytree(checkpoint, copy)
    scene.one.both("fine", T0 + 6_000)
    scene.flush(scene.one, T0 + 7_000)
    assert scene.look(T0 + 7_000) == []
    shutil.copytree(checkpoint / "stream", copy / "stream", dirs_exist_ok=True)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    scene.restart()
    scene.one.both("fine, too", T0 + 6_001)
    scene.flush(scene.one, T0 + 8_000)
    with pytest.raises(UnusableInput, match=r"state\.json is older than the stream beside it, and lacks what that read: give another"):
        scene.look(T0 + 8_000)


def _until_full(writer: DataFrameWriter, path: str) -> None:
    writer.format("parquet").save(path)
    raise OSError("No space left on device")
