"""TaskExecutorGateway as peers call it: tokens are checked, a census is posted, logs are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from runtime.common.errors import NotFoundError, StaleTokenError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.gateways.task_executor import (
    AttemptLogRequest,
    AttemptLogResponse,
    AttemptLogsRequest,
    AttemptLogsResponse,
    AttemptSparkRequest,
    AttemptSparkResponse,
    AttemptStacksRequest,
    AttemptStacksResponse,
    CensusAccepted,
    CensusRequest,
    DisposeSavepointRequest,
    SavepointDisposed,
    SavepointFound,
    SavepointRequest,
    SparkPageRequest,
    SparkPageResponse,
)
from runtime.taskexecutor.attempt_logs.log_files import LogReaders
from runtime.taskexecutor.core.events import CensusRequested
from runtime.taskexecutor.core.jobs import JobMasterLocation, JobTable
from runtime.taskexecutor.savepoint_disposal import dispose_savepoint, find_savepoint
from runtime.taskexecutor.slots.attempt_views import AttemptViews


class EndpointGateway:
    """Implements TaskExecutorGateway for one TaskExecutor. `cluster` is "" before the first registration."""

    def __init__(
        self,
        jobs: JobTable,
        log_directory: Path,
        post: Callable[[CensusRequested], None],
        views: AttemptViews | None = None,
    ) -> None:
        self._views = views
        self._jobs = jobs
        self._post = post
        self._log_readers = LogReaders(log_directory)
        self.cluster = ""

    def check_tokens(self, target: FencingToken | None, sender: FencingToken | None) -> None:
        """R1: a TaskManager has no term; callers of another cluster, and of none, are refused."""
        if sender is None:
            message = "only a leader calls a TaskManager, and this call names none"
            raise StaleTokenError(message)
        for token in (target, sender):
            if token is not None and self.cluster and token.cluster != self.cluster:
                message = f"the call comes from cluster {token.cluster}, this is {self.cluster}"
                raise StaleTokenError(message)

    async def request_census(self, request: CensusRequest, /) -> CensusAccepted:
        """A new owner of a job: it is told, over a stream, what there is of the job (R6)."""
        job = self._jobs.get(request.job_id)
        if job is not None and job.is_ending:
            message = f"job {request.job_id} is ending on this TaskManager"
            raise UnavailableError(message)
        refusal = self._jobs.refusal(request.job_id, request.epoch)
        if refusal:
            raise StaleTokenError(refusal)
        owner = JobMasterLocation(request.job_master_incarnation, request.job_master_address)
        self._post(CensusRequested(request.job_id, request.epoch, owner))
        return CensusAccepted()

    async def request_attempt_log(self, request: AttemptLogRequest, /) -> AttemptLogResponse:
        """A piece of one attempt's log."""
        return await self._log_readers.read(request)

    async def request_attempt_logs(self, request: AttemptLogsRequest, /) -> AttemptLogsResponse:
        """Pieces of many logs."""
        return await self._log_readers.read_many(request)

    async def request_attempt_spark(self, request: AttemptSparkRequest, /) -> AttemptSparkResponse:
        """What Spark does for attempts."""
        if self._views is None:
            return AttemptSparkResponse(())
        return await self._views.spark(request.attempts, has_plans=request.has_plans)

    async def request_attempt_stacks(self, request: AttemptStacksRequest, /) -> AttemptStacksResponse:
        """The stacks of an attempt."""
        if self._views is None:
            message = f"attempt {request.attempt_id} runs in no process"
            raise NotFoundError(message)
        return await self._views.stacks(request.attempt_id, request.samples)

    async def request_spark_page(self, request: SparkPageRequest, /) -> SparkPageResponse:
        """One of Spark's own pages."""
        if self._views is None:
            message = "this TaskManager runs no Spark"
            raise NotFoundError(message)
        head, body = await self._views.page(request.environment, request.target, request.prefix)
        return SparkPageResponse(head, body)

    async def request_savepoint(self, request: SavepointRequest, /) -> SavepointFound:
        """Whose savepoint it is."""
        return await asyncio.to_thread(find_savepoint, request)

    async def dispose_savepoint(self, request: DisposeSavepointRequest, /) -> SavepointDisposed:
        """Delete one."""
        return await asyncio.to_thread(dispose_savepoint, request)

    def close(self) -> None:
        """End the threads that read logs. Idempotent."""
        self._log_readers.close()
