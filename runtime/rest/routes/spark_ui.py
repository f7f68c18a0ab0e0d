"""POST /taskmanagers/:id/spark-ui: whoever may see jobs of all namespaces opens Spark's own pages (R58)."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.common.errors import ConflictError, NotFoundError
from runtime.rest.access.authorized_routes import authorized_router, set_more
from runtime.rest.access.sign_in import bearer_of, principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.request_bodies import SparkUiRequest, parse_body
from runtime.rest.bodies.schema import spark_ui as schema
from runtime.rest.context import RestContext
from runtime.rest.dashboard.page_sign_in import is_by_cookie
from runtime.rest.forwarding.forward_seal import FORWARDED, told_by_stand_by
from runtime.rest.openapi import answers, takes
from runtime.rest.spark_ui.views import Opening


def spark_ui_router(context: RestContext) -> APIRouter:
    """The route."""
    router = authorized_router(context, tags=["taskmanagers"])

    @router.post(
        "/taskmanagers/{task_manager_id}/spark-ui",
        responses=answers(schema.SparkUiOpened),
        openapi_extra=takes(SparkUiRequest),
    )
    async def spark_ui(task_manager_id: str, request: Request) -> Response:
        """A code that opens Spark's own pages of an environment, once, within a minute, at another origin."""
        asked = parse_body(SparkUiRequest, await request.body())
        set_more(request, environment=asked.environment)
        ui = context.spark_ui
        if ui is None:
            message = "Spark's own pages are shown nowhere: rest.spark-ui.port is -1"
            raise ConflictError(message)
        opening = Opening(
            principal_of(request).name,
            bearer_of(request.scope),
            task_manager_id,
            _address(context, task_manager_id),
            asked.environment,
            _sessions(context, request),
        )
        body: schema.SparkUiOpened = {
            "address": ui.settings.address or _own_origin(context, request, ui.port),
            "port": ui.port,
            "code": ui.views.code(opening),
        }
        return JsonAnswer(body)

    return router


def _sessions(context: RestContext, request: Request) -> frozenset[str]:
    cookie = context.page_cookie
    return frozenset(cookie.sessions_in(request.scope) if cookie is not None and is_by_cookie(request.scope) else ())


def _address(context: RestContext, task_manager_id: str) -> str:
    for one in context.components.resource_manager.task_managers():
        if task_manager_id in {one.registration.task_manager_id, one.registration.incarnation}:
            return one.registration.address
    message = f"TaskManager {task_manager_id[:120]} not found"
    raise NotFoundError(message)


def _own_origin(context: RestContext, request: Request, port: int) -> str:
    """Whoever was led here by a stand-by has that one's name for the host; the pages are at this one."""
    if not told_by_stand_by(request.scope, FORWARDED):
        return ""
    host = context.components.rest_address.rpartition(":")[0]
    return f"{'http' if context.tls is None else 'https'}://{host}:{port}"
