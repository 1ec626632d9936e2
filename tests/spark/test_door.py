"""A folder that is near what was meant is told apart from it: what lies there would be read, and what its marks say be lost."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs import arguments, reconcile
from delaybridge.spark_jobs.columns import LEDGER, UnusableInput
from delaybridge.spark_jobs.reading import inputs
from delaybridge.spark_jobs.session import readable_errors
from delaybridge.spark_jobs.watching.arguments import Arguments
from delaybridge.spark_jobs.watching.rounds import Rounds
from spark.ledgers import QUIET, T0, Bridge, Observer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _ledger(root: Path, *, marked: bool = True) -> Path:
    bridge = Bridge()
    bridge.both("m", T0)
    bridge.write(root)
    if marked:
        (root / "_reach").mkdir()
    return root


@pytest.mark.parametrize("given", ["", "/nor*", "/north 1/date=2025-06-15", "/north 1/date=2025-06-15/hour=15"])
def test_neither_the_parent_of_a_ledger_nor_a_part_of_it_is_taken_for_it(spark: SparkSession, tmp_path: Path, given: str) -> None:
    root = _ledger(tmp_path / "north 1")

    with pytest.raises(UnusableInput, match=re.escape(f"ledger {tmp_path}{given}: ") + f".*; name file:{root} itself"):
        inputs.door(spark, f"{tmp_path}{given}", LEDGER, "ledger")


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_ledger_itself_is_let_in(spark: SparkSession, tmp_path: Path, slash: str) -> None:
    inputs.door(spark, f"{_ledger(tmp_path / 'north 1')}{slash}", LEDGER, "ledger")


def test_of_several_folders_with_marks_each_is_named(spark: SparkSession, tmp_path: Path) -> None:
    _ledger(tmp_path / "a")
    _ledger(tmp_path / "b")
    _ledger(tmp_path / "c", marked=False)

    with pytest.raises(UnusableInput, match=f"name file:{tmp_path}/a and file:{tmp_path}/b itself"):
        inputs.door(spark, str(tmp_path), LEDGER, "ledger")


def test_files_without_marks_may_lie_anywhere(spark: SparkSession, tmp_path: Path) -> None:
    _ledger(tmp_path / "north", marked=False)

    inputs.door(spark, str(tmp_path), LEDGER, "ledger")


def _data_folder(folder: Path) -> Path:
    (folder / "db").mkdir(parents=True)
    (folder / "db" / "data.mdb").write_bytes(b"no Parquet" * 100)
    return folder


def test_the_data_folder_of_a_bridge_is_no_ledger_but_holds_one(spark: SparkSession, tmp_path: Path) -> None:
    data = _data_folder(tmp_path / "data")
    (data / "ledger").mkdir()

    with pytest.raises(UnusableInput, match=f"^{data}/ is no ledger; did you mean {data}/ledger\\?$"):
        inputs.door(spark, f"{data}/", LEDGER, "ledger")


def test_a_folder_that_is_not_there_and_one_without_files_are_told_in_words(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    for name, why in (("nothing", "there is nothing of that name"), ("empty", "the folder holds none")):
        with pytest.raises(UnusableInput, match=f"/{name}: no Parquet files can be read there: {why}$"):
            inputs.door(spark, str(tmp_path / name), LEDGER, "ledger")


def test_a_file_that_is_not_parquet_is_named_and_what_is_wrong_with_it(spark: SparkSession, tmp_path: Path) -> None:
    data = _data_folder(tmp_path)

    with pytest.raises(UnusableInput, match=r"no Parquet files can be read there: .*/db/data.mdb is not a Parquet file") as told:
        inputs.door(spark, str(data), LEDGER, "ledger")

    assert "\n" not in str(told.value)


def test_of_a_file_that_cannot_be_read_later_the_cause_is_told_and_not_javas_stack(spark: SparkSession, tmp_path: Path) -> None:
    _ledger(tmp_path)
    (tmp_path / "spoilt.parquet").write_bytes(b"no Parquet" * 100)

    with pytest.raises(UnusableInput, match=r"spoilt.parquet is not a Parquet file. Expected magic") as told, readable_errors():
        inputs.parquet(spark, [str(tmp_path)], LEDGER).rows.collect()

    assert not re.search(r"java:|\w+\.\w+(Exception|Error)", str(told.value))


def test_a_file_without_a_byte_is_not_taken_for_one_in_which_nothing_happened(spark: SparkSession, tmp_path: Path) -> None:
    """A copy leaves it on a full disk. Of an observer's file nothing else would tell: what is lacking was called not observed."""
    bridge, observer = Bridge(), Observer()
    bridge.both("a", T0)
    observer.saw_all(bridge)
    seen = Path(observer.write(tmp_path / "seen; here"))
    (seen / "observed2.parquet").touch()
    inputs.ledger(spark, [bridge.write(tmp_path / "whole; length=0;")])

    with pytest.raises(UnusableInput, match=r"^observation .*: file:.*/observed2\.parquet is empty: was it copied whole\?$"):
        inputs.observed(spark, [str(seen)], T0, {}, {})


