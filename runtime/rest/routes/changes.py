"""GET /changes and /overview/history: has anything changed, and what was there to do in the last minutes."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import deque
from collections.abc import Callable
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request, Response

from runtime.aio.watch import Watch
from runtime.common.errors import UnavailableError
from runtime.gateways.overview import JobActivity
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import cluster as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers

LOOK_SECONDS = 0.5
"""How often a poll looks: what people see is as old as this at most, and many changes are one."""
_PRESENT_SECONDS = 5.0
"""How often a poll looks whether its client is still there."""
SAMPLE_SECONDS = 5
_SAMPLES_MAX = 120
_KEY = secrets.token_bytes(32)
"""Of this process: revisions of another leader are other ones."""


class _Sample(NamedTuple):
    jobs: float
    tasks: float
    slots_used: int
    unfinished: int


def revision(context: RestContext) -> str:
    """Another text whenever something that pages show has changed, or another JobManager leads."""
    components = context.components
    activity = components.dispatcher.job_activity()
    peers = [
        (one.registration.incarnation, one.is_draining, one.free_slots, one.is_warm, one.problem, len(one.environments))
        for one in components.resource_manager.task_managers()
    ]
    masters = [(one.incarnation, one.state, one.jobs_running) for one in components.dispatcher.job_masters()]
    return obscured(activity.term, activity.changes, peers, masters, components.events.generation)


def obscured(*facts: object) -> str:
    """Another text for other facts, which it does not tell: their number is that of jobs of all namespaces (R48)."""
    return hmac.digest(_KEY, repr(facts).encode(), "sha256").hex()[:32]


class SharedRevision:
    """The revision as all who wait for another one see it: one look each LOOK_SECONDS for all, none while nobody waits.

    It is the same for every principal: it says that something has changed, and not what (`obscured`).
    """

    def __init__(self, look: Callable[[], str]) -> None:
        self._look_now = look
        self._seen: Watch[str | None] = Watch(None)
        """None: no look can be had here, since another process leads."""
        self._waiting = 0
        self._next: asyncio.TimerHandle | None = None

    async def another(self, since: str, seconds: float) -> str | None:
        """A revision that is not `since`, as soon as a look finds one; None after `seconds`, and without a leader."""
        self._waiting += 1
        try:
            if self._next is None or self._seen.value != since:  # what others have seen may be older than `since`
                self._look()
            async with asyncio.timeout(seconds):
                return await self._seen.wait_until(lambda found: found != since)
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1
            if not self._waiting and self._next is not None:
                self._next.cancel()
                self._next = None

    def _look(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = None
        try:
            found = self._look_now()
        except UnavailableError:
            found = None
        if found != self._seen.value:
            self._seen.set(found)
        if self._waiting:
            self._next = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)


def changes_router(context: RestContext, samples: ActivitySamples) -> APIRouter:
    """Both routes."""
    router = authorized_router(context, tags=["cluster"])
    shared = SharedRevision(lambda: revision(context))

    @router.get("/changes", responses=answers(schema.Changes))
    async def changes(
        request: Request,
        since: Annotated[str, Query(max_length=200, description="the revision already known")] = "",
        wait: Annotated[float, Query(ge=0, description="long poll: answer at the latest after so many seconds")] = 0,
    ) -> Response:
        """The revision of all that is shown: jobs, TaskManagers, JobMaster processes, events.

        With `wait` once it is another. It says that something has changed, and not what.
        """
        _ = context.components
        found: str | None = None
        due = context.clock.monotonic() + min(wait, context.long_poll_max)
        while found is None and (left := due - context.clock.monotonic()) > 0:
            found = await shared.another(since, min(left, _PRESENT_SECONDS))
            _ = context.components  # 503 once another process leads
            if found is None and await request.is_disconnected():
                break
        body: schema.Changes = {"revision": found or revision(context)}
        return JsonAnswer(body)

    @router.get("/overview/history", responses=answers(schema.OverviewHistory))
    async def overview_history(request: Request) -> Response:
        """What was done in the last ten minutes, a number for every five seconds, oldest first.

        It begins with this process, and again with each leader. Numbers of jobs are for principals of all namespaces.
        """
        return JsonAnswer(samples.body(has_jobs=principal_of(request).is_of_all))

    return router


class ActivitySamples:
    """Samples of what the leader in this process does. None while another process leads."""

    def __init__(self, context: RestContext) -> None:
        self._context = context
        self._last: JobActivity | None = None
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES_MAX)

    async def run(self) -> None:
        """Take samples. Eternal."""
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        """What has happened since the sample before."""
        leading = self._context.leader()
        if leading is None:
            self._last = None
            self._samples.clear()
            return
        activity = leading.dispatcher.job_activity()
        before = self._last
        if before is not None and before.term == activity.term:
            slots, free = leading.resource_manager.slot_counts()
            counts = leading.dispatcher.job_counts()
            unfinished = sum(count for status, count in counts.items() if not status.is_globally_terminal)
            jobs = (activity.jobs_ended - before.jobs_ended) / SAMPLE_SECONDS
            tasks = (activity.tasks_ended - before.tasks_ended) / SAMPLE_SECONDS
            self._samples.append(_Sample(jobs, tasks, slots - free, unfinished))
        elif before is not None:
            self._samples.clear()
        self._last = activity

    def body(self, *, has_jobs: bool) -> schema.OverviewHistory:
        """/overview/history."""
        samples = list(self._samples)
        jobs = samples if has_jobs else []
        return {
            "interval-seconds": SAMPLE_SECONDS,
            "jobs-per-second": [one.jobs for one in jobs],
            "tasks-per-second": [one.tasks for one in jobs],
            "slots-used": [one.slots_used for one in samples],
            "jobs-unfinished": [one.unfinished for one in jobs],
        }
