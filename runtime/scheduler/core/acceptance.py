"""Finished attempts between FINISHED and durable: when they are written, and what follows once they are (R10).

Invariants: one batch is in flight at most; a batch holds every attempt that had finished when the batch was made, and
an attempt that finishes meanwhile goes into the next one; no attempt is accepted or acknowledged, and no partition is
released, before its batch is durable.

A batch is *due* when something waits for it: consumers that will read, outputs to be moved, partitions to be deleted. A
finished attempt for which nothing waits is a *rider*: the next batch takes it along. Riders are due by themselves only
when many have gathered or the wheel of the process turns, so that TaskManagers do not have to keep reports without
bound. What the job's result contains is never written as an event: a no-op job has no events.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.common.ids import PartitionId, VertexId
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import PartitionDescriptor
from runtime.scheduler.core.job_events import AttemptFinished, JobEvent, PartitionsReleased, SubtasksReset

RIDERS_MAX = 64
"""This many riders make a batch due."""

RIDER_BYTES_MAX = 256 * 1024
"""This many bytes of their values make it due, too."""

ACCUMULATOR_BYTES = 200
"""About what a stored accumulator takes, and half of what a stage of Spark does."""


class Batch:
    """The content of one events transaction: finished attempts, released partitions, failures, and resets."""

    __slots__ = ("executions", "number", "ordinals", "records", "released", "resets")

    def __init__(
        self,
        number: int,
        executions: list[Execution],
        released: list[PartitionDescriptor],
        records: list[JobEvent],
        resets: list[Execution],
        ordinals: list[int],
    ) -> None:
        """`ordinals`: the numbers of the attempts that follow those of `resets`."""
        self.number = number
        self.executions = executions
        self.released = released
        self.records = records
        self.resets = resets
        self.ordinals = ordinals

    def events(self) -> tuple[JobEvent, ...]:
        """The batch in its durable form, in the order in which it is acted on."""
        finished = [_finished(execution) for execution in self.executions]
        ids: tuple[PartitionId, ...] = tuple(partition.partition_id for partition in self.released)
        released = [PartitionsReleased(ids)] if ids else []
        return (*finished, *released, *self.records, *_resets(self.resets, self.ordinals))


class Acceptance:
    """The attempts of one job between FINISHED and accepted."""

    __slots__ = ("_graph", "_is_due", "_next_number", "_records", "_rider_bytes", "_unrecorded", "in_flight")

    def __init__(self, graph: ExecutionGraph, *, first_number: int = 0) -> None:
        self._graph = graph
        self._unrecorded: list[Execution] = []
        self._records: list[JobEvent] = []
        self._is_due = False
        self._rider_bytes = 0
        self._next_number = first_number
        self.in_flight: Batch | None = None

    @property
    def has_riders(self) -> bool:
        """True when riders wait for a batch."""
        return bool(self._unrecorded or self._records)

    @property
    def is_due(self) -> bool:
        """True when a batch should be written now."""
        if self.in_flight is not None or not (self._unrecorded or self._records):
            return False
        return self._is_due or len(self._unrecorded) >= RIDERS_MAX or self._rider_bytes >= RIDER_BYTES_MAX

    def finished(self, execution: Execution) -> None:
        """An attempt is FINISHED."""
        self._unrecorded.append(execution)
        stages = len(execution.spark_work.stages) if execution.spark_work is not None else 0
        self._rider_bytes += len(execution.value) + ACCUMULATOR_BYTES * (len(execution.accumulators) + 2 * stages)
        vertex = self._graph.vertex_of(execution)
        if vertex.outputs or execution.outputs:
            self._is_due = True
        elif vertex.is_finished:
            self._is_due = self._is_due or bool(vertex.inputs) or vertex.has_output_directories

    def make_due(self) -> None:
        """The wheel of the process has turned: riders are due."""
        self._is_due = self._is_due or self.has_riders

    def record(self, event: JobEvent, *, rides: bool = False) -> None:
        """Write an event that the next owner must know. If it `rides`, it does not make a batch due."""
        self._records.append(event)
        self._is_due = self._is_due or not rides

    def begin(self, resets: Sequence[Execution] = ()) -> Batch:
        """Make a batch of everything that waits; it is in flight from now on. Attempts in `resets` are not accepted."""
        assert self.in_flight is None, self._next_number
        unwanted = {execution.attempt_id for execution in resets}
        executions = [execution for execution in self._unrecorded if execution.attempt_id not in unwanted]
        records, self._records = self._records, []
        self._unrecorded = []
        self._is_due = False
        self._rider_bytes = 0
        found = self._graph.releases(executions) + self._deleted_with(resets)
        released = list({partition.partition_id: partition for partition in found}.values())
        ordinals = [self._graph.next_ordinal(execution) for execution in resets]
        self.in_flight = Batch(self._next_number, executions, released, records, list(resets), ordinals)
        self._next_number += 1
        return self.in_flight

    def complete(self, number: int) -> Batch:
        """The batch in flight is durable: its attempts are accepted from now on. The caller replaces `resets`."""
        batch = self.in_flight
        assert batch is not None, number
        assert batch.number == number, (batch.number, number)
        self.in_flight = None
        for execution in batch.executions:
            self._graph.accept(execution)
        return batch

    def _deleted_with(self, resets: Sequence[Execution]) -> list[PartitionDescriptor]:
        """Partitions of producers that run again: their next attempts write partitions of their own."""
        accepted = [execution for execution in resets if execution.is_accepted]
        found = [
            edge.partition(execution.attempt_id.subtask_index)
            for execution in accepted
            for edge in self._graph.vertex_of(execution).outputs
        ]
        found += [partition for one in resets if not one.is_accepted for partition in one.partitions]
        return [partition for partition in found if partition is not None and partition.directory]


def _resets(executions: list[Execution], ordinals: list[int]) -> list[JobEvent]:
    by_vertex: dict[VertexId, list[tuple[Execution, int]]] = {}
    for execution, ordinal in zip(executions, ordinals, strict=True):
        by_vertex.setdefault(execution.attempt_id.vertex_id, []).append((execution, ordinal))
    return [
        SubtasksReset(
            vertex_id,
            tuple(one.attempt_id.subtask_index for one, _ in members),
            tuple(ordinal for _, ordinal in members),
            unbegun=tuple(one.attempt_id.subtask_index for one, _ in members if one.lets_next_begin_first),
        )
        for vertex_id, members in by_vertex.items()
    ]


def _finished(execution: Execution) -> AttemptFinished:
    assert execution.location is not None, execution.attempt_id
    return AttemptFinished(
        attempt_id=execution.attempt_id,
        ordinal=execution.ordinal,
        location=execution.location,
        timestamps=dict(execution.timestamps),
        value=execution.value,
        partitions=execution.partitions,
        outputs=execution.outputs,
        metrics=execution.metrics,
        accumulators=execution.accumulators,
        spark_work=execution.spark_work,
    )
