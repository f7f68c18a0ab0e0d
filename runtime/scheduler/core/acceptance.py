"""Which finished attempts still have to be made durable, when that is due, and what follows once they are (R10).

Invariants: one batch is in flight at most; a batch holds every attempt that had finished when it was made, so what
comes meanwhile goes into the next; nothing is accepted, acknowledged or released before its batch is durable.

A batch is *due* when somebody waits for it: consumers that will read, outputs to be moved, partitions to be deleted. A
finished attempt that nobody waits for rides along with the next batch, and is due by itself only when many have
gathered or the process's wheel turns, so that TaskManagers do not have to keep reports without bound. What the job's
result subsumes is never written: a no-op job has no events.
"""

from __future__ import annotations

from runtime.common.ids import PartitionId
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import PartitionDescriptor
from runtime.scheduler.core.job_events import AttemptFinished, JobEvent, PartitionsReleased

RIDERS_MAX = 64
"""So many finished attempts that nobody waits for are a batch of their own."""

RIDER_BYTES_MAX = 256 * 1024
"""And so many bytes of their values."""


class Batch:
    """What one events transaction carries."""

    __slots__ = ("executions", "number", "released")

    def __init__(self, number: int, executions: list[Execution], released: list[PartitionDescriptor]) -> None:
        self.number = number
        self.executions = executions
        self.released = released

    def events(self) -> tuple[JobEvent, ...]:
        """The batch in its durable form."""
        finished: tuple[JobEvent, ...] = tuple(_finished(execution) for execution in self.executions)
        if not self.released:
            return finished
        ids: tuple[PartitionId, ...] = tuple(partition.partition_id for partition in self.released)
        return (*finished, PartitionsReleased(ids))


class Acceptance:
    """The attempts between FINISHED and accepted."""

    __slots__ = ("_graph", "_is_due", "_next_number", "_rider_bytes", "_unrecorded", "in_flight")

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._unrecorded: list[Execution] = []
        self._is_due = False
        self._rider_bytes = 0
        self._next_number = 0
        self.in_flight: Batch | None = None

    @property
    def has_riders(self) -> bool:
        """True when finished attempts wait for a batch."""
        return bool(self._unrecorded)

    @property
    def is_due(self) -> bool:
        """True when a batch should be written now."""
        if not self._unrecorded or self.in_flight is not None:
            return False
        return self._is_due or len(self._unrecorded) >= RIDERS_MAX or self._rider_bytes >= RIDER_BYTES_MAX

    def finished(self, execution: Execution) -> None:
        """An attempt is FINISHED."""
        self._unrecorded.append(execution)
        self._rider_bytes += len(execution.value)
        vertex = self._graph.vertex_of(execution)
        if vertex.outputs or execution.outputs:
            self._is_due = True
        elif vertex.is_finished:
            self._is_due = self._is_due or bool(vertex.inputs) or vertex.has_output_directories

    def make_due(self) -> None:
        """The wheel has turned: whatever waits is written."""
        self._is_due = self._is_due or bool(self._unrecorded)

    def begin(self) -> Batch:
        """Put everything that waits into a batch; it is in flight from now on."""
        assert self.in_flight is None, self._next_number
        executions, self._unrecorded = self._unrecorded, []
        self._is_due = False
        self._rider_bytes = 0
        self.in_flight = Batch(self._next_number, executions, self._release(executions))
        self._next_number += 1
        return self.in_flight

    def complete(self, number: int) -> Batch:
        """The batch in flight is durable: its attempts are accepted from now on."""
        batch = self.in_flight
        assert batch is not None, number
        assert batch.number == number, (batch.number, number)
        self.in_flight = None
        for execution in batch.executions:
            self._graph.accept(execution)
        return batch

    def _release(self, executions: list[Execution]) -> list[PartitionDescriptor]:
        """The partitions that nobody needs once these attempts are accepted. Inline ones have no directory."""
        released: list[PartitionDescriptor] = []
        for execution in executions:
            for edge in self._graph.vertex_of(execution).inputs:
                for producer in edge.consumer_finished(execution.attempt_id.subtask_index):
                    partition = edge.release(producer)
                    if partition is not None and partition.directory:
                        released.append(partition)
        return released


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
    )
