"""What a Dispatcher counts: submits, and the ends of jobs (D-110)."""

from __future__ import annotations

from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import SubmitJobResponse
from runtime.metrics import table
from runtime.metrics.errors import error_kind
from runtime.metrics.registry import NO_METRICS, MetricRegistry


class DispatcherMetrics:
    """The counters of one term; those of a process go on over its terms."""

    def __init__(self, registry: MetricRegistry = NO_METRICS) -> None:
        self._registry = registry
        self._submit_seconds = registry.histogram(table.SUBMIT_SECONDS)

    def submitted(self, answer: SubmitJobResponse, seconds: float) -> None:
        """A submit was answered."""
        self._registry.counter(table.SUBMITS, answer.outcome.value.lower()).inc()
        self._submit_seconds.observe(seconds)

    def refused(self, error: BaseException, seconds: float) -> None:
        """A submit was refused, or nobody waits for its answer."""
        self._registry.counter(table.SUBMITS, error_kind(error)).inc()
        self._submit_seconds.observe(seconds)

    def ended(self, status: JobStatus) -> None:
        """The end of a job is known."""
        self._registry.counter(table.JOBS_ENDED, status.value).inc()
