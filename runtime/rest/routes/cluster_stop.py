"""DELETE /cluster: all processes of the cluster stop. Jobs that have not ended stay in the store."""

from __future__ import annotations

import logging

from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.common.errors import ConflictError
from runtime.gateways.process import StopProcessRequest
from runtime.rest.access.authorized_routes import set_more, set_object
from runtime.rest.answers import JsonAnswer
from runtime.rest.asking import ask_processes
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
        processes = [one for one in running_processes(context) if one[1] is not own]
        told = await ask_processes(context, processes, lambda one: one[1].stop_process(StopProcessRequest()))
        for (name, _), error in told.failures.items():
            logger.warning("%s was not told to stop: %s", name, error)
        missed = ", ".join(name for name, _ in told.failures)
        set_more(request, stopped=len(told.found) + 1, missed=missed[:1000])
        await own.stop_process(StopProcessRequest())
        return JsonAnswer({})
