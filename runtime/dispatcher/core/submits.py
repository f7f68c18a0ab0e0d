"""Submits in flight, and the limits of unfinished jobs: of a principal, and in a namespace (R49)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from runtime.common.errors import BackpressureError
from runtime.dispatcher.core import answers
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.shown_jobs import ShownJobs


@dataclass(frozen=True, slots=True)
class JobRegistryLimits:
    """Above any of these a submit is refused for now. `jobs_max` counts jobs that are not cleaned."""

    jobs_max: int
    submits_in_flight_max: int
    principal_jobs_max: int = 1_000_000_000
    namespace_jobs_max: int = 1_000_000_000


class Submits:
    """Submits whose transaction is in flight; their jobs are not shown yet."""

    def __init__(self, limits: JobRegistryLimits, shown: ShownJobs) -> None:
        self._limits = limits
        self._shown = shown
        self._in_flight = 0
        self._of_submitter: Counter[str] = Counter()
        self._of_namespace: Counter[str] = Counter()

    def begin(self, source: ev.JobSource) -> None:
        """The transaction of a submit begins."""
        self._count(source, 1)

    def settled(self, source: ev.JobSource) -> None:
        """The transaction has ended, with or without success."""
        self._count(source, -1)

    def _count(self, source: ev.JobSource, by: int) -> None:
        self._in_flight += by
        for counter, key in ((self._of_submitter, source.submitter), (self._of_namespace, source.namespace)):
            counter[key] += by
            if not counter[key]:
                del counter[key]

    def refusal(self, request: int, source: ev.JobSource, *, jobs: int, dirty: int) -> ev.DispatcherEffect | None:
        """The refusal of a submit that has to wait; None when it has not."""
        limits = self._limits
        if jobs >= limits.jobs_max or self._in_flight >= limits.submits_in_flight_max:
            return answers.refuse_for_now(request, source.job_id, jobs - dirty, dirty=dirty, in_flight=self._in_flight)
        of_submitter = self._shown.unfinished_of(source.submitter) + self._of_submitter[source.submitter]
        if of_submitter >= limits.principal_jobs_max:
            return _refused(request, f"{source.submitter or 'admin'} has {of_submitter} jobs that are not finished")
        in_namespace = self._shown.unfinished_in(source.namespace) + self._of_namespace[source.namespace]
        if in_namespace >= limits.namespace_jobs_max:
            return _refused(request, f"{in_namespace} jobs of the namespace {source.namespace} are not finished")
        return None


def _refused(request: int, why: str) -> ev.DispatcherEffect:
    message = f"submit refused for now: {why}"
    return ev.Refuse(request, BackpressureError(message, retry_after=answers.SUBMIT_RETRY_SECONDS))
