"""Restores the state of a streaming query from a savepoint, before the query is started for the first time (R60)."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.checkpoint.savepoint.query_restore import QueryToRestore, RestoredQuery, claim, restore_query
from runtime.checkpoint.savepoint.repartition import Partitions, PartitionsChange
from runtime.checkpoint.savepoint.savepoint_files import local_path
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.common.stream_progress import NO_BATCH
from runtime.jobgraph.savepoints import ClaimMode, QueryRestoreSettings, parse_query_settings
from runtime.taskexecutor.slot_protocol.wire import WorkOrder
from runtime.taskexecutor.spark_protocol.installed_spark import pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_ORPHANS_SHOWN = 100
_REASON_MAX = 500
_REFUSED = re.compile(r"\[STATE_REPARTITION_[^\n]*")
"""Spark's own words for what it cannot repartition; another failure may pass."""
_logger = logging.getLogger(__name__)


def restore(order: WorkOrder, uid: str, directory: str, writer: DataStreamWriter, spark: SparkSession) -> None:
    """Have `directory` hold what the job's savepoint has of this query. Nothing for a job without one, or once done.

    `writer` tells where the query writes. Raises InvalidInputError for a savepoint that does not fit, and OSError.
    """
    settings = parse_query_settings(order.savepoint)
    if settings is None:
        return
    if order.user is not None:
        message = (
            "a query is not started from a savepoint where slots have users of their own (taskmanager.slots.uids): its "
            "directory is of Spark's user, and no task may write there"
        )
        raise InvalidInputError(message)
    path = local_path(settings.path)
    query = QueryToRestore(
        local_path(directory),
        uid,
        order.attempt_id.subtask_index,
        settings.queries,
        _written_path(writer),
        allow_non_restored_state=settings.allow_non_restored_state,
        job_id=order.attempt_id.job_id,
        attempt=f"{order.attempt_id.epoch}-{order.attempt_id.counter}",
        partitions=_partitions(settings, uid, spark),
    )
    try:
        restored = restore_query(path, query)
    except NotFoundError as error:
        raise InvalidInputError(str(error)) from error
    if restored is not None:
        _tell(path, uid, restored)
    if settings.claim_mode is ClaimMode.CLAIM and claim(path, query):
        _logger.info("savepoint %s was claimed and all queries of the job are restored: it is deleted", path)


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


def _written_path(writer: DataStreamWriter) -> Path | None:
    """The option `path` of a writer, which only a class of Spark's knows; None where the query writes to no path."""
    options = writer._jwrite.getClass().getDeclaredField("extraOptions")  # noqa: SLF001 - there is no other way
    options.setAccessible(True)
    found = options.get(writer._jwrite).get("path")  # noqa: SLF001
    if not found.isDefined():
        return None
    text = str(found.get())
    return Path(text).absolute() if "://" not in text and not text.startswith("file:") else _of_url(text)


def _of_url(text: str) -> Path | None:
    try:
        return local_path(text)
    except InvalidInputError:
        return None  # a savepoint has no log of a sink on another file system
