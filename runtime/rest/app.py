"""The ASGI application: all routers, with and without /v1, behind the guards and the way to the leader."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from runtime.common.errors import FlinklikeError
from runtime.common.version import VERSION
from runtime.rest import errors
from runtime.rest.blobs import blobs_router
from runtime.rest.body_guard import BodyGuard, BodyRefusedError
from runtime.rest.browser_guard import BrowserGuard
from runtime.rest.cluster import cluster_router
from runtime.rest.context import RestContext
from runtime.rest.forward_seal import ForwardGuard
from runtime.rest.forwarding import LeaderForwarding
from runtime.rest.guards import AnybodyGuard, SignInGuard, StopGuard, WholeBodyGuard
from runtime.rest.jobs import jobs_router
from runtime.rest.limits import PrincipalLimits
from runtime.rest.logs import logs_router
from runtime.rest.openapi import DescribedApp
from runtime.rest.sign_in import SignIn
from runtime.rest.start_page import start_router
from runtime.rest.tokens import tokens_router
from runtime.rest.ui import ui_router
from runtime.rest.vertices import vertices_router


def create_app(
    context: RestContext,
    *,
    sign_in: SignIn | None,
    content_length_max: int,
    hosts: Collection[str],
    allowed_hosts: Collection[str] = (),
) -> ASGIApp:
    """The whole endpoint. `sign_in` None: no authentication. `hosts`: its own names, `allowed_hosts`: its proxies'."""
    app = DescribedApp(
        title="flinklike", version=VERSION, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    routers = (jobs_router, logs_router, vertices_router, cluster_router, blobs_router, tokens_router)
    for router in (make(context) for make in routers):
        app.include_router(router)
        app.include_router(router, prefix="/v1", include_in_schema=False)
    app.include_router(start_router(context))
    app.include_router(ui_router(context), include_in_schema=False)
    for path in ("/openapi.json", "/v1/openapi.json"):
        app.add_api_route(path, app.answer, include_in_schema=False)
    app.add_exception_handler(FlinklikeError, errors.on_flinklike_error)
    app.add_exception_handler(RequestValidationError, errors.on_invalid_request)
    app.add_exception_handler(HTTPException, errors.on_http_error)
    app.add_exception_handler(BodyRefusedError, _on_body_refused)
    app.add_exception_handler(ClientDisconnect, _on_client_gone)
    app.add_exception_handler(Exception, errors.on_unexpected_error)
    guarded: ASGIApp = StopGuard(BodyGuard(LeaderForwarding(WholeBodyGuard(app), context), content_length_max))
    if sign_in is None:
        guarded = AnybodyGuard(guarded)
    else:
        limits = PrincipalLimits(context.limits, context.clock)
        guarded = SignInGuard(guarded, sign_in, limits, context.audit)
    guarded = BrowserGuard(guarded, hosts, allowed_hosts, context.audit, checks_host=sign_in is None)
    return ForwardGuard(guarded, context.forward_seal, context.audit)


async def _on_body_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BodyRefusedError)
    again = {"retry-after": "1"} if error.status == HTTPStatus.TOO_MANY_REQUESTS else {}
    return errors.error_response(error.status, str(error), headers={"connection": "close", **again})


async def _on_client_gone(_: Request, _error: Exception) -> Response:
    """Nobody reads this answer."""
    return Response(status_code=400)
