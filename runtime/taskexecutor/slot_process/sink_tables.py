"""A table of files is of one query: Spark's log of a file sink knows batches by their numbers only (R59).

A query that begins at batch 0 in a table that has that batch, of another query, reads its rows and writes none of them,
without a word. So does the later of two queries at once. Both are refused before the query starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.common.errors import NonRecoverableError
from runtime.taskexecutor.slot_process.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_FILE_SINKS = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
_LOG = "_spark_metadata"
_MARKS = "_tables"
"""Directory beside those of the uids of a job: for each table an empty directory of each query that writes there."""


@dataclass(frozen=True, slots=True)
class WritingQuery:
    """`root` is where the state of the job's queries lies, `directory` that of this query below it."""

    name: str
    root: str
    directory: str
    job_id: str
    uid: str
    subtask: int


def keep_table(query: WritingQuery, writer: DataStreamWriter, spark: SparkSession, place: str | None = None) -> str:
    """Have the table of files that `writer` writes, `place` or its option `path`, be of this query. Returns its path.

    Nothing, and "", for another sink. Raises NonRecoverableError for the table of another query, and for a query that
    has written to another table: rows would be lost.
    """
    table = place or asked_option(writer, "path")
    if not table or asked_field(writer, "source").lower() not in _FILE_SINKS:
        return ""
    hadoop = HadoopFiles(spark)
    table = table if "://" in table.removeprefix("file:") else str(Path(table.removeprefix("file:")).absolute())
    has_begun = bool(hadoop.names(f"{query.directory}/offsets"))
    _refuse_a_second_table(query, table, hadoop, has_begun=has_begun)
    _refuse_a_second_query(query, table, hadoop)
    if has_begun:
        return table  # it goes on
    batches = [int(number) for name in hadoop.names(f"{table}/{_LOG}") if (number := name.split(".")[0]).isdecimal()]
    if batches:
        message = (
            f"the streaming query {query.name!r} begins at batch 0, and the table {table} has batches up to "
            f"{max(batches)} of an earlier query in its log: Spark would read batches of these numbers and write none "
            "of their rows. Have the query go on where that one was (the same checkpoint_name and uid, or its "
            "savepoint), or give it another path, or delete the table with its log"
        )
        raise NonRecoverableError(message)
    return table


def asked_field(writer: DataStreamWriter, name: str) -> Any:
    """A field of a writer, which only Spark's class knows; "" for none."""
    java = writer._jwrite  # noqa: SLF001 - PySpark has no other way to it
    found = java.getClass().getDeclaredField(name)
    found.setAccessible(True)
    value = found.get(java)
    return "" if value is None else value


def asked_option(writer: DataStreamWriter, name: str) -> str:
    """An option of a writer, "" for none."""
    found = asked_field(writer, "extraOptions").get(name)
    return str(found.get()) if found.isDefined() else ""


def _refuse_a_second_table(query: WritingQuery, table: str, hadoop: HadoopFiles, *, has_begun: bool) -> None:
    marks, own = f"{query.root}/{_MARKS}", [str(query.subtask), query.uid]
    for other in hadoop.names(marks):
        if other == _mark_of(table):
            continue
        for name in hadoop.names(f"{marks}/{other}"):
            if name.split(".", 2)[1:] == own and not has_begun:
                hadoop.delete(f"{marks}/{other}/{name}")  # it begins anew
            elif name.split(".", 2)[1:] == own:
                message = (
                    f"the streaming query {query.name!r} goes on behind what it has written to another table than "
                    f"{table}, which would lack its first batches, and fail in Spark as soon as Spark compacts the log "
                    "of the table. Have it write where it has written, or give it another name (uid), with which it "
                    "begins anew"
                )
                raise NonRecoverableError(message)


def _mark_of(table: str) -> str:
    return sha256(table.rstrip("/").encode()).hexdigest()[:32]


def _refuse_a_second_query(query: WritingQuery, table: str, hadoop: HadoopFiles) -> None:
    marks = f"{query.root}/{_MARKS}/{_mark_of(table)}"
    own = f"{query.job_id}.{query.subtask}.{query.uid}"
    hadoop.make_directory(f"{marks}/{own}")  # before the look, so that of two at once none misses the other
    others = [name for name in hadoop.names(marks) if name != own]
    for name in others:
        if not name.startswith(query.job_id):
            hadoop.delete(f"{marks}/{name}")  # one job at a time has a checkpoint_name, so that one has ended
    if beside := [name.split(".", 2) for name in others if name.startswith(query.job_id)]:
        _, subtask, uid = beside[0]
        message = (
            f"two queries of the job write to the table {table}: {uid!r}, subtask {subtask}, and {query.uid!r}, "
            f"subtask {query.subtask}. Spark's log of a table knows one query: of batches of one number it keeps the "
            "first and leaves the rows of the others out. Give each a path of its own, as with ctx.subtask_index, or "
            "the query parallelism 1, or write with foreachBatch"
        )
        raise NonRecoverableError(message)
