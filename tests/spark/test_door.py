"""A folder that is near what was meant is told apart from it: what lies there would be read, and what its marks say be lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs import inputs
from delaybridge.spark_jobs.columns import LEDGER, UnusableInput
from delaybridge.spark_jobs.session import readable_errors
from spark.ledgers import T0, Bridge

if TYPE_CHECKING:
    from pathlib import Path

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

    assert "java:" not in str(told.value)


def test_the_files_of_a_frame_are_listed_all_at_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = inputs.parquet(spark, [str(_ledger(tmp_path / "a b")), str(_ledger(tmp_path / "c"))], LEDGER).rows

    assert sorted(inputs.files(spark, frame)) == sorted(frame.inputFiles())
    assert inputs.files(spark, spark.range(1)) == []
