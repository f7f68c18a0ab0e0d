"""Keeps this TaskManager in contact (R14): reads its own prefix, obeys and confirms fences, feeds the guard.

Reads every interval and whenever the prefix changes. A component that runs exclusive tasks asks `loss` before each
turn, so that a process that was frozen past its deadline knows it before it does anything else.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol, assert_never

from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.errors import PermanentError, RetryableError, UnauthenticatedError
from runtime.common.ids import JobId
from runtime.highavailability.jobs.fences import Fence, TaskManagerFences
from runtime.highavailability.kv.key_value_store import KeyValue
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import TaskManagerRecord
from runtime.taskexecutor.core.contact import (
    ConfirmationEnded,
    ConfirmFence,
    ContactAccepted,
    ContactCore,
    ContactEvent,
    FenceStopped,
    OfferContact,
    PrefixRead,
    ReopenJob,
    SeenFence,
    StopEverything,
    StopFenced,
)

logger = logging.getLogger(__name__)

_TIMER_SLACK = 0.001
"""A loop may call a timer one tick of its clock early."""


class DeregisteredError(PermanentError):
    """The own key is deleted: the leader, or a later life, has established the death of this TaskManager."""


class DeadlineHolder(Protocol):
    """The guard, as far as contact needs it."""

    async def hold(self, deadline: float, /) -> None:
        """Returns when the guard will act at `deadline` (CLOCK_BOOTTIME) unless it is given a later one."""


class FenceObeyer(Protocol):
    """The TaskExecutor, as far as contact needs it."""

    def stop_fenced(self, job_id: JobId, epoch: int, revision: int, /, *, is_readable: bool) -> None:
        """Stop the job's attempts of epochs up to `epoch`; ends in `ContactKeeper.note_stopped`.

        A fence that is not `is_readable` forbids deployments until `reopen`.
        """

    def reopen(self, job_id: JobId, /) -> None:
        """The job's fence can be read again, or is lifted."""

    def contact_changed(self) -> None:
        """`ContactKeeper.loss` may say something else now."""

    async def stop_everything(self) -> None:
        """End all jobs; returns when that is under way."""


@dataclass(frozen=True, slots=True)
class ContactSettings:
    """In seconds. `interval` is `heartbeat.interval`, the others are `taskmanager.isolation-timeout` and
    `task.cancellation.timeout`.
    """

    interval: float
    isolation_timeout: float
    cancellation_timeout: float


