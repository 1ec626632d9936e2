"""The marks `_reach/NAME.json` beside the folders of files: what a bridge says of its ledger, and an observer of what it saw. Replaced at each flush."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...core.durations import LATEST_INSTANT
from ..columns import UnusableInput
from ..completeness.reach import Mark
from ..hadoop import HIDDEN, Folder
from .overlaps import Listener
from .places import is_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from ..question import Question

FOLDER = "_reach"
_SUFFIX = ".json"
_TAKEN, _LINES = "_taken", ".ndjson"
"""Where an observer keeps what it took from a queue until that is in a Parquet file."""
_DATES = "/date="
"""How folders of files begin, beside that of the marks."""


def read(spark: SparkSession, ledgers: Iterable[str]) -> dict[str, Mark]:
    """The marks of all bridges, by name. Raises UnusableInput for one that cannot be read. To be read before the files are listed, see `observers`.

    A bridge whose ledger was moved has a mark in each place: the latest says most.
    """
    marks: dict[str, Mark] = {}
    for place, told in _files(spark, ledgers, "observer", "holds what an observer saw: name it by --observed"):
        with _readable(place, "a bridge"):
            bridge = str(told["bridge"])
            earlier = tuple((str(name), int(since)) for name, since in told.get("earlier", ()))
            mark = Mark(int(told["sequence"]), _instant(told["at_ms"]), int(told.get("first", 1)), earlier)
        marks[bridge] = max(mark, marks.get(bridge, mark), key=lambda one: (one.sequence, one.at_ms))
    return marks


def observers(spark: SparkSession, places: Iterable[str], aliases: Mapping[str, str]) -> list[Listener]:
    """What observers say of themselves, addresses as the ledger writes them. To be read before the files are listed: a mark tells of files that are there."""
    marks = []
    folders = (one for one in places if not is_topic(one))
    for place, told in _files(spark, folders, "bridge", "holds a ledger: name it by --ledger"):
        with _readable(place, "an observer"):
            broker = str(told["broker"])
            since_ms, latest_ms = (-1 if told.get(name) is None else _instant(told[name]) for name in ("since_ms", "latest_ms"))
            address, copies = renamed(broker, str(told["address"]), aliases), told.get("copies") is not False
            marks.append(Listener(str(told["observer"]), broker, address, _instant(told["at_ms"]), since_ms, latest_ms, copies))
    return marks


def require_written(spark: SparkSession, places: Iterable[str], question: Question) -> None:
    """Raises UnusableInput for an observer that is said to have ended, and whose last messages from a queue are in no file that is read.

    It was killed, or runs on. Whoever observes with that folder next writes them.
    """
    for place in places:
        left = [] if is_topic(place) else Folder(spark, f"{place.rstrip('/')}/{_TAKEN}").names()
        for name in (one for one in left if one.endswith(_LINES) and not one.startswith(".")):
            observer = name.removeprefix("observed-").rpartition("-")[0]
            if question.has_ended(observer):
                raise UnusableInput(
                    f"observer {observer!r} was killed, or still runs: what it took last is in {place.rstrip('/')}/{_TAKEN}, and in no Parquet file."
                    f" The next `delaybridge observe` with --to {place} writes it there"
                )


def renamed(broker: str, address: str, aliases: Mapping[str, str]) -> str:
    """The ledger's name for an observed address. An alias for `BROKER:ADDRESS` goes before one for an address at any broker."""
    return aliases.get(f"{broker}:{address}", aliases.get(address, address))


def alone(spark: SparkSession, path: str) -> bool:
    """Whether a folder holds marks, and nothing besides that Spark would read."""
    names = Folder(spark, path).names()
    return FOLDER in names and all(name.startswith(HIDDEN) for name in names)


def require_root(spark: SparkSession, path: str, files: Iterable[str], what: str) -> None:
    """Raises UnusableInput where files below a path, of URLs `files`, belong to another folder that has marks: nobody would read those."""
    given = Folder(spark, path).url
    folders = (Folder(spark, unquote(root)) for root in sorted({file.rsplit(_DATES, 1)[0] for file in files if _DATES in file}))
    if marked := [folder.url for folder in folders if folder.url != given and FOLDER in folder.names()]:
        raise UnusableInput(f"{what} {path}: how far its files reach is told in another folder; name {' and '.join(marked)} itself")


def _files(spark: SparkSession, roots: Iterable[str], of_others: str, instead: str) -> Iterator[tuple[str, Any]]:
    """Each mark's place, and what stands in it. Raises UnusableInput, which says what to do `instead`, for one that has what only marks of others have."""
    for root in roots:
        folder = Folder(spark, f"{root.rstrip('/')}/{FOLDER}")
        for name in folder.names():
            if name.endswith(_SUFFIX) and not name.startswith("."):
                with _readable(folder.at(name), "anybody"):
                    told = json.loads(folder.read(name))
                if isinstance(told, dict) and of_others in told:
                    raise UnusableInput(f"{root} {instead}")
                yield folder.at(name), told


def _instant(told: int) -> int:
    """Epoch milliseconds. Raises ValueError where no date can tell them."""
    if not 0 <= told <= LATEST_INSTANT:
        raise ValueError(f"{told} is no instant from 1970 to 9999")
    return told


@contextmanager
def _readable(place: str, whose: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise UnusableInput(f"{place} is no mark of {whose}: {error!r}") from error
