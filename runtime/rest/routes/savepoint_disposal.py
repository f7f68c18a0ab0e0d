"""Flink's routes that delete a savepoint, and tell what has become of that (R62).

JobManagers do not reach savepoints: the wish is durable when it is answered, and a TaskManager carries it out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as PathPart
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from runtime.common.errors import InvalidInputError, NotFoundError, UnavailableError
from runtime.gateways.operations import TARGET_LENGTH_MAX, OperationState, SavepointDisposal
from runtime.rest.access.authorized_routes import authorized_router, set_more, set_object
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import operation_bodies
from runtime.rest.bodies.request_bodies import parse_body
from runtime.rest.bodies.schema import operations as schema
from runtime.rest.bodies.text_patterns import JOB_ID
from runtime.rest.context import LEADER_UNKNOWN, DisposalEndpoint, RestContext
from runtime.rest.openapi import answers, takes
from runtime.security.principals import Principal, Role


class DisposalTrigger(BaseModel):
    """The body of POST /savepoint-disposal. `triggerId` is not Flink's: the same one asks once."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    path: Annotated[
        str, Field(alias="savepoint-path", max_length=TARGET_LENGTH_MAX, description="a path, or a file: URL")
    ]
    trigger_id: Annotated[str | None, Field(alias="triggerId", pattern=JOB_ID)] = None


def savepoint_disposal_router(context: RestContext) -> APIRouter:
    """Both routes."""
    router = authorized_router(context, prefix="/savepoint-disposal", tags=["checkpoints"])

    @router.post("", responses=answers(schema.Triggered), openapi_extra=takes(DisposalTrigger))
    async def dispose(request: Request) -> Response:
        """Have a TaskManager delete a savepoint."""
        asked = parse_body(DisposalTrigger, await request.body() or b"{}")
        path = _path(context, asked.path)
        set_object(request, path)
        principal = principal_of(request)
        wish = SavepointDisposal(
            asked.trigger_id or context.entropy.hex_id(),
            path,
            OperationState.IN_PROGRESS,
            context.clock.epoch_millis(),
            below=_below(context),
            submitter=principal.submitter if principal.role is Role.SUBMITTER else "",
            namespace="" if principal.is_of_all else principal.namespace,
        )
        set_more(request, trigger_id=wish.trigger_id)
        stored = await _disposals(context).request(wish)
        if (stored.path, stored.submitter, stored.namespace) != (wish.path, wish.submitter, wish.namespace):
            message = f"triggerId {wish.trigger_id} is taken by the disposal of another savepoint"
            raise InvalidInputError(message)
        body: schema.Triggered = {"request-id": stored.trigger_id}
        return JsonAnswer(body)

    @router.get("/{trigger_id}", responses=answers(schema.DisposalOperation))
    async def disposal(request: Request, trigger_id: Annotated[str, PathPart(max_length=64)]) -> Response:
        """What has become of it."""
        found = await _disposals(context).find(trigger_id)
        if found is None or not _sees(principal_of(request), found):
            message = f"There is no savepoint disposal operation with triggerId={trigger_id}."
            raise NotFoundError(message)
        return JsonAnswer(operation_bodies.disposal_operation(found))

    return router


def _disposals(context: RestContext) -> DisposalEndpoint:
    found = context.components.disposals
    if found is None:
        raise UnavailableError(LEADER_UNKNOWN)
    return found


def _sees(principal: Principal, of: SavepointDisposal) -> bool:
    return principal.is_of_all or principal.namespace == of.namespace


def _below(context: RestContext) -> str:
    return _local(context.savepoint_directory) if context.savepoint_directory else ""


def _local(url: str) -> str:
    return url.removeprefix("file://") if url.startswith("file:///") else url.removeprefix("file:")


def _path(context: RestContext, url: str) -> str:
    """An absolute path, below `execution.checkpointing.savepoint-dir` where that is set. Raises InvalidInputError."""
    path = Path(_local(url))
    if "://" in str(path) or not path.is_absolute() or "\0" in url or ".." in path.parts or len(path.parts) < 2:
        message = (
            f"{url[:200]!r} is no savepoint: name its absolute path, or a file: URL of it, as TaskManagers reach it"
        )
        raise InvalidInputError(message)
    below = _below(context)
    if below and Path(below) not in path.parents:
        message = (
            f"{url[:200]!r} does not lie below execution.checkpointing.savepoint-dir, {below}: REST deletes no others. "
            "flinklike savepoint dispose PATH does, on a host that reaches it"
        )
        raise InvalidInputError(message)
    return str(path)
