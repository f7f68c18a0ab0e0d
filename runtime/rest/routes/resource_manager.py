"""GET /resourcemanager: the processes that a driver starts and releases (R65)."""

from __future__ import annotations

from fastapi import APIRouter, Response

from runtime.common.worker_ids import shown_profile
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import resource_manager as schema
from runtime.rest.context import LeaderComponents, RestContext
from runtime.rest.openapi import answers


def resource_manager_router(context: RestContext) -> APIRouter:
    """Its one route."""
    router = authorized_router(context, tags=["cluster"])

    @router.get("/resourcemanager", responses=answers(schema.ResourceManager))
    async def resource_manager() -> Response:
        """What starts TaskManagers and JobMaster processes, and those that it has started, in their order."""
        components = context.components
        found = components.resource_manager.workers()
        processes = _processes(components)
        body: schema.ResourceManager = {
            "driver": context.driver,
            "kinds": [{"kind": one.kind, "pending": one.pending, "problem": one.problem} for one in found],
            "workers": [
                {
                    "id": worker.worker_id,
                    "kind": one.kind,
                    "state": worker.state,
                    "since": worker.since_millis,
                    "reason": worker.reason,
                    "process": processes.get(worker.worker_id, ""),
                    "profile": shown_profile(worker.worker_id) if one.kind == "taskmanager" else "",
                }
                for one in found
                for worker in one.workers
            ],
        }
        return JsonAnswer(body)

    return router


def _processes(components: LeaderComponents) -> dict[str, str]:
    """The ids in REST of registered processes, by their labels."""
    managers = (one.registration for one in components.resource_manager.task_managers())
    return {
        **{one.worker_id: one.task_manager_id for one in managers if one.worker_id},
        **{one.worker_id: one.incarnation for one in components.dispatcher.job_masters() if one.worker_id},
    }
