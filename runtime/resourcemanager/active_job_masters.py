"""ActiveJobMasters: starts JobMaster processes by a driver, and has them hand over and go, during one term (R65).

Invariants: `core/job_master_workers.py` decides; at most one decision is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from runtime.aio.periodic import Reconciler
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError
from runtime.common.worker_ids import new_worker_id
from runtime.gateways.cluster_events import ClusterEvents, EventKind
from runtime.gateways.overview import JobMasterInfo, WorkersStatus
from runtime.resourcemanager.core.job_master_workers import (
    DrainProcess,
    JobMasterSupply,
    JobMasterWorkers,
    JobMasterWorkerSettings,
)
from runtime.resourcemanager.driver import ResourceManagerDriver
from runtime.resourcemanager.driver_calls import PERIOD, DriverCalls, WorkerKind
from runtime.resourcemanager.job_directory import JobDirectory

logger = logging.getLogger(__name__)


class ActiveJobMasters:
    """`may_decide`: is the term not over, by the clock of this process (R4)?"""

    def __init__(
        self,
        settings: JobMasterWorkerSettings,
        driver: ResourceManagerDriver,
        may_decide: Callable[[], bool],
        *,
        clock: Clock,
        entropy: Entropy,
        events: ClusterEvents,
    ) -> None:
        self._clock = clock
        self._jobs: JobDirectory | None = None
        self._advised = ""
        self._workers = JobMasterWorkers(settings, lambda: new_worker_id(entropy.hex_id()), clock.monotonic())
        kind = WorkerKind(
            "jobmaster",
            "JobMaster process",
            "JobMaster processes",
            lambda _: f"{settings.jobs} jobs",
            EventKind.JOBMASTER_REQUESTED,
            EventKind.JOBMASTER_START_FAILED,
            EventKind.JOBMASTER_RELEASED,
        )
        self._calls = DriverCalls(kind, driver, self._workers.lives, may_decide, clock=clock, events=events)
        self._reconciler = Reconciler("resource-manager/job-masters", self._activate, period=PERIOD)

    def status(self) -> WorkersStatus:
        """All JobMaster processes of the driver."""
        return self._calls.status()

    async def run(self, jobs: JobDirectory) -> None:
        """Serve until cancelled."""
        self._jobs = jobs
        try:
            async with Scope("job-master-workers") as self._calls.scope:
                await self._reconciler.run()
        finally:
            self._calls.scope = None

    async def _activate(self) -> None:
        asked_at = self._clock.monotonic()
        running = await self._calls.running()
        jobs = self._jobs
        load = None if jobs is None else jobs.job_master_load()
        if jobs is None or load is None:
            return  # the Dispatcher of this term does not serve yet
        if running is None:
            self._advise(jobs)
            return
        at = self._clock.monotonic()
        supplies = [_supply(one) for one in load.processes]
        for effect in self._workers.decide(load.waiting, supplies, running, asked_at=asked_at, at=at):
            if isinstance(effect, DrainProcess):
                self._drain(jobs, effect)
            else:
                await self._calls.do(effect)
        self._advise(jobs)

    def _advise(self, jobs: JobDirectory) -> None:
        """What jobs that wait for a JobMaster process say."""
        is_any = self._workers.is_more_coming
        what = self._calls.trouble or self._calls.coming or ("the driver starts one" if is_any else "")
        if what != self._advised:
            self._advised = what
            jobs.advise_job_masters(what)

    def _drain(self, jobs: JobDirectory, effect: DrainProcess) -> None:
        assert self._calls.scope is not None, "decided outside of a term"
        if effect.is_draining:
            logger.info("JobMaster process %s is told to drain: %s", effect.incarnation, effect.reason)
        else:
            logger.info("JobMaster process %s is needed again", effect.incarnation)
        self._calls.scope.spawn(f"drain {effect.incarnation}", self._told(jobs, effect))

    async def _told(self, jobs: JobDirectory, effect: DrainProcess) -> None:
        try:
            await jobs.drain_job_master(effect.incarnation, is_draining=effect.is_draining)
        except FlinklikeError as error:  # decided again, as long as it does not say that it does
            logger.info("JobMaster process %s could not be told: %s", effect.incarnation, error)


def _supply(process: JobMasterInfo) -> JobMasterSupply:
    return JobMasterSupply(
        process.incarnation,
        process.worker_id,
        process.jobs_running,
        process.capacity,
        process.loop_lag,
        is_connected=process.state != "disconnected",
        is_draining=process.is_draining,
    )
