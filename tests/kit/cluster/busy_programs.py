"""A job whose readers take time only while they are not stopped, and who did what."""

from __future__ import annotations

import os
import time
from typing import Any

from airflow_flinklike import Pipeline
from runtime.jobgraph.graph import JobGraph

READERS = 8
_ANSWER = 0.01


def work(ctx: Any) -> dict[str, int]:
    """Asks another service again and again, as code that enriches rows does: each answer takes 10 ms."""
    for _ in range(round(float(ctx.params["seconds"]) / _ANSWER)):
        time.sleep(_ANSWER)
    return {"reader": ctx.subtask_index, "pid": os.getpid()}


def gather(ctx: Any, done: list[dict[str, int]]) -> list[dict[str, int]]:
    """All of them."""
    del ctx
    return done


def busy(seconds: float, options: dict[str, str]) -> JobGraph:
    """The job, with these options of its own."""
    here = "tests.kit.cluster.busy_programs"
    pipeline = Pipeline("busy", params={"seconds": seconds}, configuration=options)
    pipeline.source("work", f"{here}:work", parallelism=READERS).gather().apply("gather", f"{here}:gather")
    return pipeline.build().graph


SPECULATION = {
    "execution.batch.speculative.enabled": "true",
    "slow-task-detector.check-interval": "200 ms",
    "slow-task-detector.execution-time.baseline-ratio": "0.5",
    "slow-task-detector.execution-time.baseline-lower-bound": "0 s",
}
