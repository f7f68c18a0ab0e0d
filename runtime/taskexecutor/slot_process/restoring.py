"""Restores the state of a streaming query from a savepoint, before the query is started for the first time (R60)."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.checkpoint.savepoint.descriptions import kind_of, source_descriptions
from runtime.checkpoint.savepoint.query_restore import QueryToRestore, RestoredQuery, claim, restore_query
from runtime.checkpoint.savepoint.repartition import Partitions, PartitionsChange
from runtime.checkpoint.savepoint.savepoint_files import local_path
from runtime.checkpoint.savepoint.shares import shapes_of
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.common.stream_progress import NO_BATCH
from runtime.jobgraph.savepoints import ClaimMode, QueryRestoreSettings, parse_query_settings
from runtime.taskexecutor.slot_process.sink_tables import asked_option
from runtime.taskexecutor.slot_protocol.wire import WorkOrder
from runtime.taskexecutor.spark_protocol.installed_spark import pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_ORPHANS_SHOWN = 100
_REASON_MAX = 500
_LOOK_SECONDS: Any = 0.2
"""Parts of a second, which PySpark's signature does not know."""
_REFUSED = re.compile(r"\[STATE_REPARTITION_[^\n]*")
"""Spark's own words for what it cannot repartition; another failure may pass."""
_logger = logging.getLogger(__name__)


def restore(
    order: WorkOrder, uid: str, directory: str, writer: DataStreamWriter, spark: SparkSession
) -> tuple[str, ...]:
    """Have `directory` hold what the job's savepoint has of this query. Nothing for a job without one, or once done.

    Returns what the query has read, in Spark's words, for `await_end`. `writer` tells where the query writes. Raises
    InvalidInputError for a savepoint that does not fit, and OSError.
    """
    settings = parse_query_settings(order.savepoint)
    if settings is None:
        return ()
    _refuse_own_users(order)
    query = query_to_restore(order, settings, uid, directory, written_path(writer), spark)
    path = local_path(settings.path)
    sources = restore_from(path, query)
    if settings.claim_mode is ClaimMode.CLAIM:
        _claim(path, query)
    return sources


def query_to_restore(
    order: WorkOrder, settings: QueryRestoreSettings, uid: str, directory: str, sink: Path | None, spark: SparkSession
) -> QueryToRestore:
    """A query of the job that is about to start. `sink`: the path that it writes to. Raises InvalidInputError."""
    _refuse_own_users(order)
    return QueryToRestore(
        local_path(directory),
        uid,
        order.attempt_id.subtask_index,
        shapes_of(settings.queries, settings.splits),
        sink,
        allow_non_restored_state=settings.allow_non_restored_state,
        job_id=order.attempt_id.job_id,
        attempt=f"{order.attempt_id.epoch}-{order.attempt_id.counter}",
        partitions=_partitions(settings, uid, spark),
    )


def _refuse_own_users(order: WorkOrder) -> None:
    if order.user is not None:
        message = (
            "a query is not started from a savepoint where slots have users of their own (taskmanager.slots.uids): its "
            "directory is of Spark's user, and no task may write there"
        )
        raise InvalidInputError(message)


def restore_from(path: Path, query: QueryToRestore) -> tuple[str, ...]:
    """Have the directory of a query hold what the savepoint at `path` has of it, and tell so.

    Returns what the query has read. Raises as `restore`.
    """
    try:
        restored = restore_query(path, query)
    except NotFoundError as error:
        raise InvalidInputError(str(error)) from error
    if restored is not None:
        _tell(path, query.uid, restored)
    return () if restored is None else restored.sources


def await_end(query: StreamingQuery, uid: str, before: Sequence[str]) -> None:
    """Wait for the end of a query, and raise what ended it. A warning if it reads others than it did in its savepoint.

    `before`: what it read then, in Spark's words; empty where that is not known.
    """
    try:
        while before and not query.awaitTermination(_LOOK_SECONDS):
            if now := sources_of(query):
                warn_of_others(uid, before, now)
                before = ()
    except Exception:
        warn_of_others(uid, before, sources_of(query))  # Spark's own words for it are hard to read
        raise
    query.awaitTermination()


def sources_of(query: StreamingQuery) -> tuple[str, ...]:
    """What a query reads; nothing before it has looked, and where Spark is lost: the query's own failure says that."""
    try:
        found: Any = query._jsq.streamingQuery().sources()  # noqa: SLF001 - PySpark tells it behind the first batch only
        return source_descriptions(str(found.apply(index)) for index in range(found.size()))
    except Exception:  # noqa: BLE001 - a look for a warning: what it fails of is told by the wait for the query (R36)
        return ()


