"""A job that says where it runs, when it is told to go on."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinklike import Pipeline

if TYPE_CHECKING:
    from airflow_flinklike import TaskContext


def where(ctx: TaskContext) -> dict[str, Any]:
    """The user that the image names, and whether the image's files are there."""
    gate = Path(ctx.params["gate"])
    gate.with_name("begun").touch()
    while not gate.exists():
        time.sleep(0.1)
    return {"user": os.getuid(), "is_in_image": Path("/opt/flinklike/bin/container.sh").exists()}


def place(gate: str) -> Pipeline:
    """One task."""
    pipeline = Pipeline("place", params={"gate": gate})
    pipeline.source("where", where)
    return pipeline
