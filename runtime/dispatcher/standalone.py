"""StandaloneDispatcher: JobMasters run inside the JobManager (`jobmanager.jobmaster.single.enable: false`).

To the registry of jobs this process is one JobMaster process. It registers after the recovery of each term, so that
jobs which an earlier term of this very process has begun get a new epoch: their runners ended with that term.
"""

from __future__ import annotations

from runtime.common.errors import ConflictError, NotFoundError
from runtime.common.ids import Incarnation, JobId
from runtime.common.version import PROTOCOL_VERSION, VERSION
from runtime.common.waiting import Waiting
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.endpoint import Dispatcher
from runtime.dispatcher.runner_registry import JobManagerRunnerRegistry, RunnerFailed
from runtime.dispatcher.services import DispatcherServices, ResourceRequests
from runtime.dispatcher.settings import DispatcherSettings
from runtime.gateways.dispatcher import (
    AssignJob,
    JobAssignmentRefused,
    JobInventoryEntry,
    JobRequest,
    JobSummary,
    RegisterJobMaster,
    SubmitJobRequest,
    SubmitJobResponse,
)
from runtime.gateways.job_manager_runner import JobManagerRunner, JobManagerRunnerFactory, JobManagerRunnerResult
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.gateways.resource_manager import JobRequirements
from runtime.jobgraph.graph import JobGraph


class StandaloneDispatcher(Dispatcher):
    """Runs JobManagerRunners itself, and is their JobMasterListener."""

    def __init__(
        self,
        settings: DispatcherSettings,
        services: DispatcherServices,
        resources: ResourceRequests,
        runner_factory: JobManagerRunnerFactory,
    ) -> None:
        super().__init__(settings, services, resources)
        self._runners = JobManagerRunnerRegistry(self._scope, runner_factory, self, self._runner_ended)
        self._submitting: dict[str, JobGraph] = {}
        """By digest, graphs of submits that are not answered yet."""

    async def _begin(self) -> None:
        services = self._services
        capacity = self._settings.limits.jobs_max
        self._post(
            ev.ProcessRegistered(
                RegisterJobMaster(services.incarnation, services.address, VERSION, PROTOCOL_VERSION, capacity)
            )
        )

    def _end(self) -> None:
        """Nothing is left to stop: the runners have ended with the scope."""

    async def submit_verified(self, request: SubmitJobRequest, graph: JobGraph, /) -> SubmitJobResponse:
        """The graph travels along: a job that is assigned at once is not parsed again."""
        self._submitting[request.digest] = graph
        try:
            return await super().submit_verified(request, graph)
        finally:
            self._submitting.pop(request.digest, None)

    # --- JobMasterListener --------------------------------------------------------------------------------

    def job_summary_changed(self, summary: JobSummary) -> None:
        """What is shown of a job has changed."""
        if self._is_open:
            self._post(ev.SummariesReceived((summary,)))

    def requirements_changed(self, requirements: JobRequirements) -> None:
        """The complete set of requirements of a job has changed."""
        if self._is_open:
            self._resources.declare_requirements(requirements)

    def _runner_ended(self, outcome: JobManagerRunnerResult | RunnerFailed) -> None:
        if not self._is_open:
            return
        if isinstance(outcome, RunnerFailed):
            refusal = JobAssignmentRefused(outcome.job_id, outcome.epoch, outcome.reason, is_permanent=True)
            self._post(ev.AssignmentRefused(self._services.incarnation, refusal))
        elif outcome.summary is not None:
            self._post(ev.SummariesReceived((outcome.summary,)))

    # --- to the owner, which is this process --------------------------------------------------------------

    def _send_assign(self, incarnation: Incarnation, message: AssignJob) -> None:
        self._runners.start(message, self._submitting.get(message.digest))

    def _send_cancel(self, incarnation: Incarnation, job_id: JobId, reason: str) -> None:
        self._runners.cancel(job_id, reason)

    def _send_drop(self, incarnation: Incarnation, entries: tuple[JobInventoryEntry, ...]) -> None:
        for entry in entries:
            self._runners.drop(entry)

    def _send_drain(self, incarnation: Incarnation, *, is_draining: bool) -> None:
        raise AssertionError(incarnation)  # `drain_job_master` has refused

    def _send_not_taken(self, incarnation: Incarnation, reason: str) -> None:
        raise AssertionError(reason)

    async def drain_job_master(self, incarnation: Incarnation, /, *, is_draining: bool) -> None:
        """Raises ConflictError: there is no other process to give jobs to."""
        message = "jobs run inside the JobManager: there are no JobMaster processes that could be drained"
        raise ConflictError(message)

    def notify_resources(self, job_id: JobId, waiting: Waiting) -> None:
        """Tell the owner of a job why its requirements are not fulfilled, or that they are."""
        self._runners.notify_resources(job_id, waiting)

    async def _request_owner(self, owner: ev.JobOwner, request: JobRequest) -> bytes:
        return self._runner(request.job_id).archived_graph()

    async def _trigger_at_owner(self, owner: ev.JobOwner, request: TriggerOperation) -> StreamOperation:
        return await self._runner(request.job_id).trigger_operation(request)

    async def _update_at_owner(self, owner: ev.JobOwner, request: UpdateRequirements) -> RequirementsUpdated:
        return await self._runner(request.job_id).update_requirements(request)

    def _runner(self, job_id: JobId) -> JobManagerRunner:
        runner = self._runners.get(job_id)
        if runner is None:
            message = f"job {job_id} has no runner"
            raise NotFoundError(message)
        return runner

    def _last_heard_millis(self, incarnation: Incarnation) -> int:
        return self._services.clock.epoch_millis()
