"""Flink's routes of the parallelism of a running job: its bounds, and its rescales (R69)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, RootModel

from runtime.common.errors import InvalidInputError, NotFoundError, UnavailableError
from runtime.common.ids import parse_job_id, parse_vertex_id
from runtime.common.states import JobType
from runtime.executiongraph.archived_rescales import ArchivedRescales
from runtime.gateways.rescales import UpdateRequirements, VertexBounds
from runtime.jobgraph.limits import PARALLELISM_MAX
from runtime.rest.access.authorized_routes import authorized_router, set_more
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import rescale_bodies
from runtime.rest.bodies.request_bodies import parse_body
from runtime.rest.bodies.schema import rescales as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, takes
from runtime.rest.routes.jobs import archived_graph, known_summary

NOT_ENABLED = (
    "The job `{}` has not enabled the `Adaptive` scheduler: its parallelism does not change. Streaming jobs have it in "
    "a cluster with jobmanager.scheduler: Adaptive."
)
_VERTICES_MAX = 1000


class ParallelismBounds(BaseModel):
    """How many subtasks a vertex has at least, and at most."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    lower: Annotated[int, Field(alias="lowerBound", ge=1, le=PARALLELISM_MAX)]
    upper: Annotated[int, Field(alias="upperBound", ge=1, le=PARALLELISM_MAX)]


class VertexRequirements(BaseModel):
    """What one vertex asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    parallelism: ParallelismBounds


class Requirements(RootModel[dict[str, VertexRequirements]]):
    """The body of PUT /jobs/:id/resource-requirements: by vertex. The others keep what they have."""

    model_config = ConfigDict(frozen=True, strict=True)


async def _found(context: RestContext, job_id: str) -> ArchivedRescales:
    """Raises NotFoundError for a job of another scheduler, UnavailableError while nobody owns one that may have it."""
    job = parse_job_id(job_id)
    graph = await archived_graph(context, job)
    if graph.rescales is not None:
        return graph.rescales
    if graph.job_type is JobType.STREAMING and graph.checkpoints is None and not graph.status.is_globally_terminal:
        message = f"job {job_id} waits for a JobMaster, which knows its rescales: ask again"
        raise UnavailableError(message)
    raise NotFoundError(NOT_ENABLED.format(job))


def rescales_router(context: RestContext) -> APIRouter:
    """Bounds and rescales."""
    router = authorized_router(context, prefix="/jobs/{job_id}", tags=["rescales"])
    _add_requirements(router, context)

    @router.get("/rescales/overview", responses=answers(schema.RescalesOverview))
    async def overview(job_id: str) -> Response:
        """Counts, and the latest of each kind."""
        return JsonAnswer(rescale_bodies.overview(await _found(context, job_id)))

    @router.get("/rescales/history", responses=answers(schema.Rescales))
    async def history(job_id: str) -> Response:
        """The last rescales, newest first."""
        return JsonAnswer(rescale_bodies.history(await _found(context, job_id)))

    @router.get("/rescales/summary", responses=answers(schema.RescalesSummary))
    async def summary(job_id: str) -> Response:
        """How long they took, and how long queries stood still for them."""
        return JsonAnswer(rescale_bodies.summary(await _found(context, job_id)))

    @router.get("/rescales/config", responses=answers(schema.RescaleConfiguration))
    async def config(job_id: str) -> Response:
        """The options that decide about rescales."""
        return JsonAnswer(rescale_bodies.configuration(await _found(context, job_id)))

    @router.get("/rescales/details/{rescale_id}", responses=answers(schema.Rescale))
    async def details(job_id: str, rescale_id: Annotated[str, Path(max_length=64)]) -> Response:
        """One rescale."""
        found = await _found(context, job_id)
        for one in found.history:
            if one.rescale_id == rescale_id:
                return JsonAnswer(rescale_bodies.rescale(one))
        message = f"The rescale statistics for the `{rescale_id}` is not available."
        raise NotFoundError(message)

    return router


def _add_requirements(router: APIRouter, context: RestContext) -> None:
    @router.get("/resource-requirements", responses=answers(schema.BoundsByVertex))
    async def requirements(job_id: str) -> Response:
        """The bounds of the parallelism of each vertex."""
        return JsonAnswer(rescale_bodies.requirements(await _found(context, job_id)))

    @router.put(
        "/resource-requirements",
        responses=answers(schema.NoFields),
        openapi_extra=takes(Requirements),
    )
    async def update(job_id: str, request: Request) -> Response:
        """Other bounds, durable before the answer. Vertices that are not named keep theirs."""
        job = parse_job_id(job_id)
        await known_summary(context, job)
        bounds = _bounds(await request.body())
        words = " ".join(f"{one.vertex_id}={one.lower}-{one.upper}" for one in bounds)
        set_more(request, requirements=words)
        await context.dispatcher.set_requirements(UpdateRequirements(job, context.entropy.hex_id(), bounds))
        body: schema.NoFields = {}
        return JsonAnswer(body)


def _bounds(data: bytes) -> tuple[VertexBounds, ...]:
    """Raises InvalidInputError."""
    body = parse_body(Requirements, data).root
    if not body:
        message = "Request body does not specify resource requirements."
        raise InvalidInputError(message)
    if len(body) > _VERTICES_MAX:
        message = f"{len(body)} vertices are named, the limit is {_VERTICES_MAX}"
        raise InvalidInputError(message)
    return tuple(
        VertexBounds(parse_vertex_id(vertex_id), one.parallelism.lower, one.parallelism.upper)
        for vertex_id, one in body.items()
    )
