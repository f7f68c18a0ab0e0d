"""ClusterEventLog: the events of the cluster in one term, written to the store soon after they have happened (R55).

An event is shown at once, and stored within GATHER_SECONDS, those of that time in one transaction: a crash of the
leader loses the last second. While the store takes nothing they wait here, and may be lost with the leader. Nothing
waits for an event, and no failure of this log ends anything but the term that is over anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from runtime.aio.retry import RetryPolicy
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import PermanentError, RetryableError, StaleTokenError
from runtime.common.ids import JobId
from runtime.dispatcher.core.kept_events import WINDOW_SECONDS, EventGate, KeptEvents, bounded
from runtime.gateways.cluster_events import OF_THE_CLUSTER, ClusterEvent, EventKind, EventPage

logger = logging.getLogger(__name__)

GATHER_SECONDS = 1.0
_LOOK_SECONDS = WINDOW_SECONDS / 6
_RETRY = RetryPolicy(delay_initial=1.0, delay_max=30.0)


class EventStore(Protocol):
    """`runtime.highavailability.cluster_events.ClusterEventStore`."""

    async def read(self) -> tuple[Sequence[tuple[str, ClusterEvent]], Sequence[str]]:
        """Stored events by number, oldest first, and the numbers of those that cannot be used."""

    async def write(self, puts: Sequence[tuple[str, ClusterEvent]], deletes: Sequence[str], /) -> None:
        """Store and delete in one transaction."""


class ClusterEventLog:
    """Implements `ClusterEvents` for one term. `recover` reads what is stored, `run` stores what happens."""

    def __init__(self, store: EventStore, term: int, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._gate = EventGate()
        self._kept = KeptEvents(term)
        self._wake = asyncio.Event()

    async def recover(self) -> None:
        """Read the stored events. Raises RetryableError: nothing has been taken over then."""
        events, unusable = await self._store.read()
        self._kept.recover(events, unusable)
        self._wake.set()

    async def run(self) -> None:
        """Store events until cancelled. Eternal. Raises StaleTokenError when the term turns out to be over."""
        failures = 0
        while True:
            await self._wait()
            self._end_old_window()
            try:
                while await self._write():
                    failures = 0
            except StaleTokenError:
                raise
            except (RetryableError, PermanentError) as error:
                logger.warning("events of the cluster are not stored yet: %s", error)
                await asyncio.sleep(_RETRY.delay(failures, self._entropy))
                self._wake.set()
                failures += 1

    async def _wait(self) -> None:
        timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()
        await asyncio.sleep(GATHER_SECONDS)

    async def _write(self) -> bool:
        """Write one batch. False when there was none."""
        batch = self._kept.take_batch()
        if batch is None:
            return False
        try:
            await self._store.write(batch.puts, batch.deletes)
        except (RetryableError, PermanentError):
            self._kept.put_back(batch)
            raise
        return True

    def _end_old_window(self) -> None:
        for kind, namespace, count in self._gate.close_old_window(self._clock.monotonic()):
            message = f"{count} more events of this kind within a minute: they are in the JobManager's log only"
            self._add(ClusterEvent(self._new_id(), self._clock.epoch_millis(), kind, message, "", "", namespace, count))

    def _new_id(self) -> str:
        return self._entropy.hex_id()[:16]

    # --- ClusterEvents ------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Another number after each event."""
        return self._kept.generation

    def tell(self, kind: EventKind, message: str, /, *, subject: str = "") -> None:
        """Something has happened to the cluster."""
        self._tell(kind, message, subject, "", OF_THE_CLUSTER)

    def tell_of_job(
        self, kind: EventKind, message: str, job_id: JobId, namespace: str, /, *, subject: str = ""
    ) -> None:
        """Something has happened to a job (R48)."""
        self._tell(kind, message, subject, job_id, namespace)

    def last(self, kind: EventKind) -> ClusterEvent | None:
        """The last event of a kind."""
        return self._kept.last(kind)

    def page(self, sees: Callable[[str], bool], /, *, after: str, limit: int) -> EventPage:
        """What one sees (R48)."""
        return self._kept.page(sees, after, limit)

    def _tell(self, kind: EventKind, message: str, subject: str, job_id: str, namespace: str) -> None:
        about = subject or job_id
        if not self._kept.is_news(kind, about):
            return
        self._kept.note(kind, about)
        now = self._clock.epoch_millis()
        event = ClusterEvent(self._new_id(), now, kind, bounded(message), subject, job_id, namespace)
        logger.info("event %s: %s", kind.value, event.message)
        self._end_old_window()
        if self._gate.takes(event, self._clock.monotonic()):
            self._add(event)

    def _add(self, event: ClusterEvent) -> None:
        self._kept.add(event)
        self._wake.set()
