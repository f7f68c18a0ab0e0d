"""What follows from failed tasks while the job goes on: which tasks stop, how long the pause is, when they are reset.

Invariants: a failure is counted by the restart strategy, and made durable, before anything restarts because of it
(R10); tasks are reset all at once, when each of them is terminal and the event that says so is durable; which tasks
restart is looked up again at that moment, so that no attempt is deployed on a partition that is deleted; a partition
that cannot be read counts against its producer, never against its reader nor the restart strategy, and ends the job
after PARTITION_LOSSES_MAX times; a failure that an earlier owner has handled is neither counted nor shown again; a
failure of user code ends the job where `user_failures` says so, even if the restart strategy has restarts left (R36).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runtime.common.ids import ExecutionAttemptId, PartitionId
from runtime.common.restart_strategies import UserFailures
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedException
from runtime.executiongraph.core.archive import FailurePolicy
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.failures import FailureHistory
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import SLOT_PREEMPTED, FailureInfo, Fault
from runtime.jobgraph.restart_strategy import NoRestartStrategy, RestartStrategy
from runtime.scheduler.core.acceptance import Acceptance, Batch
from runtime.scheduler.core.events import Moment
from runtime.scheduler.core.failover.failover_strategy import FailoverStrategy, RestartImpossibleError
from runtime.scheduler.core.failover.restart_strategy import CountedFailure, create_strategy
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.failover.uncounted_pauses import UncountedPauses
from runtime.scheduler.core.job_events import FailureHandled, PartitionsLost
from runtime.scheduler.core.slots.placement import Placement
from runtime.scheduler.core.takeover.job_recovery import RecoveredJob, Subtask

PARTITION_LOSSES_MAX = 3
"""A subtask runs again at most this many times because its partitions could not be read."""


@dataclass(slots=True)
class PendingRestart:
    """Tasks that failed and wait for their restart. `due`: not before this monotonic time."""

    failed: tuple[ExecutionAttemptId, ...]
    due: float
    lost: list[PartitionId] = field(default_factory=list)


class Failover:
    """Restarts of one job."""

    __slots__ = (
        "_acceptance",
        "_failover_strategy",
        "_graph",
        "_handled",
        "_history",
        "_is_resetting",
        "_losses",
        "_pending",
        "_placement",
        "_restart_strategy",
        "_strategy",
        "_uncounted_pauses",
        "_user_failures",
        "preempted",
    )

    def __init__(
        self,
        graph: ExecutionGraph,
        placement: Placement,
        acceptance: Acceptance,
        history: FailureHistory,
        settings: FailoverSettings,
    ) -> None:
        self._graph = graph
        self._placement = placement
        self._acceptance = acceptance
        self._history = history
        self._strategy = effective_strategy(graph, settings)
        self._restart_strategy = create_strategy(self._strategy)
        self._user_failures = effective_user_failures(graph, settings)
        self._failover_strategy = FailoverStrategy(graph, is_full=settings.is_full)
        self._pending: list[PendingRestart] = []
        self._losses: dict[Subtask, int] = {}
        self._handled: dict[ExecutionAttemptId, float] = {}
        self._is_resetting = False
        self._uncounted_pauses = UncountedPauses()
        self.preempted = 0
        """Attempts under this owner whose slots went to other queues (R64)."""

    @property
    def is_pending(self) -> bool:
        """True while tasks wait for their restart: the job is RESTARTING."""
        return bool(self._pending) or self._is_resetting

    def restore(self, recovered: RecoveredJob, at: Moment) -> None:
        """Count the failures that earlier owners have counted. Clocks differ, so only the age of a failure is used."""
        for millis, backoff in recovered.counted:
            seconds_ago = max(0, at.millis - millis) / 1000
            self._restart_strategy.note(CountedFailure(at.monotonic - seconds_ago, backoff))
        self._losses = dict(recovered.losses)
        for handled in recovered.handled.values():
            due = at.monotonic + max(0, handled.due_millis - at.millis) / 1000
            execution = self._graph.execution(handled.attempt_id)
            if execution is not None and execution.state is ExecutionState.FAILED:
                self._pending.append(PendingRestart((handled.attempt_id,), due))
            else:
                self._handled[handled.attempt_id] = due  # adopted: its report is on its way
        # They were stopped because of something that failed: they restart with it, and count for nothing.
        stopping = [one for one in self._graph.executions() if one.state is ExecutionState.CANCELING]
        if stopping:
            dues = [at.monotonic, *self._handled.values(), *(pending.due for pending in self._pending)]
            self._pending.append(PendingRestart(_ids(stopping), max(dues)))

    # --- failures -------------------------------------------------------------------------------------------

    def failed(
        self, executions: Sequence[Execution], failure: FailureInfo, exception: ArchivedException, at: Moment
    ) -> str:
        """Attempts have ended by one failure, which counts once. Returns why the job must fail, "" if it goes on."""
        if problem := _vain(failure):
            return problem
        dues = [due for one in executions if (due := self._handled.pop(one.attempt_id, None)) is not None]
        if dues and len(dues) == len(executions):
            return self._resumed(executions, failure, max(dues), at)
        if (lost := self._lost_partitions(failure)) and not isinstance(self._strategy, NoRestartStrategy):
            return self._partitions_lost(executions, exception, lost, at)
        if failure.class_name == SLOT_PREEMPTED:
            self.preempted += len(executions)
        if failure.at_fault is Fault.NOBODY:  # R14, R36: never counted, also where nothing else restarts
            return self._uncounted(executions, exception, at)
        if failure.at_fault is Fault.USER and self._is_final(executions):
            return self._user_failure()
        return self._counted(executions, exception, at)

    def final(self, executions: Sequence[Execution], failure: FailureInfo) -> str:
        """Why attempts may not run again after a failure that came late or during a cancel (R36); "" if they may."""
        if problem := _vain(failure):
            return problem
        is_theirs = failure.at_fault is Fault.USER and not failure.lost_partitions
        return self._user_failure() if is_theirs and self._is_final(executions) else ""

    def _user_failure(self) -> str:
        return f"a failure of user code is final here (restart-strategy.user-failures: {self._user_failures})"

    def _is_final(self, executions: Sequence[Execution]) -> bool:
        """True when a failure of user code in these tasks ends the job (R36)."""
        if self._user_failures == "final-when-exclusive":
            vertices = map(self._graph.vertex_of, executions)
            # A streaming query goes on behind its last batch, so that a restart repeats nothing (R59, R63).
            return any(vertex.is_exclusive and not vertex.vertex.runs_queries for vertex in vertices)
        return self._user_failures == "final"

    def _resumed(self, executions: Sequence[Execution], failure: FailureInfo, due: float, at: Moment) -> str:
        """An earlier owner has counted and noted the failure: only the restart is left."""
        lost = self._lost_partitions(failure)
        _ = self._lose(lost)
        return self._restart(PendingRestart(_ids(executions), due, lost), at)

    def _counted(self, executions: Sequence[Execution], exception: ArchivedException, at: Moment) -> str:
        counted = self._restart_strategy.failure(at.monotonic, at.draw)
        if counted is not None:
            self._restart_strategy.note(counted)
        if not self._restart_strategy.can_restart(at.monotonic):
            return f"the restart strategy allows no more ({self._strategy})"
        pending = PendingRestart(_ids(executions), at.monotonic + self._restart_strategy.delay(at.monotonic))
        if problem := self._restart(pending, at):
            return problem
        backoff = None if counted is None else counted.delay
        self._note(exception, executions, at, is_concurrent=counted is None, backoff=backoff)
        return ""

    def _uncounted(self, executions: Sequence[Execution], exception: ArchivedException, at: Moment) -> str:
        pause = self._uncounted_pauses.pause(_ids(executions), at.monotonic)
        if problem := self._restart(PendingRestart(_ids(executions), at.monotonic + pause), at):
            return problem
        self._note(exception, executions, at, is_concurrent=False, backoff=None)
        return ""

    def concurrent(self, exception: ArchivedException, at: Moment) -> None:
        """A task that was being stopped has failed instead: the history shows it, and nothing follows."""
        self._note(exception, (), at, is_concurrent=True, backoff=None)

    def _note(
        self,
        exception: ArchivedException,
        executions: Sequence[Execution],
        at: Moment,
        *,
        is_concurrent: bool,
        backoff: float | None,
    ) -> None:
        is_kept = self._history.add(exception, is_concurrent=is_concurrent)
        if is_kept or backoff is not None:
            deployed = tuple(one.timestamps.get(ExecutionState.DEPLOYING, -1) for one in executions)
            event = FailureHandled(
                exception, at.millis, is_concurrent, backoff, attempts=_ids(executions), deployed_millis=deployed
            )
            self._acceptance.record(event)

    def _lost_partitions(self, failure: FailureInfo) -> list[PartitionId]:
        """The partitions that the failure names and that consumers would still read."""
        return [
            partition
            for partition in failure.lost_partitions
            if (producer := self._graph.execution(partition.producer)) is not None
            and 0 <= partition.output < len(self._graph.vertex_of(producer).outputs)
            and self._graph.vertex_of(producer).outputs[partition.output].has(partition.producer.subtask_index)
        ]

    def _partitions_lost(
        self, executions: Sequence[Execution], exception: ArchivedException, lost: list[PartitionId], at: Moment
    ) -> str:
        for subtask in self._lose(lost):
            if self._losses[subtask] > PARTITION_LOSSES_MAX:
                name = self._graph.vertices[subtask[0]].vertex.name
                return f"what {name} ({subtask[1] + 1}) writes could not be read {self._losses[subtask]} times"
        if problem := self._restart(PendingRestart(_ids(executions), at.monotonic, lost), at):
            return problem
        self._note(exception, executions, at, is_concurrent=False, backoff=None)
        return ""

    def _lose(self, lost: Sequence[PartitionId]) -> list[Subtask]:
        """Mark partitions as lost, and count that against their producers. Returns the producers' subtasks."""
        producers: dict[Subtask, None] = {}
        for partition in lost:
            producer = partition.producer
            self._graph.vertices[producer.vertex_id].outputs[partition.output].lose(producer.subtask_index)
            producers[producer.vertex_id, producer.subtask_index] = None
        for subtask in producers:
            self._losses[subtask] = self._losses.get(subtask, 0) + 1
        return list(producers)

    def _restart(self, pending: PendingRestart, at: Moment) -> str:
        try:
            restarted = self._failover_strategy.tasks_to_restart(self._current(pending))
        except RestartImpossibleError as error:
            return str(error)
        self._placement.cancel(self._graph.with_concurrent(restarted), at)
        self._pending.append(pending)
        return ""

    def _current(self, pending: PendingRestart) -> list[Execution]:
        """The failed attempts that are current: others were reset together with later ones."""
        found = [self._graph.execution(attempt_id) for attempt_id in pending.failed]
        return [execution for execution in found if execution is not None]

    def suppressed(self, failure: FailureInfo, problem: str) -> FailureInfo:
        """The failure that ends a job although it has a restart strategy, in Flink's words."""
        if isinstance(self._strategy, NoRestartStrategy):
            return failure
        text = failure.stack_trace or f"{failure.class_name}: {failure.message}"
        return replace(failure, stack_trace=f"Recovery is suppressed: {problem}\nCaused by: {text}")

    # --- restarts -------------------------------------------------------------------------------------------

    def advance(self, at: Moment) -> tuple[Batch | None, str]:
        """Begin the reset of tasks that are due and have stopped. Returns its batch, and why the job must fail."""
        if not self._pending or self._acceptance.in_flight is not None:
            return None, ""
        due = [pending for pending in self._pending if pending.due <= at.monotonic]
        for pending in due:
            try:
                restarted = self._failover_strategy.tasks_to_restart(self._current(pending))
            except RestartImpossibleError as error:
                return None, str(error)
            attempts = self._graph.with_concurrent(restarted)
            self._placement.cancel(attempts, at)  # what was started meanwhile, and reads what is written anew
            if all(execution.state.is_terminal for execution in attempts):
                self._pending.remove(pending)
                if pending.lost:
                    self._acceptance.record(PartitionsLost(tuple(pending.lost)))
                if restarted:
                    return self._begin_reset(restarted), ""
        return None, ""

    def _begin_reset(self, executions: Sequence[Execution]) -> Batch:
        """Mark the partitions that are deleted with the batch as lost now, so that no consumer starts to read them."""
        self._is_resetting = True
        for execution in executions:
            if execution.is_accepted:
                for edge in self._graph.vertex_of(execution).outputs:
                    edge.lose(execution.attempt_id.subtask_index)
        return self._acceptance.begin(executions)

    def dues_after(self, now: float) -> list[float]:
        """Due times of pending restarts that lie in the future, in the order in which the restarts were asked for."""
        return [pending.due for pending in self._pending if pending.due > now]

    def stop(self) -> None:
        """Nothing restarts any more."""
        self._pending.clear()
        self._is_resetting = False

    def reset(self, executions: Sequence[Execution], at: Moment) -> None:
        """Their reset is durable: the next attempts wait for their inputs."""
        self._is_resetting = False
        fresh = [self._graph.reset(execution, at.millis) for execution in executions]
        self._placement.wait(fresh)
        for pending in [one for one in self._pending if not self._current(one)]:
            self._pending.remove(pending)  # its tasks restart with these
            if pending.lost:
                self._acceptance.record(PartitionsLost(tuple(pending.lost)))

    def pending_reason(self) -> str:
        """The reason for which the job waits, in words that stay the same while it waits."""
        waiting = sum(self._graph.counts.get(state, 0) for state in _STOPPED)
        return f"{waiting} tasks wait for their restart after {self._history.latest}" if self.is_pending else ""


