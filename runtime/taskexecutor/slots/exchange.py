"""Exchanges between vertices, on the slot's side: reads input gates, writes result partitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime.common.ids import PartitionId
from runtime.gateways.task import ExchangeMode, InputGate, PartitionDescriptor, PartitionKind
from runtime.taskexecutor.slots.failures import TaskError
from runtime.taskexecutor.slots.json_values import encode_value
from runtime.taskexecutor.slots.spark_attachment import is_data_frame
from runtime.taskexecutor.slots.wire import WorkOrder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Exchange:
    """The in- and out-edges of one attempt."""

    def __init__(self, order: WorkOrder, session: Callable[[], SparkSession], inline_bytes_max: int) -> None:
        self._order = order
        self._session = session
        self._inline_bytes_max = inline_bytes_max
        self._subtask_index = order.attempt_id.subtask_index

    def read_inputs(self) -> list[Any]:
        """One argument per in-edge: a DataFrame, or the list of the producers' JSON values in subtask order."""
        return [self._read(gate) for gate in self._order.inputs]

    def _read(self, gate: InputGate) -> Any:
        partitions = self._partitions_of(gate)
        kinds = {partition.kind for partition in partitions}
        if len(kinds) > 1:
            message = (
                f"the subtasks of {gate.source_name!r} returned different kinds: some a DataFrame, some a JSON value"
            )
            raise TaskError(message)
        if kinds == {PartitionKind.INLINE}:
            return [json.loads(partition.inline) for partition in partitions]
        raise NotImplementedError

    def _partitions_of(self, gate: InputGate) -> tuple[PartitionDescriptor, ...]:
        if gate.mode is not ExchangeMode.FORWARD:
            return gate.partitions
        own = (p for p in gate.partitions if p.partition_id.producer.subtask_index == self._subtask_index)
        return tuple(own)

    def write_outputs(self, name: str, value: Any) -> tuple[PartitionDescriptor, ...]:
        """One result partition per out-edge."""
        if value is None:
            message = f"{name!r} returned None, but it has a consumer: return a DataFrame or a JSON value"
            raise TaskError(message)
        if is_data_frame(value):
            raise NotImplementedError
        data = encode_value(value, bytes_max=self._inline_bytes_max, what=f"the return value of {name!r}")
        return tuple(
            PartitionDescriptor(
                partition_id=PartitionId(self._order.attempt_id, spec.output),
                kind=PartitionKind.INLINE,
                directory="",
                schema="",
                files=(),
                inline=data,
            )
            for spec in self._order.outputs
        )
