"""The summary of a job: when it changes, and when a change is pushed to the Dispatcher.

Invariants: `sequence` rises with every summary that differs from the one before; the time of the last modification
rises with it, because long polls compare it; a status or a reason is pushed at once, mere counts when a thirty-second
of the subtasks have changed, or when the wheel of the process turns.
"""

from __future__ import annotations

from dataclasses import replace

from runtime.common.states import JobStatus
from runtime.common.waiting import NOT_WAITING, Waiting
from runtime.gateways.dispatcher import FAILURE_LENGTH_MAX, LABEL_LENGTH_MAX, LABELS_MAX, JobSummary, TaskCounts
from runtime.scheduler.core.job_context import JobContext

COUNTS_PUSHED_PER_JOB = 32


class Publication:
    """The latest summary of one job, and the latest one that was pushed."""

    __slots__ = ("_context", "_graph", "_pushed", "latest")

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._graph = graph = context.graph
        self._pushed: JobSummary | None = None
        start = min(graph.timestamps.values())
        self.latest = JobSummary(
            job_id=graph.job_id,
            name=graph.name,
            status=graph.status,
            epoch=graph.epoch,
            sequence=1,
            start_millis=start,
            end_millis=-1,
            last_modification_millis=start,
            tasks=TaskCounts(),
            pending_reason="",
        )

    @property
    def is_behind(self) -> bool:
        """True when something changed since the last push."""
        return self._pushed is not self.latest

    def refresh(self, waiting: Waiting, millis: int) -> JobSummary:
        """Bring the summary up to date."""
        graph, before = self._graph, self.latest
        status = graph.status
        tasks = graph.task_counts()
        is_committing = graph.is_committing
        pending = (before.pending_reason, before.pending_kind)
        if (before.status, before.tasks, pending, before.name, before.is_committing) != (
            status,
            tasks,
            (waiting.reason, waiting.kind.value),
            graph.name,
            is_committing,
        ):
            self.latest = replace(
                before,
                name=graph.name,
                status=status,
                sequence=before.sequence + 1,
                end_millis=graph.timestamps[status] if status.is_globally_terminal else -1,
                last_modification_millis=max(millis, before.last_modification_millis + 1),
                tasks=tasks,
                pending_reason=waiting.reason,
                pending_kind=waiting.kind.value,
                is_committing=is_committing,
                job_type=graph.job_type,
                scheduler_type=graph.scheduler_type,
            )
        return self.latest

    def ended(self, status: JobStatus, millis: int, *, keeps_outputs: bool = False) -> JobSummary:
        """The summary to show once `status` is durable. Those before it may say that the write takes long: the end is
        later than all of them, whatever their sequence, and for leaders of an earlier release later than one.
        """
        latest = self.refresh(NOT_WAITING, millis)
        failure, labels = self._failure(status)
        return replace(
            latest,
            status=status,
            failure=failure,
            failure_labels=labels,
            is_committing=False,
            keeps_outputs=keeps_outputs,
            deletes_checkpoints=self._deletes_checkpoints(status),
            sequence=latest.sequence + 2,
            end_millis=millis,
            last_modification_millis=max(millis, latest.last_modification_millis + 1),
        )

    @property
    def is_due(self) -> bool:
        """True when the latest summary should be pushed now."""
        pushed, latest = self._pushed, self.latest
        if pushed is None:
            return True
        if pushed is latest:
            return False
        if (pushed.status, pushed.pending_reason) != (latest.status, latest.pending_reason):
            return True
        total = sum(self._graph.counts.values())
        return self._context.changes * COUNTS_PUSHED_PER_JOB >= total

    def push(self) -> JobSummary:
        """The latest summary, which counts as pushed from now on."""
        self._pushed = self.latest
        self._context.changes = 0
        return self.latest

    def _failure(self, status: JobStatus) -> tuple[str, tuple[str, ...]]:
        """Why the job has FAILED, and the labels of that."""
        if status is not JobStatus.FAILED:
            return "", ()
        failures = self._context.failures
        labels = sorted(f"{key}={value}"[:LABEL_LENGTH_MAX] for key, value in failures.latest_labels.items())
        return failures.latest[:FAILURE_LENGTH_MAX], tuple(labels[:LABELS_MAX])

    def _deletes_checkpoints(self, status: JobStatus) -> bool:
        job_graph = self._graph.job_graph
        if job_graph is None or not any(vertex.runs_queries for vertex in job_graph.vertices):
            return False
        return self._context.checkpointing.retention.deletes(status)
