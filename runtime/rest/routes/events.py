"""GET /events, what has happened to the cluster (D-114), and GET /audit, who has changed what (R49)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from runtime.gateways.cluster_events import ClusterEvent
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import events as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.changes import obscured
from runtime.security.principals import Principal

EVENTS_MAX = 1000
AUDIT_LINES_MAX = 1000


def events_router(context: RestContext) -> APIRouter:
    """Both routes."""
    router = authorized_router(context, tags=["cluster"])

    @router.get("/events", responses=answers(schema.Events))
    async def events(
        request: Request,
        after: Annotated[str, Query(max_length=64, description="`next` of the page before")] = "",
        limit: Annotated[int, Query(ge=1, le=EVENTS_MAX, description="events of a page")] = 100,
    ) -> Response:
        """The newest events, oldest first; with `after` the first ones behind it.

        Those about a job are for who sees it. With the ETag of an answer in If-None-Match: 304 while
        there is no other event. /changes waits for one.
        """
        principal, kept = principal_of(request), context.components.events
        etag = _etag(context, principal, request)
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"etag": etag})
        page = kept.page(lambda namespace: not namespace or principal.sees(namespace), after=after, limit=limit)
        next_ = page.events[-1].id if page.events else "" if page.has_gap else after
        body: schema.Events = {"events": [_event(one) for one in page.events], "next": next_, "gap": page.has_gap}
        return JsonAnswer(body, headers={"etag": etag})

    @router.get("/audit", responses=answers(schema.AuditLines))
    async def audit(
        limit: Annotated[int, Query(ge=1, le=AUDIT_LINES_MAX, description="lines")] = 100,
    ) -> Response:
        """The last lines of the audit log of the JobManager that leads, oldest first: each writes a file of its own."""
        body: schema.AuditLines = {"lines": list(await context.audit.latest(limit))}
        return JsonAnswer(body)

    return router


def _etag(context: RestContext, principal: Principal, request: Request) -> str:
    components = context.components
    asked = (principal.name, principal.namespace, request.url.query)
    return f'"{obscured(components.dispatcher.job_activity().term, components.events.generation, asked)}"'


def _event(event: ClusterEvent) -> schema.Event:
    return {
        "id": event.id,
        "timestamp": event.millis,
        "kind": event.kind.value,
        "message": event.message,
        "subject": event.subject,
        "job": event.job_id,
        "namespace": event.namespace,
        "count": event.count,
    }
