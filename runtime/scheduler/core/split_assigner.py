"""Which attempt gets which split, where subtasks take them on demand (Flink's SplitAssigner).

Invariants (R12): a split is told to an attempt only when an event says durably that it has it; a request that is
repeated gets the same answer, also from the next owner; each split is one of at most one attempt that counts; a vertex
does not finish while a split is free. So "none is left" needs no event: what comes back to the pool was an attempt's
that is replaced, and the attempt in its place asks until none is left.
"""

from __future__ import annotations

import json

from runtime.common.ids import ExecutionAttemptId, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.executiongraph.core.handed_splits import HandedSplits
from runtime.gateways.job_master import SplitAnswer, SplitsRequested
from runtime.gateways.task import PartitionDescriptor
from runtime.jobgraph.splits import NO_SPLIT
from runtime.scheduler.core.acceptance import Acceptance, Batch
from runtime.scheduler.core.job_events import HandedSplit, SplitsHandedOut
from runtime.scheduler.core.slots.placement import ON_ITS_WAY
from runtime.scheduler.core.task_managers.outbox import Outbox

_MAY_COUNT = ON_ITS_WAY | {ExecutionState.FINISHED}


class SplitAssigner:
    """The splits of all sources of one job that hand them out on demand."""

    __slots__ = ("_acceptance", "_graph", "_in_flight", "_outbox", "_refused", "_waiting")

    def __init__(self, graph: ExecutionGraph, acceptance: Acceptance, outbox: Outbox) -> None:
        self._graph = graph
        self._acceptance = acceptance
        self._outbox = outbox
        self._waiting: dict[ExecutionAttemptId, int] = {}
        self._in_flight: set[ExecutionAttemptId] = set()
        self._refused: set[ExecutionAttemptId] = set()

    def requested(self, message: SplitsRequested) -> None:
        """Attempts want their next splits."""
        self._waiting |= {one.attempt_id: one.sequence for one in message.requests}

    def advance(self) -> None:
        """Hand out a split to each attempt that waits for one, and answer those that have it, or get none any more."""
        handed: dict[VertexId, list[HandedSplit]] = {}
        for attempt_id in [one for one in self._waiting if one not in self._in_flight]:
            sequence = self._waiting.pop(attempt_id)
            execution = self._graph.execution(attempt_id)
            splits = None if execution is None else self._splits_of(execution)
            if execution is None or splits is None or sequence > len(splits.of(attempt_id)):
                continue  # of an attempt that is over, which will be cancelled, or one that never had so many
            if sequence < len(splits.of(attempt_id)):
                self._answer(execution, sequence, splits.of(attempt_id)[sequence])
            elif (split := self._next(execution, splits)) == NO_SPLIT:
                self._answer(execution, sequence, NO_SPLIT)
            else:
                splits.add(attempt_id, split)
                handed.setdefault(attempt_id.vertex_id, []).append(HandedSplit(attempt_id, sequence, split))
                self._in_flight.add(attempt_id)
        for vertex_id, handouts in handed.items():
            self._acceptance.record(SplitsHandedOut(vertex_id, tuple(handouts)))

    def written(self, batch: Batch) -> None:
        """What is durable is told."""
        for event in batch.records:
            for one in event.handouts if isinstance(event, SplitsHandedOut) else ():
                self._in_flight.discard(one.attempt_id)
                execution = self._graph.execution(one.attempt_id)
                if execution is not None:
                    self._answer(execution, one.sequence, one.split)

    def problem_of(self, execution: Execution) -> str:
        """Why an attempt that says it has finished has not: it is the last one of its vertex, and splits are left."""
        vertex = self._graph.vertex_of(execution)
        others = (one for one in vertex.executions if one is not execution)
        if vertex.handed is None or any(one.state is not ExecutionState.FINISHED for one in others):
            return ""
        _note_total(vertex, vertex.handed)
        left = len(set(vertex.handed.free(vertex.counted())))
        return f"all other subtasks have finished, and it has left {left} splits to nobody" if left else ""

    def check_invariants(self) -> None:
        """Raises AssertionError when a split is that of two attempts that count, or of one that does not exist."""
        for vertex in self._graph.vertices.values():
            if vertex.handed is not None:
                counted = {one.attempt_id for one in vertex.executions if one.state in _MAY_COUNT}
                held = [split for one in counted for split in vertex.handed.of(one)]
                assert len(held) == len(set(held)), (vertex.id, sorted(held))
                assert not any(map(vertex.handed.is_superseded, counted)), vertex.id

    def _splits_of(self, execution: Execution) -> HandedSplits | None:
        vertex = self._graph.vertex_of(execution)
        is_current = self._graph.current(execution) is execution
        if vertex.handed is None or not is_current or execution.state not in ON_ITS_WAY:
            return None
        _note_total(vertex, vertex.handed)
        return vertex.handed

    def _next(self, execution: Execution, splits: HandedSplits) -> int:
        """Who was told that none is left is told so again: it may have gone on."""
        if execution.attempt_id in self._refused:
            return NO_SPLIT
        found = next(splits.free(self._graph.vertex_of(execution).counted()), NO_SPLIT)
        if found == NO_SPLIT:
            self._refused.add(execution.attempt_id)
        return found

    def _answer(self, execution: Execution, sequence: int, split: int) -> None:
        if execution.state in ON_ITS_WAY and execution.location is not None:
            letter = self._outbox.to(execution.location.incarnation)
            letter.splits.append(SplitAnswer(execution.attempt_id, sequence, split))


def _note_total(vertex: ExecutionJobVertex, splits: HandedSplits) -> None:
    """Note how many splits there are: those of the job, or those that a task has found, while its partition is here."""
    if vertex.vertex.splits is not None:
        splits.total = len(vertex.vertex.splits)
    elif vertex.inputs and (found := vertex.inputs[0].partition(0)) is not None:
        splits.total = listed(found)


def listed(partition: PartitionDescriptor) -> int:
    """How many values are in a list that a task has returned; 0 for what is none, which its reader refuses."""
    if partition.files:
        return partition.files[0].rows
    value = json.loads(partition.inline or b"null")
    return len(value) if isinstance(value, list) else 0
