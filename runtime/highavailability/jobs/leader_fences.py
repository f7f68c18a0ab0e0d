"""The leader's fences (R16): before a job without a possible owner ends, its remaining attempts are stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from runtime.aio.scope import Scope
from runtime.common.entropy import Entropy
from runtime.common.errors import StaleTokenError
from runtime.common.ids import Incarnation, JobId
from runtime.highavailability.jobs.fences import OwnerFences, unconfirmed_wait
from runtime.highavailability.kv.follower import patiently
from runtime.highavailability.records import TaskManagerRecord

logger = logging.getLogger(__name__)


class LeaderFences:
    """Fences under the epoch of the job's last owner, which has no successor as long as the key stays."""

    def __init__(
        self,
        fences: OwnerFences,
        task_managers: Callable[[], Awaitable[Mapping[Incarnation, TaskManagerRecord]]],
        entropy: Entropy,
        *,
        isolation_timeout: float,
    ) -> None:
        self._fences = fences
        self._task_managers = task_managers
        self._entropy = entropy
        self._wait = unconfirmed_wait(isolation_timeout)

    async def stop_everywhere(self, job_id: JobId, epoch: int, last_epoch: int) -> None:
        """Return when no exclusive attempt of epochs up to `last_epoch` can run any more (R14).

        Also returns when the job's stored owner is not that of `epoch` (0: none).
        """
        registered = await patiently(self._task_managers, self._entropy)
        logger.warning("job %s: what may run of it on %d task managers is stopped", job_id, len(registered))
        try:
            async with Scope(f"fences of {job_id}") as scope:
                for incarnation in registered:
                    scope.spawn(incarnation, self._stop(job_id, epoch, last_epoch, incarnation))
        except* StaleTokenError as errors:
            logger.info("job %s: %s", job_id, errors.exceptions[0])

    async def _stop(self, job_id: JobId, epoch: int, last_epoch: int, incarnation: Incarnation) -> None:
        fences = self._fences
        is_settled = False
        while not is_settled:
            revision = await patiently(lambda: fences.fence(job_id, epoch, incarnation, last_epoch), self._entropy)
            if not revision:
                return
            try:
                async with asyncio.timeout(self._wait):
                    settling = lambda written=revision: fences.wait_settled(job_id, incarnation, written)  # noqa: E731
                    # When the owner that gave up has lifted the fence: written again, the fence stays.
                    is_settled = await patiently(settling, self._entropy)
            except TimeoutError:
                logger.warning("job %s: task manager %s has not confirmed, it is waited out", job_id, incarnation)
                return
