"""What /openapi.json says of each route: the shapes of its answers and the model of its body."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from runtime.rest.request_bodies import ClientHeartbeat, LogsRequest, MissingRequest, MoveRequest, WaitRequest
from runtime.rest.shapes import ERRORS, Shape, json_schema
from runtime.rest.submission import Submission

_BODIES: tuple[type[BaseModel], ...] = (
    Submission,
    WaitRequest,
    LogsRequest,
    MissingRequest,
    MoveRequest,
    ClientHeartbeat,
)
_REFERENCE = "#/components/schemas/{model}"


def answers(shape: Shape, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: its answer, and Flink's body of every refusal."""
    return {status: _json("as asked", shape), "4XX": _json("refused", ERRORS), "5XX": _json("not now", ERRORS)}


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra=` of a route that reads its body itself."""
    schema = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _json(description: str, shape: Shape) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": json_schema(shape)}}}


class DescribedApp(FastAPI):
    """FastAPI that knows the models of bodies that routes read themselves."""

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            _, models = models_json_schema([(model, "validation") for model in _BODIES], ref_template=_REFERENCE)
            document.setdefault("components", {}).setdefault("schemas", {}).update(models["$defs"])
        assert self.openapi_schema is not None
        return self.openapi_schema
