"""JSON from outside, for readers that have no model of it."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: bytes | str) -> Any:
    """Its value. Raises ValueError for whatever cannot be read: also for what is nested too deep for Python (R52)."""
    try:
        return json.loads(text)
    except RecursionError as error:
        message = "it is nested too deep"
        raise ValueError(message) from error
