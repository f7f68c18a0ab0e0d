"""Authorization before each handler: the role of the principal, and the job (R48). A job it may not see is a 404."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from runtime.common.errors import (
    FlinklikeError,
    ForbiddenError,
    NotFoundError,
    OutcomeUnknownError,
    UnauthenticatedError,
)
from runtime.common.ids import parse_job_id
from runtime.gateways.dispatcher import JobSummary
from runtime.rest.access.roles import NOT_IN_HISTORY, TABLE, Access, is_in_history
from runtime.rest.access.sign_in import check_still_signed_in, principal_of
from runtime.rest.connections.body_limits import BodyRefusedError
from runtime.rest.connections.tls import told_name
from runtime.rest.context import RestContext
from runtime.rest.forwarding.forward_seal import origin_of
from runtime.security.principals import Principal, Role

_OBJECT = "flinklike.object"
_MORE = "flinklike.more"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Tried = Callable[[Request], Coroutine[Any, Any, None]]


class HiddenError(NotFoundError):
    """What is asked for exists, and the principal may not see it: a 404, and the audit log has the `reason`."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def authorized_router(context: RestContext, *, tried: Tried | None = None, **more: Any) -> APIRouter:
    """A router whose routes check the table of roles first. Raises KeyError for a route without a row.

    `tried` adds to the audit log what a refused request was about.
    """

    class AuthorizedRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            handler = super().get_route_handler()
            (method,) = self.methods
            path = self.path.removeprefix("/v1")
            # R56
            if context.history is not None and not is_in_history(method, path):
                handler = _not_in_history
            return _authorized(context, TABLE[method, path], handler, tried, has_job="{job_id}" in path)

    return APIRouter(route_class=AuthorizedRoute, **more)


async def _not_in_history(request: Request) -> Response:
    raise NotFoundError(f"{NOT_IN_HISTORY} (asked for {request.url.path[:200]})")


def _authorized(
    context: RestContext, access: Access, handler: Handler, tried: Tried | None, *, has_job: bool
) -> Handler:
    async def ask(request: Request) -> Response:
        try:
            await _check(context, access, request, has_job=has_job)
            response = await handler(request)
            if not access.action:  # it may have waited; what was done was done
                check_still_signed_in(request.scope)
        except UnauthenticatedError:  # the sign-in middleware has logged it
            raise
        except (ForbiddenError, HiddenError) as error:
            await _refuse(context, access, request, error, tried)
            raise
        except OutcomeUnknownError as error:
            _tell(context, access, request, "unknown", reason=str(error))
            raise
        except (FlinklikeError, BodyRefusedError, ClientDisconnect) as error:
            if access.action:
                reason = str(error) or type(error).__name__
                context.audit.fail(access.action, **_who(request), reason=reason)
            raise
        except BaseException as error:
            _tell(context, access, request, "unknown", reason=type(error).__name__)
            raise
        _tell(context, access, request, "done")
        return response

    return ask


async def _refuse(
    context: RestContext, access: Access, request: Request, error: ForbiddenError | HiddenError, tried: Tried | None
) -> None:
    if tried is not None:
        await tried(request)
    action = access.action or f"{request.method} {request.url.path}"
    reason = error.reason if isinstance(error, HiddenError) else str(error)
    context.audit.refuse(action, **_who(request), reason=reason)


def _tell(context: RestContext, access: Access, request: Request, outcome: str, **more: str) -> None:
    if access.action:
        context.audit.tell(access.action, outcome, **_who(request), **more)


async def _check(context: RestContext, access: Access, request: Request, *, has_job: bool) -> None:
    principal = principal_of(request)
    check_role(principal, access)  # first: what fails after it is logged as tried by a principal with the role
    is_own_only = access.is_own and principal.role is Role.SUBMITTER
    job = None
    if has_job and (is_own_only or not principal.is_of_all):
        job = await _seen(context, principal, request.path_params["job_id"])
    if job is not None and is_own_only and job.submitter != principal.submitter:
        message = f"job {job.job_id} was submitted by somebody else: this takes the role operator"
        raise ForbiddenError(message)


def tell_done(context: RestContext, request: Request, action: str, **more: Any) -> None:
    """A line of the audit log, for a route where the request decides whether there is one."""
    context.audit.tell(action, "done", **_who(request), **more)


def set_object(request: Request, what: str) -> None:
    """Sets the object of a request for the audit log, where its path does not name it."""
    request.scope[_OBJECT] = what


def set_more(request: Request, **what: Any) -> None:
    """Sets further fields of a request for the audit log."""
    request.scope[_MORE] = what


def _who(request: Request) -> dict[str, Any]:
    """The audit log's fields of a request."""
    return {
        "principal": principal_of(request).name,
        **origin_of(request.scope),
        "object_": str(request.scope.get(_OBJECT) or next(iter(request.path_params.values()), "")),
        **told_name(request.scope),
        **request.scope.get(_MORE, {}),
    }


def check_role(principal: Principal, access: Access) -> None:
    """Raises ForbiddenError that names the role that is needed."""
    if principal.role < access.role:
        message = (
            f"this takes the role {access.role.text}: {principal.name}, signed in by {principal.via}, has the role "
            f"{principal.role.text}"
        )
        raise ForbiddenError(message)
    if access.is_of_all and not principal.is_of_all:
        message = (
            f"this takes the role {access.role.text} of all namespaces: {principal.name}, signed in by "
            f"{principal.via}, is {principal.role.text} of {principal.namespace}"
        )
        raise ForbiddenError(message)


async def _seen(context: RestContext, principal: Principal, text: str) -> JobSummary:
    """The job, if it is in a namespace that this principal sees. Raises NotFoundError as for one that is unknown."""
    job_id = parse_job_id(text)
    summary = await context.dispatcher.find_job(job_id)
    message = f"Job {job_id} not found"
    if summary is None:
        raise NotFoundError(message)
    if not principal.sees(summary.namespace):
        raise HiddenError(message, _hidden_in_words(principal, summary))
    return summary


def tell_hidden(context: RestContext, request: Request, jobs: Sequence[JobSummary]) -> None:
    """One line of the audit log for a request that names jobs which its principal may not see."""
    if not jobs:
        return
    set_object(request, jobs[0].job_id)
    more = f", and {len(jobs) - 1} more such jobs are named" if len(jobs) > 1 else ""
    reason = _hidden_in_words(principal_of(request), jobs[0]) + more
    context.audit.refuse(f"{request.method} {request.url.path}", **_who(request), reason=reason)


def _hidden_in_words(principal: Principal, job: JobSummary) -> str:
    return f"job {job.job_id} is of the namespace {job.namespace}, {principal.name} sees {principal.namespace} only"


def check_namespace_of_submit(principal: Principal, asked: str) -> str:
    """The namespace of a submit. ForbiddenError for one of others, InvalidInputError where none is given or set."""
    namespace = principal.namespace_for(asked)
    if not principal.sees(namespace):
        message = f"{principal.name} submits into the namespace {principal.namespace}, not into {namespace}"
        raise ForbiddenError(message)
    return namespace
