"""What the streaming queries of a job do, as their TaskManagers have told last: /jobs/:id/streams, and watermarks."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from runtime.common.ids import parse_job_id
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import stream_bodies
from runtime.rest.bodies.schema import streams as schema
from runtime.rest.bodies.schema.usage import MetricValues
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import archived_graph
from runtime.rest.routes.vertices import find_vertex


def streams_router(context: RestContext) -> APIRouter:
    """Both routes."""
    router = authorized_router(context, prefix="/jobs/{job_id}", tags=["streams"])

    @router.get("/streams", responses=answers(schema.StreamsOfJob))
    async def of_job(job_id: str) -> Response:
        """Each query of the current attempts: its last batch, rates, state and backlog; of other jobs none."""
        graph = await archived_graph(context, parse_job_id(job_id))
        now = context.clock.epoch_millis()
        return JsonAnswer(stream_bodies.streams_of_job(graph, now, context.stream_stall_millis))

    @router.get("/vertices/{vertex_id}/watermarks", responses=answers(MetricValues))
    async def watermarks(job_id: str, vertex_id: str) -> Response:
        """The watermark of each subtask of a streaming query; of a batch vertex none."""
        return JsonAnswer(stream_bodies.watermarks(await find_vertex(context, job_id, vertex_id)))

    return router
