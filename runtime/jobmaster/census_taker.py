"""Taking a census: asking every registered TaskManager what it has of a job that had an owner before (R6).

The calls are asked again until they are taken; the answers come over the streams that the TaskManagers open.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from runtime.aio.retry import RetryPolicy, retry
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid, Incarnation, JobId
from runtime.gateways.task_executor import CensusRequest, TaskExecutorGateway
from runtime.rpc.service import RpcService

logger = logging.getLogger(__name__)


class TaskManagerAddress(Protocol):
    """A registration, as far as the census needs it."""

    @property
    def address(self) -> str:
        """Where its gateway listens."""


TaskManagers = Callable[[], AsyncIterator[Mapping[Incarnation, TaskManagerAddress]]]
"""All registered TaskManagers, now (read linearizably) and after each change."""


@dataclass(frozen=True, slots=True)
class CensusSettings:
    """Settings of a CensusAsker. `timeout`: of one call, in seconds."""

    incarnation: Incarnation
    cluster: ClusterUuid
    timeout: float
    retry: RetryPolicy


class CensusAsker:
    """Asks one TaskManager about one job."""

    def __init__(self, settings: CensusSettings, rpc: RpcService) -> None:
        self._settings = settings
        self._rpc = rpc

    async def ask(self, job_id: JobId, epoch: int, address: str) -> None:
        """Ask the TaskManager for its census. Returns when it has agreed; the census comes over its stream.

        Raises StaleTokenError when the TaskManager knows a higher epoch, or that the job has ended.
        """
        settings = self._settings
        sender = FencingToken(settings.cluster, epoch)
        gateway = self._rpc.connect(TaskExecutorGateway, address, target=None, sender=sender, timeout=settings.timeout)
        await gateway.request_census(CensusRequest(job_id, epoch, settings.incarnation, self._rpc.server.address))


class CensusTaker:
    """One per process that has JobMasters."""

    def __init__(
        self,
        settings: CensusSettings,
        rpc: RpcService,
        task_managers: TaskManagers,
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._settings = settings
        self._asker = CensusAsker(settings, rpc)
        self._task_managers = task_managers
        self._clock = clock
        self._entropy = entropy

    async def take(self, job_id: JobId, epoch: int, registered: Callable[[Mapping[Incarnation, str]], None]) -> None:
        """Ask all TaskManagers, and report which are registered and where, now and after each change, until cancelled.

        Raises StaleTokenError in an ExceptionGroup when a TaskManager knows a higher epoch, or that the job has ended.
        """
        asked: set[Incarnation] = set()
        async with Scope(f"census of job {job_id}") as scope:
            async for present in self._task_managers():
                registered({incarnation: record.address for incarnation, record in present.items()})
                for incarnation, record in present.items():
                    if record.address and incarnation not in asked:  # R31: once its record can be read
                        asked.add(incarnation)
                        scope.spawn(str(incarnation), self._ask(job_id, epoch, record.address))

    async def _ask(self, job_id: JobId, epoch: int, address: str) -> None:
        def on_retry(error: Exception, _: float) -> None:
            logger.info("job %s: TaskManager %s does not take the census: %s", job_id, address, error)

        await retry(
            lambda: self._asker.ask(job_id, epoch, address),
            policy=self._settings.retry,
            clock=self._clock,
            entropy=self._entropy,
            deadline=None,
            on_retry=on_retry,
        )
