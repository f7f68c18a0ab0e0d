"""What a driver is asked for workers of one kind, and what becomes of it, during one leader term (R65).

The end of the term leaves all workers as they are, and the next leader finds them by their labels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import assert_never

from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.gateways.cluster_events import ClusterEvents, EventKind
from runtime.gateways.overview import WorkersStatus, WorkerStatus
from runtime.resourcemanager.core.worker_lives import (
    ReleaseWorker,
    StartWorker,
    WorkerEffect,
    WorkerFailed,
    WorkerLives,
)
from runtime.resourcemanager.driver import DriverError, ResourceManagerDriver

logger = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two looks at the driver, which nothing wakes when a worker ends."""


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """`name`: as in REST; `noun` and `nouns`: what a worker is, for messages; `size`: how large the one with a label
    is; and the kinds of events about workers.
    """

    name: str
    noun: str
    nouns: str
    size: Callable[[str], str]
    requested: EventKind
    start_failed: EventKind
    released: EventKind


class DriverCalls:
    """Has the driver do what was decided. `may_decide`: is the term not over, by the clock of this process (R4)?"""

    def __init__(
        self,
        kind: WorkerKind,
        driver: ResourceManagerDriver,
        lives: WorkerLives,
        may_decide: Callable[[], bool],
        *,
        clock: Clock,
        events: ClusterEvents,
    ) -> None:
        self._kind = kind
        self._driver = driver
        self._lives = lives
        self._may_decide = may_decide
        self._clock = clock
        self._events = events
        self.scope: Scope | None = None
        """Where starts run: the scope of the term, None outside of it."""
        self._unseen = ""

    @property
    def coming(self) -> str:
        """How many are starting, in a sentence; "" for none."""
        count = self._lives.pending
        if not count:
            return ""
        return f"1 {self._kind.noun} is starting" if count == 1 else f"{count} {self._kind.nouns} are starting"

    @property
    def trouble(self) -> str:
        """Why none comes up, in a sentence; "" as long as the last look and the last start have not failed."""
        problem = self._unseen or self._lives.problem
        return f"{self._kind.nouns} do not come up: {problem}" if problem else ""

    async def running(self) -> Collection[str] | None:
        """What the driver sees; None when it cannot say, which is the trouble until it can."""
        try:
            seen = await self._driver.workers()
        except DriverError as error:
            if str(error) != self._unseen:
                logger.warning("%s of the driver cannot be seen: %s", self._kind.nouns, error)
            self._unseen = str(error)
            return None
        if self._unseen:
            logger.info("%s of the driver are seen again", self._kind.nouns)
        self._unseen = ""
        return seen

    def status(self) -> WorkersStatus:
        """All workers, oldest first."""
        zero = self._clock.epoch_millis() - int(self._clock.monotonic() * 1000)
        workers = tuple(
            WorkerStatus(one.worker_id, one.state.value, zero + int(one.since * 1000), one.reason)
            for one in self._lives
        )
        return WorkersStatus(self._kind.name, workers, self._lives.pending, self._unseen or self._lives.problem)

    async def do(self, effect: WorkerEffect) -> None:
        """Carry out one effect. A start goes on in the background."""
        kind = self._kind
        match effect:
            case StartWorker(worker_id):
                assert self.scope is not None, "decided outside of a term"
                size = kind.size(worker_id)
                logger.info("worker %s: starting a %s: %s", worker_id, kind.noun, size)
                self._tell(kind.requested, worker_id, f"is asked for: {size}")
                self.scope.spawn(f"start {worker_id}", self._start(worker_id))
            case ReleaseWorker(worker_id, reason, is_overdue):
                if not self._may_decide():  # R4: another leader may have given it work meanwhile
                    logger.info("worker %s is not released any more: the term is over", worker_id)
                    return
                logger.info("worker %s is %s: %s", worker_id, "killed" if is_overdue else "released", reason)
                if not is_overdue:
                    self._tell(kind.released, worker_id, f"is released: {reason}")
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
            if is_overdue:
                logger.warning("worker %s stays, end it by hand: %s", worker_id, error)
                return
            logger.warning("worker %s cannot be released now: %s", worker_id, error)
            self._lives.release_failed(worker_id, self._clock.monotonic())

    async def _start(self, worker_id: str) -> None:
        try:
            await self._driver.start(worker_id, is_wanted=lambda: self.scope is not None and self._may_decide())
        except DriverError as error:
            for failed in self._lives.start_failed(worker_id, str(error), self._clock.monotonic()):
                await self.do(failed)
            return
        self._lives.started(worker_id, self._clock.monotonic())

    def _failed(self, worker_id: str, reason: str) -> None:
        logger.warning("worker %s: the %s did not come up: %s", worker_id, self._kind.noun, reason)
        self._lives.problem = reason
        self._tell(self._kind.start_failed, worker_id, f"did not come up: {reason}")

    def _tell(self, kind: EventKind, worker_id: str, what: str) -> None:
        self._events.tell(kind, f"worker {worker_id} {what}")
