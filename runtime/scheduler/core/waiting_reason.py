"""What a job waits for, in words for people."""

from __future__ import annotations

from runtime.common.states import ExecutionState, JobStatus, JobType
from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.scheduler.core.failover.failover import Failover
from runtime.scheduler.core.outputs.output_commit import OutputCommit
from runtime.scheduler.core.slots.placement import Placement
from runtime.scheduler.core.task_managers.losses import Losses

_ENDING = frozenset({JobStatus.CANCELLING, JobStatus.FAILING})


def waiting_of(
    graph: ExecutionGraph,
    placement: Placement,
    losses: Losses,
    commit: OutputCommit,
    failover: Failover,
    resources: Waiting,
) -> Waiting:
    """What the job waits for, if it does. `resources`: the ResourceManager's word, if any."""
    if unseen := losses.reason():
        return Waiting(WaitingKind.TAKEOVER, unseen)
    if graph.status in _ENDING:
        running = graph.counts.get(ExecutionState.CANCELING, 0) + len(graph.concurrent)
        return Waiting(WaitingKind.STOPPING, f"waiting for {running} tasks to stop") if running else NOT_WAITING
    if committing := commit.reason():
        return Waiting(WaitingKind.COMMIT, committing)
    if restarting := failover.pending_reason():
        return Waiting(WaitingKind.RESTART, restarting)
    if graph.is_finished and (outrun := len(graph.concurrent)):
        return Waiting(WaitingKind.STOPPING, f"waiting for {outrun} slower attempts of finished tasks to stop")
    return _shortage(graph, placement, resources)


def _shortage(graph: ExecutionGraph, placement: Placement, resources: Waiting) -> Waiting:
    keeps_slots, busy = graph.job_type is JobType.STREAMING, placement.pool.busy
    if not placement.is_waiting_for_slots(keeps_slots=keeps_slots):
        return NOT_WAITING
    kept = f" ({busy} of the job's queries run, and keep their slots)" if busy else ""
    if not resources:
        return Waiting(WaitingKind.SLOTS, f"waiting for slots{kept}")
    return Waiting(resources.kind, f"waiting for slots{kept}: {resources.reason}")
