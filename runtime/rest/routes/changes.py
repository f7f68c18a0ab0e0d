"""GET /changes and /overview/history: has anything changed, and what was there to do in the last minutes."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import deque
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request, Response

from runtime.gateways.overview import JobActivity
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import cluster as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers

LOOK_SECONDS = 0.5
"""How often a poll looks: what people see is as old as this at most, and many changes are one."""
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


def changes_router(context: RestContext, history: ActivityHistory) -> APIRouter:
    """Both routes."""
    router = authorized_router(context, tags=["cluster"])

    @router.get("/changes", responses=answers(schema.Changes))
    async def changes(
        request: Request,
        since: Annotated[str, Query(max_length=200, description="the revision already known")] = "",
        wait: Annotated[float, Query(ge=0, description="long poll: answer at the latest after so many seconds")] = 0,
    ) -> Response:
        """The revision of all that is shown: jobs, TaskManagers, JobMaster processes, events.

        With `wait` once it is another. It says that something has changed, and not what.
        """
        found = revision(context)
        try:
            async with asyncio.timeout(min(wait, context.long_poll_max)):
                while found == since and not await request.is_disconnected():
                    await asyncio.sleep(LOOK_SECONDS)
                    found = revision(context)
        except TimeoutError:
            pass  # the answer says that nothing has changed
        body: schema.Changes = {"revision": found}
        return JsonAnswer(body)

    @router.get("/overview/history", responses=answers(schema.OverviewHistory))
    async def overview_history(request: Request) -> Response:
        """What was done in the last ten minutes, a number for every five seconds, oldest first.

        It begins with this process, and again with each leader. Numbers of jobs are for principals of all namespaces.
        """
        return JsonAnswer(history.body(has_jobs=principal_of(request).is_of_all))

    return router


class ActivityHistory:
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
