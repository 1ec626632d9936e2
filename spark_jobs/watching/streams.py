"""What happens, as one stream: rows of the ledgers, and sightings at the topics."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from ..columns import LEDGER, ddl
from ..hadoop import by_name
from ..reading import inputs, kafka_client
from ..reading.places import broker_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from .arguments import Arguments

OLDEST_FILE = "30d"
"""Spark remembers the files that it has read for so long; one that comes later than that is not read."""

_AND_GO_ON = {"failOnDataLoss": "false"}
"""Where retention has removed what was not read yet: `topics` knows of it, and what was delivered by then is not called not observed."""

HAPPENED = ("input", "event", "event_ms", "id", "occurrence", "due_ms", "lateness_ms", "destination_broker", "destination", "bridge", "sequence",
            "place", "problem")  # fmt: skip


def door(spark: SparkSession, arguments: Arguments) -> None:
    """Raises UnusableInput for a ledger without files, or with other columns, which a stream would take for null; and for a topic that is not there.

    And for a ledger into which the watch would write.
    """
    inputs.require_listed(spark, "--ledger", arguments.ledgers)
    inputs.require_apart(spark, "--checkpoint", arguments.checkpoint, arguments.ledgers)
    if arguments.alerts is not None:
        inputs.require_apart(spark, "--alerts", str(arguments.alerts), arguments.ledgers)
    inputs.let_in(spark, arguments.ledgers, LEDGER, "ledger")
    kafka_client.require_there(spark, arguments.observed, arguments.kafka_options)


def happened(spark: SparkSession, arguments: Arguments) -> DataFrame:
    """The stream, of inputs that were let in by the `door`."""
    return reduce(DataFrame.unionByName, _inputs(spark, arguments))


def _inputs(spark: SparkSession, arguments: Arguments) -> Iterator[DataFrame]:
    for path in arguments.ledgers:
        yield of_ledger(inputs.with_problem(_files(spark, path)))
    for place in arguments.observed:
        records = inputs.topic(spark.readStream, place, arguments.since, {**_AND_GO_ON, **arguments.kafka_options})
        seen = inputs.from_kafka(records, broker_of(place))
        yield of_sightings(inputs.renamed(seen, arguments.aliases).where("id is not null or problem is not null"))


def _files(spark: SparkSession, path: str) -> DataFrame:
    """A growing ledger. Spark passes over names that begin with a dot or an underscore: unfinished files, and the bridges' marks."""
    reader = spark.readStream.schema(ddl(LEDGER)).option("recursiveFileLookup", "true").option("maxFileAge", OLDEST_FILE)
    return reader.parquet(by_name(spark, path)).select(*LEDGER, F.col("_metadata.file_path").alias("place"))


def of_ledger(rows: DataFrame) -> DataFrame:
    """Ledger rows in the stream's contract."""
    told = rows.withColumns({"input": F.lit("ledger"), "event_ms": F.unix_millis("event_time"), "due_ms": F.unix_millis("due_time")})
    return told.select(*HAPPENED)


def of_sightings(rows: DataFrame) -> DataFrame:
    """Sightings in the stream's contract: neither bridge nor sequence."""
    told = rows.withColumns(
        {
            "input": F.lit("observed"),
            "event": F.lit("observed"),
            "event_ms": F.unix_millis("event_time"),
            "due_ms": F.unix_millis("due_time"),
            "lateness_ms": F.lit(None).cast("bigint"),
            "bridge": F.lit(None).cast("string"),
            "sequence": F.lit(None).cast("bigint"),
        }
    )
    return told.select(*HAPPENED)
