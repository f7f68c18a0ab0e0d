"""DispatcherLeaderProcess: one leadership term. Recover everything first, then construct, then serve; loss ends it.

Invariant: nothing of a term exists before its recovery is complete, and nothing of it acts after its end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.aio.retry import retry
from runtime.aio.scope import Scope
from runtime.common.ids import JobId
from runtime.dispatcher.cluster_events import ClusterEventLog
from runtime.dispatcher.core.events import ProcessKnown
from runtime.dispatcher.endpoint import Dispatcher
from runtime.dispatcher.services import DispatcherServices
from runtime.dispatcher.settings import DispatcherSettings
from runtime.dispatcher.stored_jobs import finished_job, recovered_job
from runtime.dispatcher.transactions import REPEAT_POLICY
from runtime.gateways.cluster_events import EventKind
from runtime.highavailability.records import DoneRecord, StoredJob

logger = logging.getLogger(__name__)


class ResourceManagerTerm(Protocol):
    """The ResourceManager of the same term."""

    async def run(self, jobs: Dispatcher, /) -> None:
        """Serve until cancelled."""


@dataclass(frozen=True, slots=True)
class TermComponents:
    """The components of a term, which are built after recovery."""

    dispatcher: Dispatcher
    resource_manager: ResourceManagerTerm


@dataclass(frozen=True, slots=True)
class _Found:
    """What recovery has read."""

    stored: Sequence[StoredJob]
    done: Sequence[tuple[JobId, DoneRecord]]
    processes: Sequence[ProcessKnown]


class DispatcherLeaderProcess:
    """One term. `known_processes` reads the JobMaster processes that are registered in the store."""

    def __init__(
        self,
        settings: DispatcherSettings,
        services: DispatcherServices,
        *,
        known_processes: Callable[[], Awaitable[Sequence[ProcessKnown]]],
        construct: Callable[[], TermComponents],
        events: ClusterEventLog | None = None,
    ) -> None:
        self._settings = settings
        self._services = services
        self._known_processes = known_processes
        self._construct = construct
        self._events = events

    async def run(self, started: Callable[[TermComponents], None]) -> None:
        """Serve until cancelled. Raises StaleTokenError, in an ExceptionGroup, when the term turns out to be over."""
        services = self._services
        term = services.token.revision
        logger.info("leader term %d: recovery begins", term)
        found: _Found = await retry(
            self._read_all,
            policy=REPEAT_POLICY,
            clock=services.clock,
            entropy=services.entropy,
            deadline=None,
            on_retry=lambda error, delay: logger.warning("recovery repeated in %.1f s: %s", delay, error),
        )
        for job in found.stored:
            if job.problem:
                logger.error("job %s cannot be read completely: %s", job.job_id, job.problem)
        recovered = [recovered_job(job) for job in found.stored]
        finished = [finished_job(job_id, record) for job_id, record in reversed(found.done)]
        components = self._construct()
        async with Scope(f"term/{term}") as scope:
            if self._events is not None:
                self._tell_leader(self._events)
                scope.spawn_eternal("cluster-events", self._events.run())
            scope.spawn_eternal("resource-manager", components.resource_manager.run(components.dispatcher))
            scope.spawn_eternal(
                "dispatcher",
                components.dispatcher.run(recovered, finished, found.processes, started=lambda: started(components)),
            )

    def _tell_leader(self, events: ClusterEventLog) -> None:
        services = self._services
        before = events.last(EventKind.LEADER_ELECTED)
        after = f", after {before.subject}" if before is not None else ""
        message = (
            f"JobManager {services.incarnation} at {services.address} leads, term {services.token.revision}{after}"
        )
        events.tell(EventKind.LEADER_ELECTED, message, subject=services.incarnation)

    async def _read_all(self) -> _Found:
        if self._events is not None:
            await self._events.recover()
        store = self._services.store
        stored, _revision = await store.jobs()
        done = await store.done_jobs(limit=self._settings.shown.count_max)
        return _Found(stored, done, await self._known_processes())
