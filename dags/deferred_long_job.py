"""A long job: the task gives its worker slot back while the job runs.

The worker waits for the first seconds, then the triggerer does, for any number of jobs. A worker, the triggerer, the
scheduler or processes of the cluster may restart meanwhile: the job runs on. Marking the task failed cancels it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, dag, task

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator

if TYPE_CHECKING:
    from airflow_flinklike import TaskContext


def estimate(ctx: TaskContext) -> dict[str, int]:
    """Points inside of the unit circle, round by round; the progress is shown while it runs."""
    rounds, inside = int(ctx.params["rounds"]), 0
    for number in range(rounds):
        if ctx.cancelled:
            break
        points = ctx.spark.range(100_000).selectExpr(f"rand({number}) as x", f"rand({number} + 7) as y")
        inside += points.where("x * x + y * y < 1").count()
        ctx.report_progress((number + 1) / rounds, f"round {number + 1} of {rounds}")
        ctx.logger.info("round %d of %d: %d points inside", number + 1, rounds, inside)
    return {"inside": inside, "points": rounds * 100_000}


def long_job(rounds: int) -> Pipeline:
    """One source; its parallelism, its slots and its regions are the task's rendered field `plan`."""
    pipeline = Pipeline("long-job", params={"rounds": rounds})
    pipeline.source("estimate", estimate, parallelism=1)
    return pipeline


@task
def pi(counts: Any) -> float:
    """4 times the share of the points that lie inside."""
    return 4 * int(counts["inside"]) / int(counts["points"])


@dag(
    schedule=None,
    params={"rounds": Param(200, type="integer", minimum=1, title="Rounds; 200 take about half a minute")},
    tags=["flinklike"],
    doc_md=__doc__,
)
def deferred_long_job() -> None:
    """A long job, and a task that needs its value."""
    counts = FlinklikeSubmitOperator(
        task_id="estimate",
        pipeline=long_job,
        deferrable=True,
        retries=2,
        execution_timeout=timedelta(hours=1),
    )
    pi(counts.output)


deferred_long_job()
