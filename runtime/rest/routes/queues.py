"""GET /queues: the shares of slots (D-128)."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from runtime.common.shares import QueueStatus, Submitter
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import queues as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers


def queues_router(context: RestContext) -> APIRouter:
    """The list of queues."""
    router = authorized_router(context, tags=["cluster"])

    @router.get("/queues", responses=answers(schema.Queues))
    async def queues(request: Request) -> Response:
        """The queues that have jobs or options, of those that the caller may use: other names tell of others."""
        principal = principal_of(request)
        submitter = Submitter(principal.submitter, principal.namespace, principal.is_of_all)
        manager = context.components.resource_manager
        everything = manager.queues()
        shown = [_queue(one) for one in everything if context.queues.may_be(one.name, submitter)]
        problem = _problem(everything, manager.slot_counts()[0]) if principal.is_of_all else ""
        body: schema.Queues = {"queues": shown, "problem": problem}
        return JsonAnswer(body)

    return router


def _queue(one: QueueStatus) -> schema.Queue:
    return {
        "name": one.name,
        "weight": one.settings.weight,
        "min-slots": one.settings.min_slots,
        "max-slots": one.settings.max_slots,
        "max-running-jobs": one.settings.max_running_jobs,
        "slots-held": one.held,
        "share": round(one.share, 3),
        "jobs-running": one.running_jobs,
        "jobs-waiting": one.waiting_jobs,
    }


def _problem(queues: Sequence[QueueStatus], slots: int) -> str:
    minima = sum(one.settings.min_slots for one in queues)
    if minima <= slots:
        return ""
    return (
        f"the queues have {minima} min-slots in all, and there are {slots} slots: while jobs want all of them, queues "
        "without min-slots get none"
    )
