"""JSON from outside, for readers that have no model for it."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text. Raises ValueError, also for a text that is nested too deep for Python (R52)."""
    try:
        return json.loads(text)
    except RecursionError as error:
        message = "it is nested too deep"
        raise ValueError(message) from error
