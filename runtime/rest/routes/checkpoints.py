"""Flink's routes of checkpoints of a job, live and archived. What makes one on request is in `operations.py`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response

from runtime.common.errors import NotFoundError, UnavailableError
from runtime.common.ids import VertexId, parse_job_id
from runtime.common.states import JobType
from runtime.executiongraph.archived_checkpoints import ArchivedCheckpoint, ArchivedCheckpoints
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import checkpoint_bodies
from runtime.rest.bodies.schema import checkpoints as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import archived_graph

NOT_ENABLED = "Checkpointing has not been enabled."
_Number = Annotated[int, Path(ge=0, le=(1 << 63) - 1)]


async def _found(context: RestContext, job_id: str) -> ArchivedCheckpoints:
    """Raises NotFoundError where there are none: without streaming queries, or with the interval 0 and no savepoint.

    Raises UnavailableError for a streaming job while nobody owns it, since its owner knows them.
    """
    graph = await archived_graph(context, parse_job_id(job_id))
    is_streaming = graph.job_type is JobType.STREAMING
    if graph.checkpoints is None and is_streaming and not graph.status.is_globally_terminal:
        message = f"job {job_id} waits for a JobMaster, which knows its checkpoints: ask again"
        raise UnavailableError(message)
    if graph.checkpoints is None or not graph.has_checkpointing:
        raise NotFoundError(NOT_ENABLED)
    return graph.checkpoints


async def _one(context: RestContext, job_id: str, checkpoint_id: int) -> ArchivedCheckpoint:
    """NotFoundError."""
    found = (await _found(context, job_id)).checkpoint(checkpoint_id)
    if found is None:
        message = f"Could not find checkpointing statistics for checkpoint {checkpoint_id}."
        raise NotFoundError(message)
    return found


def checkpoints_router(context: RestContext) -> APIRouter:
    """Before the refused routes: `config` is no id of a trigger."""
    router = authorized_router(context, prefix="/jobs/{job_id}/checkpoints", tags=["checkpoints"])

    @router.get("", responses=answers(schema.Checkpoints))
    async def of_job(job_id: str) -> Response:
        """Counts, summaries, the latest of each kind, and the last ten."""
        return JsonAnswer(checkpoint_bodies.checkpoints(await _found(context, job_id)))

    @router.get("/config", responses=answers(schema.CheckpointConfiguration))
    async def config(job_id: str) -> Response:
        """How often checkpoints are made, and what fails the job."""
        return JsonAnswer(checkpoint_bodies.configuration(await _found(context, job_id)))

    @router.get("/details/{checkpoint_id}", responses=answers(schema.Checkpoint))
    async def details(job_id: str, checkpoint_id: _Number) -> Response:
        """One checkpoint, with its vertices and the position of each query."""
        return JsonAnswer(checkpoint_bodies.checkpoint_details(await _one(context, job_id, checkpoint_id)))

    @router.get("/details/{checkpoint_id}/subtasks/{vertex_id}", responses=answers(schema.TaskOfCheckpointDetails))
    async def of_vertex(job_id: str, checkpoint_id: _Number, vertex_id: str) -> Response:
        """One vertex of a checkpoint with its subtasks."""
        one = await _one(context, job_id, checkpoint_id)
        body = checkpoint_bodies.subtask_details(one, VertexId(vertex_id))
        if body is None:
            message = f"There is no checkpoint statistics for task {vertex_id[:64]}."
            raise NotFoundError(message)
        return JsonAnswer(body)

    return router
