"""GET /jobs/:id/streams: what the streaming queries of a job do, as their TaskManagers have told last."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from runtime.common.ids import parse_job_id
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import stream_bodies
from runtime.rest.bodies.schema import streams as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import archived_graph


def streams_router(context: RestContext) -> APIRouter:
    """The route of a job's streaming queries."""
    router = authorized_router(context, prefix="/jobs/{job_id}", tags=["streams"])

    @router.get("/streams", responses=answers(schema.StreamsOfJob))
    async def of_job(job_id: str) -> Response:
        """Each query of the current attempts: its last batch, rates, state and backlog; of other jobs none."""
        graph = await archived_graph(context, parse_job_id(job_id))
        now = context.clock.epoch_millis()
        return JsonAnswer(stream_bodies.streams_of_job(graph, now, context.stream_stall_millis))

    return router
