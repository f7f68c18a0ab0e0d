"""/openapi.json: the types of each route's answers and of its body, as components that operations refer to."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypeAliasType

from runtime.rest.answers import JsonAnswer, encoded
from runtime.rest.bodies import text_patterns
from runtime.rest.bodies.schema.common import Errors

Described = type[Any] | TypeAliasType
"""A TypedDict of `bodies.schema`, or the model of a request's body."""

_described: dict[str, Any] = {}
"""By name, those that a route has named."""
_REFERENCE = "#/components/schemas/{model}"

REFUSED = "refused"
"""Tag of routes that are never answered otherwise."""

_PATH_PATTERNS = {
    "job_id": text_patterns.JOB_ID,
    "vertex_id": text_patterns.VERTEX_ID,
    "sha256": text_patterns.SHA256,
    "key": text_patterns.BLOB_KEY,
    "name": text_patterns.PRINCIPAL_NAME,
    "jar_id": text_patterns.JAR_ID,
    "file_name": text_patterns.LOG_FILE_NAME,
}
"""What a part of a path looks like. Handlers look themselves: they say more, as 400."""


def answers(body: Described, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: the type of its answer, and Flink's body of every refusal."""
    return {status: _json("as asked", body), "4XX": _json("refused", Errors), "5XX": _json("not now", Errors)}


def takes(model: type[BaseModel], *, is_required: bool = True) -> dict[str, Any]:
    """For `openapi_extra=` of a route that reads its body itself."""
    return {"requestBody": {"required": is_required, "content": {"application/json": {"schema": _reference(model)}}}}


def takes_file(field: str) -> dict[str, Any]:
    """`takes` for a route that reads one file of a multipart form."""
    file = {"type": "string", "format": "binary"}
    schema = {"type": "object", "properties": {field: file}, "required": [field]}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def refuses() -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route that always refuses."""
    return {"4XX": _json("refused", Errors), "5XX": _json("not now", Errors)}


def answers_bytes(media_type: str) -> dict[int | str, dict[str, Any]]:
    """`answers` for a route whose answer is no JSON."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {**answers(Errors), 200: {"description": "as asked", "content": content}}


def _json(description: str, body: Described) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _reference(body)}}}


def _reference(body: Described) -> dict[str, Any]:
    assert _described.setdefault(body.__name__, body) is body, f"two bodies are called {body.__name__}"
    return {"$ref": _REFERENCE.format(model=body.__name__)}


def _components() -> dict[str, Any]:
    mode: Literal["validation"] = "validation"
    inputs = [(name, mode, TypeAdapter[Any](body)) for name, body in _described.items()]
    _, document = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)
    components: dict[str, Any] = document["$defs"]
    return components


class DescribedApp(FastAPI):
    """FastAPI with the types of bodies that routes read and write themselves."""

    _encoded: bytes | None = None

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            document.setdefault("components", {}).setdefault("schemas", {}).update(_components())
            for operations in document["paths"].values():
                _describe_paths(operations)
        assert self.openapi_schema is not None
        return self.openapi_schema

    async def answer(self) -> JsonAnswer:
        """The document for a client. Encoded once: it is large, and every viewer may ask for it (R41)."""
        if self._encoded is None:
            self._encoded = encoded(self.openapi())
        return JsonAnswer(self._encoded)


def _describe_paths(operations: dict[str, Any]) -> None:
    for operation in operations.values():
        if REFUSED in operation.get("tags", ()):
            operation["responses"].pop("200")  # FastAPI describes one for every route
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] in _PATH_PATTERNS:
                parameter["schema"]["pattern"] = _PATH_PATTERNS[parameter["name"]]
