"""Writing fences for the JobMasters of a process, and waiting until TaskManagers have obeyed them (R14).

Invariants: a fence is written under the owner's epoch, repeatedly until it is known to be written (R2), and anew if
another value has replaced it before the TaskManager confirmed it. A confirmed fence is lifted before its job hears of
the confirmation: its TaskManager remembers by itself what it refuses from then on.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from runtime.aio.scope import ServiceScope
from runtime.common.entropy import Entropy
from runtime.common.errors import StaleTokenError
from runtime.common.ids import Incarnation, JobId
from runtime.highavailability.jobs.fences import OwnerFences
from runtime.highavailability.kv.follower import patiently

logger = logging.getLogger(__name__)


class FencedJob(Protocol):
    """A JobMaster, as its fences see it. Calls never block."""

    @property
    def job_id(self) -> JobId:
        """The job."""

    @property
    def epoch(self) -> int:
        """The epoch it acts under."""

    @property
    def is_over(self) -> bool:
        """True once nothing is left to do."""

    def fence_written(self, incarnation: Incarnation, revision: int) -> None:
        """The fence is acknowledged."""

    def fence_confirmed(self, incarnation: Incarnation) -> None:
        """No attempt that the fence was for runs there."""

    def superseded(self, reason: str) -> None:
        """The job has another owner."""


class FenceKeeper:
    """One per process that has JobMasters. `run` is eternal; fences are asked for while it runs."""

    def __init__(self, fences: OwnerFences, entropy: Entropy) -> None:
        self._fences = fences
        self._entropy = entropy
        self._scope = ServiceScope("fences")
        self._waiting: dict[JobId, list[asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        await self._scope.open()
        try:
            await self._scope.wait_failed()
        finally:
            await self._scope.close()

    def fence(self, job: FencedJob, incarnation: Incarnation) -> None:
        """Have a TaskManager stop the attempts of a job; the job is told of both steps."""
        logger.warning("job %s: fencing off task manager %s", job.job_id, incarnation)
        waiting = self._waiting.setdefault(job.job_id, [])
        waiting[:] = [task for task in waiting if not task.done()]
        waiting.append(self._scope.start(f"fence {job.job_id} {incarnation}", self._fence(job, incarnation)))

    def forget(self, job: FencedJob) -> None:
        """The job has ended here."""
        for task in self._waiting.pop(job.job_id, ()):
            task.cancel()

    async def _fence(self, job: FencedJob, incarnation: Incarnation) -> None:
        job_id, epoch, fences = job.job_id, job.epoch, self._fences
        try:
            while revision := await patiently(lambda: fences.fence(job_id, epoch, incarnation), self._entropy):
                job.fence_written(incarnation, revision)
                if await patiently(partial(fences.wait_settled, job_id, incarnation, revision), self._entropy):
                    await patiently(lambda: fences.lift(job_id, epoch, incarnation), self._entropy)
                    break
        except StaleTokenError as error:
            job.superseded(str(error))
            return
        logger.info("job %s: task manager %s has stopped what it was fenced off from", job_id, incarnation)
        job.fence_confirmed(incarnation)
