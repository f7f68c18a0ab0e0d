"""A history as REST sees a cluster: a Dispatcher whose jobs have all ended, and a ResourceManager without processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NoReturn

from runtime.common.errors import NotFoundError
from runtime.common.ids import Incarnation, JobId
from runtime.common.shares import QueueStatus
from runtime.common.spark_environments import SparkOffer
from runtime.common.states import JobStatus
from runtime.common.waiting import NOT_WAITING, Waiting
from runtime.gateways.blob import BlobKey
from runtime.gateways.delegation_tokens import DelegationTokenStatus
from runtime.gateways.dispatcher import (
    Empty,
    JobDetailsResponse,
    JobRequest,
    JobSummary,
    SubmitJobRequest,
    SubmitJobResponse,
)
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.overview import JobActivity, JobMasterInfo, WorkersStatus
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.gateways.resource_manager import TaskManagerInfo
from runtime.highavailability.jars import StoredJar
from runtime.highavailability.records import JarRecord
from runtime.history.catalogue import Catalogue
from runtime.jobgraph.graph import JobGraph

READ_ONLY = "this is a history server: it shows jobs that have ended, and changes nothing. Ask the cluster's JobManager"


def _refuse() -> NoReturn:
    raise NotFoundError(READ_ONLY)


class HistoryDispatcher:
    """Implements `DispatcherView`. Whatever changes a job raises NotFoundError (R56)."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        """Refused."""
        del request
        _refuse()

    async def submit_verified(self, request: SubmitJobRequest, graph: JobGraph, /) -> SubmitJobResponse:
        """Refused."""
        del request, graph
        _refuse()

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """Refused."""
        del request
        _refuse()

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        """The archived execution graph. Raises NotFoundError."""
        return JobDetailsResponse(await self._catalogue.archive(request.job_id))

    async def request_operation(self, request: TriggerOperation, /) -> StreamOperation:
        """Refused."""
        del request
        _refuse()

    async def set_requirements(self, request: UpdateRequirements, /) -> RequirementsUpdated:
        """Refused."""
        del request
        _refuse()

    async def find_operation(self, job_id: JobId, trigger_id: str, /) -> StreamOperation | None:
        """None: a history server has the jobs only."""
        del job_id, trigger_id
        return None

    def job_summaries(self) -> Sequence[JobSummary]:
        """All jobs, newest first."""
        return self._catalogue.newest_first()

    def job_counts(self) -> Mapping[JobStatus, int]:
        """The number of jobs by status."""
        return self._catalogue.counts()

    def job_activity(self) -> JobActivity:
        """How often the catalogue has changed."""
        return JobActivity(term=0, changes=self._catalogue.changes, jobs_ended=0, tasks_ended=0)

    def job_summary(self, job_id: JobId, /) -> JobSummary | None:
        """One job."""
        return self._catalogue.summary(job_id)

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        """One job."""
        return self._catalogue.summary(job_id)

    async def find_jobs(self, jobs: Collection[JobId], /) -> Mapping[JobId, JobSummary]:
        """Those that a history has."""
        found = ((job_id, self._catalogue.summary(job_id)) for job_id in jobs)
        return {job_id: summary for job_id, summary in found if summary is not None}

    async def wait_for_jobs(
        self, known: Mapping[JobId, int], /, *, timeout: float, name: str = "", principal: str = ""
    ) -> frozenset[JobId]:
        """All of them, at once: a job that has ended, or is not known, is news."""
        del timeout, name, principal
        return frozenset(known)

    def job_owner(self, job_id: JobId, /) -> JobMasterInfo | None:
        """None: the job has ended."""
        del job_id
        return None

    def job_masters(self) -> Sequence[JobMasterInfo]:
        """None."""
        return ()

    def jobs_of(self, incarnation: Incarnation, /) -> Sequence[JobSummary]:
        """Raises NotFoundError."""
        del incarnation
        _refuse()

    async def drain_job_master(self, incarnation: Incarnation, /, *, is_draining: bool) -> None:
        """Refused."""
        del incarnation, is_draining
        _refuse()

    async def client_heartbeat(self, job_id: JobId, /, *, expires_millis: int) -> None:
        """Refused."""
        del job_id, expires_millis
        _refuse()

    async def move_job(self, job_id: JobId, target: Incarnation, /) -> None:
        """Refused."""
        del job_id, target
        _refuse()


class NoResourceManager:
    """Implements `ResourceManagerView`: there is no process."""

    def task_managers(self) -> Sequence[TaskManagerInfo]:
        """None."""
        return ()

    async def drain_task_manager(self, task_manager_id: str, /, *, is_draining: bool) -> None:
        """Refused."""
        del task_manager_id, is_draining
        _refuse()

    def slot_counts(self) -> tuple[int, int]:
        """None."""
        return 0, 0

    def queues(self) -> Sequence[QueueStatus]:
        """None."""
        return ()

    def waiting_of(self, job_id: JobId, /) -> Waiting:
        """No job waits."""
        del job_id
        return NOT_WAITING

    def workers(self) -> Sequence[WorkersStatus]:
        """None."""
        return ()

    def delegation_tokens(self) -> Sequence[DelegationTokenStatus]:
        """None."""
        return ()

    def spark_offers(self) -> Sequence[SparkOffer]:
        """None."""
        return ()


class NoBlobs:
    """Implements REST's `BlobEndpoint`: there are none."""

    async def missing(self, digests: Sequence[tuple[str, int]], /) -> tuple[dict[str, BlobKey], Sequence[str]]:
        """Refused."""
        del digests
        _refuse()

    async def upload(self, sha256: str | None, chunks: AsyncIterator[bytes], /) -> BlobKey:
        """Refused."""
        del sha256, chunks
        _refuse()

    def download(self, key: BlobKey, /) -> AsyncIterator[bytes]:
        """Refused."""
        del key
        _refuse()

    async def read_range(self, key: str, /, *, offset: int, size_bytes: int) -> bytes:
        """Refused."""
        del key, offset, size_bytes
        _refuse()


class NoJars:
    """Implements REST's `JarEndpoint`: there are none."""

    async def add(self, record: JarRecord, /, *, jars_max: int) -> None:
        """Refused."""
        del record, jars_max
        _refuse()

    async def check_room(self, jars_max: int, /) -> None:
        """Refused."""
        del jars_max
        _refuse()

    async def get(self, jar_id: str, /) -> StoredJar | None:
        """Refused."""
        del jar_id
        _refuse()

    async def all(self) -> Sequence[StoredJar]:
        """Refused."""
        _refuse()

    async def delete(self, jar_id: str, /) -> None:
        """Refused."""
        del jar_id
        _refuse()
