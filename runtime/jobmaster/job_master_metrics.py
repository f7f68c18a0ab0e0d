"""What a process that runs JobMasters counts of them (D-110)."""

from __future__ import annotations

from runtime.metrics import table
from runtime.metrics.registry import NO_METRICS, MetricRegistry


class JobMasterMetrics:
    """The counters of all JobMasters of a process, bound once."""

    __slots__ = ("restarts", "takeovers")

    def __init__(self, registry: MetricRegistry = NO_METRICS) -> None:
        self.restarts = registry.counter(table.RESTARTS)
        self.takeovers = registry.counter(table.TAKEOVERS)


NO_JOB_MASTER_METRICS = JobMasterMetrics()
