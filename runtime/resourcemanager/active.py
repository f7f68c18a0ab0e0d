"""ActiveResourceManager: starts and releases TaskManagers by a driver, during one leader term (R65).

Invariants: `core/workers.py` decides; at most one decision is under way; the end of the term leaves all workers as they
are, and the next leader finds them by their labels.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from runtime.aio.periodic import Reconciler
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.gateways.cluster_events import ClusterEvents, EventKind
from runtime.resourcemanager.core.events import AdviceChanged
from runtime.resourcemanager.core.slot_manager import SlotManager
from runtime.resourcemanager.core.workers import (
    ActiveWorkers,
    ReleaseWorker,
    StartWorker,
    Supply,
    WorkerEffect,
    WorkerFailed,
    WorkerSettings,
)
from runtime.resourcemanager.driver import WORKER_ID_PREFIX, DriverError, ResourceManagerDriver

logger = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two looks at the driver, which nothing wakes when a worker ends."""
CHECK_DELAY = 0.05
"""Seconds from a change to a decision, so that many changes are one (Flink: slotmanager.requirement-check.delay)."""


class ActiveResourceManager:
    """`slots` knows demand and supply. `post` takes the advice for jobs that wait, which names the last failure.

    `may_decide`: is the term not over, by the clock of this process (R4)?
    """

    def __init__(
        self,
        settings: WorkerSettings,
        driver: ResourceManagerDriver,
        slots: SlotManager,
        post: Callable[[AdviceChanged], None],
        may_decide: Callable[[], bool],
        *,
        clock: Clock,
        entropy: Entropy,
        events: ClusterEvents,
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._slots = slots
        self._post = post
        self._may_decide = may_decide
        self._advised = ""
        self._clock = clock
        self._events = events
        self._workers = ActiveWorkers(settings, lambda: WORKER_ID_PREFIX + entropy.hex_id()[:12], clock.monotonic())
        self._reconciler = Reconciler("resource-manager/workers", self._activate, period=PERIOD)
        self._scope: Scope | None = None

    @property
    def is_more_coming(self) -> bool:
        """True while TaskManagers are being started, or would be for jobs that wait."""
        return self._workers.is_more_coming

    def signal(self) -> None:
        """Demand or supply has changed."""
        self._reconciler.signal()

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with Scope("workers") as self._scope:
                await self._reconciler.run()
        finally:
            self._scope = None

    async def _activate(self) -> None:
        await asyncio.sleep(CHECK_DELAY)
        asked_at = self._clock.monotonic()
        running = await self._driver.workers()
        effects = self._workers.decide(
            self._slots.lacking_slots(),
            self._supplies(),
            running,
            asked_at=asked_at,
            at=self._clock.monotonic(),
        )
        for effect in effects:
            await self._do(effect)
        self._advise()

    def _advise(self) -> None:
        problem = self._workers.problem
        what = f"TaskManagers do not come up: {problem}" if problem else "the driver starts one"
        if what != self._advised:
            self._advised = what
            self._post(AdviceChanged(what))

    def _supplies(self) -> Sequence[Supply]:
        return [
            Supply(
                peer.registration.worker_id,
                peer.slots_total,
                len(peer.free),
                is_usable=peer.is_connected and not peer.report.is_draining,
            )
            for peer in self._slots.task_managers()
        ]

    async def _do(self, effect: WorkerEffect) -> None:
        match effect:
            case StartWorker(worker_id):
                assert self._scope is not None, "decided outside of a term"
                logger.info("worker %s: starting a TaskManager with %d slots", worker_id, self._settings.slots)
                self._tell(EventKind.TASKMANAGER_REQUESTED, worker_id, f"is asked for: {self._settings.slots} slots")
                self._scope.spawn(f"start {worker_id}", self._start(worker_id))
            case ReleaseWorker(worker_id, reason, is_overdue):
                logger.info("worker %s is %s: %s", worker_id, "killed" if is_overdue else "released", reason)
                if not is_overdue:
                    self._tell(EventKind.TASKMANAGER_RELEASED, worker_id, f"is released: {reason}")
                await self._release(worker_id, is_overdue=is_overdue)
            case WorkerFailed(worker_id, reason):
                words = await self._driver.last_words(worker_id)
                self._failed(worker_id, f"{reason}: {words}" if words else reason)
            case _:
                assert_never(effect)

    async def _release(self, worker_id: str, *, is_overdue: bool) -> None:
        try:
            await self._driver.release(worker_id, kills=is_overdue)
        except DriverError as error:
            logger.warning("worker %s stays, end it by hand: %s", worker_id, error)

    async def _start(self, worker_id: str) -> None:
        try:
            await self._driver.start(worker_id, is_wanted=lambda: self._scope is not None and self._may_decide())
        except DriverError as error:
            for failed in self._workers.start_failed(worker_id, str(error), self._clock.monotonic()):
                await self._do(failed)
            return
        self._workers.started(worker_id, self._clock.monotonic())

    def _failed(self, worker_id: str, reason: str) -> None:
        logger.warning("worker %s: the TaskManager did not come up: %s", worker_id, reason)
        self._workers.problem = reason
        self._tell(EventKind.TASKMANAGER_START_FAILED, worker_id, f"did not come up: {reason}")

    def _tell(self, kind: EventKind, worker_id: str, what: str) -> None:
        self._events.tell(kind, f"worker {worker_id} {what}")
