"""Routes of what users' code has counted: of a job, of a vertex, of its subtasks, of one attempt."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from runtime.common.ids import parse_job_id
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import accumulator_bodies
from runtime.rest.bodies.schema import accumulators as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import archived_graph
from runtime.rest.routes.vertices import find_attempt, find_subtask, find_vertex

_VERTEX = "/vertices/{vertex_id}"


def accumulators_router(context: RestContext) -> APIRouter:
    """Before the routes of vertices: `accumulators` is no number of a subtask."""
    router = authorized_router(context, prefix="/jobs/{job_id}", tags=["accumulators"])

    @router.get("/accumulators", responses=answers(schema.JobAccumulators))
    async def of_job(job_id: str) -> Response:
        """What all vertices have counted, live while the job runs; in the end that of the attempts that finished."""
        graph = await archived_graph(context, parse_job_id(job_id))
        return JsonAnswer(accumulator_bodies.job_accumulators(graph))

    @router.get(f"{_VERTEX}/accumulators", responses=answers(schema.VertexAccumulators))
    async def of_vertex(job_id: str, vertex_id: str) -> Response:
        """The same of one vertex."""
        vertex = await find_vertex(context, job_id, vertex_id)
        return JsonAnswer(accumulator_bodies.vertex_accumulators(vertex))

    @router.get(f"{_VERTEX}/subtasks/accumulators", responses=answers(schema.SubtasksAccumulators))
    async def of_subtasks(job_id: str, vertex_id: str) -> Response:
        """What each current attempt has counted; of very many subtasks none is shown by itself."""
        vertex = await find_vertex(context, job_id, vertex_id)
        return JsonAnswer(accumulator_bodies.subtasks_accumulators(vertex))

    @router.get(
        f"{_VERTEX}/subtasks/{{index}}/attempts/{{attempt}}/accumulators", responses=answers(schema.AttemptAccumulators)
    )
    async def of_attempt(job_id: str, vertex_id: str, index: int, attempt: int) -> Response:
        """What one attempt has counted; nothing of one that was replaced."""
        found = find_attempt(find_subtask(await find_vertex(context, job_id, vertex_id), index), attempt)
        return JsonAnswer(accumulator_bodies.attempt_accumulators(index, found))

    return router
