"""Runs a streaming query in the slot process: builds it, starts it on its checkpoint directory, and waits for its end.

The query itself runs in Spark's JVM, in the session of this process. Spark's JVM is asked from outside what it does
(`spark_host/stream_progress.py`); this process only waits, and serves the calls of functions for batches.

For a stop with a savepoint the JVM ends the query between two batches (`jvm/HeldQueries.java`). This process holds
then: it waits for the word of the job's owner, to end or to go on, and does neither by itself (R61).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.checkpoint.savepoint.descriptions import source_descriptions
from runtime.checkpoint.savepoint.ended_note import EndedNote, note_path
from runtime.common.errors import NonRecoverableError
from runtime.jobgraph.graph import Operator
from runtime.jobgraph.streams import StreamSinkSpec
from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark
from runtime.taskexecutor.slot_process.causes import StateNotFoundError, TaskError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.hadoop_files import HadoopFiles
from runtime.taskexecutor.slot_process.restoring import await_end, restore
from runtime.taskexecutor.slot_process.script import returned_by
from runtime.taskexecutor.slot_process.sink_tables import WritingQuery, asked_field, keep_table
from runtime.taskexecutor.slot_process.spark_attachment import is_data_frame
from runtime.taskexecutor.slot_protocol.wire import FrameKind, WorkOrder, decode_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Function = Callable[..., Any]

_PARALLELISM = "_parallelism="
"""Beginning of the name of an empty directory beside those of the subtasks."""

_SINK_LENGTH_MAX = 10_000
_END_TIMEOUT_MILLIS = 10_000
"""How long Spark may take to tell its listeners of the end of a query."""
_AVAILABLE_NOW = {"availableNow": True}
_ENDING_TRIGGERS = ("AvailableNowTrigger", "OneTimeTrigger")


def run_query(
    operators: Sequence[Operator],
    functions: Sequence[Function],
    contexts: Sequence[object],
    inputs: Sequence[Any],
    order: WorkOrder,
    attached: AttachedSpark,
    channel: Channel,
) -> dict[str, int]:
    """Run the query of the vertex to its end: `{"batches", "rows", "last_batch"}` of this attempt.

    Raises TaskError for functions that make no query, and what ended the query.
    """
    if order.is_stopped:
        return _Ended().value  # R61: what is behind the savepoint belongs to whoever is restored from it
    prepared = PreparedQuery(operators, functions, contexts, inputs, order, attached)
    attached.follow_streams()
    prepared.require_state()
    left = _Left()

    def run(trigger: dict[str, Any] | None) -> Any:
        started = prepared.start(trigger)
        await_end(started.query, prepared.spec.uid, started.sources)
        left.note(started.table, started.query)
        return started.query.runId

    trigger = prepared.trigger
    value = _run_until_released(prepared.name, run, trigger, attached, channel)
    if trigger == _AVAILABLE_NOW:
        path = note_path(order.checkpoint_directory, prepared.spec.uid, order.attempt_id.subtask_index)
        HadoopFiles(attached.spark).write(path, left.value.model_dump_json().encode())
    return value


@dataclass(frozen=True, slots=True)
class StartedStream:
    """A query that runs. `table`: that it writes to, "" for none. `sources`: what it has read in its savepoint."""

    query: StreamingQuery
    table: str
    sources: tuple[str, ...]


class PreparedQuery:
    """A query that is built, and may be started again and again. Raises TaskError for functions that make none.

    `order`: that of the subtask whose query it is.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        functions: Sequence[Function],
        contexts: Sequence[object],
        inputs: Sequence[Any],
        order: WorkOrder,
        attached: AttachedSpark,
    ) -> None:
        values: list[Any] = []
        for operator, function, context in zip(operators[:-1], functions, contexts, strict=False):
            arguments = [values[read] if read >= 0 else inputs[-1 - read] for read in operator.inputs or ()]
            values.append(_streaming_frame(operator, returned_by(function, context, *arguments)))
        sink = operators[-1]
        spec, frame = sink.stream_sink, values[(sink.inputs or (0,))[0]]
        assert spec is not None, sink.name
        if not frame.isStreaming:
            message = (
                f"{sink.name!r} writes a stream, and what it got is none: a stream source returns "
                "ctx.spark.readStream..., and each function behind it a DataFrame that is made of its input"
            )
            raise TaskError(message)
        self.spec = spec
        self.name = sink.name
        self._sink, self._function, self._context, self._frame = sink, functions[-1], contexts[-1], frame
        self._order, self._attached = order, attached
        self._directory = query_directory(order, spec)
        if order.is_checkpoint_named:
            _keep_parallelism(order, spec, attached)

    @property
    def trigger(self) -> dict[str, Any] | None:
        """That of the sink; None leaves it to the writer."""
        return None if self.spec.trigger is None else {**self.spec.trigger.as_keywords()}

    def require_state(self) -> None:
        """Raises StateNotFoundError where the query would begin anew (R59)."""
        _require_state(self._attached, self._directory, self.name, self._order.committed_batch)

    def start(self, trigger: dict[str, Any] | None, called: str = "") -> StartedStream:
        """Start the query on its directory. `called`: its name in Spark, that of the sink unless it is given."""
        attached, directory, spec = self._attached, self._directory, self.spec
        writer = _writer(self._sink, spec, self._function, self._context, self._frame)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        before = restore(self._order, spec.uid, directory, writer, attached.spark)
        table = keep_table(_writing(self._order, spec, self.name, directory), writer, attached.spark)
        named = writer.option("checkpointLocation", directory).queryName(called or self.name)
        return StartedStream(named.start(), table, before)