def test_the_files_of_a_frame_are_listed_all_at_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = inputs.parquet(spark, [str(_ledger(tmp_path / "a b")), str(_ledger(tmp_path / "c"))], LEDGER).rows

    assert sorted(inputs.files(spark, frame)) == sorted(frame.inputFiles())
    assert inputs.files(spark, spark.range(1)) == []


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "many", "told"),
    [(_Terminal, 5, "5 files of ledgers: "), (_Terminal, 6, ""), (io.StringIO, 5, "")],
    ids=["many", "few", "no terminal"],
)
def test_of_very_many_files_a_terminal_is_told_before_they_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: type[io.StringIO], many: int, told: str
) -> None:
    bridge, stream = Bridge(), stderr()
    bridge.both("m", T0)
    bridge.quiet()
    paths = [bridge.write(tmp_path / "north", files=3), str(_ledger(tmp_path / "south", marked=False))]
    bridge.write(tmp_path / "south", files=2)
    monkeypatch.setattr(inputs, "MANY", many)
    monkeypatch.setattr("sys.stderr", stream)

    inputs.ledger(spark, paths)

    assert stream.getvalue().startswith(told)
    assert bool(stream.getvalue()) == bool(told)


@pytest.mark.parametrize("place", ["", "/delaybridge-audit", "/./a/b", "/../north/out"])
def test_what_would_be_written_into_a_folder_that_is_read_is_refused(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """With `--ledger .` the usual place of the results is one: the bridge's own ledger could not be read any more."""
    root = str(_ledger(tmp_path / "north"))

    with pytest.raises(
        UnusableInput, match=rf"--out {re.escape(root + place)} lies in {re.escape(root)}/, and would be read as a part of it"
    ):
        inputs.require_apart(spark, "--out", root + place, ["kafka://here:9092/orders", f"{root}/"])


@pytest.mark.parametrize("place", ["-audit", "/../out", "/..", "/_audit", "/.audit/x"])
def test_what_would_be_written_beside_it_or_where_spark_does_not_look_is_not(spark: SparkSession, tmp_path: Path, place: str) -> None:
    root = str(_ledger(tmp_path / "north"))

    inputs.require_apart(spark, "--out", root + place, [root])


@pytest.mark.parametrize(
    ("place", "why"),
    [("http://localhost:1/x", "UnsupportedOperationException"), ("audit:2026", "Hadoop reads no file whose name has a colon: .*")],
    ids=["listed by nobody", "a colon"],
)
def test_a_path_with_which_hadoop_can_do_nothing_is_told_with_its_option(spark: SparkSession, tmp_path: Path, place: str, why: str) -> None:
    """Hadoop does not tell which one it is, and of some says nothing at all."""
    root = str(_ledger(tmp_path / "north"))
    out = str(tmp_path / "out")
    audits = {"--ledger": [place, root, out], "--observed": [root, place, out], "--out": [root, root, place]}

    for option, (ledger, observed, written) in audits.items():
        asked = arguments.parse(["--ledger", ledger, "--observed", observed, "--out", written, "--all-ended"], QUIET)
        with pytest.raises(UnusableInput, match=f"^{option} {place}: {why}$"):
            reconcile.reconcile(spark, asked, lambda _: None)
    with pytest.raises(UnusableInput, match=f"^--ledger {place}: {why}$"):
        Rounds(spark, Arguments((place,), out, T0), lambda: T0)


def test_the_commands_refuse_to_write_into_what_they_read_before_they_do(spark: SparkSession, tmp_path: Path) -> None:
    root = _ledger(tmp_path / "north", marked=False)
    before = sorted(root.rglob("*"))
    asked = arguments.parse(["--ledger", str(root), "--out", f"{root}/out", "--all-ended"], QUIET)
    watch = Arguments((str(root),), f"{root}/watch", T0)

    with pytest.raises(UnusableInput, match="--out "):
        reconcile.reconcile(spark, asked, lambda _: None)
    with pytest.raises(UnusableInput, match="--checkpoint "):
        Rounds(spark, watch, lambda: T0)
    with pytest.raises(UnusableInput, match="--alerts "):
        Rounds(spark, replace(watch, checkpoint=str(tmp_path / "watch"), alerts=root / "alerts.jsonl"), lambda: T0)
    assert sorted(root.rglob("*")) == before
