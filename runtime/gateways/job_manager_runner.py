"""JobManagerRunner and its factory: a Dispatcher of either kind runs a JobMaster without importing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from runtime.common.ids import JobId
from runtime.common.waiting import Waiting
from runtime.gateways.dispatcher import AssignJob, JobSummary
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.gateways.resource_manager import JobRequirements
from runtime.jobgraph.graph import JobGraph


@dataclass(frozen=True, slots=True)
class JobManagerRunnerResult:
    """How a runner ended: the `summary` of a globally terminal job with a durable result, or None for a dropped job."""

    job_id: JobId
    epoch: int
    summary: JobSummary | None


class JobManagerRunner(Protocol):
    """Owns the life of one JobMaster under one epoch."""

    @property
    def job_id(self) -> JobId:
        """The job."""

    @property
    def epoch(self) -> int:
        """The owner epoch of this runner; it never changes."""

    def summary(self) -> JobSummary:
        """The current summary of the job."""

    async def run(self) -> JobManagerRunnerResult:
        """Run the job until its result is durable. A cancelled call stops the job in this process only."""

    def cancel_job(self, reason: str = "") -> None:
        """Cancel the job, as its `wanted` key says. `reason`: why, "" when a person wants it. Idempotent."""

    async def trigger_operation(self, wanted: TriggerOperation) -> StreamOperation:
        """Returns when the operation is durable (R61). Raises ConflictError where it is refused, UnavailableError."""

    async def update_requirements(self, wanted: UpdateRequirements) -> RequirementsUpdated:
        """Returns when they are durable (R69). Raises ConflictError where they are refused, UnavailableError."""

    def notify_resources(self, waiting: Waiting) -> None:
        """Why requirements are not fulfilled, or that they are."""

    def archived_graph(self) -> bytes:
        """The live execution graph as JSON."""


class JobMasterListener(Protocol):
    """The calls of a runner to its Dispatcher; they never block."""

    def job_summary_changed(self, summary: JobSummary) -> None:
        """The summary of the job has changed."""

    def requirements_changed(self, requirements: JobRequirements) -> None:
        """The complete requirement set of a job changed."""


class JobManagerRunnerFactory(Protocol):
    """Makes runners. Each process's entry point injects its own."""

    def create(
        self, assignment: AssignJob, listener: JobMasterListener, graph: JobGraph | None = None
    ) -> JobManagerRunner:
        """A runner for this assignment, not started. `graph`: the assignment's, where this process has verified it."""
