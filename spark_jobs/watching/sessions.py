"""The sessions that Spark makes for each query and each frame that is kept, and does not forget by itself.

In Spark 4.0.0, what keeps a session's artifacts (jars and files that were added to it) gives a `java.lang.ref.Cleaner` code that refers to the session, so that
no session that was cloned is ever collected: some 0.4 MB of Java's heap each (SPARK-54753, mended in later versions). A query runs in a clone; closing its
artifacts takes the reference back. A frame that is kept may have another one, to which there is no way: it is kept so that Spark needs none.

In Spark 4.2.0 and 4.3.0, threads of Spark's pools inherit the session of the thread that made them, and hold it until they end: there are no more than these
threads (30 after 60 rounds, where 4.0.0 has 2).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_AS_IT_IS = {
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}
"""Where one of them says otherwise, Spark plans what is kept in a clone of the session in which it does not."""


def kept(batch: DataFrame) -> DataFrame:
    """A batch of a query, persisted in that query's own session."""
    for name, value in _AS_IT_IS.items():
        batch.sparkSession.conf.set(name, value)
    return batch.persist()


def let_go(main: SparkSession, which: Callable[[], Any]) -> None:
    """Let Java forget a session of Java's (see `of_query`) that nobody uses any more; never the main one.

    Raises nothing. What is called here is Spark's own and no interface: where it is not there, nothing is done.
    """
    with suppress(Py4JError, PySparkException, AttributeError):
        session = which()
        if session.sessionUUID() != main._jsparkSession.sessionUUID():  # noqa: SLF001 - as above
            session.artifactManager().close()


def of_query(query: StreamingQuery) -> Any:
    """The session in which a query ran."""
    return query._jsq.streamingQuery().sparkSessionForStream()  # noqa: SLF001 - as above
