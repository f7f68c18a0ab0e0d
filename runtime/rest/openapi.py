"""What /openapi.json says of each route: the shapes of its answers and the model of its body."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from runtime.rest.answers import JsonAnswer, encoded
from runtime.rest.bodies import text_patterns
from runtime.rest.bodies.request_bodies import (
    ClientHeartbeat,
    LogsRequest,
    MissingRequest,
    MoveRequest,
    NewPrincipal,
    RotatedToken,
    WaitRequest,
)
from runtime.rest.routes.submission import Submission
from runtime.rest.shapes import ERRORS, Shape, json_schema

_BODIES: tuple[type[BaseModel], ...] = (
    Submission,
    WaitRequest,
    LogsRequest,
    MissingRequest,
    MoveRequest,
    ClientHeartbeat,
    NewPrincipal,
    RotatedToken,
)
_REFERENCE = "#/components/schemas/{model}"

_PATH_PATTERNS = {
    "job_id": text_patterns.JOB_ID,
    "vertex_id": text_patterns.VERTEX_ID,
    "sha256": text_patterns.SHA256,
    "key": text_patterns.BLOB_KEY,
    "name": text_patterns.PRINCIPAL_NAME,
}
"""What a part of a path looks like. Handlers look themselves: they say more, as 400."""


def answers(shape: Shape, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: its answer, and Flink's body of every refusal."""
    return {status: _json("as asked", shape), "4XX": _json("refused", ERRORS), "5XX": _json("not now", ERRORS)}


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra=` of a route that reads its body itself."""
    schema = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def answers_bytes(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The same for a route whose answer is no JSON."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {**answers(ERRORS), 200: {"description": "as asked", "content": content}}


def _json(description: str, shape: Shape) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": json_schema(shape)}}}


class DescribedApp(FastAPI):
    """FastAPI that knows the models of bodies that routes read themselves."""

    _encoded: bytes | None = None

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            _, models = models_json_schema([(model, "validation") for model in _BODIES], ref_template=_REFERENCE)
            document.setdefault("components", {}).setdefault("schemas", {}).update(models["$defs"])
            for operations in document["paths"].values():
                _describe_paths(operations)
        assert self.openapi_schema is not None
        return self.openapi_schema

    async def answer(self) -> JsonAnswer:
        """The document for a client. Encoded once: it is large, and anybody who may look may ask for it (R41)."""
        if self._encoded is None:
            self._encoded = encoded(self.openapi())
        return JsonAnswer(self._encoded)


def _describe_paths(operations: dict[str, Any]) -> None:
    for operation in operations.values():
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] in _PATH_PATTERNS:
                parameter["schema"]["pattern"] = _PATH_PATTERNS[parameter["name"]]
