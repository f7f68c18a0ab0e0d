"""The execution timeout of a job: it runs from the job's first start, also under later owners.

Invariant: a job with a timeout has one durable JobStarted event, unless the job ended before the event was due. The
event rides with the next batch. If the owner is lost before that, the timeout runs from the next owner's start.
"""

from __future__ import annotations

from runtime.executiongraph.core.failures import system_failure
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import FailureInfo
from runtime.scheduler.core.acceptance import Acceptance
from runtime.scheduler.core.events import Moment
from runtime.scheduler.core.job_events import JobStarted


class ExecutionTimeout:
    """The timeout of one job. `started_millis`: when the job started under an earlier owner."""

    __slots__ = ("_acceptance", "_graph", "_started_millis")

    def __init__(self, graph: ExecutionGraph, acceptance: Acceptance, started_millis: int | None) -> None:
        self._graph = graph
        self._acceptance = acceptance
        self._started_millis = started_millis

    def start(self, at: Moment) -> float | None:
        """The job runs. Returns the deadline in monotonic time, None without a timeout."""
        timeout = self._seconds
        if timeout is None:
            return None
        if self._started_millis is None:
            self._started_millis = at.millis
            self._acceptance.record(JobStarted(at.millis), rides=True)
        return at.monotonic + timeout - max(0, at.millis - self._started_millis) / 1000

    def failure(self, at: Moment) -> FailureInfo:
        """The failure of the job when the deadline has passed."""
        reason = f"the job has run for its execution.timeout of {self._seconds:g} s"
        return system_failure("JobExecutionTimeoutError", reason, at.millis)

    @property
    def _seconds(self) -> float | None:
        assert self._graph.job_graph is not None, self._graph.job_id
        return self._graph.job_graph.execution_timeout_seconds
