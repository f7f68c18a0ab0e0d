"""Flink's scheduler for batches: a vertex without a parallelism of its own gets one from what it is going to read."""

from __future__ import annotations

from runtime.common.states import SchedulerType
from runtime.scheduler.core.default_scheduler import DefaultScheduler
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings


class AdaptiveBatchScheduler(DefaultScheduler):
    """Chooses parallelism by bytes and rows, divides keys with many rows, and broadcasts small inputs."""

    __slots__ = ()

    @property
    def scheduler_type(self) -> SchedulerType:
        """Flink's type AdaptiveBatch."""
        return SchedulerType.ADAPTIVE_BATCH

    @staticmethod
    def _adaptive_settings(context: JobContext) -> AdaptiveSettings:
        job_graph = context.graph.job_graph
        assert job_graph is not None, context.graph.job_id
        return context.adaptive_of(job_graph.configuration)
