"""Routes of /blobs: which digests are missing, upload once, download. Bodies are streamed, never held whole."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from runtime.common.errors import InvalidInputError, StorageExhaustedError
from runtime.gateways.blob import BlobKey
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.request_bodies import MissingRequest, parse_body
from runtime.rest.bodies.schema import blobs as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers, answers_bytes, takes

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_KEY = re.compile(r"([0-9a-f]{64})-([0-9a-z]{1,64})\Z")


def blobs_router(context: RestContext) -> APIRouter:
    """Uploads and downloads."""
    router = authorized_router(context, prefix="/blobs", tags=["blobs"])

    @router.post("/missing", responses=answers(schema.MissingBlobs), openapi_extra=takes(MissingRequest))
    async def missing(request: Request) -> Response:
        """`{"digests": [{"sha256", "size_bytes"}]}` -> `{"missing": [sha256], "keys": {sha256: key}}` (R19)."""
        asked = parse_body(MissingRequest, await request.body())
        digests = [(one.sha256, one.size_bytes) for one in asked.digests]
        keys, absent = await context.components.blobs.missing(digests)
        body: schema.MissingBlobs = {"missing": list(absent), "keys": {sha: str(key) for sha, key in keys.items()}}
        return JsonAnswer(body)

    @router.put("/{sha256}", status_code=201, responses=answers(schema.StoredBlob, 201))
    async def upload(sha256: str, request: Request) -> Response:
        """Store the body under its digest; durable when answered."""
        if _SHA256.match(sha256) is None:
            message = "the path must end in the content's sha256: 64 lower-case hex digits"
            raise InvalidInputError(message)
        try:
            key = await context.components.blobs.upload(sha256, request.stream())
        except StorageExhaustedError as error:
            message = f"{error} ({request.headers.get('content-length', 'unknown')} bytes are needed)"
            raise StorageExhaustedError(message) from error
        body: schema.StoredBlob = {"key": str(key)}
        return JsonAnswer(body, status_code=201)

    @router.get("/{key}", responses=answers_bytes("application/octet-stream"))
    async def download(key: str) -> Response:
        """The bytes of an object."""
        match = _KEY.match(key)
        if match is None:
            message = "expected a blob key: <sha256>-<upload id>"
            raise InvalidInputError(message)
        chunks = context.components.blobs.download(BlobKey(match.group(1), match.group(2)))
        first = await anext(aiter(chunks), b"")

        async def body() -> Any:
            yield first
            async for chunk in chunks:
                yield chunk

        return StreamingResponse(body(), media_type="application/octet-stream")

    return router
