"""Tasks of Airflow against the fake cluster: an operator, a job of an earlier try, a task that defers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from tests.kit.airflow.context import FakeStateStore, context
from tests.kit.rest.fake_cluster import FakeCluster, FakeJob

Build = Callable[[], Pipeline]


def job(name: str) -> Build:
    """A function that builds a pipeline. Its name tells the fake cluster how the job ends."""

    def build() -> Pipeline:
        pipeline = Pipeline(name)
        pipeline.source("read", "jobs.code:read")
        return pipeline

    return build


def submit(name: str = "finish", **fields: Any) -> FlinklikeSubmitOperator:
    """An operator that runs `job(name)`."""
    return FlinklikeSubmitOperator(**{"task_id": "run", "pipeline": job(name), "poll_interval": 0.2, **fields})


def only_job(rest: FakeCluster) -> tuple[str, FakeJob]:
    """The one job that was submitted."""
    assert len(rest.jobs) == 1
    return next(iter(rest.jobs.items()))


def started(rest: FakeCluster, name: str, *, max_tries: int = 2) -> tuple[FakeStateStore, str]:
    """A first try whose worker died while the job ran, or after the job ended."""
    store = FakeStateStore()
    job_id: str = submit(name, wait_for_completion=False).execute(context(store, max_tries=max_tries))
    rest.requests.clear()
    return store, job_id


def deferred(operator: Any, seen: Any = None) -> TaskDeferred:
    """Execute a task that must defer."""
    with pytest.raises(TaskDeferred) as caught:
        operator.execute(context() if seen is None else seen)
    return caught.value
