"""The parts of a job's owner that exist once the graph is there, begun afresh or taken over from an earlier owner."""

from __future__ import annotations

from runtime.common.states import ExecutionState
from runtime.executiongraph.core.failures import FailureHistory
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.resource_manager import ResourceRequirement
from runtime.scheduler.core.acceptance import Acceptance
from runtime.scheduler.core.adoption import adopt
from runtime.scheduler.core.events import Moment
from runtime.scheduler.core.execution_timeout import ExecutionTimeout
from runtime.scheduler.core.failover import Failover
from runtime.scheduler.core.failover_settings import FailoverSettings
from runtime.scheduler.core.fencing import Fences
from runtime.scheduler.core.inheritance import Inheritance
from runtime.scheduler.core.job_recovery import RecoveredJob
from runtime.scheduler.core.losses import Losses
from runtime.scheduler.core.outbox import Outbox
from runtime.scheduler.core.output_commit import OutputCommit
from runtime.scheduler.core.placement import ON_ITS_WAY, Placement
from runtime.scheduler.core.reconnection import Reconnection


class Work:
    """Who decides what of one job."""

    __slots__ = ("acceptance", "commit", "failover", "losses", "placement", "reconnection", "timeout")

    def __init__(
        self,
        graph: ExecutionGraph,
        outbox: Outbox,
        history: FailureHistory,
        settings: FailoverSettings,
        fences: Fences,
        *,
        batches: int = 0,
        started_millis: int | None = None,
        is_committing: bool = False,
    ) -> None:
        self.placement = Placement(graph, outbox, fences)
        self.acceptance = Acceptance(graph, first_number=batches)
        self.commit = OutputCommit(graph, self.placement, self.acceptance, outbox, fences, is_decided=is_committing)
        self.reconnection = Reconnection(graph, self.placement, self.commit, outbox)
        self.losses = Losses(graph, self.placement, self.commit, self.reconnection, fences)
        self.failover = Failover(graph, self.placement, self.acceptance, history, settings)
        self.timeout = ExecutionTimeout(graph, self.acceptance, started_millis)

    @classmethod
    def taken_over(
        cls,
        found: Inheritance,
        graph: ExecutionGraph,
        outbox: Outbox,
        history: FailureHistory,
        settings: FailoverSettings,
        fences: Fences,
        at: Moment,
    ) -> Work:
        """Attach the graph, replay what is durable, and adopt what runs (R6, R9, R10)."""
        graph.attach(found.read.graph, at.millis)
        graph.takeovers = found.read.takeovers
        recovered = RecoveredJob(graph, history)
        for batch in found.read.batches:
            for event in batch:
                recovered.apply(event, at.millis)
        adoptions = adopt(graph, found.answers, at.millis)
        recovered.put_failed(at.millis)
        work = cls(
            graph,
            outbox,
            history,
            settings,
            fences,
            batches=len(found.read.batches),
            started_millis=recovered.started_millis,
            is_committing=recovered.is_committing,
        )
        work.failover.restore(recovered, at)
        for adoption in adoptions:
            work.placement.inherit(adoption, at)
        work.commit.adopt([adoption.answer.location for adoption in adoptions if adoption.answer.is_moving])
        work.placement.lost.update(dict.fromkeys(sorted(found.unheard)))
        return work

    def requirements(self) -> tuple[ResourceRequirement, ...]:
        """The slots that the job needs now."""
        return self.placement.requirements(self.losses.unseen())

    def check_invariants(self, graph: ExecutionGraph) -> None:
        """Raises AssertionError when slots and attempts contradict each other."""
        self.placement.pool.check_invariants()
        in_slots = {one for slot in self.placement.pool.allocations() for one in slot.attempts}
        for execution in graph.executions():
            is_deployed = execution.state in ON_ITS_WAY or execution.state is ExecutionState.CANCELING
            is_somewhere = execution.attempt_id in in_slots or self.losses.holds(execution.attempt_id)
            assert is_deployed <= is_somewhere, (execution.attempt_id, execution.state)
            assert is_deployed or execution.attempt_id not in in_slots, (execution.attempt_id, execution.state)
            if execution.state in ON_ITS_WAY:
                index, inputs = execution.attempt_id.subtask_index, graph.vertex_of(execution).inputs
                assert all(edge.has_inputs_of(index) for edge in inputs), execution.attempt_id
