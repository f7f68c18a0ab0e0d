"""Routes of /jobs/:id/vertices: vertices, subtasks, attempts and the logs of attempts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from runtime.common.errors import NotFoundError
from runtime.common.ids import ExecutionAttemptId, parse_job_id
from runtime.executiongraph.archived import ArchivedExecution, ArchivedSubtask, ArchivedVertex
from runtime.gateways.task_executor import AttemptLogRequest, AttemptLogResponse, LogStream
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import vertex_bodies
from runtime.rest.bodies.schema import vertices as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, answers_bytes
from runtime.rest.routes.jobs import archived_graph
from runtime.rest.routes.log_places import LogPlaces, deleted, gone
from runtime.rest.routes.log_reads import check_piece

LOG_LIMIT_MAX = 1 << 20


async def find_vertex(context: RestContext, job_id: str, vertex_id: str) -> ArchivedVertex:
    """One vertex of a job. NotFoundError."""
    graph = await archived_graph(context, parse_job_id(job_id))
    vertex = graph.vertex(vertex_id)
    if vertex is None:
        message = f"JobVertex {vertex_id[:64]} not found in job {job_id}"
        raise NotFoundError(message)
    return vertex


def find_subtask(vertex: ArchivedVertex, index: int) -> ArchivedSubtask:
    """One subtask. NotFoundError."""
    if not 0 <= index < len(vertex.subtasks):
        message = f"Invalid subtask index {index} for vertex {vertex.id}: it has {len(vertex.subtasks)} subtasks"
        raise NotFoundError(message)
    return vertex.subtasks[index]


def find_attempt(subtask: ArchivedSubtask, number: int) -> ArchivedExecution:
    """One attempt by the number users see. NotFoundError."""
    attempt = subtask.attempt(number)
    if attempt is None:
        message = f"Could not find attempt {number} of subtask {subtask.index}"
        raise NotFoundError(message)
    return attempt


async def read_log(context: RestContext, attempt: ArchivedExecution, request: AttemptLogRequest) -> AttemptLogResponse:
    """A piece of an attempt's log, from the TaskManager that has it. NotFoundError says where the log is, or was."""
    if not attempt.task_manager_id:
        message = f"attempt {attempt.attempt_id} was not deployed: it has no log"
        raise NotFoundError(message)
    address = LogPlaces(context.components.resource_manager.task_managers()).address(attempt)
    if address is None:
        message = f"the log of attempt {attempt.attempt_id}: {gone(attempt, is_history=context.history is not None)}"
        raise NotFoundError(message)
    try:
        piece = await context.task_executor(address).request_attempt_log(request)
    except NotFoundError as error:
        message = f"the log of attempt {attempt.attempt_id}: {deleted(attempt)}"
        raise NotFoundError(message) from error
    check_piece(piece, request.limit)
    return piece


def vertices_router(context: RestContext) -> APIRouter:
    """All routes below a vertex."""
    router = authorized_router(context, prefix="/jobs/{job_id}/vertices/{vertex_id}", tags=["vertices"])
    now = context.clock.epoch_millis

    @router.get("", responses=answers(schema.Vertex))
    async def details(job_id: str, vertex_id: str) -> Response:
        """The vertex with all its subtasks."""
        return JsonAnswer(vertex_bodies.vertex_details(await find_vertex(context, job_id, vertex_id), now()))

    @router.get("/subtasktimes", responses=answers(schema.SubtaskTimes))
    async def subtask_times(job_id: str, vertex_id: str) -> Response:
        """When each subtask entered each state."""
        return JsonAnswer(vertex_bodies.subtask_times(await find_vertex(context, job_id, vertex_id), now()))

    @router.get("/taskmanagers", responses=answers(schema.VertexTaskManagers))
    async def task_managers(job_id: str, vertex_id: str) -> Response:
        """The subtasks by TaskManager."""
        return JsonAnswer(vertex_bodies.vertex_task_managers(await find_vertex(context, job_id, vertex_id), now()))

    @router.get("/subtasks/{index}", responses=answers(schema.Attempt))
    async def subtask(job_id: str, vertex_id: str, index: int) -> Response:
        """The current attempt of a subtask."""
        found = find_subtask(await find_vertex(context, job_id, vertex_id), index)
        return JsonAnswer(vertex_bodies.attempt_details(index, found.current, now()))

    @router.get("/subtasks/{index}/attempts/{attempt}", responses=answers(schema.Attempt))
    async def one_attempt(job_id: str, vertex_id: str, index: int, attempt: int) -> Response:
        """One attempt of a subtask."""
        found = find_attempt(find_subtask(await find_vertex(context, job_id, vertex_id), index), attempt)
        return JsonAnswer(vertex_bodies.attempt_details(index, found, now()))

    @router.get("/subtasks/{index}/attempts/{attempt}/log", responses=answers_bytes("text/plain; charset=utf-8"))
    async def log(
        job_id: str,
        vertex_id: str,
        index: int,
        attempt: int,
        stream: LogStream = LogStream.STDOUT,
        offset: int = 0,
        limit: Annotated[int, Query(ge=1, le=LOG_LIMIT_MAX)] = 65536,
    ) -> Response:
        """Bytes of an attempt's log from `offset` (negative: from the end); X-Next-Offset says where to go on."""
        found = find_attempt(find_subtask(await find_vertex(context, job_id, vertex_id), index), attempt)
        request = AttemptLogRequest(ExecutionAttemptId.parse(found.attempt_id), stream, offset, limit)
        piece = await read_log(context, found, request)
        headers = {
            "x-next-offset": str(piece.next_offset),
            "x-size": str(piece.size_bytes),
            "x-truncated": str(piece.is_truncated).lower(),
            "x-dropped": str(piece.dropped_bytes),
        }
        return Response(piece.data, media_type="text/plain; charset=utf-8", headers=headers)

    return router
