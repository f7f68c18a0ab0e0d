"""Routes that look into processes: log files, stacks, environment. What they show concerns all jobs (R48)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response, StreamingResponse

from runtime.common.errors import FlinklikeError, InvalidInputError, NotFoundError, PermanentError, UnavailableError
from runtime.common.ids import parse_job_id
from runtime.common.log_position import OFFSET_MAX
from runtime.gateways.process import (
    LOG_BYTES_MAX,
    LogFileRequest,
    LogFileResponse,
    LogFilesRequest,
    ProcessEnvironmentRequest,
    ProcessFile,
    ProcessGateway,
    ThreadDumpRequest,
)
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import processes as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, answers_bytes
from runtime.rest.routes.cluster_stop import add_cluster_stop
from runtime.rest.routes.jobs import known_summary
from runtime.rest.routes.log_levels import add_log_level

WHOLE_BYTES_MAX = 32 << 20
"""So much of the end of a file is shown without an offset."""
_LIMIT = 64 * 1024
_TEXT = "text/plain; charset=utf-8"

T = TypeVar("T")

Offset = Annotated[int | None, Query(ge=-OFFSET_MAX, le=OFFSET_MAX)]
Limit = Annotated[int | None, Query(ge=1, le=LOG_BYTES_MAX)]


@dataclass(frozen=True, slots=True)
class _Process:
    """The process that a request is about. `name`: for messages."""

    name: str
    gateway: ProcessGateway

    async def read(self, file: ProcessFile, name: str, offset: int, limit: int) -> LogFileResponse:
        """A piece of a file, within bounds (R52)."""
        piece = await self.told(self.gateway.request_log_file(LogFileRequest(file, name, offset, limit)))
        numbers = (piece.next_offset, piece.size_bytes)
        if min(numbers) < 0 or max(numbers) > OFFSET_MAX or len(piece.data) > min(limit, piece.next_offset):
            message = f"{self.name}: what it says of a log file cannot be"
            raise UnavailableError(message)
        return piece

    async def told(self, answer: Awaitable[T]) -> T:
        """The answer; errors name the process. One of an earlier release cannot answer."""
        try:
            return await answer
        except NotFoundError as error:
            message = f"{self.name}: {error}"
            raise NotFoundError(message) from error
        except (InvalidInputError, UnavailableError):
            raise
        except PermanentError as error:
            message = f"{self.name} does not show this: {error}"
            raise UnavailableError(message) from error


Find = Callable[..., Awaitable[_Process]]
"""Asynchronous: the components belong to the loop, and FastAPI calls other functions in a thread."""


def process_router(context: RestContext) -> APIRouter:
    """Routes of all kinds of processes."""
    router = authorized_router(context, tags=["processes"])

    async def job_manager() -> _Process:
        """The leading JobManager: a stand-by forwards."""
        _ = context.components
        return _Process("the JobManager", context.own_process)

    async def task_manager(task_manager_id: str) -> _Process:
        for one in context.components.resource_manager.task_managers():
            registration = one.registration
            if task_manager_id in {registration.task_manager_id, registration.incarnation}:
                name = f"TaskManager {registration.task_manager_id}"
                return _Process(name, context.process(registration.address))
        message = f"TaskManager {task_manager_id[:120]} not found"
        raise NotFoundError(message)

    async def job_master(job_master_id: str) -> _Process:
        for one in context.dispatcher.job_masters():
            if one.incarnation == job_master_id:
                return _Process(f"JobMaster process {one.incarnation}", context.process(one.address))
        message = f"JobMaster process {job_master_id[:120]} not found"
        raise NotFoundError(message)

    async def owner_of_job(job_id: str) -> _Process:
        """The JobMaster process that runs the job; the JobManager when none does."""
        job = parse_job_id(job_id)
        await known_summary(context, job)
        owner = context.dispatcher.job_owner(job)
        return await job_manager() if owner is None else await job_master(owner.incarnation)

    _add_environment(router, "/jobs/{job_id}/jobmanager", owner_of_job)
    _add_views(router, "/jobmanager", job_manager)
    _add_environment(router, "/jobmanager", job_manager)
    _add_views(router, "/taskmanagers/{task_manager_id}", task_manager)
    _add_environment(router, "/taskmanagers/{task_manager_id}", task_manager)
    _add_views(router, "/jobmasters/{job_master_id}", job_master)
    _add_environment(router, "/jobmasters/{job_master_id}", job_master)
    add_log_level(router, context)
    add_cluster_stop(router, context)
    return router


def _add_environment(router: APIRouter, path: str, find: Find) -> None:
    found = Depends(find)

    @router.get(f"{path}/environment", responses=answers(schema.ProcessEnvironment))
    async def environment(process: _Process = found) -> Response:
        """The Python of the process, its command line with secrets masked, and where it looks for modules."""
        told = await process.told(process.gateway.request_environment(ProcessEnvironmentRequest()))
        jvm: schema.JvmInfo = {"version": told.version, "arch": told.arch, "options": list(told.options)}
        body: schema.ProcessEnvironment = {"jvm": jvm, "classpath": list(told.path)}
        return JsonAnswer(body)


def _add_views(router: APIRouter, path: str, find: Find) -> None:
    found = Depends(find)

    @router.get(f"{path}/logs", responses=answers(schema.LogList))
    async def logs(process: _Process = found) -> Response:
        """The log files of the process; the last changed first."""
        told = await process.told(process.gateway.request_log_files(LogFilesRequest()))
        body: schema.LogList = {
            "logs": [{"name": one.name, "size": one.size_bytes, "mtime": one.modified_millis} for one in told.files]
        }
        return JsonAnswer(body)

    @router.get(f"{path}/logs/{{file_name}}", responses=answers_bytes(_TEXT))
    async def named(file_name: str, offset: Offset = None, limit: Limit = None, process: _Process = found) -> Response:
        """One log file: from `offset` (negative: from the end) at most `limit` bytes, or its last 32 MiB."""
        return await _answer(process, ProcessFile.NAMED, file_name, offset, limit)

    @router.get(f"{path}/log", responses=answers_bytes(_TEXT))
    async def log(offset: Offset = None, limit: Limit = None, process: _Process = found) -> Response:
        """The log of the process, as any log file."""
        return await _answer(process, ProcessFile.LOG, "", offset, limit)

    @router.get(f"{path}/stdout", responses=answers_bytes(_TEXT))
    async def stdout(offset: Offset = None, limit: Limit = None, process: _Process = found) -> Response:
        """What the process has printed beside its log, as any log file."""
        return await _answer(process, ProcessFile.STDOUT, "", offset, limit)

    @router.get(f"{path}/thread-dump", responses=answers(schema.ThreadDump))
    async def thread_dump(process: _Process = found) -> Response:
        """The stacks of now: of threads, of tasks of the loop, and of the processes that this one has started."""
        told = await process.told(process.gateway.request_thread_dump(ThreadDumpRequest()))
        body: schema.ThreadDump = {
            "threadInfos": [{"threadName": one.name, "stringifiedThreadInfo": one.text} for one in told.stacks]
        }
        return JsonAnswer(body)


async def _answer(process: _Process, file: ProcessFile, name: str, offset: int | None, limit: int | None) -> Response:
    if offset is None and limit is not None:
        message = "limit: it goes with offset; leave both out for the whole file, or say offset=0"
        raise InvalidInputError(message)
    if offset is None:
        return await _whole(process, file, name)
    piece = await process.read(file, name, offset, limit or _LIMIT)
    headers = {
        "x-next-offset": str(piece.next_offset),
        "x-size": str(piece.size_bytes),
        "x-restarted": str(piece.is_restarted).lower(),
    }
    return Response(piece.data, media_type=_TEXT, headers=headers)


async def _whole(process: _Process, file: ProcessFile, name: str) -> Response:
    """The file as it is now, piece by piece; of a large one the end."""
    first = await process.read(file, name, -WHOLE_BYTES_MAX, LOG_BYTES_MAX)
    end, begin = first.size_bytes, first.next_offset - len(first.data)

    async def body() -> AsyncIterator[bytes]:
        yield first.data
        offset = first.next_offset
        while offset < end:
            piece = await process.read(file, name, offset, min(LOG_BYTES_MAX, end - offset))
            if piece.is_restarted or not piece.data:
                # An answer that is cut off must not look complete.
                raise FlinklikeError(f"{process.name}: a log file was moved aside while it was read")
            yield piece.data
            offset = piece.next_offset

    headers = {"x-size": str(end), "x-offset": str(begin), "x-truncated": str(begin > 0).lower()}
    return StreamingResponse(body(), media_type=_TEXT, headers=headers)
