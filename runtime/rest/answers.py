"""JSON answers."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


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
