"""Lists of jobs: /jobs, and /jobs/overview by state and name, in pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer, encoded
from runtime.rest.bodies.job_rows import JobRows, ids_and_states
from runtime.rest.bodies.job_selection import select
from runtime.rest.bodies.request_bodies import OverviewQuery
from runtime.rest.bodies.schema import jobs as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.changes import obscured
from runtime.rest.routes.jobs import seen, with_places
from runtime.security.principals import Principal


def job_lists_router(context: RestContext) -> APIRouter:
    """Both lists."""
    router = authorized_router(context, tags=["jobs"])
    rows = JobRows(context.history.cluster if context.history is not None else None)

    @router.get("/jobs", responses=answers(schema.Jobs))
    async def list_jobs(request: Request) -> Response:
        """Ids and states."""
        return JsonAnswer(await ids_and_states(seen(principal_of(request), context.dispatcher.job_summaries())))

    @router.get("/jobs/overview", responses=answers(schema.JobOverviews))
    async def overview(request: Request, wanted: Annotated[OverviewQuery, Query()]) -> Response:
        """One line for each job. With the ETag of an answer in If-None-Match: 304 while no job has changed.

        The duration of a job that runs grows without a change: it is the time since `start-time`. The reasons of
        the first 200 jobs that wait for their turn have their places in their queues.
        """
        principal = principal_of(request)
        etag = _etag(context, principal, request)
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"etag": etag})
        now = context.clock.epoch_millis()
        selection = wanted.selection()
        everything = context.dispatcher.job_summaries()
        jobs, more = seen(principal, everything), b""
        if not selection.is_everything:
            page = select(jobs, selection, now)
            jobs, more = page.jobs, b"," + encoded({"total": page.total, "next": page.next})[1:-1]
        jobs = with_places(context, jobs)
        return JsonAnswer(await rows.overview(jobs, now, len(everything), more), headers={"etag": etag})

    return router


def _etag(context: RestContext, principal: Principal, request: Request) -> str:
    """Weak: durations are of the time of the answer."""
    activity = context.dispatcher.job_activity()
    asked = (principal.name, principal.namespace, request.url.query)
    return f'W/"{obscured(activity.term, activity.changes, asked)}"'
