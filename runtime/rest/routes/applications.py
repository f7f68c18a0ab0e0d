"""Routes of /applications, as Flink's dashboard asks for them: an application is one job, and has its id."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from runtime.common.ids import parse_job_id
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import JobSummary
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.job_bodies import duration, job_overview
from runtime.rest.bodies.schema import applications as schema
from runtime.rest.bodies.schema.cluster import Configuration
from runtime.rest.bodies.schema.common import Empty
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import archived_graph, cancel_job, known_summary, seen

STATUSES = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "CREATED",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.RESTARTING: "RUNNING",
    JobStatus.RECONCILING: "RUNNING",
    JobStatus.SUSPENDED: "RUNNING",
    JobStatus.FAILING: "FAILING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
}
"""Flink's ApplicationState of a job's status."""


def applications_router(context: RestContext) -> APIRouter:
    """All routes of /applications."""
    router = authorized_router(context, prefix="/applications", tags=["applications"])

    @router.get("/overview", responses=answers(schema.Applications))
    async def overview(request: Request) -> Response:
        """Each job that the caller may see, as an application; the newest first."""
        now = context.clock.epoch_millis()
        found = seen(principal_of(request), context.dispatcher.job_summaries())
        body: schema.Applications = {"applications": [_row(one, now) for one in found]}
        return JsonAnswer(body)

    @router.get("/{job_id}", responses=answers(schema.Application))
    async def application(job_id: str) -> Response:
        """One application with its job."""
        summary = await known_summary(context, parse_job_id(job_id))
        graph = await archived_graph(context, summary.job_id)
        now = context.clock.epoch_millis()
        times = dict.fromkeys(STATUSES.values(), 0)
        for status, millis in graph.timestamps.items():
            times[STATUSES[status]] = max(times[STATUSES[status]], millis)
        body: schema.Application = {
            "id": summary.job_id,
            "name": _name(summary),
            "status": STATUSES[summary.status],
            "start-time": summary.start_millis,
            "end-time": summary.end_millis,
            "duration": duration(summary.start_millis, summary.end_millis, now),
            "timestamps": times,
            "jobs": [job_overview(summary, now)],
        }
        return JsonAnswer(body)

    @router.post("/{job_id}/cancel", status_code=202, responses=answers(Empty, 202))
    async def cancel(job_id: str) -> Response:
        """Cancel its job; idempotent."""
        return await cancel_job(context, parse_job_id(job_id))

    @router.get("/{job_id}/exceptions", responses=answers(schema.ApplicationExceptions))
    async def exceptions(job_id: str) -> Response:
        """None: failures are those of the job, at /jobs/:id/exceptions."""
        await known_summary(context, parse_job_id(job_id))
        body: schema.ApplicationExceptions = {"exceptionHistory": {"entries": []}}
        return JsonAnswer(body)

    @router.get("/{job_id}/jobmanager/config", responses=answers(Configuration))
    async def configuration(job_id: str) -> Response:
        """The options of the cluster that are set, secrets masked."""
        await known_summary(context, parse_job_id(job_id))
        body: Configuration = [{"key": key, "value": value} for key, value in context.configuration]
        return JsonAnswer(body)

    return router


def _name(summary: JobSummary) -> str:
    return f"SingleJobApplication({summary.name})"


def _row(summary: JobSummary, now: int) -> schema.ApplicationOverview:
    return {
        "id": summary.job_id,
        "name": _name(summary),
        "start-time": summary.start_millis,
        "end-time": summary.end_millis,
        "duration": duration(summary.start_millis, summary.end_millis, now),
        "status": STATUSES[summary.status],
        "jobs": {summary.status.value: 1},
    }
