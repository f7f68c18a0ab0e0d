"""POST /log-level: the level of a logger, in each process that the leader knows, until the process ends."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.aio.asking import Answers
from runtime.common.errors import NotFoundError
from runtime.gateways.process import LogLevelChanged, LogLevelRequest, ProcessGateway
from runtime.logs.levels import check_level
from runtime.rest.access.authorized_routes import set_more, set_object
from runtime.rest.answers import JsonAnswer
from runtime.rest.asking import ask_processes
from runtime.rest.bodies.request_bodies import LogLevel, parse_body
from runtime.rest.bodies.schema import processes as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, takes

_Named = tuple[str, ProcessGateway]


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
        processes = list(running_processes(context))
        told = await ask_processes(context, processes, lambda one: one[1].set_log_level(wish))
        changed = [row for one in processes if (row := _changed(one, told)) is not None]
        if not changed:
            message = f"no process has a logger {asked.logger}: loggers have the names of modules"
            raise NotFoundError(message)
        body: schema.ChangedLogLevel = {"logger": asked.logger, "level": asked.level, "processes": changed}
        return JsonAnswer(body)


def running_processes(context: RestContext) -> Iterator[_Named]:
    """Those that run, by name; JobMasters inside the JobManager are not named twice."""
    yield "jobmanager", context.own_process
    for job_master in context.dispatcher.job_masters():
        if (process := context.process(job_master.address)) is not context.own_process:
            yield f"jobmaster {job_master.incarnation}", process
    for manager in context.components.resource_manager.task_managers():
        yield f"taskmanager {manager.registration.task_manager_id}", context.process(manager.registration.address)


def _changed(one: _Named, told: Answers[_Named, LogLevelChanged]) -> schema.ChangedProcess | None:
    """What has become of the order; None in a process that does not have that logger."""
    name, _ = one
    error = told.failures.get(one)
    if isinstance(error, NotFoundError):
        return None
    if error is not None:
        return {"process": name, "former": "", "error": str(error)[:300]}
    return {"process": name, "former": told.found[one].former, "error": ""}
