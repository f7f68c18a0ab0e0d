"""JSON answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Send


def encoded(content: Any) -> bytes:
    """Compact, and ASCII: texts of user code may hold half of a surrogate pair, which UTF-8 cannot."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class JsonAnswer(JSONResponse):
    """Flink's content type; bytes are a body that is encoded already.

    Without Flink's `access-control-allow-origin: *`: no page of another origin may read or submit jobs here.
    """

    media_type = "application/json; charset=UTF-8"

    def render(self, content: Any) -> bytes:
        """The body."""
        return content if isinstance(content, bytes) else encoded(content)


async def answer_error(
    send: Send, status: HTTPStatus, sentence: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Flink's error body, for what is answered before any handler."""
    body = encoded({"errors": [sentence]})
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", JsonAnswer.media_type.encode())
    await send({"type": "http.response.start", "status": int(status), "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": body})
