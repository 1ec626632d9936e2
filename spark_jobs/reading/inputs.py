"""Reads ledgers, observations in Parquet, and Kafka topics. They are checked at the door; a malformed row is set aside, never dropped."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ...core.durations import HOUR_MS, LATEST_INSTANT
from ...core.ledger import EVENTS
from ..columns import LEDGER, NEEDED, OBSERVED, UnusableInput, ddl, require
from ..hadoop import Folder, by_name
from ..session import cause, named
from . import marks
from .overlaps import seen_once
from .places import address_of, broker_of, is_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from .overlaps import Overlap

    _Reader = DataFrameReader | DataStreamReader

MANY = 10_000
"""So many files take a small machine half a minute and more in each pass, whatever is in them."""

KAFKA_MARGIN_MS = HOUR_MS
"""A topic is read from so long before the window: what arrives earlier than that is reported as not observed."""

_EMPTY = re.compile(r"path=(?!null;)(.*?); isDirectory=false; length=0;")
"""How Hadoop shows a file of no bytes. Behind a mount table (viewfs) it shows neither name nor size: there nothing is found."""

_AS_TOLD = {"event_time": "timestamp", "id": "string", "occurrence": "string", "due_time": "string", "topic": "string", "place": "string"}


@dataclass(frozen=True, slots=True)
class Input:
    """One input's rows twice, each row with what is wrong with it (`problem`, null where nothing is).

    rows      to be counted
    placed    to be shown: with `place`, where each row stands. A plan that could ask for the name of a file makes Spark carry all that it knows of
              the file along with every row, asked or not, and that takes longer than counting does.
    """

    rows: DataFrame
    placed: DataFrame

    def each(self, change: Callable[[DataFrame], DataFrame]) -> Input:
        """Both, changed in the same way."""
        return Input(change(self.rows), change(self.placed))


def ledger(spark: SparkSession, paths: Sequence[str]) -> Input:
    """All ledgers as one. Raises UnusableInput."""
    let_in(spark, paths, LEDGER, "ledger")
    return parquet(spark, paths, LEDGER).each(with_problem)


def with_problem(frame: DataFrame) -> DataFrame:
    """Adds `problem` to a ledger's rows."""
    problem = F.coalesce(
        *(F.when(F.col(name).isNull(), F.lit(f"{name} is null")) for name in NEEDED),
        F.when(~F.col("event").isin(*EVENTS), F.concat(F.lit("unknown event "), F.col("event"))),
        *_absurd("event_time", "due_time", "taken_time"),
        F.when(F.col("occurrence") < 1, F.lit("occurrence is below 1")),
        F.when(F.col("id") == "", F.lit("id is empty")),
    )
    return frame.withColumn("problem", problem)


def _absurd(*times: str) -> list[Column]:
    """What is wrong with instants that no bridge writes: the job would fail where it adds to them, or shows them."""
    return [F.when(~_possible(name), F.lit(f"{name} is before 1970, or after 9999")) for name in times]


def believable(time: str) -> Column:
    """The instant in a column; null where a bridge does not write it."""
    return F.when(_possible(time), F.col(time))


def _possible(time: str) -> Column:
    return F.col(time).between(F.timestamp_millis(F.lit(0)), F.timestamp_millis(F.lit(LATEST_INSTANT)))


def observed(
    spark: SparkSession,
    places: Sequence[str],
    since: int,
    aliases: Mapping[str, str],
    options: Mapping[str, str],
    overlaps: Sequence[Overlap] = (),
) -> Input:
    """All observations as one, see `places`.

    Where an observer left its mark and no file, nothing arrived. What several observers saw in `overlaps` is there once. Raises UnusableInput.
    """
    topics, paths = ([place for place in places if is_topic(place) is wanted] for wanted in (True, False))
    seen = [_once(from_kafka(topic(spark.read, place, since, options), broker_of(place))) for place in topics]
    parts = [Input(frame.drop("place"), frame).each(lambda rows: renamed(rows, aliases)) for frame in seen]
    let_in(spark, paths, OBSERVED, "observation")
    if paths:
        of_files = parquet(spark, paths, OBSERVED).each(_arrivals).each(lambda rows: renamed(rows, aliases))
        parts.append(_seen_once(of_files, overlaps) if overlaps else of_files)
    return Input(*(reduce(DataFrame.unionByName, frames) for frames in ([one.rows for one in parts], [one.placed for one in parts])))


def _arrivals(frame: DataFrame) -> DataFrame:
    """The rows of an observer's files, with `problem`: the rows of a ledger say what a bridge did, and not what arrived."""
    odd = F.when(
        ~F.col("event").eqNullSafe("observed"), F.concat(F.lit("no observation, its event is "), F.coalesce("event", F.lit("null")))
    )
    return with_arrival_problem(frame).withColumn("problem", F.coalesce(odd, "problem")).drop("event")


