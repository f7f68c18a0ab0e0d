"""Looks up the jobs of a TaskManager in the job store: which are over, and whose files stay."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from runtime.common.ids import Incarnation, JobId
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.operations import OperationState
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record
from runtime.highavailability.records import DoneRecord, OperationRecord, ResultRecord
from runtime.highavailability.services import HighAvailabilityServices

logger = logging.getLogger(__name__)

_PAGE = 500


class JobLookups:
    """Reads of one TaskManager. Implements `StoredJobs`. Raises what the job store raises."""

    def __init__(self, services: HighAvailabilityServices, incarnation: Incarnation, timeout: float) -> None:
        self._services = services
        self._incarnation = incarnation
        self._timeout = timeout

    @property
    def cluster(self) -> str:
        """The cluster's uuid."""
        return self._services.cluster

    async def is_over(self, job_id: JobId, /) -> bool:
        """R16: the job store has no graph of the job, or a result."""
        services = self._services
        graph = await services.kv.range(services.keys.graph(job_id), is_prefix=False, timeout=self._timeout)
        if not graph.kvs:
            return True
        result = await services.kv.range(services.keys.result(job_id), is_prefix=False, timeout=self._timeout)
        return bool(result.kvs)

    async def keeps_outputs(self, job_id: JobId) -> bool:
        """R28: the job's summary says so, or there is none, or none that can be read."""
        summary = await self._summary(job_id)
        return summary is None or summary.keeps_outputs

    async def deletes_checkpoints(self, job_id: JobId) -> bool | None:
        """R59: True if the job has ended and its directories go; None while it may run. What is not known stays."""
        if not await self.is_over(job_id):
            return None
        summary = await self._summary(job_id)
        return summary is not None and summary.deletes_checkpoints

    async def failed_savepoints(self) -> Sequence[str]:
        """R61: directories of savepoints that nobody completes any more, of jobs that are over too."""
        services, found = self._services, list[str]()
        after = ""
        while True:
            page = await services.kv.range(
                services.keys.all_operations, is_prefix=True, timeout=self._timeout, limit=_PAGE, after_key=after
            )
            for kv in page.kvs:
                try:
                    operation = decode_record(OperationRecord, kv.value, key=kv.key).operation
                except UnreadableRecordError as error:
                    logger.debug("nothing is deleted for it: %s", error)
                    continue
                if operation.directory and await self._has_failed(kv.key, operation.state):
                    found.append(operation.directory)
            if len(page.kvs) < _PAGE:
                return found
            after = page.kvs[-1].key

    async def _has_failed(self, key: str, state: OperationState) -> bool:
        """One in progress has, when its job is over: no owner can write its outcome any more."""
        if state is not OperationState.IN_PROGRESS:
            return state is OperationState.FAILED
        return await self.is_over(JobId(key.removeprefix(self._services.keys.all_operations).partition("/")[0]))

    async def _summary(self, job_id: JobId) -> JobSummary | None:
        """That of a job that has ended; None where there is none, or none that can be read."""
        services = self._services
        kinds: dict[str, type[ResultRecord | DoneRecord]] = {
            services.keys.result(job_id): ResultRecord,
            services.keys.done(job_id): DoneRecord,
        }
        for key, kind in kinds.items():
            found = await services.kv.range(key, is_prefix=False, timeout=self._timeout)
            if not found.kvs:
                continue
            try:
                record = decode_record(kind, found.kvs[0].value, key=key)
                return decode_record(JobSummary, record.summary, key=key)
            except UnreadableRecordError as error:
                logger.warning("what job %s has written is kept: %s", job_id, error)
                break
        return None

    async def drop_fences(self) -> int:
        """Delete confirmed fences of jobs that are over; how many. Owners lift those of other jobs."""
        fences = self._services.task_manager_fences(self._incarnation)
        dropped = 0
        read = await fences.read()
        for job_id, fence in (*read.fences.items(), *read.lifted.items()):
            if fence.is_confirmed and await self.is_over(job_id):
                await fences.drop(job_id, fence)
                dropped += 1
        return dropped
