"""Restores the state of a streaming query from a savepoint, before the query is started for the first time (R60)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.checkpoint.savepoint.query_restore import QueryToRestore, RestoredQuery, claim, restore_query
from runtime.checkpoint.savepoint.savepoint_files import local_path
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.common.stream_progress import NO_BATCH
from runtime.jobgraph.savepoints import ClaimMode, parse_query_settings
from runtime.taskexecutor.slot_protocol.wire import WorkOrder

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_ORPHANS_SHOWN = 100
_logger = logging.getLogger(__name__)


def restore(order: WorkOrder, uid: str, directory: str, writer: DataStreamWriter) -> None:
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
