"""What REST asks of the components in its own process. Answers come from memory; nothing here fans out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.gateways.delegation_tokens import DelegationTokenStatus
from runtime.gateways.dispatcher import DispatcherGateway, JobSummary, SubmitJobRequest, SubmitJobResponse
from runtime.gateways.resource_manager import TaskManagerInfo
from runtime.jobgraph.graph import JobGraph


@dataclass(frozen=True, slots=True)
class JobMasterInfo:
    """One JobMaster process, as the leader sees it. `jobs_assigned` counts what this leader gave it, ended ones too."""

    incarnation: Incarnation
    address: str
    state: str
    version: str
    capacity: int
    jobs_running: int
    jobs_assigned: int
    cpu_fraction: float
    memory_bytes: int
    last_heard_millis: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """A job got another owner, `millis` being when, for `reason`; each process by its incarnation and address."""

    millis: int
    former: Incarnation
    former_address: str
    owner: Incarnation
    owner_address: str
    reason: str


class DispatcherView(DispatcherGateway, Protocol):
    """A leading Dispatcher with what REST needs beyond the gateway. Raises UnavailableError when not leading."""

    async def submit_verified(self, request: SubmitJobRequest, graph: JobGraph, /) -> SubmitJobResponse:
        """`submit_job` of a valid `graph` whose canonical JSON and digest this process has put into the request."""

    def job_summaries(self) -> Sequence[JobSummary]:
        """Every job that is shown: running, waiting and finished ones within retention; newest first."""

    def job_counts(self) -> Mapping[JobStatus, int]:
        """How many of them there are of each status; a status without jobs may be missing."""

    def job_summary(self, job_id: JobId, /) -> JobSummary | None:
        """One of them."""

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        """One job, also one that ended too long ago to be shown and whose id is still remembered."""

    def job_owner(self, job_id: JobId, /) -> JobMasterInfo | None:
        """Who runs the job now; None while it has no owner or after it ended."""

    async def find_jobs(self, jobs: Collection[JobId], /) -> Mapping[JobId, JobSummary]:
        """The same of many; those that are not known are left out."""

    async def wait_for_jobs(
        self, known: Mapping[JobId, int], /, *, timeout: float, name: str = "", principal: str = ""
    ) -> frozenset[JobId]:
        """Those of `known` with news, as soon as there are any; none after `timeout` seconds.

        News is a last modification other than the known one, in whichever direction: clocks of different owners are
        never compared. What has ended or is not shown is always news. A poll with a name ends an earlier one of it.
        Raises BackpressureError when the principal waits for more than its share.
        """

    def job_masters(self) -> Sequence[JobMasterInfo]:
        """All registered JobMaster processes (in-process mode: this process)."""

    def jobs_of(self, incarnation: Incarnation, /) -> Sequence[JobSummary]:
        """What one of them runs. NotFoundError."""

    async def drain_job_master(self, incarnation: Incarnation, /, *, is_draining: bool) -> None:
        """Have it give its jobs away and take none, or take some again. Returns when it says so itself.

        NotFoundError, ConflictError when jobs run inside the JobManager, UnavailableError.
        """

    async def client_heartbeat(self, job_id: JobId, /, *, expires_millis: int) -> None:
        """The job's client will be back by then, since 1970, or the job is cancelled; 0: nobody has to come back.

        Returns when that is durable, at once if the job has ended. NotFoundError, ConflictError while it is being
        cancelled.
        """

    async def move_job(self, job_id: JobId, target: Incarnation, /) -> None:
        """Have another process run a job. Returns when the wish is durable. NotFoundError, ConflictError."""


class ResourceManagerView(Protocol):
    """A leading ResourceManager, for REST."""

    def task_managers(self) -> Sequence[TaskManagerInfo]:
        """All registered TaskManagers."""

    async def drain_task_manager(self, task_manager_id: str, /, *, is_draining: bool) -> None:
        """Have it take no more slots and let go of what it has, or use it again. Returns when it says so itself.

        NotFoundError, UnavailableError.
        """

    def slot_counts(self) -> tuple[int, int]:
        """(slots in all, free ones)."""

    def delegation_tokens(self) -> Sequence[DelegationTokenStatus]:
        """Each provider of delegation tokens: when its tokens end, why there are no others."""

    def offered_spark_conf(self) -> Sequence[bytes]:
        """Static Spark conf of each registered TaskManager that has Spark, as JSON."""
