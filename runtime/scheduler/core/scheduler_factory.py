"""Which scheduler a job gets: Flink's selection, by the type of the job and `jobmanager.scheduler`.

| job type | `jobmanager.scheduler` | scheduler |
|---|---|---|
| BATCH | AdaptiveBatch | AdaptiveBatchScheduler: parallelism from what a vertex reads |
| BATCH | Default | DefaultScheduler: `parallelism.default` where a vertex has none |
| STREAMING | any | DefaultScheduler: queries have the parallelism of their state |
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.common.states import JobType, SchedulerType
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.adaptive_batch_scheduler import AdaptiveBatchScheduler
from runtime.scheduler.core.default_scheduler import DefaultScheduler
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.scheduler import Scheduler
from runtime.scheduler.core.takeover.inheritance import Inheritance

SCHEDULERS: Mapping[SchedulerType, type[Scheduler]] = {
    SchedulerType.DEFAULT: DefaultScheduler,
    SchedulerType.ADAPTIVE_BATCH: AdaptiveBatchScheduler,
}


def scheduler_type_of(job_type: JobType, configured: SchedulerType) -> SchedulerType:
    """The table above."""
    return SchedulerType.DEFAULT if job_type is JobType.STREAMING else configured


def start_scheduler(context: JobContext, job_graph: JobGraph) -> Scheduler:
    """The scheduler of a job of which nothing has run."""
    return _chosen(context, _type(context, job_graph).started(context, job_graph))


def restore_scheduler(context: JobContext, found: Inheritance) -> Scheduler:
    """The scheduler of a job that had an owner before."""
    return _chosen(context, _type(context, found.read.graph).restored(context, found))


def _type(context: JobContext, job_graph: JobGraph) -> type[Scheduler]:
    return SCHEDULERS[scheduler_type_of(job_graph.job_type, context.scheduler_type)]


def _chosen(context: JobContext, scheduler: Scheduler) -> Scheduler:
    context.graph.scheduler_type = scheduler.scheduler_type
    return scheduler
