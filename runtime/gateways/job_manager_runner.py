"""JobManagerRunner and its factory: how a Dispatcher of either kind runs a JobMaster without importing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from runtime.common.ids import JobId
from runtime.gateways.dispatcher import AssignJob, JobSummary
from runtime.gateways.resource_manager import JobRequirements
from runtime.jobgraph.graph import JobGraph


@dataclass(frozen=True, slots=True)
class JobManagerRunnerResult:
    """How a runner ended: `summary` of a globally terminal job whose result is durable, or None if dropped."""

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
        """The owner epoch this runner acts under; never changes."""

    def summary(self) -> JobSummary:
        """What is known of the job now."""

    async def run(self) -> JobManagerRunnerResult:
        """Run the job until its result is durable, or until cancelled (then locally only)."""

    def cancel_job(self, reason: str = "") -> None:
        """The job's `wanted` key says cancel, and why if no person wants it. Idempotent."""

    def notify_resources(self, reason: str) -> None:
        """Why requirements are not fulfilled, "" when they are."""

    def archived_graph(self) -> bytes:
        """The live execution graph as JSON."""


class JobMasterListener(Protocol):
    """What a runner tells its Dispatcher; calls never block."""

    def job_summary_changed(self, summary: JobSummary) -> None:
        """Something visible changed."""

    def requirements_changed(self, requirements: JobRequirements) -> None:
        """The complete requirement set of a job changed."""


class JobManagerRunnerFactory(Protocol):
    """Injected by each process's entry point."""

    def create(
        self, assignment: AssignJob, listener: JobMasterListener, graph: JobGraph | None = None
    ) -> JobManagerRunner:
        """A runner for this assignment, not started. `graph`: the assignment's, where this process has verified it."""
