"""The questions of REST to components in its own process. Answers come from memory; no call asks another process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.common.ids import Incarnation, JobId
from runtime.common.shares import QueueStatus
from runtime.common.spark_environments import SparkOffer
from runtime.common.states import JobStatus
from runtime.common.waiting import Waiting
from runtime.gateways.delegation_tokens import DelegationTokenStatus
from runtime.gateways.dispatcher import DispatcherGateway, JobSummary, SubmitJobRequest, SubmitJobResponse
from runtime.gateways.operations import StreamOperation
from runtime.gateways.resource_manager import TaskManagerInfo
from runtime.jobgraph.graph import JobGraph


@dataclass(frozen=True, slots=True)
class JobMasterInfo:
    """A JobMaster process in the leader's view. `jobs_assigned` counts this leader's assignments, ended jobs too.

    `worker_id`: the label of one that a driver has started, "" for others. `loop_lag`: how late its event loop was on
    average since its last heartbeat, in seconds. `is_draining`: it has said so, and may be disconnected since.
    """

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
    metrics_address: str = ""
    worker_id: str = ""
    loop_lag: float = 0.0
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class JobMasterLoad:
    """All JobMaster processes with their jobs, and how many jobs wait for one."""

    processes: Sequence[JobMasterInfo]
    waiting: int


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A process that a driver has started, or was asked for (R65). `state`: a `WorkerState` of the ResourceManager.

    `reason`: why it leaves.
    """

    worker_id: str
    state: str
    since_millis: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkersStatus:
    """All workers of one `kind`, which is `taskmanager` or `jobmaster`; `pending` of them do not serve yet.

    `problem`: why the last start failed, "" once one has registered.
    """

    kind: str
    workers: tuple[WorkerStatus, ...]
    pending: int
    problem: str


@dataclass(frozen=True, slots=True)
class Takeover:
    """A takeover of a job: its time in `millis`, its `reason`, and both owners by incarnation and address."""

    millis: int
    former: Incarnation
    former_address: str
    owner: Incarnation
    owner_address: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobActivity:
    """What has happened to the shown jobs in one `term` of a leader; each number only grows within it.

    `changes` counts every change of what is shown. What ended before the term is not counted.
    """

    term: int
    changes: int
    jobs_ended: int
    tasks_ended: int


class DispatcherView(DispatcherGateway, Protocol):
    """A leading Dispatcher with what REST needs beyond the gateway. Raises UnavailableError when not leading."""

    async def submit_verified(self, request: SubmitJobRequest, graph: JobGraph, /) -> SubmitJobResponse:
        """`submit_job` of a valid `graph` whose canonical JSON and digest this process has put into the request."""

    def job_summaries(self) -> Sequence[JobSummary]:
        """Every shown job: running, waiting, and finished within retention; newest first."""

    def job_counts(self) -> Mapping[JobStatus, int]:
        """The number of shown jobs by status; a status without jobs may be missing."""

    def job_activity(self) -> JobActivity:
        """How much has changed since this term began."""

    def job_summary(self, job_id: JobId, /) -> JobSummary | None:
        """One shown job, None for any other id."""

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        """One job, also an ended one that is not shown any more but whose id is remembered."""

    async def find_operation(self, job_id: JobId, trigger_id: str, /) -> StreamOperation | None:
        """A checkpoint on request, a savepoint or a stop, also of a job that has ended; None for an unknown one."""

    def job_owner(self, job_id: JobId, /) -> JobMasterInfo | None:
        """The process that owns the job; None while it has no owner, or after its end."""

    async def find_jobs(self, jobs: Collection[JobId], /) -> Mapping[JobId, JobSummary]:
        """`find_job` for many ids; unknown ids are left out."""

    async def wait_for_jobs(
        self, known: Mapping[JobId, int], /, *, timeout: float, name: str = "", principal: str = ""
    ) -> frozenset[JobId]:
        """The jobs of `known` with news, as soon as there are any; none after `timeout` seconds.

        News is another last modification than the known one, earlier or later: clocks of different owners are never
        compared. An ended or unshown job is always news. A poll with a name ends the earlier poll of that name.
        Raises BackpressureError when the principal waits for more than its share.
        """

    def job_masters(self) -> Sequence[JobMasterInfo]:
        """All registered JobMaster processes (in-process mode: this process)."""

    def jobs_of(self, incarnation: Incarnation, /) -> Sequence[JobSummary]:
        """The jobs of one JobMaster process. Raises NotFoundError."""

    async def drain_job_master(self, incarnation: Incarnation, /, *, is_draining: bool) -> None:
        """Let a process hand its jobs over and take none, or serve again. Returns when the process confirms.

        Raises NotFoundError, ConflictError when jobs run inside the JobManager, and UnavailableError.
        """

    async def client_heartbeat(self, job_id: JobId, /, *, expires_millis: int) -> None:
        """The client's promise to be back by `expires_millis` (since 1970; 0 withdraws it), or the job is cancelled.

        Returns when the promise is durable, at once for an ended job. Raises NotFoundError, and ConflictError while the
        job is being cancelled.
        """

    async def move_job(self, job_id: JobId, target: Incarnation, /) -> None:
        """Let another process own a job. Returns when the wish is durable. Raises NotFoundError and ConflictError."""


class ResourceManagerView(Protocol):
    """A leading ResourceManager, for REST."""

    def task_managers(self) -> Sequence[TaskManagerInfo]:
        """All registered TaskManagers."""

    async def drain_task_manager(self, task_manager_id: str, /, *, is_draining: bool) -> None:
        """Let a TaskManager drain: take no more slots and release its tasks; or use it again. Returns when it confirms.

        Raises NotFoundError and UnavailableError.
        """

    def slot_counts(self) -> tuple[int, int]:
        """The number of all slots, and of free ones."""

    def queues(self) -> Sequence[QueueStatus]:
        """All queues that have jobs or options, by name (D-128)."""

    def waiting_of(self, job_id: JobId, /) -> Waiting:
        """Why the job waits for slots at this moment, with its place in its queue; NOT_WAITING if it does not."""

    def workers(self) -> Sequence[WorkersStatus]:
        """The processes that a driver has started, of each kind that it starts (R65)."""

    def delegation_tokens(self) -> Sequence[DelegationTokenStatus]:
        """The status of each provider of delegation tokens."""

    def spark_offers(self) -> Sequence[SparkOffer]:
        """What Spark of each registered TaskManager that has one can be for a job."""