def warn_of_others(uid: str, before: Sequence[str], now: Sequence[str]) -> None:
    """Say so if a query reads others than it did in its savepoint, or has failed before it is known what it reads, as
    `now` is empty. Nothing where it is not known what it read.
    """
    if before and not now:
        _logger.warning(
            "query %r has failed before Spark knew what it reads. In its savepoint it has read %s: has it other "
            "sources now, or another order of them?",
            uid,
            "; ".join(before),
        )
    elif before and [kind_of(one) for one in before] != [kind_of(one) for one in now]:
        _logger.warning(
            "query %r reads %s, and in its savepoint it has read %s. Spark knows sources by their places, so these "
            "have to be the same ones in the same order",
            uid,
            "; ".join(now),
            "; ".join(before),
        )


def _claim(path: Path, query: QueryToRestore) -> None:
    try:
        if claim(path, query):
            _logger.info("savepoint %s was claimed and all queries of the job are restored: it is deleted", path)
    except InvalidInputError as error:  # the job has what it needs of it
        _logger.warning("savepoint %s was claimed and stays: %s", path, error)
    except OSError as error:
        _logger.warning(
            "savepoint %s was claimed, and this query has not deleted all of it: %s. What is left there, the next "
            "attempt of the job deletes, or `flinklike savepoint dispose`",
            path,
            error,
        )


def _tell(path: Path, uid: str, restored: RestoredQuery) -> None:
    if restored.batch_id == NO_BATCH:
        _logger.info("savepoint %s has no batch of %r: it begins", path, uid)
    else:
        _logger.info("query %r goes on behind batch %d, from savepoint %s", uid, restored.batch_id, path)
    if restored.partitions is not None:
        _logger.info("%s", _partitions_in_words(uid, restored.partitions))
    if restored.orphans:
        more = len(restored.orphans) - _ORPHANS_SHOWN
        _logger.warning(
            "the log of the sink of %r was put back to that batch; %d file(s) that were written behind it are no part "
            "of the table any more, and can be deleted: %s%s",
            uid,
            len(restored.orphans),
            ", ".join(restored.orphans[:_ORPHANS_SHOWN]),
            f", and {more} more" if more > 0 else "",
        )


def _partitions_in_words(uid: str, change: PartitionsChange) -> str:
    if not change.before:
        return f"query {uid!r} has no state, so no partitions of it"
    if not change.is_done:
        return f"state of {uid!r} is in {change.after} partitions already"
    return (
        f"state of {uid!r} is in {change.after} partitions from now on, before it was in {change.before}: batch "
        f"{change.batch_id}, which has read nothing"
    )


def _partitions(settings: QueryRestoreSettings, uid: str, spark: SparkSession) -> Partitions | None:
    wanted = settings.state_partitions_of(uid)
    if wanted is None:
        return None

    def repartition(part: Path, number: int) -> None:
        _repartition(spark, uid, part, number)

    def note_batch(log: Path, batch_id: int) -> None:
        _note_batch(spark, log, batch_id)

    return Partitions(wanted, uid in settings.state_partitions, repartition, note_batch)


def _repartition(spark: SparkSession, uid: str, part: Path, number: int) -> None:
    """Raises InvalidInputError where this Spark cannot do it, or not with this state."""
    manager = getattr(spark, "_streamingCheckpointManager", None)
    if manager is None:
        message = (
            f"the state of {uid!r} keeps its partitions: PySpark {pyspark_version()} cannot change them, 4.2 and later "
            "can. Start the job without --state-partitions"
        )
        raise InvalidInputError(message)
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        manager.repartition(str(part), number, True)  # noqa: FBT003 - Spark's signature: exactly-once sinks are kept
    except (Py4JJavaError, PySparkException) as error:
        reason = _REFUSED.search(str(error))
        if reason is None:
            raise
        message = (
            f"Spark does not give the state of {uid!r} {number} partitions: {reason[0][:_REASON_MAX]}. It does so for "
            "state in RocksDB only. Start the job without --state-partitions"
        )
        raise InvalidInputError(message) from error


def _note_batch(spark: SparkSession, log: Path, batch_id: int) -> None:
    """An entry without files in the log of a file sink: Spark knows which entries hold all before them."""
    java: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to the log of a sink
    sinks = java.org.apache.spark.sql.execution.streaming.sinks
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    no_files = gateway.new_array(sinks.SinkFileStatus, 0)
    version = sinks.FileStreamSinkLog.VERSION()
    added = sinks.FileStreamSinkLog(version, spark._jsparkSession, str(log), java.scala.Option.empty())  # noqa: SLF001
    if not added.add(batch_id, no_files):
        message = f"the log {log} has batch {batch_id} already"
        raise InvalidInputError(message)


def written_path(writer: DataStreamWriter) -> Path | None:
    """The option `path` of a writer; None where the query writes to no path."""
    text = asked_option(writer, "path")
    return path_of(text) if text else None


def path_of(text: str) -> Path | None:
    """Where a query writes that is told to write there; None on another file system."""
    return Path(text).absolute() if "://" not in text and not text.startswith("file:") else _of_url(text)


def _of_url(text: str) -> Path | None:
    try:
        return local_path(text)
    except InvalidInputError:
        return None  # a savepoint has no log of a sink on another file system
