"""A streaming job under an AdaptiveScheduler, with slots that come and go."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState, SchedulerType
from runtime.executiongraph.archived_rescales import ArchivedRescales
from runtime.gateways.job_master import CancelTasks
from runtime.gateways.rescales import UpdateRequirements, VertexBounds
from runtime.jobgraph.graph import JobGraph
from runtime.jobmaster.core.job_master_core import JobMasterCore
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.adaptive.settings import AdaptiveSchedulerSettings
from runtime.scheduler.core.failover.settings import FailoverSettings
from tests.kit.control_plane.job_master_driver import EPOCH, JOB_ID, THREE_RESTARTS, JobMasterDriver

SETTINGS = AdaptiveSchedulerSettings(
    resource_wait=300.0, submission_stabilization=10.0, cooldown=30.0, executing_stabilization=60.0
)


class AdaptiveDriver(JobMasterDriver):
    """`adaptive`: its options. `scheduler_type`: what is configured where the next owner runs."""

    def __init__(
        self,
        graph: JobGraph,
        *,
        adaptive: AdaptiveSchedulerSettings = SETTINGS,
        failover: FailoverSettings = THREE_RESTARTS,
    ) -> None:
        self.rescaling = adaptive
        self.scheduler_type = SchedulerType.ADAPTIVE
        super().__init__(graph, failover=failover)

    def _new_core(self) -> JobMasterCore:
        return JobMasterCore(
            JOB_ID,
            self.epoch,
            digest="d" * 64,
            submit_millis=1000,
            is_first_owner=self.epoch == EPOCH,
            failover=self.failover,
            validate=self.validate,
            scheduler_type=self.scheduler_type,
            adaptive=self.rescaling,
        )

    def after(self, seconds: float) -> None:
        """So much time passes; what is due then happens."""
        self.now += seconds
        self.handle(ev.RestartDue(self.at()))
        self.settle()

    def settle(self) -> None:
        """Every write in flight is durable, and every attempt that was deployed runs."""
        for _ in range(4):  # what is reported may bring about another write
            while self.pending_events is not None:
                self.events_durable()
            for attempt_id in self.running():
                if attempt_id not in self.running_millis and attempt_id not in self.cancelled:
                    self.report(attempt_id, ExecutionState.RUNNING)

    def stop_cancelled(self) -> None:
        """What was cancelled has ended."""
        for attempt_id in [one for one in self.running() if one in self.cancelled]:
            self.report(attempt_id, ExecutionState.CANCELED)
        self.settle()

    def shares(self) -> list[list[int]]:
        """The numbers of the queries of each attempt that runs."""
        return sorted([one.number for one in self.deployed[attempt_id].queries] for attempt_id in self.running())

    def wants(self, *bounds: VertexBounds, request_id: str = "r") -> None:
        """A client changes bounds."""
        self.handle(ev.RequirementsWanted(UpdateRequirements(JOB_ID, request_id, bounds), self.at()))

    def ended_gently(self) -> Sequence[ExecutionAttemptId]:
        """Attempts whose queries were to end between two batches."""
        orders = [message for _, messages in self.sent for message in messages if isinstance(message, CancelTasks)]
        return [attempt_id for order in orders if order.ends_batches for attempt_id in order.attempts]

    def shown(self) -> ArchivedRescales:
        """What REST shows of rescales."""
        found = self.core.archived().rescales
        assert found is not None
        return found

    @property
    def wanted_slots(self) -> int:
        """How many slots the job asks for now."""
        return sum(one.count for one in self.requirements[-1].requirements)
