"""DELETE /cluster: all processes of the cluster stop. Jobs that have not ended stay in the store."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.common.errors import ConflictError, FlinklikeError
from runtime.gateways.process import ProcessGateway, StopProcessRequest
from runtime.rest.access.authorized_routes import set_more, set_object
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema.common import Empty
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.log_levels import running_processes

logger = logging.getLogger(__name__)


def add_cluster_stop(router: APIRouter, context: RestContext) -> None:
    """Add the route."""

    @router.delete("/cluster", responses=answers(Empty))
    async def stop_cluster(request: Request) -> Response:
        """Stop TaskManagers and JobMaster processes, then this JobManager. What cannot be reached is logged.

        Jobs that have not ended go on when the cluster is started again, where the store is durable.
        """
        set_object(request, "cluster")
        _ = context.components
        if others := len(context.stand_bys()):
            message = (
                f"{others} further JobManager{'s' if others > 1 else ''} would lead at once, over a cluster without "
                "processes: bin/stop-cluster.sh stops all of them"
            )
            raise ConflictError(message)
        own = context.own_process
        async with asyncio.TaskGroup() as group:
            told = [
                group.create_task(_stop(name, process))
                for name, process in running_processes(context)
                if process is not own
            ]
        missed = [name for one in told if (name := one.result())]
        set_more(request, stopped=len(told) - len(missed) + 1, missed=", ".join(missed)[:1000])
        await own.stop_process(StopProcessRequest())
        return JsonAnswer({})


async def _stop(name: str, process: ProcessGateway) -> str:
    """The name of a process that could not be told, else ""."""
    try:
        await process.stop_process(StopProcessRequest())
    except FlinklikeError as error:
        logger.warning("%s was not told to stop: %s", name, error)
        return name
    return ""
