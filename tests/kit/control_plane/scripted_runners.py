"""JobManagerRunners of hollow jobs, which do what a test wants."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runtime.aio.clock import LoopClock
from runtime.common.errors import StaleTokenError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.common.waiting import Waiting
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.stored_jobs import encode_summary, unowned_archive
from runtime.gateways.dispatcher import AssignJob, JobSummary, TaskCounts
from runtime.gateways.job_manager_runner import JobManagerRunnerResult, JobMasterListener
from runtime.gateways.operations import OperationState, StreamOperation, TriggerOperation
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.gateways.resource_manager import (
    JobRequirements,
    ResourceProfile,
    ResourceRequirement,
)
from runtime.highavailability.jobs.job_store_kv import KvOwnerJobStore
from runtime.highavailability.jobs.payloads import Payloads
from runtime.highavailability.records import ResultRecord
from runtime.jobgraph.graph import JobGraph
from tests.kit.control_plane.memory_objects import MemoryObjectStore

GRAPH = b'{"name":"job"}'

if TYPE_CHECKING:
    from tests.kit.control_plane.plane import ControlPlane


@dataclass
class ScriptedRunner:
    """A JobManagerRunner that wants one slot and finishes when the test, or a slot, lets it."""

    assignment: AssignJob
    listener: JobMasterListener
    owner_store: KvOwnerJobStore
    clock: LoopClock
    end: asyncio.Future[JobStatus] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    current: JobSummary | None = None
    reasons: list[str] = field(default_factory=list)

    @property
    def job_id(self) -> JobId:
        return self.assignment.job_id

    @property
    def epoch(self) -> int:
        return self.assignment.epoch

    def summary(self) -> JobSummary:
        if self.current is None:
            self.current = JobSummary(
                self.job_id, "job", JobStatus.CREATED, self.epoch, 0, self.assignment.submit_millis, -1,
                self.clock.epoch_millis(), TaskCounts(), "",
            )  # fmt: skip
        return self.current

    def _show(self, status: JobStatus) -> JobSummary:
        now = self.clock.epoch_millis()
        before = self.summary()
        self.current = replace(
            before,
            status=status,
            sequence=before.sequence + 1,
            last_modification_millis=now,
            end_millis=now if status.is_globally_terminal else -1,
        )
        return self.current

    def declare(self, count: int) -> None:
        needs = (ResourceRequirement(ResourceProfile(), count),) if count else ()
        self.listener.requirements_changed(JobRequirements(self.job_id, self.epoch, needs, ()))

    async def run(self) -> JobManagerRunnerResult:
        self.listener.job_summary_changed(self._show(JobStatus.CREATED))
        self.declare(1)
        status = await self.end
        final = self._show(status)
        archive = await Payloads(MemoryObjectStore()).store(self.archived_graph())
        result = ResultRecord(status, encode_summary(final), archive)
        try:
            await self.owner_store.write_result(self.job_id, self.epoch, result)
        except StaleTokenError:
            return JobManagerRunnerResult(self.job_id, self.epoch, None)
        self.listener.job_summary_changed(final)
        self.declare(0)
        return JobManagerRunnerResult(self.job_id, self.epoch, final)

    def slot_arrived(self) -> None:
        self.listener.job_summary_changed(self._show(JobStatus.RUNNING))

    def finish(self, status: JobStatus = JobStatus.FINISHED) -> None:
        if not self.end.done():
            self.end.set_result(status)

    def break_down(self) -> None:
        self.end.set_exception(RuntimeError("a bug"))

    def cancel_job(self, reason: str = "") -> None:
        self.reasons.append(reason)
        self.finish(JobStatus.CANCELED)

    async def update_requirements(self, wanted: UpdateRequirements) -> RequirementsUpdated:
        self.reasons.append(wanted.request_id)
        return RequirementsUpdated()

    async def trigger_operation(self, wanted: TriggerOperation) -> StreamOperation:
        return StreamOperation(wanted.trigger_id, wanted.kind, OperationState.IN_PROGRESS, 1, 1000)

    def notify_resources(self, waiting: Waiting) -> None:
        self.reasons.append(waiting.reason)

    def archived_graph(self) -> bytes:
        source = ev.JobSource(self.job_id, self.assignment.digest, "job", b"", "", self.assignment.submit_millis, "")
        return unowned_archive(source, b"", self.summary()).to_json()


class ScriptedRunners:
    """The factory; `by_job` has the latest runner of each job, wherever it runs."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.by_job: dict[JobId, ScriptedRunner] = {}
        self.created: list[AssignJob] = []

    def create(
        self, assignment: AssignJob, listener: JobMasterListener, graph: JobGraph | None = None
    ) -> ScriptedRunner:
        del graph
        runner = ScriptedRunner(assignment, listener, self._plane.owner_store, self._plane.clock)
        self.by_job[assignment.job_id] = runner
        self.created.append(assignment)
        return runner