class _Left:
    """What savepoints have to know of a query once it has ended."""

    def __init__(self) -> None:
        self.value = EndedNote()

    def note(self, table: str, query: Any) -> None:
        sink = f"FileSink[{table}]" if table else ""
        last = query._jsq.lastProgress()  # noqa: SLF001 - what PySpark makes of it is another thing in each version
        if last is None:  # it had nothing to read
            self.value = self.value.model_copy(update={"sink": sink or self.value.sink})
            return
        told = json.loads(last.json())
        self.value = EndedNote(
            sink=sink or str(told["sink"]["description"])[:_SINK_LENGTH_MAX],
            sources=source_descriptions(str(one["description"]) for one in told["sources"]),
            state_rows=sum(max(0, int(one["numRowsTotal"])) for one in told["stateOperators"]),
        )


class _Ended:
    """What the runs of a query have done in this attempt."""

    def __init__(self) -> None:
        self.value = {"batches": 0, "rows": 0, "last_batch": -1}

    def add(self, batches: int, rows: int, last_batch: int) -> None:
        self.value["batches"] += batches
        self.value["rows"] += rows
        self.value["last_batch"] = max(self.value["last_batch"], last_batch)


def _run_until_released(
    name: str,
    run: Callable[[dict[str, Any] | None], Any],
    trigger: dict[str, Any] | None,
    attached: AttachedSpark,
    channel: Channel,
) -> dict[str, int]:
    """Run the query, and again as often as the job's owner lets it go on.

    Raises TaskError for a query that was stopped otherwise: its job would end, and with it the state.
    """
    ended = _Ended()
    following = trigger
    while True:
        ended.add(*attached.ended_stream(run(following), _END_TIMEOUT_MILLIS))
        ends = following == _AVAILABLE_NOW
        following = trigger
        what, hold = attached.after_stream()
        if what == "drain":
            following = dict(_AVAILABLE_NOW)
        elif what == "" and not ends:
            message = (
                f"the streaming query {name!r} has ended, and its trigger lets it run for ever: code of the job has "
                "stopped it. Give one that ends by itself the trigger availableNow, and end others by `flinklike stop`"
            )
            raise TaskError(message)
        elif what == "" or not _is_to_go_on(channel, hold):
            return ended.value
        else:
            attached.release_stream()


