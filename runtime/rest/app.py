"""The ASGI application: all routers, with and without /v1, behind the middleware of access and connections."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, compile_path
from starlette.types import ASGIApp

from runtime.common.errors import FlinklikeError
from runtime.common.version import VERSION
from runtime.rest import errors
from runtime.rest.access.cross_origin import CrossOriginMiddleware
from runtime.rest.access.principal_limits import PrincipalLimits
from runtime.rest.access.sign_in import SignIn
from runtime.rest.access.sign_in_codes import SignInCodes
from runtime.rest.access.sign_in_middleware import (
    AnonymousMiddleware,
    SignedInBodyMiddleware,
    SignInDesk,
    SignInMiddleware,
)
from runtime.rest.connections.body_limits import BodyLimitsMiddleware, BodyRefusedError
from runtime.rest.connections.shutdown import ShutdownMiddleware
from runtime.rest.context import RestContext
from runtime.rest.dashboard.page_sign_in import PageSignInMiddleware
from runtime.rest.dashboard.pages import dashboard_router
from runtime.rest.forwarding.forward_seal import ForwardSealMiddleware
from runtime.rest.forwarding.leader_forwarding import LeaderForwarding
from runtime.rest.openapi import DescribedApp
from runtime.rest.routes.accumulators import accumulators_router
from runtime.rest.routes.applications import applications_router
from runtime.rest.routes.blobs import blobs_router
from runtime.rest.routes.changes import ActivitySamples, changes_router
from runtime.rest.routes.checkpoints import checkpoints_router
from runtime.rest.routes.cluster import cluster_router
from runtime.rest.routes.events import events_router
from runtime.rest.routes.flame_graphs import flame_graphs_router
from runtime.rest.routes.flink_pages import flink_pages_router
from runtime.rest.routes.jars import jars_router
from runtime.rest.routes.job_lists import job_lists_router
from runtime.rest.routes.jobs import jobs_router
from runtime.rest.routes.logs import logs_router
from runtime.rest.routes.metric_values import metric_values_router
from runtime.rest.routes.metrics import metrics_router
from runtime.rest.routes.operations import operations_router
from runtime.rest.routes.process_views import process_router
from runtime.rest.routes.queues import queues_router
from runtime.rest.routes.refused import refused_router
from runtime.rest.routes.rescales import rescales_router
from runtime.rest.routes.resource_manager import resource_manager_router
from runtime.rest.routes.savepoint_disposal import savepoint_disposal_router
from runtime.rest.routes.spark import spark_router
from runtime.rest.routes.spark_ui import spark_ui_router
from runtime.rest.routes.streams import streams_router
from runtime.rest.routes.tokens import tokens_router
from runtime.rest.routes.vertices import vertices_router
from runtime.rest.spark_ui.sign_out import SparkPagesSignOut

_ROUTERS = (
    metric_values_router,
    job_lists_router,
    jobs_router,
    logs_router,
    accumulators_router,
    spark_router,
    spark_ui_router,
    streams_router,
    checkpoints_router,
    operations_router,
    rescales_router,
    savepoint_disposal_router,
    flame_graphs_router,
    vertices_router,
    cluster_router,
    queues_router,
    resource_manager_router,
    blobs_router,
    jars_router,
    tokens_router,
    process_router,
    metrics_router,
    applications_router,
    flink_pages_router,
    refused_router,
    events_router,
)


def create_app(
    context: RestContext,
    *,
    sign_in: SignIn | None,
    content_length_max: int,
    hosts: Collection[str],
    allowed_hosts: Collection[str] = (),
    activity: ActivitySamples | None = None,
) -> ASGIApp:
    """The whole endpoint. `sign_in` None: no authentication. `hosts`: its own names, `allowed_hosts`: its proxies'.

    `activity`: its owner takes the samples; None: there are none.
    """
    app = DescribedApp(
        title="flinklike", version=VERSION, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    made = [*(make(context) for make in _ROUTERS), changes_router(context, activity or ActivitySamples(context))]
    for router in (*made, dashboard_router(context)):
        app.router.routes.extend(router.routes)  # include_router would make each of them again
    app.router.routes.extend(_under_v1(route) for router in made for route in router.routes)
    for path in ("/openapi.json", "/v1/openapi.json"):
        app.add_api_route(path, app.answer, include_in_schema=False)
    app.add_exception_handler(FlinklikeError, errors.on_flinklike_error)
    app.add_exception_handler(RequestValidationError, errors.on_invalid_request)
    app.add_exception_handler(HTTPException, errors.on_http_error)
    app.add_exception_handler(BodyRefusedError, _on_body_refused)
    app.add_exception_handler(ClientDisconnect, _on_client_gone)
    app.add_exception_handler(Exception, errors.on_unexpected_error)
    # From the inside out: a request passes the last one of these first.
    outer: ASGIApp = SignedInBodyMiddleware(app)
    outer = LeaderForwarding(outer, context)
    outer = BodyLimitsMiddleware(outer, content_length_max)
    outer = ShutdownMiddleware(outer)
    if sign_in is None:
        outer = AnonymousMiddleware(outer)
    else:
        limits = PrincipalLimits(context.limits, context.clock)
        desk = SignInDesk(sign_in, context.audit)
        outer = SignInMiddleware(outer, desk, limits, context.audit)
        if context.page_cookie is not None:
            codes, sign_out = SignInCodes(context.clock), SparkPagesSignOut(context, outer)
            outer = PageSignInMiddleware(outer, desk, context.page_cookie, codes, context.frame_ancestors, sign_out)
    outer = CrossOriginMiddleware(outer, hosts, allowed_hosts, context.audit, checks_host=sign_in is None)
    return ForwardSealMiddleware(outer, context.forward_seal, context.audit)


def _under_v1(route: BaseRoute) -> APIRoute:
    """The same route at Flink's versioned path. It shares the handler: to make one costs a third of a millisecond."""
    assert isinstance(route, APIRoute)
    versioned = copy(route)
    versioned.path = f"/v1{route.path}"
    versioned.path_regex, versioned.path_format, versioned.param_convertors = compile_path(versioned.path)
    versioned.include_in_schema = False
    return versioned


async def _on_body_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BodyRefusedError)
    again = {"retry-after": "1"} if error.status == HTTPStatus.TOO_MANY_REQUESTS else {}
    return errors.error_response(error.status, str(error), headers={"connection": "close", **again})


async def _on_client_gone(_: Request, _error: Exception) -> Response:
    """The client has disconnected: it does not read this answer."""
    return Response(status_code=400)
