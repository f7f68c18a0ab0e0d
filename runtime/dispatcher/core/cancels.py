"""Jobs that are wanted cancelled, and the end of jobs that no process runs.

Invariants: a cancel is answered when the wish is durable or the job has ended (R3); a job ends without an owner only
when no process runs it, and what an earlier owner may have started is stopped first (R16).
"""

from __future__ import annotations

from typing import assert_never

from runtime.common.errors import NotFoundError
from runtime.common.states import JobStatus
from runtime.dispatcher.core import answers
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.effects import Effects
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase
from runtime.dispatcher.core.job_table import JobTable
from runtime.dispatcher.core.wishes import CancelStored, CancelWanted


class Cancels:
    """The cancels of one term."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs

    def handle(self, event: ev.CancelEvent) -> Effects:
        """Decide on one event."""
        match event:
            case ev.CancelRequested():
                return self._on_requested(event)
            case ev.WantedStored():
                return self._on_stored(event)
            case ev.CancelFailed():
                entry = self._jobs.get(event.job_id)
                return [] if entry is None else answers.refuse_cancels(entry, event.error)
            case _:
                assert_never(event)

    def _on_requested(self, event: ev.CancelRequested) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None:
            finished = self._jobs.finished(event.job_id)
            if finished is None:
                return [ef.Refuse(event.request, NotFoundError(f"job {event.job_id} is not known"))]
            return [answers.answer_cancel_of_ended(event.request, finished.summary)]
        if entry.phase.state is JobPhase.TERMINAL or entry.summary.is_committing:
            return [answers.answer_cancel_of_ended(event.request, entry.summary)]
        if isinstance(entry.cancel, CancelStored):
            return [ef.ReplyCancelled(event.request)]
        entry.cancel_requests.append(event.request)
        return [] if entry.wants_cancel else self.want(entry, "")

    def want(self, entry: JobEntry, reason: str) -> Effects:
        """The job is wanted cancelled: because of `reason`, or by a client without one."""
        entry.wish(CancelWanted(reason))
        return self.pursue(entry)

    def pursue(self, entry: JobEntry) -> Effects:
        """Begin to store a wish that is not durable yet, in a phase that allows another transaction."""
        if not isinstance(entry.cancel, CancelWanted) or entry.move.is_being_stored:
            return []  # of two writes of one key in flight the first may be the last
        match entry.phase.state:
            case JobPhase.WAITING if entry.epoch == 0:
                return self.abort(entry)
            case JobPhase.WAITING | JobPhase.ASSIGNING | JobPhase.ASSIGNED:
                return [ef.StoreWanted(entry.job_id, entry.cancel.reason)]
            case _:
                return []

    def _on_stored(self, event: ev.WantedStored) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state is JobPhase.TERMINAL:
            return []
        if not event.is_stored:
            return self._jobs.reload(entry)
        entry.wish(CancelStored(event.reason))  # another transaction of the wish may have failed meanwhile
        effects: Effects = [ef.ReplyCancelled(request) for request in entry.cancel_requests]
        entry.cancel_requests.clear()
        if entry.phase.state is JobPhase.ASSIGNED:
            effects.append(ef.SendCancel(entry.owner, entry.job_id, entry.cancel.reason))
        return effects

    def abort(self, entry: JobEntry) -> Effects:
        """End a job that no process runs or will run: CANCELED if a cancel is wanted, else FAILED with the shown
        failure.
        """
        self._jobs.waiting.pop(entry.job_id, None)
        status = JobStatus.CANCELLING if entry.wants_cancel else JobStatus.FAILING
        is_news = entry.can_have_begun and entry.shown.stop(status)
        end = entry.end_without_owner()
        return [*self._jobs.publish(entry), end] if is_news else [end]
