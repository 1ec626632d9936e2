"""What a watch knows, below its checkpoint.

    CHECKPOINT/
        stream/            Spark's own: which files and offsets every batch took
        state.json         what holds, and the tables that belong to it; replaced at once
        tables-NUMBER-OWN/ the tables of one step, as one process wrote them: open, unlike, alerts, lines
        told.json          up to which line everything is told
        counts.json        the counts by destination, for people and machines
        malformed/         rows that were set aside, one folder for each batch

A step writes its tables under a new number, then replaces `state.json`: that is the moment at which it holds. `batch` in it is the last one that was
absorbed, so a batch that Spark repeats after a crash changes nothing. Tables that nothing names are removed with the next step.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..columns import UnusableInput, ddl
from ..frames import none_of, of_rows
from ..hadoop import Folder, by_name
from ..session import named
from .alerts import ALERTS, LINES
from .bridges import Beginnings, Islands
from .occurrences import OPEN, UNLIKE
from .topics import Topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

TABLES = {"open": OPEN, "unlike": UNLIKE, "alerts": ALERTS, "lines": LINES}
TOLD = "told.json"
ANEW = "give another --checkpoint, and a --since that covers the alerts that are open"
_PREFIX = "tables-"


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    """What holds. `ledgers`, `observed` and `since` are those of the first start: Spark's part of the checkpoint belongs to them.

    `aliases`, too: None until an earlier version's checkpoint is taken up.

    `watch` names the checkpoint among others that tell to one place: it stands in each line, as it does not where an earlier version made the checkpoint.
    `number` is that of the last line; `tables` names each table's folder, and `sizes` its bytes; `counts` has the counts of each (broker, address).
    `bridges` tells which rows were read, `beginnings` where the ledgers begin that lack their first one, `topics` how far the topics were read. `silent` and
    `stuck` are the bridges and the topics of which that was told.
    """

    ledgers: tuple[str, ...]
    observed: tuple[str, ...]
    since: int
    aliases: dict[str, str] | None = None
    watch: str = ""
    batch: int = -1
    step: int = 0
    number: int = 0
    malformed: int = 0
    silent: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    bridges: Islands = {}
    beginnings: Beginnings = {}
    topics: Topics = {}
    counts: tuple[tuple[str, str, dict[str, int]], ...] = ()
    tables: dict[str, str] = {}
    sizes: dict[str, int] = {}


class _Whose(msgspec.Struct, frozen=True):
    """The part of `Holds` that tells one watch from another. It is read several times in each round, and the whole has every destination."""

    watch: str = ""
    step: int = 0


_Kind = TypeVar("_Kind", Holds, _Whose)


class State:
    """Reads and replaces it. One thread at a time."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        with named(f"--checkpoint {checkpoint}"):
            self.folder = Folder(spark, checkpoint.rstrip("/"))
        self._own = secrets.token_hex(4)
        self.holds: Holds

    def open(self, ledgers: tuple[str, ...], observed: tuple[str, ...], since: int, aliases: Mapping[str, str] | None = None) -> None:
        """Take up what an earlier run left, or begin. Raises UnusableInput for another run's checkpoint."""
        names = self.folder.names()
        if "state.json" in names:
            self.holds = self._taken_up(ledgers, observed, dict(aliases or {}))
            self._require_whole()
            if self.holds.batch >= 0 and "stream" not in names:  # a new one begins at batch 0, which counts as absorbed
                raise UnusableInput(f"{self.folder.url} holds a state without its stream: give another --checkpoint, or remove it")
        elif "stream" in names:
            raise UnusableInput(f"{self.folder.url} holds a stream without a state: give another --checkpoint, or remove it")
        else:
            self.folder.remove(TOLD)  # of an earlier watch, of which somebody removed the rest: it says that our first lines were told
            self._replace(Holds(ledgers=ledgers, observed=observed, since=since, aliases=dict(aliases or {}), watch=secrets.token_hex(8)))

    def require_own(self) -> None:
        """Raises UnusableInput where another watch has gone on from here: what it absorbed, Spark hands on to nobody else, and we lack it."""
        there = self._there(_Whose)
        if (there.watch, there.step) != (self.holds.watch, self.holds.step):
            raise UnusableInput(
                f"another watch is at work with {self.folder.url}: let one go on there, and give the other its own --checkpoint"
            )

    def _there(self, kind: type[_Kind]) -> _Kind:
        try:
            return msgspec.json.decode(self.folder.read("state.json"), type=kind)
        except msgspec.DecodeError as error:
            raise UnusableInput(f"{self.folder.at('state.json')} is no state of a watch: {error}; {ANEW}") from error

    def _taken_up(self, ledgers: tuple[str, ...], observed: tuple[str, ...], aliases: dict[str, str]) -> Holds:
        holds = self._there(Holds)
        if (holds.ledgers, holds.observed) != (ledgers, observed):
            watched = ", ".join(holds.ledgers + holds.observed)
            raise UnusableInput(f"{self.folder.url} belongs to a watch over {watched}: give another --checkpoint")
        before = aliases if holds.aliases is None else holds.aliases
        if observed and before != aliases:  # what was delivered at one name, and then seen at another, would never be found
            named = " ".join(f"with --alias {name}={address}" for name, address in sorted(before.items())) or "without --alias"
            raise UnusableInput(f"{self.folder.url} belongs to a watch that was begun {named}: say so again, or give another --checkpoint")
        return msgspec.structs.replace(holds, aliases=before)

    def _require_whole(self) -> None:
        """Raises UnusableInput where tables have lost files, or parts of them: Spark would read what is left, as if nothing else had been pending."""
        for name, place in self.holds.tables.items():
            found = self.folder.size(place)
            if found is None or found != self.holds.sizes.get(name, found):
                self.require_own()  # who has gone on has removed them
                raise UnusableInput(f"{self.folder.at(place)} has lost what was written there: {ANEW}")

    def table(self, name: str) -> DataFrame:
        """A table as it holds."""
        return self.read(self.holds.tables, name)

    def frame(self, rows: list[dict[str, Any]], columns: Mapping[str, str]) -> DataFrame:
        """A small table from plain values; what a row does not have is null."""
        return of_rows(self._spark, rows, columns)

    def write(self, tables: Mapping[str, DataFrame]) -> dict[str, str]:
        """Write tables of the next step, which hold nothing yet; returns their folders. Another watch that is at this step must not write over them."""
        folder = f"{_PREFIX}{self.holds.step + 1}-{self._own}"
        with self.folder.clearing(folder):
            for name, table in tables.items():
                table.write.mode("overwrite").parquet(self.folder.at(f"{folder}/{name}"))
        return {name: f"{folder}/{name}" for name in tables}

    def read(self, folders: Mapping[str, str], name: str) -> DataFrame:
        """A table in the folder that is named so; one that nothing was written to has none, is empty, and costs nothing."""
        if name not in folders:
            return none_of(self.frame([], TABLES[name]))
        return self._spark.read.schema(ddl(TABLES[name])).parquet(by_name(self._spark, self.folder.at(folders[name])))

    def hold(self, changed: Holds) -> None:
        """The step holds from now on; then remove the tables that no longer do. Raises UnusableInput as `require_own` does.

        Those of the same step stay until the next one: another watch may be writing them, and is to end with that sentence.
        """
        self.require_own()
        self._replace(msgspec.structs.replace(changed, sizes=self._sizes(changed.tables)))
        used = {place.split("/")[0] for place in changed.tables.values()}
        for name in self.folder.names():
            if name.startswith(_PREFIX) and name not in used and name.split("-")[1] != str(changed.step):
                self.folder.remove(name)

    def _sizes(self, tables: Mapping[str, str]) -> dict[str, int]:
        """The bytes of each table; of those that stay where they are, as they were."""
        before = {place: self.holds.sizes.get(name) for name, place in self.holds.tables.items()}
        known = {name: before[place] if place in before else self.folder.size(place) for name, place in tables.items()}
        return {name: size for name, size in known.items() if size is not None}

    def _replace(self, changed: Holds) -> None:
        self.folder.replace("state.json", msgspec.json.encode(changed).decode() + "\n")
        self.holds = changed
