"""A store that is not the one that the ledger was written from: lost, put back from a backup, another bridge's."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
import structlog
from contract.stores import T0, record

from delaybridge.bridge.config import Config
from delaybridge.bridge.config.file import ConfigError
from delaybridge.bridge.engine import Engine, open_journal
from delaybridge.bridge.ledger import marks
from delaybridge.bridge.ledger.files import LedgerFiles
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.downtimes import Downtimes
from delaybridge.core.store import Put

if TYPE_CHECKING:
    from pathlib import Path


class Site:
    """Bridges with a directory for their stores, and one ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"

    def config(self, bridge: str = "b", store: str = "store", **of_store: Any) -> Config:
        route = {"name": "jobs", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here"}}
        return Config.model_validate({
            "bridge": bridge,
            "store": {"path": self.folder / store, **of_store},
            "ledger": {"path": self.ledger},
            "brokers": {"here": {"type": "memory", "name": str(self.folder)}},
            "routes": [route],
        })  # fmt: skip

    def run(self, *bodies: str, bridge: str = "b", store: str = "store", write: bool = True, mark: bool = True) -> None:
        """Take these in; write them to the ledger's files."""
        opened = open_journal(config := self.config(bridge, store))
        for body in bodies:
            opened.put([Put(record(body, lane="here"))], T0)
        files = LedgerFiles(config.ledger_path, opened.unfiled, bridge)
        if write:
            files.flush_all()
        if write and mark:
            files.mark(T0)
        opened.close()

    def copy(self) -> None:
        shutil.copytree(self.folder / "store", self.folder / "backup")

    def restore(self) -> None:
        shutil.rmtree(self.folder / "store")
        shutil.copytree(self.folder / "backup", self.folder / "store")

    def files(self) -> list[str]:
        return sorted(file.stem for file in self.ledger.glob("date=*/hour=*/*.parquet"))

    def names(self, bridge: str) -> tuple[tuple[str, int], ...]:
        """By the mark of the bridge: how its ledger was called, the latest first, and from which row on."""
        mark = marks.read(self.ledger, bridge)
        assert mark is not None
        return mark.names

    def rows(self) -> list[int]:
        return sorted(ds.dataset(self.ledger).to_table()["sequence"].to_pylist())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_bridge_whose_store_is_lost_goes_on_numbering_behind_its_ledger(site: Site) -> None:
    site.run("a", mark=False)
    site.run("a", mark=False)
    shutil.rmtree(site.folder / "store")
    with structlog.testing.capture_logs() as logs:
        site.run("a")
    assert site.rows() == [1, 2, 3]
    assert [line["event"] for line in logs] == ["ledger_without_its_store"]
    assert "what waited there" in logs[0]["meaning"]


def test_with_a_lost_store_that_held_nothing_but_rows_no_messages_are_told_to_be_lost(site: Site) -> None:
    site.run("a")
    shutil.rmtree(site.folder / "store")
    with structlog.testing.capture_logs() as logs:
        open_journal(site.config(kind="level_queues", broker="here")).close()
    assert logs[0]["event"] == "ledger_without_its_store"
    assert "waited" not in logs[0]["meaning"]


def test_a_new_store_that_was_opened_under_a_wrong_name_first_goes_on_behind_the_ledger_of_the_right_one(site: Site) -> None:
    site.run("a", bridge="right")
    shutil.rmtree(site.folder / "store")
    site.run(bridge="wrong")
    site.run("b", bridge="right")
    assert site.rows() == [1, 2]


def test_a_store_from_a_backup_numbers_its_rows_behind_those_that_were_written_since(site: Site) -> None:
    site.run("a")
    site.run("b", write=False)
    site.copy()
    site.run("c", "d")
    site.restore()
    with structlog.testing.capture_logs() as logs:
        site.run("e")
    assert [(line["event"], line["rows"]) for line in logs] == [("ledger_ahead_of_its_store", 4)]
    site.run("f")
    assert site.files() == [f"b-{first:012d}-{last:012d}" for first, last in ((1, 1), (2, 4), (5, 5), (6, 6))]


def test_rows_of_a_backup_that_stand_in_files_since_are_not_written_again(site: Site) -> None:
    site.run("a")
    site.run("b", "c", write=False)
    site.copy()
    site.run()
    site.restore()
    with structlog.testing.capture_logs() as logs:
        site.run("d")
    assert [(line["event"], line["first"], line["last"]) for line in logs] == [("ledger_rows_in_files_already", 2, 3)]
    assert site.rows() == [1, 2, 3, 4]


def test_what_is_in_files_and_not_yet_in_the_mark_is_not_numbered_again(site: Site) -> None:
    site.run("a")
    site.copy()
    site.run("b", mark=False)
    site.restore()
    site.run("c")
    assert site.files() == [f"b-{number:012d}-{number:012d}" for number in (1, 2, 3)]


@pytest.mark.parametrize(("kind", "lost"), [("time_index", "what was taken in since is lost"), ("level_queues", "rows are lost")])
def test_what_is_lost_with_a_store_from_a_backup_depends_on_what_was_in_it(site: Site, kind: str, lost: str) -> None:
    site.run("a")
    site.copy()
    site.run("b")
    site.restore()
    with structlog.testing.capture_logs() as logs:
        open_journal(site.config(kind=kind, **({} if kind == "time_index" else {"broker": "here"}))).close()
    assert lost in logs[0]["meaning"]


@pytest.mark.parametrize("opened", [False, True])
def test_a_bridge_with_a_store_from_a_backup_was_down_since_ever(site: Site, opened: bool) -> None:
    """What it holds was delivered meanwhile, and a minute's cron must not come once for each minute since. Also where `migrate-store` opens it first."""

    def known(at: int, until: int) -> Downtimes:
        engine = Engine(site.config(), lambda: at, Metrics("0.1.0"), lambda *_: None)
        engine.ledger._flush()
        engine.down.alive(until, engine.journal.unfiled.first())
        engine.store.close()
        return engine.down.known

    site.run("a")
    site.copy()
    site.run("b")
    assert known(T0 + 100, T0 + 200) == Downtimes(((0, T0 + 100),))
    notes = (site.folder / "store" / "downtimes.json").read_bytes()
    site.restore()
    (site.folder / "store" / "downtimes.json").write_bytes(notes)

    if opened:
        open_journal(site.config()).close()
    assert known(T0 + 300, T0 + 400) == Downtimes(((0, T0 + 300),))


def test_a_bridge_does_not_take_the_name_of_another_one_whose_ledger_is_longer(site: Site) -> None:
    """Its own rows would look as if they were in files, and would be dropped."""
    site.run("1", "2", "3", bridge="other", store="its store")
    site.run("1", write=False)

    with pytest.raises(
        ConfigError, match="has rows up to number 3 of another bridge that is called 'other', and this store those of 'b', up to 1"
    ):
        site.run(bridge="other")

    site.run()
    assert site.rows() == [1, 1, 2, 3]


def test_a_bridge_does_not_take_the_name_of_another_one_whose_ledger_is_shorter_either(site: Site) -> None:
    """Its ledger and the other one's would be one, in which numbers stand twice."""
    site.run("1", bridge="other", store="its store")
    site.run("1", "2", "3")
    with pytest.raises(
        ConfigError, match="rows up to number 1 of another bridge that is called 'other', and this store those of 'b', up to 3"
    ):
        site.run(bridge="other")


def test_a_store_from_a_backup_that_was_made_under_the_old_name_goes_on_under_the_new_one(site: Site) -> None:
    site.run("a", bridge="old")
    site.copy()
    site.run("b", bridge="new")
    site.restore()
    site.run("c", bridge="new")
    assert site.files() == [f"{name}-{number:012d}-{number:012d}" for name, number in (("new", 2), ("new", 3), ("old", 1))]


def test_a_store_goes_back_and_forth_between_names_and_may_be_put_back_from_the_time_of_any(site: Site) -> None:
    site.run("1", bridge="a")
    site.copy()
    for body, name in (("2", "b"), ("3", "c"), ("4", "b"), ("5", "a")):
        site.run(bridge="idle")
        site.run(body, bridge=name)
    assert site.rows() == [1, 2, 3, 4, 5]
    site.restore()
    site.run("6", bridge="a")
    assert site.rows() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("earlier", [False, True], ids=["now", "files of an earlier version"])
def test_a_bridge_that_was_killed_under_a_name_and_went_on_under_another_takes_the_first_one_again(site: Site, earlier: bool) -> None:
    """The first flush under the other name writes rows of both. Earlier versions named the files of both by all of its rows."""
    site.run("1", "2", bridge="a", write=False)
    site.run("3", bridge="b")
    if earlier:
        for file in site.ledger.glob("date=*/hour=*/*.parquet"):
            file.rename(file.with_name(f"{file.name[0]}-{1:012d}-{3:012d}.parquet"))

    site.run("4", bridge="a")

    assert site.rows() == [1, 2, 3, 4]
    assert site.names("a") == (("a", 4), ("b", 3), ("a", 1))


@pytest.mark.parametrize("whole", [True, False])
def test_a_store_does_not_take_its_old_name_again_where_another_one_numbered_its_rows_across_the_end_of_that(
    site: Site, whole: bool
) -> None:
    """Nor where nobody can tell, because the file is damaged."""
    site.run("1", bridge="a", write=False)
    site.run("1", "2", "3", bridge="a", store="its store", mark=False)
    site.run("2", bridge="b")
    if not whole:
        (file,) = site.ledger.rglob(f"a-*-{3:012d}.parquet")
        file.write_bytes(b"")
    with pytest.raises(ConfigError, match="rows up to number 3 of another bridge that is called 'a', and this store those of 'b', up to 2"):
        site.run(bridge="a")


@pytest.mark.parametrize("write", [True, False])
def test_a_store_that_went_on_under_its_old_name_does_not_take_the_new_one_any_more(site: Site, write: bool) -> None:
    """The numbers of its rows are those of others by now."""
    site.run("1", "2", bridge="old")
    site.copy()
    site.run("3", "4", "5", bridge="new")
    site.restore()
    site.run("3 again", bridge="old", write=write)
    with pytest.raises(
        ConfigError, match="rows up to number 5 of another bridge that is called 'new', and this store those of 'old', up to 3"
    ):
        site.run(bridge="new")


def test_a_store_does_not_take_its_old_name_again_once_a_copy_of_it_has_gone_on_under_that(site: Site) -> None:
    """Not even where that wrote a single row: it has a number of ours."""
    site.run("1", "2", bridge="old")
    site.copy()
    site.run("3", bridge="new")
    site.run("3 again", bridge="old", store="backup")
    with pytest.raises(
        ConfigError, match="rows up to number 3 of another bridge that is called 'old', and this store those of 'new', up to 3"
    ):
        site.run(bridge="old")


def test_a_new_store_goes_on_behind_files_that_are_old_and_that_no_mark_tells_of(site: Site) -> None:
    """Its own would take their names otherwise."""
    site.run("1", mark=False)
    for day in (1, 2, 3):
        (site.ledger / f"date=2099-01-0{day}").mkdir()
    shutil.rmtree(site.folder / "store")

    site.run("2")

    assert site.rows() == [1, 2]


def test_the_names_that_a_ledger_had_are_known_after_its_store_was_lost(site: Site) -> None:
    site.run("1", bridge="old")
    site.run("2")
    shutil.rmtree(site.folder / "store")
    site.run("3")

    assert site.names("b") == (("b", 2), ("old", 1))


def test_the_names_that_a_ledger_had_since_a_backup_are_known_after_it_was_put_back(site: Site) -> None:
    site.run("1", bridge="a")
    site.run("2")
    site.copy()
    site.run("3", bridge="c")
    site.run("4")
    site.restore()
    site.run("5")

    assert site.names("b") == (("b", 4), ("c", 3), ("b", 2), ("a", 1))


def test_a_name_that_a_ledger_gets_again_begins_anew(site: Site) -> None:
    for body, name in (("1", "b"), ("2", "a"), ("3", "b")):
        site.run(body, bridge=name)

    assert site.names("b") == (("b", 3), ("a", 2), ("b", 1))


def test_a_bridge_that_had_several_names_takes_each_of_them_again_and_not_that_of_another_one(site: Site) -> None:
    site.run("its first", bridge="other", store="its store")
    for body, name in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "b")):
        site.run(body, bridge=name)
    with pytest.raises(ConfigError, match="another bridge that is called 'other'"):
        site.run(bridge="other")
    site.run("5", bridge="a")

    assert site.names("a") == (("a", 5), ("b", 4), ("a", 3), ("b", 2), ("a", 1))