def _seen_once(whole: Input, overlaps: Sequence[Overlap]) -> Input:
    """Less what several observers saw. The name of a row's file tells who saw it: so that is asked for here, also where rows are only counted."""
    placed = seen_once(whole.placed, overlaps)
    return Input(placed.drop("place"), placed)


def _once(records: DataFrame) -> DataFrame:
    """Read the topic once, when it is first asked for, and keep that on disk until the session ends.

    If it were read again it would hold more, and one audit would not agree with itself.
    """
    return records.persist(StorageLevel.DISK_ONLY)


def with_arrival_problem(frame: DataFrame) -> DataFrame:
    """Adds `problem` to an observation's rows. Without an id it is no bridge's delivery: nothing is wrong with that."""
    of_a_delivery = F.coalesce(
        F.when(F.col("occurrence").isNull(), F.lit("occurrence is null, or no number")),
        F.when(F.col("occurrence") < 1, F.lit("occurrence is below 1")),
        F.when(F.col("due_time").isNull(), F.lit("due_time is null, or no instant up to the year 9999")),
        *_absurd("due_time"),
    )
    problem = F.coalesce(
        *(F.when(F.col(name).isNull(), F.lit(f"{name} is null")) for name in ("event_time", "destination_broker", "destination")),
        *_absurd("event_time"),
        F.when(F.col("id").isNotNull(), of_a_delivery),
    )
    return frame.withColumn("problem", problem)


def renamed(frame: DataFrame, aliases: Mapping[str, str]) -> DataFrame:
    """Observed addresses as the ledger writes them, see `marks.renamed`."""
    if not aliases:
        return frame
    named = F.create_map(*(F.lit(word) for pair in aliases.items() for word in pair))
    address = F.col("destination")
    of_broker = F.concat("destination_broker", F.lit(":"), address)
    return frame.withColumn("destination", F.coalesce(F.try_element_at(named, of_broker), F.try_element_at(named, address), address))


def parquet(spark: SparkSession, paths: Sequence[str], columns: Mapping[str, str]) -> Input:
    """All Parquet files below these paths, with these columns (see `door`), in one scan: half as much to plan as one for each path."""
    frame = _files(spark).schema(ddl(columns)).parquet(*(by_name(spark, path) for path in paths))
    return Input(frame.select(*columns), frame.select(*columns, F.col("_metadata.file_path").alias("place")))


def let_in(spark: SparkSession, paths: Iterable[str], columns: Mapping[str, str], what: str) -> None:
    """Ask each path at the `door`, and tell on a terminal where there are so many files that reading them takes long."""
    number = sum(door(spark, path, columns, what) for path in paths)
    if number >= MANY and sys.stderr.isatty():
        sys.stderr.write(
            f"{number:,} files of {what}s: each takes some 2 ms of a core in each pass, whatever is in it, 1 ms with "
            "--conf spark.sql.files.openCostInBytes=262144; a longer ledger.flush_interval makes fewer\n"
        )


def door(spark: SparkSession, path: str, columns: Mapping[str, str], what: str) -> int:
    """How many Parquet files a path has.

    Raises UnusableInput where there are none, or some that are empty or without these columns, or whose marks nobody would read.

    Marks without files are let in: nothing arrived, or all that was written is gone.
    """
    if marks.alone(spark, path):
        return 0
    try:
        frame = _files(spark).parquet(by_name(spark, path))
    except (PySparkException, Py4JJavaError) as error:
        if what in Folder(spark, path).names():
            raise UnusableInput(f"{path} is no {what}; did you mean {path.rstrip('/')}/{what}?") from error
        raise UnusableInput(f"{what} {path}: no Parquet files can be read there: {cause(error)}") from error
    require(frame, columns, f"{what} {path}")
    require_whole(frame, f"{what} {path}")
    found = files(spark, frame)
    marks.require_root(spark, path, found, what)
    return len(found)


def require_listed(spark: SparkSession, option: str, places: Iterable[str]) -> None:
    """Raises UnusableInput for a folder among the places that an option names if Hadoop cannot list it; one that is not there it can."""
    for place in places:
        if not is_topic(place):
            with named(f"{option} {place}"):
                Folder(spark, place).names()


def require_apart(spark: SparkSession, option: str, written: str, places: Iterable[str]) -> None:
    """Raises UnusableInput where what an option names lies in a folder of `places`: whoever reads that would take it for a part of the input."""
    with named(f"{option} {written}"):
        target = Folder(spark, written)
    for place in places:
        if not is_topic(place) and Folder(spark, place).shows(target):
            raise UnusableInput(f"{option} {written} lies in {place}, and would be read as a part of it: name another place")


