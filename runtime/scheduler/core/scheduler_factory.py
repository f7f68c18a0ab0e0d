"""Which scheduler a job gets: Flink's selection, by the type of the job.

| job type | scheduler |
|---|---|
| BATCH, STREAMING | DefaultScheduler: pipelined regions, every task is restarted with its region |
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.common.states import JobType
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.default_scheduler import DefaultScheduler
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.scheduler import Scheduler
from runtime.scheduler.core.takeover.inheritance import Inheritance

SCHEDULERS: Mapping[JobType, type[Scheduler]] = {
    JobType.BATCH: DefaultScheduler,
    JobType.STREAMING: DefaultScheduler,
}


def start_scheduler(context: JobContext, job_graph: JobGraph) -> Scheduler:
    """The scheduler of a job of which nothing has run."""
    return _chosen(context, SCHEDULERS[job_graph.job_type].started(context, job_graph))


def restore_scheduler(context: JobContext, found: Inheritance) -> Scheduler:
    """The scheduler of a job that had an owner before."""
    return _chosen(context, SCHEDULERS[found.read.graph.job_type].restored(context, found))


def _chosen(context: JobContext, scheduler: Scheduler) -> Scheduler:
    context.graph.scheduler_type = scheduler.scheduler_type
    return scheduler
