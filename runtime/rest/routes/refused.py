"""Routes of Flink that mean nothing here, or not yet: each is refused with the reason and with what helps instead.

docs/rest.md lists them. A job in the path is looked for first, so that a wrong id is told as such.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from runtime.common.errors import ConflictError, InvalidInputError, NotFoundError
from runtime.common.ids import parse_job_id
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.context import RestContext
from runtime.rest.openapi import REFUSED, refuses
from runtime.rest.routes.jobs import known_summary


@dataclass(frozen=True, slots=True)
class Refusal:
    """`error` decides the status; `sentence` may name `{trigger_id}` and `{job_id}`."""

    method: str
    path: str
    error: type[ConflictError | InvalidInputError | NotFoundError]
    sentence: str


_STOP_ELSEWHERE = "Nothing stops by a GET: POST /jobs/<id>/stop, or flinklike stop, does it"
_FIXED = "a job of the Adaptive scheduler is rescaled by PUT /jobs/<id>/resource-requirements, or flinklike rescale"

REFUSALS = (
    Refusal("GET", "/jobs/{job_id}/yarn-stop", ConflictError, f"{_STOP_ELSEWHERE}."),
    Refusal("PATCH", "/jobs/{job_id}/rescaling", ConflictError, f"Rescaling is disabled: {_FIXED}."),
    Refusal(
        "GET",
        "/jobs/{job_id}/rescaling/{trigger_id}",
        NotFoundError,
        "There is no rescaling operation with triggerId={trigger_id} for job {job_id}.",
    ),
    Refusal(
        "POST",
        "/jobs/{job_id}/coordinators/{operator_id}",
        NotFoundError,
        "Jobs here have no operator coordinators: a job's value is in GET /jobs/<id>/execution-result.",
    ),
    Refusal("DELETE", "/datasets/{dataset_id}", NotFoundError, "There is no such data set: results are not kept."),
    Refusal(
        "GET",
        "/datasets/delete/{trigger_id}",
        NotFoundError,
        "There is no delete operation with triggerId={trigger_id}.",
    ),
)


def refused_router(context: RestContext) -> APIRouter:
    """All of them."""
    router = authorized_router(context, tags=[REFUSED])
    for refusal in REFUSALS:
        _add(router, context, refusal)
    return router


def _add(router: APIRouter, context: RestContext, refusal: Refusal) -> None:
    async def refuse(request: Request) -> Response:
        told = {name: value[:64] for name, value in request.path_params.items()}
        if "job_id" in told:
            await known_summary(context, parse_job_id(request.path_params["job_id"]))
        raise refusal.error(refusal.sentence.format(**told))

    name = f"{refusal.method.lower()}{refusal.path.replace('/', '_')}"
    router.add_api_route(
        refusal.path,
        refuse,
        methods=[refusal.method],
        name=name,
        operation_id=name,
        description="Refused, with the reason.",
        responses=refuses(),
        openapi_extra={
            "parameters": [
                {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
                for part in refusal.path.split("/")
                if part.startswith("{")
            ]
        },
    )