_STOPPED = (ExecutionState.FAILED, ExecutionState.CANCELED, ExecutionState.CANCELING)


def _vain(failure: FailureInfo) -> str:
    """Why no restart can help, "" if one may (D-061)."""
    if not failure.is_recoverable:
        return "the failure is not recoverable"
    return "a restart would meet the same" if failure.is_restart_vain else ""


def effective_strategy(graph: ExecutionGraph, settings: FailoverSettings) -> RestartStrategy:
    """The job's own strategy, else the cluster's."""
    own = graph.job_graph.restart_strategy if graph.job_graph is not None else None
    return own if own is not None else settings.restart_strategy


def effective_user_failures(graph: ExecutionGraph, settings: FailoverSettings) -> UserFailures:
    """The job's option for failures of its code. A restart strategy of its own asks for restarts of them (D-060)."""
    job = graph.job_graph
    if job is None:
        return settings.user_failures
    if job.user_failures is not None:
        return job.user_failures
    asks = job.restart_strategy is not None and not isinstance(job.restart_strategy, NoRestartStrategy)
    return "restart" if asks else settings.user_failures


def failure_policy(graph: ExecutionGraph, settings: FailoverSettings) -> FailurePolicy:
    """The restart strategy and the treatment of user failures that hold for the job."""
    return FailurePolicy(str(effective_strategy(graph, settings)), effective_user_failures(graph, settings))


def _ids(executions: Sequence[Execution]) -> tuple[ExecutionAttemptId, ...]:
    return tuple(execution.attempt_id for execution in executions)
