"""Speculative execution (Flink's SpeculativeExecutionHandler): a slow task gets another attempt on another TaskManager.

Invariants (R67): of the attempts of a subtask the first one that has finished is accepted, whichever it is, and no
other; an exclusive vertex has none beside the current one; what fails beside an attempt that may still finish restarts
nothing, and is not replaced; the job does not end before the others have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.core.concurrent_executions import Subtask, subtask_of
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionJobVertex
from runtime.scheduler.core.acceptance import Acceptance, Batch
from runtime.scheduler.core.effects import ScheduleRestart
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.job_events import SpeculativeAttempts
from runtime.scheduler.core.slots.placement import ON_ITS_WAY, Placement
from runtime.scheduler.core.speculation.settings import SpeculativeSettings
from runtime.scheduler.core.speculation.slow_task_detector import Baseline, RunTime, baseline_of

_BEGUN = frozenset({ExecutionState.INITIALIZING, ExecutionState.RUNNING})


@dataclass(frozen=True, slots=True)
class SpeculationCounts:
    """Under one owner: subtasks that were slow; attempts beside another that have finished first; and attempts, of
    either sort, whose work was in vain.
    """

    slow: int = 0
    effective: int = 0
    wasted: int = 0


NO_SPECULATIONS = SpeculationCounts()


def may_speculate(vertex: ExecutionJobVertex) -> bool:
    """True for a vertex whose code may run twice at once, and whose subtasks can be compared.

    Subtasks that take their splits on demand read what others have left, and one that is slow reads less (R12).
    """
    is_alone = vertex.is_exclusive or vertex.vertex.runs_queries or vertex.handed is not None
    return not is_alone and vertex.parallelism > 1


class SpeculativeExecution:
    """The slow tasks of one job under one owner."""

    __slots__ = (
        "_acceptance",
        "_begun",
        "_bytes",
        "_context",
        "_graph",
        "_is_check_awaited",
        "_next_check",
        "_placement",
        "_settings",
        "_slow",
        "_spent",
        "counts",
    )

    def __init__(
        self, context: JobContext, placement: Placement, acceptance: Acceptance, settings: SpeculativeSettings
    ) -> None:
        self._context = context
        self._acceptance = acceptance
        self._graph = context.graph
        self._placement = placement
        self._settings = settings
        self._next_check = 0.0
        self._is_check_awaited = False
        self._begun: dict[ExecutionAttemptId, float] = {}
        self._bytes: dict[Subtask, int] = {}
        self._slow: set[Subtask] = set()
        self._spent: set[Subtask] = set()
        self.counts = NO_SPECULATIONS

    # --- attempts that end ----------------------------------------------------------------------------------

    def finishing(self, execution: Execution) -> None:
        """An attempt has finished: it is the current one from now on."""
        if self._graph.current(execution) is not execution:
            self._graph.promote(execution)
            self.counts = replace(self.counts, effective=self.counts.effective + 1)

    def finished(self, execution: Execution) -> None:
        """It counts: the others of its subtask are cancelled."""
        others = [one for one in self._graph.concurrent.of(subtask_of(execution)) if not one.state.is_terminal]
        if in_vain := sum(one.location is not None for one in others):
            self.counts = replace(self.counts, wasted=self.counts.wasted + in_vain)
        self._placement.cancel(others, self._context.at)

    def is_outlived(self, execution: Execution, *, is_for_all: bool, is_users: bool) -> bool:
        """True if another attempt of its subtask may still finish, which is the current one from now on.

        Else the failed one is, so that its subtask restarts. `is_for_all`: its failure is that of all its attempts.
        `is_users`: its code has failed, so no further attempt is started beside.
        """
        current = self._graph.current(execution)
        rivals = [] if is_for_all else self._graph.concurrent.rivals(current, execution)
        if rivals and current is execution:
            self._graph.promote(rivals[0])
        elif not rivals and current is not execution:
            self._graph.promote(execution)
        if rivals:
            if is_users:
                self._spent.add(subtask_of(execution))
            self.counts = replace(self.counts, wasted=self.counts.wasted + 1)
        return bool(rivals)

    def sweep(self) -> None:
        """Attempts beside current ones that have ended become earlier ones, and their TaskManagers forget them."""
        for execution in [one for one in self._graph.concurrent if one.state.is_terminal]:
            if execution.location is not None:
                self._placement.acknowledge(execution)
            self._graph.retire(execution)

    # --- attempts that are slow -----------------------------------------------------------------------------

    def advance(self) -> None:
        """Look for slow tasks when it is time, and start an attempt beside each."""
        if not self._settings.is_enabled:
            return
        at, blocked = self._context.at, self._placement.blocked
        blocked.expire(at.monotonic)
        watched = [vertex for vertex in self._graph.vertices.values() if may_speculate(vertex) and _is_running(vertex)]
        if self._graph.status is JobStatus.RUNNING and at.monotonic >= self._next_check:
            self._is_check_awaited = False
            self._next_check = at.monotonic + self._settings.check_seconds
            for vertex in watched:
                self._check(vertex)
        if (watched or blocked) and not self._is_check_awaited:
            self._is_check_awaited = True
            self._context.effects.append(ScheduleRestart(max(self._next_check, at.monotonic)))

    def _check(self, vertex: ExecutionJobVertex) -> None:
        current = [one for one in vertex.executions if one.state in ON_ITS_WAY]
        running = self._graph.with_concurrent(current)
        for execution in running:
            self._observe(execution)
        baseline = baseline_of(list(self._finished(vertex)), vertex.parallelism, self._settings)
        if baseline is None:
            return
        slow = {one.attempt_id for one in running if self._is_slow(one, baseline)}
        slow |= {one.attempt_id for one in running if self._placement.pool.first_before(one.attempt_id) in slow}
        for execution in current:
            attempts = [one for one in self._graph.with_concurrent([execution]) if not one.state.is_terminal]
            if all(one.attempt_id in slow for one in attempts):
                self._found_slow(execution, attempts)

    def _observe(self, execution: Execution) -> None:
        """Note when an attempt has begun, by the clock of this process, and what it reads."""
        at, attempt_id = self._context.at, execution.attempt_id
        if execution.state in _BEGUN and attempt_id not in self._begun:
            ago = max(0, at.millis - max(execution.timestamps.values())) / 1000
            self._begun[attempt_id] = at.monotonic - ago
        subtask = subtask_of(execution)
        if subtask not in self._bytes:
            self._bytes[subtask] = self._input_bytes(execution)

    def _input_bytes(self, execution: Execution) -> int:
        index, inputs = execution.attempt_id.subtask_index, self._graph.vertex_of(execution).inputs
        gates = [edge.gate(index) for edge in inputs if edge.has_inputs_of(index)]
        return sum(
            int(file.size_bytes * gate.part_read(file, index))
            for gate in gates
            for partition in gate.partitions
            for file in partition.files
        )

    def _finished(self, vertex: ExecutionJobVertex) -> Iterator[RunTime]:
        for execution in vertex.executions:
            if execution.state is ExecutionState.FINISHED:
                ended = execution.timestamps[ExecutionState.FINISHED]
                begun = execution.timestamps.get(ExecutionState.RUNNING, ended)  # a short task does not tell it
                yield RunTime((ended - begun) / 1000, self._bytes.get(subtask_of(execution)))

    def _is_slow(self, execution: Execution, baseline: Baseline) -> bool:
        begun = self._begun.get(execution.attempt_id)
        if begun is None:
            begun = self._placement.pool.begun(execution.attempt_id)
        if begun is None:
            return False
        elapsed = self._context.at.monotonic - begun
        return elapsed >= baseline.seconds_for(self._bytes.get(subtask_of(execution)))

    def _found_slow(self, current: Execution, attempts: list[Execution]) -> None:
        subtask, at = subtask_of(current), self._context.at
        if subtask not in self._slow:
            self._slow.add(subtask)
            self.counts = replace(self.counts, slow=self.counts.slow + 1)
        if self._settings.block_seconds:
            for location in (one.location for one in attempts if one.location is not None):
                self._placement.blocked.block(location.incarnation, at.monotonic + self._settings.block_seconds)
        index, inputs = current.attempt_id.subtask_index, self._graph.vertex_of(current).inputs
        may_start = subtask not in self._spent and len(attempts) < self._settings.concurrent_max
        if may_start and all(edge.has_inputs_of(index) for edge in inputs):
            second = self._graph.speculate(current, at.millis)
            event = SpeculativeAttempts(subtask[0], (subtask[1],), (second.ordinal,))
            self._acceptance.record(event)  # before it is deployed: no later attempt has its number
            self._context.changes += 1

    def written(self, batch: Batch) -> None:
        """The numbers of attempts are durable: they start."""
        for event in batch.records:
            if isinstance(event, SpeculativeAttempts):
                for index, ordinal in zip(event.subtasks, event.ordinals, strict=True):
                    for one in self._graph.concurrent.of((event.vertex_id, index)):
                        if one.ordinal == ordinal and one.state is ExecutionState.CREATED:
                            self._placement.speculate(one, self._context.at)


def _is_running(vertex: ExecutionJobVertex) -> bool:
    return any(vertex.counts.get(state) for state in ON_ITS_WAY)
