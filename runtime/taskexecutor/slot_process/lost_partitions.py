"""Which of its inputs a failed task could not have read: partitions whose files are missing, short or unreadable.

Looked up after a failure only, so that tasks that go well pay nothing for it. What is found makes the producers run
again; whatever else has failed is the task's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import PartitionId
from runtime.gateways.task import FailureInfo, PartitionDescriptor, PartitionFile
from runtime.taskexecutor.slot_process import own_failures, partition_files
from runtime.taskexecutor.slot_protocol.wire import WorkOrder

_NAMED_MAX = 500
_OPENED_MAX = 200


@dataclass(frozen=True, slots=True)
class LostPartitions:
    """The unreadable partitions, a bounded number of them, and the problem of the first."""

    partition_ids: tuple[PartitionId, ...] = ()
    problem: str = ""


def with_lost_partitions(failure: FailureInfo, order: WorkOrder) -> FailureInfo:
    """The failure of an attempt, or that of its inputs if some of them cannot be read. Never raises."""
    if not failure.is_recoverable:
        return failure
    lost = lost_partitions(order)
    return own_failures.of_lost_partitions(failure, lost.partition_ids, lost.problem) if lost.partition_ids else failure


def lost_partitions(order: WorkOrder) -> LostPartitions:
    """The input partitions of an attempt that cannot be read now."""
    lost: dict[PartitionId, str] = {}
    for number, (partition, file) in enumerate(_files_of(order)):
        if partition.partition_id in lost:
            continue
        opens = number < _OPENED_MAX
        if problem := partition_files.file_problem(file.path, file.size_bytes, reads_content=opens):
            lost[partition.partition_id] = problem
        if len(lost) == _NAMED_MAX:
            break
    return LostPartitions(tuple(lost), next(iter(lost.values()), ""))


def _files_of(order: WorkOrder) -> Iterator[tuple[PartitionDescriptor, PartitionFile]]:
    index = order.attempt_id.subtask_index
    for gate in order.inputs:
        for partition in gate.partitions:
            if gate.mode is ExchangeMode.FORWARD and partition.partition_id.producer.subtask_index != index:
                continue
            yield from ((partition, file) for file in partition.files if gate.part_read(file, index))
