"""Submits that are being stored, and how many jobs may be unfinished: of one principal, in a namespace, in how many
queues (R49).

Invariant: a submit is answered, and shown, only after its transaction (R3).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import assert_never

from runtime.common.errors import BackpressureError, ConflictError
from runtime.common.ids import JobId
from runtime.dispatcher.core import answers
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.assignments import Assignments
from runtime.dispatcher.core.effects import Effects
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase, new_entry
from runtime.dispatcher.core.job_table import JobTable
from runtime.gateways.dispatcher import SubmitOutcome


@dataclass(frozen=True, slots=True)
class JobRegistryLimits:
    """A submit above one of these limits is refused for now. `jobs_max` counts jobs that are not cleaned."""

    jobs_max: int
    submits_in_flight_max: int
    principal_jobs_max: int = 1_000_000_000
    namespace_jobs_max: int = 1_000_000_000
    queues_max: int = 1_000_000_000


class Submits:
    """The submits of one term. Those whose transaction is under way are counted, and not shown yet."""

    def __init__(self, limits: JobRegistryLimits, jobs: JobTable, assignments: Assignments) -> None:
        self._limits = limits
        self._jobs = jobs
        self._assignments = assignments
        self._in_flight = 0
        self._of_submitter: Counter[str] = Counter()
        self._of_namespace: Counter[str] = Counter()
        self._of_queue: Counter[str] = Counter()

    def handle(self, event: ev.SubmitEvent) -> Effects:
        """Decide on one event."""
        match event:
            case ev.SubmitRequested():
                return self._on_requested(event)
            case ev.SubmitStored():
                return self._on_stored(event)
            case ev.SubmitFoundStored():
                return self._on_found_stored(event)
            case ev.SubmitFailed():
                return self._on_failed(event)
            case _:
                assert_never(event)

    def _on_requested(self, event: ev.SubmitRequested) -> Effects:
        source, request = event.source, event.request
        entry = self._jobs.get(source.job_id)
        finished = self._jobs.finished(source.job_id)
        if entry is not None:
            return self._again(entry, source, request)
        if finished is not None:
            return [answers.answer_finished(request, source, finished)]
        refusal = self._of_checkpoints(request, source) or self._refusal(request, source)
        if refusal is not None:
            return [refusal]
        entry = new_entry(source)
        entry.submit_requests.append(request)
        self._jobs.enter(entry)
        self._count(source, 1)
        return [self._assignments.submit(entry)]

    def _again(self, entry: JobEntry, source: ev.JobSource, request: int) -> Effects:
        if entry.phase.state is JobPhase.SUBMITTING and entry.source.is_same(source):
            entry.submit_requests.append(request)
            return []
        return [answers.answer_taken(request, source, entry)]

    def _on_stored(self, event: ev.SubmitStored) -> Effects:
        entry = self._jobs[event.job_id]
        self._count(entry.source, -1)
        if event.graph_key:
            entry.source = replace(entry.source, graph=b"", graph_key=event.graph_key)
        outcome = SubmitOutcome.ACCEPTED
        effects: Effects = []
        for request in entry.submit_requests:
            effects.append(ef.ReplySubmitted(request, outcome, entry.summary.status))
            outcome = SubmitOutcome.ALREADY_SUBMITTED
        entry.submit_requests.clear()
        if event.epoch:
            effects = self._assignments.stored(entry, event.epoch) + effects
        else:
            entry.wait()
            effects += self._assignments.find_owner(entry)
        self._jobs.shown.refresh((event.job_id,))
        return effects

    def _on_found_stored(self, event: ev.SubmitFoundStored) -> Effects:
        entry = self._forget(event.job_id)
        effects = answers.answer_found(entry, event)
        if not event.is_cleaned:
            self._jobs.enter(entry.found_stored(event))
            self._jobs.shown.refresh((event.job_id,))
            effects.append(ef.ReloadJob(event.job_id))
        return effects + self._assignments.assign_waiting()

    def _on_failed(self, event: ev.SubmitFailed) -> Effects:
        entry = self._forget(event.job_id)
        requests = entry.submit_requests + entry.cancel_requests
        return [ef.Refuse(request, event.error) for request in requests] + self._assignments.assign_waiting()

    def _forget(self, job_id: JobId) -> JobEntry:
        entry = self._jobs.remove(job_id)
        assert entry.phase.state is JobPhase.SUBMITTING, entry
        self._count(entry.source, -1)
        self._assignments.release(entry)
        return entry

    # --- limits -------------------------------------------------------------------------------------------

    def _count(self, source: ev.JobSource, by: int) -> None:
        self._in_flight += by
        for counter, key in (
            (self._of_submitter, source.submitter),
            (self._of_namespace, source.namespace),
            (self._of_queue, source.queue),
        ):
            counter[key] += by
            if not counter[key]:
                del counter[key]

    def _of_checkpoints(self, request: int, source: ev.JobSource) -> ef.DispatcherEffect | None:
        """Why the job cannot have the state of its name now: another one may have queries on it (R59).

        The jobs of this term are all that there are, and no other term writes one (R1). A job with a result runs no
        query any more (R16). Which state a job uses whose graph cannot be read, nobody knows.
        """
        name = source.checkpoint_name
        if not name:
            return None
        for other in self._jobs:
            if other.phase.state in {JobPhase.TERMINAL, JobPhase.DONE}:
                continue
            there = other.source
            if (there.namespace, there.checkpoint_name) == (source.namespace, name) or not there.digest:
                message = (
                    f"submit refused: job {there.job_id} ({there.name[:80]}), which has not ended, may work on the "
                    f"checkpoints {name!r}: cancel it, wait for its end, or give this job another checkpoint_name"
                )
                return ef.Refuse(request, ConflictError(message))
        return None

    def _refusal(self, request: int, source: ev.JobSource) -> ef.DispatcherEffect | None:
        """Why a submit has to wait; None when it has not."""
        limits, jobs, dirty = self._limits, len(self._jobs), self._jobs.dirty
        if jobs >= limits.jobs_max or self._in_flight >= limits.submits_in_flight_max:
            return answers.refuse_for_now(request, source.job_id, jobs - dirty, dirty=dirty, in_flight=self._in_flight)
        of_submitter = self._jobs.shown.unfinished_of(source.submitter) + self._of_submitter[source.submitter]
        if of_submitter >= limits.principal_jobs_max:
            return _refused(request, f"{source.submitter or 'admin'} has {of_submitter} jobs that are not finished")
        in_namespace = self._jobs.shown.unfinished_in(source.namespace) + self._of_namespace[source.namespace]
        if in_namespace >= limits.namespace_jobs_max:
            return _refused(request, f"{in_namespace} jobs of the namespace {source.namespace} are not finished")
        return self._of_queues(request, source)

    def _of_queues(self, request: int, source: ev.JobSource) -> ef.DispatcherEffect | None:
        """Why there may be no queue for the job now (D-128)."""
        shown, limit = self._jobs.shown.queues, self._limits.queues_max
        if source.queue in shown or source.queue in self._of_queue or len(shown) + len(self._of_queue) < limit:
            return None  # some are counted twice, so near the limit they are looked at one by one
        if len({*shown, *self._of_queue}) < limit:
            return None
        return _refused(
            request, f"{limit} queues have jobs that are not finished, and {source.queue} would be one more"
        )


def _refused(request: int, why: str) -> ef.DispatcherEffect:
    message = f"submit refused for now: {why}"
    return ef.Refuse(request, BackpressureError(message, retry_after=answers.SUBMIT_RETRY_SECONDS))
