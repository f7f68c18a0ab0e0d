"""Small routes that Flink's dashboard asks for: where the logs of a job's processes are, and data sets, of which there
are none.
"""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from runtime.common.errors import NotFoundError
from runtime.common.ids import parse_job_id
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import applications as schema
from runtime.rest.bodies.schema.cluster import Configuration
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import known_summary


def flink_pages_router(context: RestContext) -> APIRouter:
    """All of them."""
    router = authorized_router(context, tags=["processes"])

    @router.get("/jobs/{job_id}/jobmanager/config", responses=answers(Configuration))
    async def configuration(job_id: str) -> Response:
        """The options of the cluster that are set, secrets masked."""
        await known_summary(context, parse_job_id(job_id))
        body: Configuration = [{"key": key, "value": value} for key, value in context.configuration]
        return JsonAnswer(body)

    @router.get("/jobs/{job_id}/jobmanager/log-url", responses=answers(schema.LogUrl))
    async def job_manager_log(job_id: str, request: Request) -> Response:
        """The page with the logs of the JobMaster process that runs the job; of the JobManager when none does."""
        job = parse_job_id(job_id)
        await known_summary(context, job)
        owner = context.dispatcher.job_owner(job)
        place = "jobmanager" if owner is None else f"jobmasters/{owner.incarnation}"
        return JsonAnswer(_url(context, request, f"{place}/logs"))

    @router.get("/jobs/{job_id}/taskmanagers/{task_manager_id}/log-url", responses=answers(schema.LogUrl))
    async def task_manager_log(job_id: str, task_manager_id: str, request: Request) -> Response:
        """The page with the logs of a TaskManager."""
        await known_summary(context, parse_job_id(job_id))
        for one in context.components.resource_manager.task_managers():
            if task_manager_id in {one.registration.task_manager_id, one.registration.incarnation}:
                place = f"taskmanagers/{quote(one.registration.task_manager_id, safe='')}/logs"
                return JsonAnswer(_url(context, request, place))
        message = f"TaskManager {task_manager_id[:120]} not found"
        raise NotFoundError(message)

    @router.get("/datasets", responses=answers(schema.DataSets))
    async def data_sets() -> Response:
        """None: results of jobs are not kept for other jobs."""
        body: schema.DataSets = {"dataSets": []}
        return JsonAnswer(body)

    return router


def _url(context: RestContext, request: Request, place: str) -> schema.LogUrl:
    return {"url": f"{request.url.scheme}://{context.components.rest_address}/ui/{place}"}
