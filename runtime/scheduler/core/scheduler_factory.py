"""Which scheduler a job gets: Flink's selection, by the type of the job, `jobmanager.scheduler` and `scheduler-mode`.

| job type | `scheduler-mode` | `jobmanager.scheduler` | scheduler |
|---|---|---|---|
| BATCH | any | AdaptiveBatch | AdaptiveBatchScheduler: parallelism from what a vertex reads |
| BATCH | any | Adaptive | the same: the AdaptiveScheduler has streaming jobs only |
| BATCH | reactive | any | the same |
| BATCH | unset | Default | DefaultScheduler: `parallelism.default` where a vertex has none |
| STREAMING | reactive | any | AdaptiveScheduler: as many subtasks as there are slots and splits |
| STREAMING | unset | Adaptive | AdaptiveScheduler: as many subtasks as slots, up to what the job asks for |
| STREAMING | unset | other | DefaultScheduler: queries have the parallelism of their state |

A streaming job keeps its scheduler, whatever is configured when a later owner has it: the AdaptiveScheduler has the
state of its queries by splits (R68, R69).
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.common.states import JobType, SchedulerType
from runtime.executiongraph.archived_rescales import ArchivedRescales
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.adaptive_batch_scheduler import AdaptiveBatchScheduler
from runtime.scheduler.core.adaptive_scheduler import AdaptiveScheduler
from runtime.scheduler.core.default_scheduler import DefaultScheduler
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.job_events import JobRescaled, RequirementsChanged
from runtime.scheduler.core.scheduler import Scheduler
from runtime.scheduler.core.takeover.inheritance import Inheritance

SCHEDULERS: Mapping[SchedulerType, type[Scheduler]] = {
    SchedulerType.DEFAULT: DefaultScheduler,
    SchedulerType.ADAPTIVE: AdaptiveScheduler,
    SchedulerType.ADAPTIVE_BATCH: AdaptiveBatchScheduler,
}


def scheduler_type_of(job_type: JobType, configured: SchedulerType, *, is_reactive: bool = False) -> SchedulerType:
    """The table above."""
    is_adaptive = is_reactive or configured is SchedulerType.ADAPTIVE
    if job_type is JobType.STREAMING:
        return SchedulerType.ADAPTIVE if is_adaptive else SchedulerType.DEFAULT
    return SchedulerType.ADAPTIVE_BATCH if is_adaptive else configured


def start_scheduler(context: JobContext, job_graph: JobGraph) -> Scheduler:
    """The scheduler of a job of which nothing has run."""
    return _chosen(context, SCHEDULERS[_type(context, job_graph)].started(context, job_graph))


def restore_scheduler(context: JobContext, found: Inheritance) -> Scheduler:
    """The scheduler of a job that had an owner before."""
    job_graph = found.read.graph
    chosen = _type(context, job_graph)
    if job_graph.job_type is JobType.STREAMING:
        chosen = _kept(found, chosen)
    return _chosen(context, SCHEDULERS[chosen].restored(context, found))


def rescales_of(scheduler: Scheduler | None) -> ArchivedRescales | None:
    """What is shown of a job's rescales; None where its parallelism stays."""
    return scheduler.rescales() if isinstance(scheduler, AdaptiveScheduler) else None


def _kept(found: Inheritance, configured: SchedulerType) -> SchedulerType:
    """That of its earlier owners: what an AdaptiveScheduler deploys first has a rescale before it."""
    if any(isinstance(event, JobRescaled | RequirementsChanged) for batch in found.read.batches for event in batch):
        return SchedulerType.ADAPTIVE
    has_run = any(found.read.batches) or any(answer.attempts for answer in found.answers)
    return SchedulerType.DEFAULT if has_run else configured


def _type(context: JobContext, job_graph: JobGraph) -> SchedulerType:
    return scheduler_type_of(job_graph.job_type, context.scheduler_type, is_reactive=context.adaptive.is_reactive)


def _chosen(context: JobContext, scheduler: Scheduler) -> Scheduler:
    context.graph.scheduler_type = scheduler.scheduler_type
    return scheduler
