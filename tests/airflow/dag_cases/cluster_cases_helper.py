"""A module beside a DAG file: no TaskManager can import it."""

from __future__ import annotations

from typing import Any


def squared(ctx: Any, frame: Any) -> Any:
    """n -> n * n."""
    del ctx
    return frame.selectExpr("n * n as n")
