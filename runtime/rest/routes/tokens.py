"""Routes of /tokens: an admin makes, rotates and revokes tokens of principals (R48). One answer shows a new token."""

from __future__ import annotations

from contextlib import suppress

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from runtime.common.errors import ConflictError, FlinklikeError, InvalidInputError
from runtime.highavailability.records import PrincipalRecord
from runtime.rest.access.authorized_routes import authorized_router, set_more, set_object
from runtime.rest.access.principals import NewToken, PrincipalAdministration
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.request_bodies import NewPrincipal, RotatedToken, parse_body
from runtime.rest.bodies.schema import access as schema
from runtime.rest.bodies.schema.common import Empty
from runtime.rest.connections.body_limits import BodyRefusedError
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, takes
from runtime.security.principals import Role


def tokens_router(context: RestContext) -> APIRouter:
    """All routes of /tokens."""
    router = authorized_router(context, tried=_set_asked, prefix="/tokens", tags=["tokens"])

    @router.get("", responses=answers(schema.StoredPrincipals))
    async def tokens() -> Response:
        """All principals, revoked ones too, without their tokens; of one that cannot be read the problem."""
        there = _principals(context)
        problems = there.problems()
        bodies = [_body(one, problems.get(one.name, "")) for one in there.records()]
        body: schema.StoredPrincipals = {"principals": bodies}
        return JsonAnswer(body)

    with_token = answers(schema.PrincipalWithToken, 201)

    @router.post("", status_code=201, responses=with_token, openapi_extra=takes(NewPrincipal))
    async def create(request: Request) -> Response:
        """A principal and its token, which no later answer shows; no token with a certificate."""
        asked = parse_body(NewPrincipal, await request.body())
        _set_granted(request, asked)
        role = Role.parse(asked.role)
        if asked.certificate:
            if asked.lifetime:
                message = "lifetime: a certificate ends when it says so: leave it out"
                raise InvalidInputError(message)
            admitted = _principals(context).admit(asked.name, role, asked.namespace, certificate=asked.certificate)
            return _told(NewToken(await admitted, ""))
        ends = _end(context, asked.lifetime)
        return _told(await _principals(context).create(asked.name, role, asked.namespace, expires_millis=ends))

    @router.post("/{name}/rotate", status_code=201, responses=with_token, openapi_extra=takes(RotatedToken))
    async def rotate(name: str, request: Request) -> Response:
        """A further token; the one before it goes on until it ends, or until there is another one."""
        asked = parse_body(RotatedToken, await request.body())
        ends = _end(context, asked.lifetime)
        set_more(request, granted_lifetime=asked.lifetime)
        return _told(await _principals(context).rotate(name, expires_millis=ends))

    @router.delete("/{name}", responses=answers(Empty))
    async def revoke(name: str) -> Response:
        """End all tokens of a principal, and what its certificate opens. Its jobs go on. Idempotent."""
        await _principals(context).revoke(name)
        return JsonAnswer({})

    @router.post("/{name}/forget", responses=answers(Empty))
    async def forget(name: str) -> Response:
        """Delete a principal that is revoked. JSON Web Tokens of that name sign in again, if there are any."""
        await _principals(context).forget(name)
        return JsonAnswer({})

    return router


async def _set_asked(request: Request) -> None:
    """Logs what a refused request would have made, where its body can be read."""
    if request.method == "POST" and not request.path_params:
        with suppress(FlinklikeError, BodyRefusedError, ClientDisconnect):
            _set_granted(request, parse_body(NewPrincipal, await request.body()))


def _set_granted(request: Request, asked: NewPrincipal) -> None:
    set_object(request, asked.name)
    given = asked.model_dump(include={"role", "namespace", "certificate", "lifetime"})
    set_more(request, **{f"granted_{name}": value for name, value in given.items()})


def _principals(context: RestContext) -> PrincipalAdministration:
    _ = context.components  # only the leader changes anything
    if context.principals is None:
        message = "this cluster has no authentication (security.authentication: none): tokens would open nothing"
        raise ConflictError(message)
    return context.principals


def _end(context: RestContext, lifetime: int) -> int:
    """In milliseconds since 1970 by the clock that it ends by; 0: never."""
    return context.clock.epoch_millis() + 1000 * lifetime if lifetime else 0


def _body(record: PrincipalRecord, problem: str = "") -> schema.StoredPrincipal:
    return {
        "name": record.name,
        "role": record.role,
        "namespace": record.namespace,
        "is-revoked": record.is_revoked,
        "tokens": [{"created": one.created_millis, "expires": one.expires_millis} for one in record.tokens],
        "certificate": record.certificate,
        "problem": problem,
    }


def _told(made: NewToken) -> Response:
    body: schema.PrincipalWithToken = {**_body(made.record), "token": made.token}
    return JsonAnswer(body, status_code=201, headers={"cache-control": "no-store"})
