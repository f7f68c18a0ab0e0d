"""Exchanges between vertices, on the slot's side: reads input gates, writes result partitions.

A DataFrame travels as parquet, written once by Spark into a directory of the attempt, routed so that each consumer
reads its own files only. A JSON value travels inline, or as a file when many of its size would not fit one message.
Never through pandas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runtime.common.ids import PartitionId
from runtime.gateways.task import (
    ExchangeMode,
    InputGate,
    PartitionDescriptor,
    PartitionFile,
    PartitionKind,
    ResultPartitionSpec,
)
from runtime.jobgraph.splits import share_of
from runtime.taskexecutor.slot_process import partition_files, routing, subpartitions
from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_process.json_values import encode_value
from runtime.taskexecutor.slot_process.spark_attachment import is_data_frame
from runtime.taskexecutor.slot_protocol.wire import WorkOrder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ALL_CONSUMERS = -1
_SPLITS_BYTES_MAX = 16 << 20
"""Of the splits of one source as JSON: they are a file that each of its subtasks reads."""
_LISTED_IN_PROCESS_MAX = 32
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"


class Exchange:
    """The in- and out-edges of one attempt."""

    def __init__(
        self,
        order: WorkOrder,
        session: Callable[[], SparkSession],
        inline_bytes_max: int,
        *,
        is_source: bool = False,
    ) -> None:
        """`is_source`: what comes in are the splits of a source, which reads nothing else."""
        self._order = order
        self._session = session
        self._inline_bytes_max = inline_bytes_max
        self._subtask_index = order.attempt_id.subtask_index
        self._is_source = is_source
        self._appended: dict[int, PartitionDescriptor] = {}

    # --- in -------------------------------------------------------------------------------------------------

    def read_inputs(self) -> list[Any]:
        """One argument per in-edge: a DataFrame, or the list of the producers' JSON values in subtask order."""
        schemas: list[tuple[InputGate, StructType]] = []
        arguments: list[Any] = []
        if self._brings_splits:
            return []
        for gate in self._order.inputs:
            partitions = self._partitions_of(gate)
            if _kind_of(gate, partitions) is PartitionKind.JSON:
                arguments.append([json.loads(_value_of(partition)) for partition in partitions])
                continue
            schema = routing.common_schema(gate.source_name, [partition.schema for partition in partitions])
            schemas.append((gate, schema))
            arguments.append(self._read_gate(gate, partitions, schema))
        routing.check_key_types([(gate, schema) for gate, schema in schemas if gate.mode is ExchangeMode.HASH])
        return arguments

    def read_splits(self) -> Sequence[Any] | None:
        """The share of this subtask, where the splits of its source were found by another vertex; None elsewhere."""
        if not self._brings_splits or self._order.splits_on_demand:
            return None
        return share_of(self.all_splits(()), self._subtask_index, self._order.parallelism)

    def all_splits(self, given: Sequence[Any]) -> Sequence[Any]:
        """All splits of the vertex: those that another one has found, or those that the job has `given`."""
        if not self._brings_splits:
            return given
        (gate,) = self._order.inputs
        return [split for partition in gate.partitions for split in json.loads(_value_of(partition))]

    @property
    def _brings_splits(self) -> bool:
        return bool(self._order.inputs) and self._is_source

    def _read_gate(self, gate: InputGate, partitions: Sequence[PartitionDescriptor], schema: StructType) -> DataFrame:
        if gate.share is not None:
            return subpartitions.read_share(gate, gate.share, schema, self._read_files)
        files = [file for partition in partitions for file in partition.files]
        return self._read_files([one.path for one in files if gate.part_read(one, self._subtask_index)], schema)

    def _partitions_of(self, gate: InputGate) -> Sequence[PartitionDescriptor]:
        if gate.mode is not ExchangeMode.FORWARD:
            return gate.partitions
        return [p for p in gate.partitions if p.partition_id.producer.subtask_index == self._subtask_index]

    def _read_files(self, paths: Sequence[str], schema: StructType) -> DataFrame:
        spark = self._session()
        if not paths:
            return routing.empty_frame(spark, schema)
        if len(paths) <= _LISTED_IN_PROCESS_MAX:
            return spark.read.schema(schema).parquet(*paths)
        # Above the threshold Spark would start a job just to list the files.
        before = str(spark.conf.get(_LISTING_THRESHOLD))
        spark.conf.set(_LISTING_THRESHOLD, len(paths))
        try:
            return spark.read.schema(schema).parquet(*paths)
        finally:
            spark.conf.set(_LISTING_THRESHOLD, before)

    # --- out ------------------------------------------------------------------------------------------------

    @property
    def has_outputs(self) -> bool:
        """True for a vertex that others read."""
        return bool(self._order.outputs)

    def append(self, name: str, frame: DataFrame) -> None:
        """Add the rows of a DataFrame to the result partitions. All have the columns of the first one."""
        if self._appended:
            first = next(iter(self._appended.values())).schema
            routing.common_schema(name, [first, frame.schema.json()])
        for added in self._write_frames(name, frame):
            known = self._appended.get(added.partition_id.output)
            self._appended[added.partition_id.output] = (
                added if known is None else replace(known, files=known.files + added.files)
            )

    def appended(self) -> tuple[PartitionDescriptor, ...]:
        """The result partitions with all that was appended."""
        return tuple(self._appended.values())

    def nothing(self) -> tuple[PartitionDescriptor, ...]:
        """The result partitions of a task that got no split, and so does not know what kind they have."""
        ids = (PartitionId(self._order.attempt_id, spec.output) for spec in self._order.outputs)
        return tuple(PartitionDescriptor(one, PartitionKind.NOTHING, "", "", (), b"") for one in ids)

    def write_outputs(self, name: str, value: Any) -> tuple[PartitionDescriptor, ...]:
        """Write one result partition for each out-edge. A DataFrame is executed once, for any number of edges."""
        if value is None:
            message = f"{name!r} returned None, but it has a consumer: return a DataFrame or a JSON value"
            raise TaskError(message)
        if is_data_frame(value):
            return self._write_frames(name, value)
        data = encode_value(value, bytes_max=self._inline_bytes_max, what=f"the return value of {name!r}")
        return tuple(self._write_value(spec, data) for spec in self._order.outputs)

    def write_splits(self, name: str, value: Any) -> tuple[PartitionDescriptor, ...]:
        """Write the splits of a source. Raises TaskError for what is no list of JSON values."""
        if not isinstance(value, list | tuple | range | Iterator):
            message = f"{name!r} returned a {type(value).__name__}: return the splits as a list of JSON values"
            raise TaskError(message)
        splits = [*value]
        data = encode_value(splits, bytes_max=_SPLITS_BYTES_MAX, what=f"what {name!r} returned", limit="of all splits")
        return tuple(self._write_value(spec, data, len(splits)) for spec in self._order.outputs)

    def _write_value(self, spec: ResultPartitionSpec, data: bytes, count: int = 0) -> PartitionDescriptor:
        partition_id = PartitionId(self._order.attempt_id, spec.output)
        if len(data) <= spec.inline_size_max:
            return PartitionDescriptor(partition_id, PartitionKind.JSON, directory="", schema="", files=(), inline=data)
        directory = self._directory_of(partition_id)
        written = partition_files.write_value(directory, data)
        if self._order.user is not None:
            partition_files.let_read(directory)  # R50: on other TaskManagers the job's group has another number
        file = PartitionFile(written, len(data), rows=count, consumer=ALL_CONSUMERS)
        return PartitionDescriptor(partition_id, PartitionKind.JSON, directory, schema="", files=(file,), inline=b"")

    def _directory_of(self, partition_id: PartitionId) -> str:
        return f"{self._order.partition_directory}/{partition_id}"

    def _write_frames(self, name: str, frame: DataFrame) -> tuple[PartitionDescriptor, ...]:
        written: list[PartitionDescriptor] = []
        schema = frame.schema
        for spec in self._order.outputs:
            routing.check_keys_exist(name, spec, schema)
        for spec in self._order.outputs:
            # The second edge reads what the first has written: the plan behind `frame` may be hours of work.
            source = self._read_files([file.path for file in written[0].files], schema) if written else frame
            written.append(self._write_frame(spec, source, schema))
        return tuple(written)

    def _write_frame(self, spec: ResultPartitionSpec, frame: DataFrame, schema: StructType) -> PartitionDescriptor:
        partition_id = PartitionId(self._order.attempt_id, spec.output)
        directory = self._directory_of(partition_id)
        appended = self._appended.get(spec.output)
        known = None if appended is None else {file.path for file in appended.files}
        if spec.is_dynamic:
            files = self._write_dynamic(directory, spec, frame, schema, known)
        else:
            routed, is_routed = routing.route(frame, spec)
            place = _one_each if is_routed else self._single_consumer(spec)
            files = [_file(file, *place(file.part)) for file in self._write(directory, routed, known)]
        return PartitionDescriptor(
            partition_id=partition_id,
            kind=PartitionKind.PARQUET,
            directory=directory,
            schema=schema.json(),
            files=tuple(files),
            inline=b"",
        )

    def _write_dynamic(
        self,
        directory: str,
        spec: ResultPartitionSpec,
        frame: DataFrame,
        schema: StructType,
        known: set[str] | None,
    ) -> list[PartitionFile]:
        count, column = spec.consumer_parallelism, subpartitions.column_of(schema)
        routed, expected = subpartitions.route(frame, spec, routing.canonical_keys(frame, spec.key_columns))
        written = self._write(directory, routed, known)
        ranges = subpartitions.ranges_after_all(expected, sum(file.size_bytes for file in written), count)
        if ranges != expected:
            numbered = self._read_files([file.path for file in written], subpartitions.numbered_schema(schema))
            before = {*(known or ()), *(file.path for file in written)}
            again = self._write(directory, subpartitions.divide(numbered, column, ranges, count), before)
            partition_files.remove([file.path for file in written])
            written = again
        counted = column if spec.mode is ExchangeMode.HASH else ""
        spans = [subpartitions.span_of(file.part, ranges, count) for file in written]
        return [_file(file, *span, counted=counted) for file, span in zip(written, spans, strict=True)]

    def _write(
        self, directory: str, routed: DataFrame, known: set[str] | None = None
    ) -> list[partition_files.WrittenFile]:
        """What is written now. `known`: files that are there already, None before the first write."""
        writer = routed.write.mode("error" if known is None else "append")
        # Published by the JobMaster's acceptance, never by the committer: no second round of renames, no marker.
        writer = writer.option("mapreduce.fileoutputcommitter.algorithm.version", "2")
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.parquet(directory)
        partition_files.check_shared(directory, routed)
        return partition_files.written_files(directory, besides=frozenset(known or ()))

    def _single_consumer(self, spec: ResultPartitionSpec) -> Callable[[int], tuple[int, int]]:
        match spec.mode:
            case ExchangeMode.FORWARD:
                consumer = self._subtask_index
            case ExchangeMode.HASH | ExchangeMode.REBALANCE:
                consumer = 0
            case _:
                consumer = ALL_CONSUMERS
        return lambda _part: (consumer, 1)


