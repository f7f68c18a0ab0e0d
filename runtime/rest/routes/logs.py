"""POST /jobs/:id/logs: what is new in the logs of all attempts of a job, and how far its vertices are, in one look."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from runtime.common.errors import NotFoundError
from runtime.common.ids import parse_job_id
from runtime.common.log_position import LogPosition
from runtime.gateways.task_executor import AttemptLogsRequest
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.asking import ask_processes
from runtime.rest.bodies import job_bodies
from runtime.rest.bodies.request_bodies import LogsRequest, parse_body
from runtime.rest.bodies.schema.jobs import JobLogs
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, takes
from runtime.rest.routes.jobs import archived_graph, wait_for_change
from runtime.rest.routes.log_places import LogPlaces, gone
from runtime.rest.routes.log_reads import (
    ATTEMPTS_MAX,
    PIECE_BYTES_MAX,
    FollowedAttempt,
    check_pieces,
    followed,
    has_more,
)


def logs_router(context: RestContext) -> APIRouter:
    """The route of a job's logs."""
    router = authorized_router(context, tags=["jobs"])

    @router.post("/jobs/{job_id}/logs", responses=answers(JobLogs), openapi_extra=takes(LogsRequest))
    async def logs(job_id: str, request: Request) -> Response:
        """Pieces of all logs after `position`, with `wait` and `since` once the job has changed."""
        job = parse_job_id(job_id)
        asked = parse_body(LogsRequest, await request.body())
        position = LogPosition.from_json(asked.position)
        await wait_for_change(context, job, wait=asked.wait, since=asked.since, of=principal_of(request))
        graph = await archived_graph(context, job)
        if asked.vertex is not None and not any(asked.vertex in {one.id, one.name} for one in graph.vertices):
            message = f"job {job} has no vertex {asked.vertex[:64]!r}"
            raise NotFoundError(message)
        found: list[FollowedAttempt] = []
        if asked.streams:
            wanted = followed(graph, position, vertex=asked.vertex, subtask=asked.subtask, attempt=asked.attempt)
            found = list(wanted)
        looked = found[:ATTEMPTS_MAX]
        await _read(context, looked, asked, position)
        body: JobLogs = {
            "state": graph.status.value,
            "last-modification": graph.last_modification_millis,
            "vertices": [job_bodies.vertex_progress(one) for one in graph.vertices],
            "attempts": [one.body() for one in looked if one.has_news(position)],
            "more": len(found) > len(looked) or has_more(looked, asked.streams),
        }
        return JsonAnswer(body)

    return router


async def _read(
    context: RestContext, attempts: Sequence[FollowedAttempt], asked: LogsRequest, position: LogPosition
) -> None:
    """One call for each TaskManager. A lost one leaves a reason and no pieces."""
    places = LogPlaces(context.components.resource_manager.task_managers())
    groups: dict[str, list[FollowedAttempt]] = {}
    for one in attempts:
        address = places.address(one.attempt)
        if address is None:
            one.missing = gone(one.attempt, is_history=context.history is not None)
        else:
            groups.setdefault(address, []).append(one)
    room = max(asked.limit // max(1, len(groups)), PIECE_BYTES_MAX)

    async def read(address: str) -> None:
        await _read_from(context, address, groups[address], asked, position, room)

    answers = await ask_processes(context, groups, read)
    for address, error in answers.failures.items():
        for one in groups[address]:
            one.missing = f"TaskManager {one.attempt.task_manager_id} does not answer: {error}"


async def _read_from(
    context: RestContext,
    address: str,
    attempts: Sequence[FollowedAttempt],
    asked: LogsRequest,
    position: LogPosition,
    room: int,
) -> None:
    reads = [(one, stream) for one in attempts for stream in asked.streams]
    requests = tuple(one.request(stream, position, PIECE_BYTES_MAX) for one, stream in reads)
    answer = await context.task_executor(address).request_attempt_logs(AttemptLogsRequest(requests, room))
    check_pieces(answer, len(reads), PIECE_BYTES_MAX)
    for piece in answer.pieces:
        one, stream = reads[piece.index]
        one.take(stream, piece.piece)
