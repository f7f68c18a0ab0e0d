"""Why a job does not get on, in one sentence that does not change while it does not."""

from __future__ import annotations

from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.scheduler.core.work import Work


class Reasons:
    """What was said last of the job store, of the job's beginning, and of the slots it waits for; "" if nothing."""

    __slots__ = ("initialization", "resources", "store")

    def __init__(self) -> None:
        self.initialization = "loading the job graph"
        self.resources = ""
        self.store = ""

    def pending(self, graph: ExecutionGraph, work: Work | None) -> str:
        """What the job waits for now, "" if it gets on."""
        if self.store:
            return self.store
        if graph.status is JobStatus.INITIALIZING:
            return self.initialization
        if work is None:
            return ""
        if unseen := work.losses.reason():
            return unseen
        if graph.status in {JobStatus.CANCELLING, JobStatus.FAILING}:
            running = graph.counts.get(ExecutionState.CANCELING, 0)
            return f"waiting for {running} tasks to stop" if running else ""
        return work.commit.reason() or work.failover.pending_reason() or self._shortage(work)

    def _shortage(self, work: Work) -> str:
        if not work.placement.is_waiting_for_slots:
            return ""
        return f"waiting for slots: {self.resources}" if self.resources else "waiting for slots"