def _file(file: partition_files.WrittenFile, first: int, span: int, *, counted: str = "") -> PartitionFile:
    """`counted`: the column with the numbers of subpartitions, where it is worth knowing which has most of the rows."""
    if not counted or span == 1:
        return PartitionFile(file.path, file.size_bytes, file.rows, first, span)
    return PartitionFile(file.path, file.size_bytes, file.rows, first, span, *partition_files.heaviest(file, counted))


def _one_each(part: int) -> tuple[int, int]:
    return part, 1


def _value_of(partition: PartitionDescriptor) -> bytes:
    return partition_files.read_value(partition.files[0].path) if partition.files else partition.inline


def _kind_of(gate: InputGate, partitions: Sequence[PartitionDescriptor]) -> PartitionKind:
    kinds = {partition.kind for partition in partitions}
    if kinds == {PartitionKind.NOTHING}:
        message = (
            f"{gate.source_name!r} yielded nothing, since it had no splits or found nothing in them: its columns are "
            "not known. Have it yield an empty DataFrame first, or return a list of values"
        )
        raise TaskError(message)
    if len(kinds) > 1:
        message = (
            f"the subtasks of {gate.source_name!r} returned different kinds: some a DataFrame, some a JSON value; "
            "all subtasks of a vertex must return the same kind"
        )
        raise TaskError(message)
    if not kinds:
        message = f"no partition of {gate.source_name!r} reached this task"
        raise TaskError(message)
    return kinds.pop()
