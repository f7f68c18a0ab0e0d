"""Code of jobs that outlive outages: each notes that it begins and ends, and runs until its gate opens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def function(ctx: Any) -> str:
    """A lone task."""
    _note(ctx, "begins")
    while not (Path(ctx.params["gates"]) / ctx.vertex_name).exists() and not ctx.cancelled:
        time.sleep(0.05)
    if not ctx.cancelled:
        _note(ctx, "ends")
    return "done"


def one_of_many(ctx: Any) -> None:
    """Every other subtask ends at once, so that others are deployed before the slot is free; the rest have gates."""
    name = f"{ctx.vertex_name}-{ctx.subtask_index}"
    _note(ctx, "begins", name)
    while ctx.subtask_index % 2 and not (Path(ctx.params["gates"]) / name).exists() and not ctx.cancelled:
        time.sleep(0.05)
    if not ctx.cancelled:
        _note(ctx, "ends", name)


def source(ctx: Any) -> str:
    """A task whose result others read."""
    return function(ctx)


def sink(ctx: Any, said: Any) -> str:
    """A task that reads it."""
    assert said == ["done"], said
    return function(ctx)


def _note(ctx: Any, what: str, name: str = "") -> None:
    with Path(ctx.params["ledger"]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{name or ctx.vertex_name} {what}\n")
