"""ActiveResourceManager: starts and releases TaskManagers by a driver, during one leader term (R65).

Invariants: `core/workers.py` decides; at most one decision is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from runtime.aio.periodic import Reconciler
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.worker_ids import new_worker_id, profile_of
from runtime.gateways.cluster_events import ClusterEvents, EventKind
from runtime.gateways.overview import WorkersStatus
from runtime.resourcemanager.core.events import AdviceChanged
from runtime.resourcemanager.core.slot_manager import SlotManager
from runtime.resourcemanager.core.workers import ActiveWorkers, Supply, WorkerSettings
from runtime.resourcemanager.driver import ResourceManagerDriver
from runtime.resourcemanager.driver_calls import PERIOD, DriverCalls, WorkerKind

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
        self._slots = slots
        self._settings = settings
        self._post = post
        self._advised: AdviceChanged | None = None
        self._clock = clock
        self._workers = ActiveWorkers(settings, lambda: new_worker_id(entropy.hex_id()), clock.monotonic())
        kind = WorkerKind(
            "taskmanager",
            "TaskManager",
            "TaskManagers",
            self._size_of,
            EventKind.TASKMANAGER_REQUESTED,
            EventKind.TASKMANAGER_START_FAILED,
            EventKind.TASKMANAGER_RELEASED,
        )
        self._calls = DriverCalls(kind, driver, self._workers.lives, may_decide, clock=clock, events=events)
        self._reconciler = Reconciler("resource-manager/workers", self._activate, period=PERIOD)

    @property
    def is_more_coming(self) -> bool:
        """True while TaskManagers are being started, or would be for jobs that wait."""
        return self._workers.is_more_coming

    def status(self) -> WorkersStatus:
        """All TaskManagers of the driver."""
        return self._calls.status()

    def signal(self) -> None:
        """Demand or supply has changed."""
        self._reconciler.signal()

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with Scope("workers") as self._calls.scope:
                await self._reconciler.run()
        finally:
            self._calls.scope = None

    async def _activate(self) -> None:
        await asyncio.sleep(CHECK_DELAY)
        asked_at = self._clock.monotonic()
        running = await self._calls.running()
        if running is None:
            self._advise()  # nothing is decided, and jobs that wait say why
            return
        effects = self._workers.decide(
            self._slots.demand(),
            self._supplies(),
            running,
            asked_at=asked_at,
            at=self._clock.monotonic(),
        )
        for effect in effects:
            await self._calls.do(effect)
        self._advise()

    def _size_of(self, worker_id: str) -> str:
        profile = profile_of(worker_id)
        slots = f"{self._settings.slots_of(profile)} slots"
        return f"{slots}, profile {profile}" if profile else slots

    def _advise(self) -> None:
        trouble, coming = self._calls.trouble, self._calls.coming
        advice = AdviceChanged(trouble or coming or "the driver starts one", trouble or coming)
        if advice != self._advised:
            self._advised = advice
            self._post(advice)

    def _supplies(self) -> Sequence[Supply]:
        return [
            Supply(
                peer.registration.worker_id,
                peer.slots_total,
                len(peer.free),
                is_usable=peer.is_connected and not peer.report.is_draining,
                is_draining=peer.report.is_draining,
                uses=peer.uses,
            )
            for peer in self._slots.task_managers()
        ]