def require_whole(frame: DataFrame, what: str) -> None:
    """Raises UnusableInput for a file of no bytes, as a copy leaves it on a full disk: Spark passes over it, as if nothing had been in it.

    A file that ends anywhere else Spark refuses itself. `frame` reads files, and does nothing with them yet.
    """
    relation = frame._jdf.queryExecution().analyzed().collectLeaves().head().relation()  # noqa: SLF001 - the way to their sizes that there is
    if empty := _EMPTY.search(relation.location().allFiles().mkString("\n")):  # as text, and all at once: see `files`
        raise UnusableInput(f"{what}: {empty[1]} is empty: was it copied whole?")


def files(spark: SparkSession, frame: DataFrame) -> list[str]:
    """The URLs of the files that a frame reads. As `inputFiles`, which asks Java for one at a time: 20,000 take seconds."""
    found = frame._jdf.inputFiles()  # noqa: SLF001 - the way to all at once that there is
    joined: str = cast("Any", spark._jvm).org.apache.hadoop.util.StringUtils.join("\n", found)  # noqa: SLF001 - as above
    return joined.split("\n") if joined else []


def _files(spark: SparkSession) -> DataFrameReader:
    """To skip files by due time their statistics are enough. Their dictionaries say the same, and asking these takes as long as counting."""
    return spark.read.option("recursiveFileLookup", "true").option("parquet.filter.dictionary.enabled", "false")


def watched(places: Iterable[str], aliases: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Broker and address, as the ledger writes it, of each topic among these places: compared with what arrived also where nothing did.

    Raises UnusableInput, also for a topic that stands there twice, for each of its messages would count twice.
    """
    names = [(broker_of(place), address_of(place)[1]) for place in places if is_topic(place)]
    if again := [name for name, times in Counter(names).items() if times > 1]:
        raise UnusableInput(f"topic {again[0][1]} of broker {again[0][0]} is given twice: what arrived once would count twice")
    return frozenset((broker, marks.renamed(broker, name, aliases)) for broker, name in names)


def topic(reader: _Reader, place: str, since: int, options: Mapping[str, str]) -> DataFrame:
    """A topic's records from shortly before the window on, as Spark reads them: to its end (`spark.read`), or without end (`spark.readStream`).

    What a transaction took back never arrived. `options` come last: they may say otherwise.
    """
    servers, name = address_of(place)
    configured = (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", name)
        .option("includeHeaders", "true")
        .option("startingTimestamp", str(max(0, since - KAFKA_MARGIN_MS)))
        .option("startingOffsetsByTimestampStrategy", "latest")
    )
    return configured.options(**options).load()


def from_kafka(records: DataFrame, broker: str) -> DataFrame:
    """Records of a topic as observations: what a bridge delivered says so in its headers."""
    told = records.select(
        F.col("timestamp").alias("event_time"),
        _header("x-delay-id").alias("id"),
        _header("x-delay-occurrence").alias("occurrence"),
        _header("x-delay-due").alias("due_time"),
        "topic",
        F.format_string("%s/%d@%d", "topic", "partition", "offset").alias("place"),
    )
    return with_arrival_problem(
        require(told, _AS_TOLD, "Kafka").select(
            "event_time",
            "id",
            F.expr("try_cast(occurrence as bigint)").alias("occurrence"),
            _instant("due_time").alias("due_time"),
            F.lit(broker).alias("destination_broker"),
            F.col("topic").alias("destination"),
            "place",
        )
    )


def _instant(name: str) -> Column:
    """Of epoch milliseconds as text; null where it is none that a bridge writes: of a larger one Spark would make no timestamp, and end."""
    number = F.expr(f"try_cast({name} as bigint)")
    return F.timestamp_millis(F.when(number.between(0, LATEST_INSTANT), number))


def _header(name: str) -> Column:
    """The text of the last header of that name; null where there is none."""
    return F.try_element_at(F.filter("headers", lambda header: header["key"] == name), F.lit(-1))["value"].cast("string")


def sound(frame: DataFrame) -> DataFrame:
    """The rows with which nothing is wrong."""
    return frame.where("problem is null").drop("problem")


def numbered(frame: DataFrame, time: str = "event_time") -> DataFrame:
    """The rows of a ledger that have a number, malformed ones included: they are there. When such a row happened it does not tell: there `time` is null."""
    when = F.when(F.col("problem").isNull(), F.col(time))
    return frame.where("bridge is not null and sequence is not null").withColumn(time, when)


def malformed(frame: DataFrame, what: str) -> DataFrame:
    """The malformed rows: from which input, where they stand, what is wrong, and the row itself as JSON."""
    row = F.to_json(F.struct(*(name for name in frame.columns if name not in {"problem", "place"})))
    return frame.where("problem is not null").select(F.lit(what).alias("input"), "place", "problem", row.alias("row"))