def _is_to_go_on(channel: Channel, hold: str) -> bool:
    """Wait for the word of the owner for this hold, however long that takes. Raises TaskError for a cancelled task."""
    while (frame := channel.take_unless_cancelled(FrameKind.RELEASE)) is not None:
        word = decode_fields(frame.payload)
        if word.get("hold") == hold:
            return not word.get("finishes", False)
    message = "the query was held, and its task is cancelled"
    raise TaskError(message)


def query_directory(order: WorkOrder, spec: StreamSinkSpec) -> str:
    """Where Spark keeps the state of this query: one directory for each subtask of each uid of each job (R59)."""
    return f"{order.checkpoint_directory}/{spec.uid}/{order.attempt_id.subtask_index}"


def _writing(order: WorkOrder, spec: StreamSinkSpec, name: str, directory: str) -> WritingQuery:
    attempt = order.attempt_id
    return WritingQuery(name, order.checkpoint_directory, directory, attempt.job_id, spec.uid, attempt.subtask_index)


def _require_state(attached: AttachedSpark, directory: str, name: str, committed: int | None) -> None:
    """Raises StateNotFoundError where the query would begin anew, or repeat what it has committed elsewhere (R59)."""
    if committed is None or (found := attached.committed_batch(directory)) >= committed:
        return
    has = "no committed batch" if found < 0 else f"batch {found} at the latest"
    message = (
        f"the streaming query {name!r} has committed batch {committed}, and its directory {directory} has {has} here. "
        "It does not begin anew, which would write rows again. execution.checkpointing.dir must be a directory that "
        "all TaskManagers reach under one name; put back what was deleted there, or submit the job again to begin from "
        "its sources"
    )
    raise StateNotFoundError(message)


def _keep_parallelism(order: WorkOrder, spec: StreamSinkSpec, attached: AttachedSpark) -> None:
    """Mark the state of a uid with its parallelism, since each subtask finds its own by number.

    Raises NonRecoverableError where an earlier job had another one: batches would be lost.
    """
    files, of_uid = HadoopFiles(attached.spark), f"{order.checkpoint_directory}/{spec.uid}"
    mark = f"{_PARALLELISM}{order.parallelism}"
    names = files.names(of_uid)
    if others := [name for name in names if name.startswith(_PARALLELISM) and name != mark]:
        before = others[0].removeprefix(_PARALLELISM)
        message = (
            f"the state of {spec.uid!r} in {of_uid} is of {before} subtasks, and the query has {order.parallelism}: "
            f"give it parallelism {before}, or the job another checkpoint_name, under which it begins anew"
        )
        raise NonRecoverableError(message)
    files.make_directory(f"{of_uid}/{mark}")


def _streaming_frame(operator: Operator, value: Any) -> Any:
    if not is_data_frame(value):
        message = f"{operator.name!r} is part of a streaming query and returned a {type(value).__name__}, no DataFrame"
        raise TaskError(message)
    return value


def _writer(
    sink: Operator, spec: StreamSinkSpec, function: Function, context: object, frame: DataFrame
) -> DataStreamWriter:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    if spec.is_batch_function:
        writer = frame.writeStream.foreachBatch(lambda batch, batch_id: function(context, batch, batch_id))
    else:
        writer = returned_by(function, context, frame)
        if not isinstance(writer, DataStreamWriter):
            message = (
                f"{sink.name!r} returned a {type(writer).__name__}: a stream sink returns df.writeStream..., which it "
                "does not start itself"
            )
            raise NonRecoverableError(message)
        if spec.trigger is None:
            _refuse_own_end(sink.name, writer)
    if spec.output_mode:
        writer = writer.outputMode(spec.output_mode)
    return writer


def _refuse_own_end(name: str, writer: DataStreamWriter) -> None:
    """Raises NonRecoverableError for a trigger that ends and of which the job does not know."""
    trigger = str(asked_field(writer, "trigger"))
    if trigger.startswith(_ENDING_TRIGGERS):
        message = (
            f"{name!r} sets the trigger of its writer to {trigger.rstrip('$')}, and the job has to know that its query "
            "ends: give it to the sink, stream_sink(..., trigger='availableNow')"
        )
        raise NonRecoverableError(message)
