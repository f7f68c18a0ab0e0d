"""POST /log-level: the level of a logger, in each process that the leader knows, until the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.common.errors import FlinklikeError, NotFoundError
from runtime.gateways.process import LogLevelRequest, ProcessGateway
from runtime.logs.levels import check_level
from runtime.rest.access.authorized_routes import set_more, set_object
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.request_bodies import LogLevel, parse_body
from runtime.rest.bodies.schema import processes as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, takes


def add_log_level(router: APIRouter, context: RestContext) -> None:
    """Add the route."""

    @router.post("/log-level", responses=answers(schema.ChangedLogLevel), openapi_extra=takes(LogLevel))
    async def log_level(request: Request) -> Response:
        """Set the level of a logger of our code. A process that starts later logs as configured. Idempotent.

        404 when no process has that logger.
        """
        asked = parse_body(LogLevel, await request.body())
        set_object(request, asked.logger)
        set_more(request, level=asked.level)
        check_level(asked.logger, asked.level)
        wish = LogLevelRequest(asked.logger, asked.level)
        async with asyncio.TaskGroup() as group:
            told = [group.create_task(_tell(name, process, wish)) for name, process in running_processes(context)]
        found = [task.result() for task in told]
        if not any(is_known for is_known, _ in found):
            message = f"no process has a logger {asked.logger}: loggers have the names of modules"
            raise NotFoundError(message)
        changed = [one for is_known, one in found if is_known]
        body: schema.ChangedLogLevel = {"logger": asked.logger, "level": asked.level, "processes": changed}
        return JsonAnswer(body)


def running_processes(context: RestContext) -> Iterator[tuple[str, ProcessGateway]]:
    """Those that run, by name; JobMasters inside the JobManager are not named twice."""
    yield "jobmanager", context.own_process
    for job_master in context.dispatcher.job_masters():
        if (process := context.process(job_master.address)) is not context.own_process:
            yield f"jobmaster {job_master.incarnation}", process
    for manager in context.components.resource_manager.task_managers():
        yield f"taskmanager {manager.registration.task_manager_id}", context.process(manager.registration.address)


async def _tell(name: str, process: ProcessGateway, wish: LogLevelRequest) -> tuple[bool, schema.ChangedProcess]:
    """Whether the process has that logger, or may have it; and what has become of the order."""
    try:
        changed = await process.set_log_level(wish)
    except NotFoundError as error:
        return False, {"process": name, "former": "", "error": str(error)}
    except FlinklikeError as error:
        return True, {"process": name, "former": "", "error": str(error)[:300]}
    return True, {"process": name, "former": changed.former, "error": ""}