class ContactKeeper:
    """`run` is eternal; it raises DeregisteredError when the own key is deleted."""

    def __init__(
        self, settings: ContactSettings, fences: TaskManagerFences, holder: DeadlineHolder, clock: Clock
    ) -> None:
        self._settings = settings
        self._fences = fences
        self._holder = holder
        self._clock = clock
        self._core = ContactCore(settings.isolation_timeout, cancellation_timeout=settings.cancellation_timeout)
        self._read: dict[JobId, Fence] = {}
        self._revision: Watch[int] = Watch(0)
        self._offered: Watch[float | None] = Watch(None)
        self._to_confirm: asyncio.Queue[tuple[JobId, int]] = asyncio.Queue()
        self._changed = asyncio.Event()
        self.is_away = False
        """True while etcd cannot be reached, as far as the last read tells."""
        self._is_deregistered = False
        self._timer: asyncio.TimerHandle | None = None
        self.registration: TaskManagerRecord | None = None
        """What this TaskManager has written under its own key, once it has."""
        self.obeyer: FenceObeyer | None = None
        """Set once, before `run`."""

    @property
    def loss(self) -> str:
        """Why no exclusive task may run at this moment, "" when it may. On any thread, if the clock is for any."""
        return self._core.loss(self._clock.monotonic())

    def note_stopped(self, job_id: JobId, revision: int) -> None:
        """Nothing that the fence is for runs here any more (R15)."""
        self._handle(FenceStopped(job_id, revision))

    async def run(self) -> None:
        """Read, obey, confirm, until cancelled."""
        assert self.obeyer is not None, "no obeyer is set"
        try:
            async with Scope("contact") as scope:
                scope.spawn_eternal("guard", self._feed_guard())
                scope.spawn_eternal("confirmations", self._confirm_all())
                scope.spawn_eternal("watch", self._watch())
                while not self._is_deregistered:
                    self._changed.clear()
                    await self._read_once()
                    await self._pause()
                await self.obeyer.stop_everything()
                message = "its key in etcd is gone, so it was declared dead: everything that ran here is ended"
                raise DeregisteredError(message)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _pause(self) -> None:
        if self._is_deregistered:
            return
        timer = asyncio.get_running_loop().call_later(self._settings.interval, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    async def _read_once(self) -> None:
        sent_at = self._clock.monotonic()
        try:
            found = await self._fences.read()
        except (RetryableError, UnauthenticatedError) as error:
            if not self.is_away:
                logger.warning("the keys of this TaskManager cannot be read, trying again: %s", error)
            self.is_away = True
            return
        self.is_away = False
        self._read = dict(found.fences)
        seen = {
            job_id: SeenFence(fence.epoch, fence.revision, fence.is_confirmed, fence.is_readable)
            for job_id, fence in found.fences.items()
        }
        self._revision.set(found.revision)
        self._handle(PrefixRead(sent_at, found.is_registered, seen))
        await self._put_right(found.own)

    async def _put_right(self, own: KeyValue | None) -> None:
        """R31: as long as its record cannot be read no new owner of a job reaches this TaskManager."""
        if self.registration is None or own is None or own.value == encode_record(self.registration):
            return
        logger.error("%s is not what this TaskManager has written there, and is written again", own.key)
        try:
            # Contact (R14) waits no longer. What has become of a write that is given up the next read tells.
            async with asyncio.timeout(self._settings.interval):
                await self._fences.restore(self.registration, own)
        except (RetryableError, UnauthenticatedError) as error:
            logger.warning("%s cannot be written, trying again: %s", own.key, error)
        except TimeoutError:
            logger.warning("%s is not known to be written, trying again after the next read", own.key)

    async def _watch(self) -> None:
        """A short cut for fences: without it they are read an interval later."""
        while True:
            seen = self._revision.generation
            try:
                if self._revision.value:
                    await self._fences.wait_changed(self._revision.value)
                    seen = self._revision.generation
                    self._changed.set()
            except (RetryableError, UnauthenticatedError) as error:
                logger.debug("the watch of the own keys has ended, beginning again after the next read: %s", error)
            await self._revision.wait_changed(seen)

    async def _feed_guard(self) -> None:
        """The latest contact only: an older one says less."""
        generation = 0
        while True:
            await self._offered.wait_changed(generation)
            generation, contact = self._offered.generation, self._offered.value
            assert contact is not None
            await self._holder.hold(contact + self._settings.isolation_timeout)
            self._handle(ContactAccepted(contact))
            self._note_contact()

    def _note_contact(self) -> None:
        obeyer, stop_at = self.obeyer, self._core.stop_at
        assert obeyer is not None
        assert stop_at is not None
        obeyer.contact_changed()
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, stop_at - self._clock.monotonic()) + _TIMER_SLACK
        self._timer = asyncio.get_running_loop().call_later(delay, obeyer.contact_changed)

    def _handle(self, event: ContactEvent) -> None:
        obeyer = self.obeyer
        assert obeyer is not None
        for effect in self._core.handle(event):
            match effect:
                case StopFenced(job_id, epoch, revision, is_readable):
                    logger.warning("fence %d: attempts of job %s up to epoch %d are stopped", revision, job_id, epoch)
                    obeyer.stop_fenced(job_id, epoch, revision, is_readable=is_readable)
                case ReopenJob(job_id):
                    logger.info("job %s: the fence that could not be read forbids nothing any more", job_id)
                    obeyer.reopen(job_id)
                case ConfirmFence(job_id, revision):
                    self._to_confirm.put_nowait((job_id, revision))
                case OfferContact(contact):
                    self._offered.set(contact)
                case StopEverything():
                    self._is_deregistered = True
                case _:
                    assert_never(effect)

    async def _confirm_all(self) -> None:
        while True:
            await self._confirm(*await self._to_confirm.get())

    async def _confirm(self, job_id: JobId, revision: int) -> None:
        fence = self._read.get(job_id)
        try:
            if fence is not None and fence.revision == revision and await self._fences.confirm(job_id, fence):
                logger.info("fence %d of job %s is confirmed", revision, job_id)
        except (RetryableError, UnauthenticatedError) as error:
            logger.warning("fence %d of job %s cannot be confirmed yet: %s", revision, job_id, error)
        finally:
            self._handle(ConfirmationEnded(job_id, revision))
