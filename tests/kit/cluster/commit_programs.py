"""Code of jobs whose commits are disturbed: sinks that write files, one of which fails if it is told to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def write(ctx: Any) -> None:
    """So many files of one row each, named by vertex and subtask."""
    directory = ctx.output_path(ctx.params["base"], mode=ctx.params.get("mode", "overwrite"))
    path = Path(directory.removeprefix("gated://"))
    path.mkdir(parents=True)
    if ctx.params.get("blocked"):
        (path.parent / f".commit-{ctx.job_id}").touch()  # where the commit wants a directory
    for number in range(ctx.params["files"]):
        (path / f"part-{ctx.vertex_name}-{ctx.subtask_index}-{number}").write_text("row\n")


def fail(ctx: Any) -> None:
    """When everybody else has written."""
    base = Path(ctx.params["base"].removeprefix("gated://"))
    while len(list(base.glob(f".attempt-*/part-*-{ctx.params['files'] - 1}"))) < ctx.params["writers"]:
        time.sleep(0.02)
    message = "on purpose"
    raise ValueError(message)


def wait(ctx: Any) -> None:
    """Until it is cancelled."""
    while not ctx.cancelled:
        time.sleep(0.05)
