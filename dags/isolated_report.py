"""A job as its own cluster: nothing of it is shared with other jobs, and nothing of it is left when the task has ended.

The worker's host runs the cluster, so the worker needs this package with its extra `cluster`. A task on a warm session
cluster begins some ten seconds earlier; this one is for jobs that need memory, a Spark or a configuration for
themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, dag, task

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.application import FlinklikeApplicationOperator

if TYPE_CHECKING:
    from airflow_flinklike import TaskContext


def words_of(ctx: TaskContext) -> list[str]:
    """The words of the text, in small letters."""
    return str(ctx.params["text"]).lower().split()


def report(text: str) -> Pipeline:
    """Built in the cluster's own process, not in the DAG processor."""
    pipeline = Pipeline("isolated-report", params={"text": text})
    words = pipeline.source("words", words_of)
    words.sink("count", lambda ctx, parts: {"words": len(parts[0]), "different": len(set(parts[0]))})
    return pipeline


@task
def share(counts: Any) -> float:
    """How many of the words are different ones."""
    return round(int(counts["different"]) / int(counts["words"]), 2)


@dag(
    schedule=None,
    params={"text": Param("to be or not to be", type="string", title="Text")},
    tags=["flinklike"],
    doc_md=__doc__,
)
def isolated_report() -> None:
    """A job alone, and a task that needs its value."""
    counts = FlinklikeApplicationOperator(
        task_id="count",
        job="isolated_report.py:report",
        pipeline_params={"text": "{{ params.text }}"},
        configuration={"taskmanager.numberOfTaskSlots": 1, "taskmanager.spark.enabled": "false"},
        retries=1,
    )
    share(counts.output)


isolated_report()
