"""Flink's routes that trigger checkpoints, savepoints and stops, and tell what has become of them (R61).

A trigger is answered when its operation is durable at the job's owner; an operation is asked about also when owners,
leaders and the job itself are gone, as long as the cluster remembers the job.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi import Path as PathPart
from fastapi.responses import Response
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from runtime.checkpoint.savepoint.savepoint_files import local_path
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.common.ids import JobId, parse_job_id
from runtime.gateways.operations import TARGET_LENGTH_MAX, OperationKind, StreamOperation, TriggerOperation
from runtime.rest.access.authorized_routes import authorized_router, set_more
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies import operation_bodies
from runtime.rest.bodies.request_bodies import parse_body
from runtime.rest.bodies.schema import operations as schema
from runtime.rest.bodies.text_patterns import JOB_ID
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, takes
from runtime.rest.routes.jobs import known_summary

_TriggerId = Annotated[str, Field(pattern=JOB_ID, description="32 hexadecimal digits; the same one asks once")]
_Target = Annotated[str, Field(max_length=TARGET_LENGTH_MAX, description="a path, or a file: URL")]
_NO_TARGET = (
    "No savepoint directory configured: name one (target-directory, flinklike savepoint JOB DIRECTORY), or set "
    "execution.checkpointing.savepoint-dir"
)


class CheckpointTrigger(BaseModel):
    """The body of POST /jobs/:id/checkpoints. The state of a checkpoint is Spark's, so that all types are one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    trigger_id: Annotated[_TriggerId | None, Field(alias="triggerId")] = None
    checkpoint_type: Annotated[Literal["CONFIGURED", "FULL"], Field(alias="checkpointType")] = "CONFIGURED"


class SavepointTrigger(BaseModel):
    """The body of POST /jobs/:id/savepoints. `cancel-job`: the job finishes with it, as by a stop."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    target: Annotated[_Target | None, Field(alias="target-directory")] = None
    cancels: Annotated[bool, Field(alias="cancel-job")] = False
    trigger_id: Annotated[_TriggerId | None, Field(alias="triggerId")] = None
    format_type: Annotated[Literal["CANONICAL"] | None, Field(alias="formatType")] = None


class StopTrigger(BaseModel):
    """The body of POST /jobs/:id/stop. `drain`: queries read what is there before they end."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    target: Annotated[_Target | None, Field(validation_alias=AliasChoices("targetDirectory", "target-directory"))] = (
        None
    )
    drain: bool = False
    trigger_id: Annotated[_TriggerId | None, Field(alias="triggerId")] = None
    format_type: Annotated[Literal["CANONICAL"] | None, Field(alias="formatType")] = None


def operations_router(context: RestContext) -> APIRouter:
    """Behind the other routes of checkpoints: `config` is no id of a trigger."""
    router = authorized_router(context, prefix="/jobs/{job_id}", tags=["checkpoints"])
    _add_triggers(router, context)

    @router.get("/checkpoints/{trigger_id}", responses=answers(schema.CheckpointOperation))
    async def checkpoint_operation(job_id: str, trigger_id: Annotated[str, PathPart(max_length=64)]) -> Response:
        """What has become of a checkpoint on request."""
        found = await _found(context, job_id, trigger_id, "checkpoint")
        return JsonAnswer(operation_bodies.checkpoint_operation(found))

    @router.get("/savepoints/{trigger_id}", responses=answers(schema.SavepointOperation))
    async def savepoint_operation(job_id: str, trigger_id: Annotated[str, PathPart(max_length=64)]) -> Response:
        """What has become of a savepoint, or of a stop."""
        found = await _found(context, job_id, trigger_id, "savepoint")
        return JsonAnswer(operation_bodies.savepoint_operation(found))

    return router


def _add_triggers(router: APIRouter, context: RestContext) -> None:
    accepted = answers(schema.Triggered, 202)

    @router.post(
        "/checkpoints",
        status_code=202,
        responses=accepted,
        openapi_extra=takes(CheckpointTrigger, is_required=False),
    )
    async def trigger_checkpoint(job_id: str, request: Request) -> Response:
        """Record now how far all queries are."""
        asked = parse_body(CheckpointTrigger, await request.body() or b"{}")
        return await _trigger(context, request, job_id, asked.trigger_id, OperationKind.CHECKPOINT)

    @router.post(
        "/savepoints", status_code=202, responses=accepted, openapi_extra=takes(SavepointTrigger, is_required=False)
    )
    async def trigger_savepoint(job_id: str, request: Request) -> Response:
        """Copy the state of all queries while they run; with `cancel-job` the job finishes with it."""
        asked = parse_body(SavepointTrigger, await request.body() or b"{}")
        kind = OperationKind.STOP if asked.cancels else OperationKind.SAVEPOINT
        target = await _target(context, job_id, asked.target)
        return await _trigger(context, request, job_id, asked.trigger_id, kind, target)

    @router.post("/stop", status_code=202, responses=accepted, openapi_extra=takes(StopTrigger, is_required=False))
    async def stop(job_id: str, request: Request) -> Response:
        """Finish the job with a savepoint: each query ends between two batches, and ends when all of it is durable."""
        asked = parse_body(StopTrigger, await request.body() or b"{}")
        target = await _target(context, job_id, asked.target)
        return await _trigger(
            context, request, job_id, asked.trigger_id, OperationKind.STOP, target, drains=asked.drain
        )


async def _trigger(
    context: RestContext,
    request: Request,
    job_id: str,
    trigger_id: str | None,
    kind: OperationKind,
    target: str = "",
    *,
    drains: bool = False,
) -> Response:
    job = parse_job_id(job_id)
    await known_summary(context, job)
    wanted = TriggerOperation(job, trigger_id or context.entropy.hex_id(), kind, target, drains)
    set_more(request, kind=kind.value, trigger_id=wanted.trigger_id, target=target)
    durable = await context.dispatcher.request_operation(wanted)
    body: schema.Triggered = {"request-id": durable.trigger_id}
    return JsonAnswer(body, status_code=202)


async def _found(context: RestContext, job_id: str, trigger_id: str, what: str) -> StreamOperation:
    job: JobId = parse_job_id(job_id)
    found = await context.dispatcher.find_operation(job, trigger_id)
    is_checkpoint = found is not None and found.kind is OperationKind.CHECKPOINT
    if found is None or is_checkpoint != (what == "checkpoint"):
        await known_summary(context, job)
        message = f"There is no {what} operation with triggerId={trigger_id} for job {job}."
        raise NotFoundError(message)
    return found


async def _target(context: RestContext, job_id: str, named: str | None) -> str:
    """An absolute path on file systems of the TaskManagers. Raises NotFoundError for the job, InvalidInputError."""
    await known_summary(context, parse_job_id(job_id))
    url = named or context.savepoint_directory
    if not url:
        raise InvalidInputError(_NO_TARGET)
    path = local_path(url)
    if ".." in path.parts:
        message = f"{url[:200]!r} is no directory for savepoints: name it without '..'"
        raise InvalidInputError(message)
    return str(path)
