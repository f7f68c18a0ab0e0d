"""The shown summary of one job: that of its owner, and the leader's additions while the owner is silent."""

from __future__ import annotations

from dataclasses import replace

from runtime.common.states import JobStatus
from runtime.common.waiting import Waiting
from runtime.dispatcher.core.events import JobSource
from runtime.gateways.dispatcher import JobSummary, TaskCounts


class ShownSummary:
    """The summary of one job. The time of its last modification rises with every change, for long polls compare it.

    `sequence` is the owner's: what the leader adds takes the place of nothing that the owner says next.
    """

    __slots__ = ("_is_reason_of_leader", "summary")

    def __init__(self, source: JobSource) -> None:
        self.summary = initial_summary(source)
        self._is_reason_of_leader = False

    def wait(self, waiting: Waiting) -> bool:
        """Show why nothing happens with the job; NOT_WAITING takes back such a reason, not an owner's. True if that is
        news.
        """
        if self.summary.pending_reason == waiting.reason or not (waiting or self._is_reason_of_leader):
            return False
        self._is_reason_of_leader = bool(waiting)
        self._change(replace(self.summary, pending_reason=waiting.reason, pending_kind=waiting.kind.value))
        return True

    def stop(self, status: JobStatus) -> bool:
        """Show that the job is stopped before it ends without an owner (R16). True if that is news."""
        if self.summary.status is status:
            return False
        self._change(replace(self.summary, status=status))
        return True

    def accept(self, pushed: JobSummary, source: JobSource) -> bool:
        """Show an owner's summary if it is newer. True if it was.

        The summary of an end is composed before its result is written, and shown after it: the ones between, which say
        that the write takes long, have later sequences, and are older.
        """
        if _age(pushed) <= _age(self.summary):
            return False
        shown_millis = self.summary.last_modification_millis
        if pushed.last_modification_millis <= shown_millis:
            pushed = replace(pushed, last_modification_millis=shown_millis + 1)
        self.summary = of_submitter(pushed, source)
        self._is_reason_of_leader = False
        return True

    def _change(self, changed: JobSummary) -> None:
        self.summary = replace(changed, last_modification_millis=changed.last_modification_millis + 1)


def _age(summary: JobSummary) -> tuple[int, bool, int]:
    """Greater for what an owner has said later."""
    return summary.epoch, summary.status.is_globally_terminal, summary.sequence


def initial_summary(source: JobSource) -> JobSummary:
    """The summary before any owner has sent one (semantics.md: no owner yet = INITIALIZING)."""
    return JobSummary(
        job_id=source.job_id,
        name=source.name,
        status=JobStatus.INITIALIZING,
        epoch=0,
        sequence=0,
        start_millis=source.submit_millis,
        end_millis=-1,
        last_modification_millis=source.submit_millis,
        tasks=TaskCounts(),
        pending_reason="",
        submitter=source.submitter,
        namespace=source.namespace,
        trace=source.trace,
        program_run=source.program_run,
        client=source.client,
        queue=source.queue,
        priority=source.priority,
    )


def of_submitter(summary: JobSummary, source: JobSource) -> JobSummary:
    """The summary with what is stored with the job's graph: the submitter, the namespace and so on (R48)."""
    if _stored_with_graph(summary) == _stored_with_graph(source):
        return summary
    return replace(
        summary,
        submitter=source.submitter,
        namespace=source.namespace,
        trace=source.trace,
        program_run=source.program_run,
        client=source.client,
        queue=source.queue,
        priority=source.priority,
    )


def _stored_with_graph(one: JobSummary | JobSource) -> tuple[str | int, ...]:
    return one.submitter, one.namespace, one.trace, one.program_run, one.client, one.queue, one.priority
