"""Clients that have promised to be back by a time, and the cancels of their jobs when they are not.

Invariants: a promise counts, and is answered, when it is durable (R3); one write of a job's promise is in flight at
most, and meanwhile nothing is decided by that promise (R2); within a term only the monotonic clock decides; a time in
which this leader could not be reached does not count against a client (R4). A job without a promise costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, assert_never

from runtime.common.errors import ConflictError, FlinklikeError, NotFoundError, UnavailableError
from runtime.common.ids import JobId
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.effects import Effects
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase
from runtime.dispatcher.core.wishes import CancelStored
from runtime.gateways.dispatcher import JobSummary

GRACE_SECONDS = 10.0
"""Long enough for clients that try every few seconds."""

LATE_SECONDS = 3.0
"""A tick that comes so long after the one before says that this process stood still."""


@dataclass(slots=True)
class Promise:
    """The promise of one job's client. `expires_millis` is durable; 0: the client does not have to be back.

    `due` is that time on the monotonic clock, None until a tick has compared the clocks. `writing` is the time that is
    being stored, for the calls in `requests`. A promise that was withdrawn stays until the job ends: a read of the
    store that was under way meanwhile must not bring it back.
    """

    expires_millis: int = 0
    is_recovered: bool = False
    due: float | None = None
    writing: int | None = None
    requests: list[int] = field(default_factory=list)

    def is_over(self, now_millis: int, now: float, grace: float, *, is_late: bool) -> bool:
        """True when the client's time has passed, and the client could have been heard (R4)."""
        if self.due is None:
            self.due = now + (self.expires_millis - now_millis) / 1000
            is_late = is_late or self.is_recovered
        if is_late:
            self.due = max(self.due, now + grace)
        return now >= self.due


class PromisedJobs(Protocol):
    """The jobs of the term, as far as client promises need them."""

    def entry(self, job_id: JobId) -> JobEntry | None:
        """A job that is not cleaned."""

    def summary(self, job_id: JobId) -> JobSummary | None:
        """The shown summary of a job, also of a cleaned one."""

    def want_cancel(self, entry: JobEntry, reason: str) -> Effects:
        """Begin to make durable that the cluster wants the job cancelled."""

    def reload(self, entry: JobEntry) -> Effects:
        """Read the stored state of a job again."""


class ClientPromises:
    """The promises of one term.

    `grace`: how many seconds a client still has after this leader has begun, or could not be reached.
    """

    def __init__(self, jobs: PromisedJobs, *, grace: float) -> None:
        self._grace = grace
        self._jobs = jobs
        self._promises: dict[JobId, Promise] = {}
        self._ticked: float | None = None

    def handle(self, event: ev.PromiseEvent) -> Effects:
        """Decide on one event."""
        match event:
            case ev.HeartbeatRequested():
                return self._on_heartbeat(event)
            case ev.PromiseStored():
                return self._on_stored(event)
            case ev.PromiseFailed():
                return self._on_failed(event)
            case _:
                assert_never(event)

    def __len__(self) -> int:
        return len(self._promises)

    # --- what clients say ---------------------------------------------------------------------------------

    def _on_heartbeat(self, event: ev.HeartbeatRequested) -> Effects:
        """Make durable when the client will be back, unless that is durable already."""
        entry = self._jobs.entry(event.job_id)
        if entry is None and self._jobs.summary(event.job_id) is None:
            return [ef.Refuse(event.request, NotFoundError(f"job {event.job_id} is not known"))]
        if entry is None or entry.phase.state is JobPhase.TERMINAL:
            return [ef.ReplyDone(event.request)]  # a promise for a job that has ended is kept already
        if (error := _refusal(entry)) is not None:
            return [ef.Refuse(event.request, error)]
        promise = self._promises.get(event.job_id) or Promise()
        if promise.writing not in {None, event.expires_millis}:
            message = f"another heartbeat of job {event.job_id} is being stored"
            return [ef.Refuse(event.request, UnavailableError(message))]
        if promise.writing is None and promise.expires_millis == event.expires_millis:
            return [ef.ReplyDone(event.request)]
        is_begun = promise.writing is not None
        promise.writing = event.expires_millis
        promise.requests.append(event.request)
        self._promises[event.job_id] = promise
        return [] if is_begun else [ef.StorePromise(event.job_id, event.expires_millis)]

    def _on_stored(self, event: ev.PromiseStored) -> Effects:
        """Answer; the deadline counts from the next tick on."""
        promise = self._promises[event.job_id]
        effects: Effects = [ef.ReplyDone(request) for request in self._settled(promise)]
        entry = self._jobs.entry(event.job_id)
        if event.is_stored:
            promise.expires_millis, promise.is_recovered, promise.due = event.expires_millis, False, None
        elif entry is not None and entry.phase.state is not JobPhase.TERMINAL:
            effects += self._jobs.reload(entry)
        return effects

    def _on_failed(self, event: ev.PromiseFailed) -> Effects:
        """Refuse the calls; the promise of before still counts."""
        return [ef.Refuse(request, event.error) for request in self._settled(self._promises[event.job_id])]

    def _settled(self, promise: Promise) -> list[int]:
        requests, promise.requests, promise.writing = promise.requests, [], None
        return requests

    def recovered(self, job_id: JobId, expires_millis: int) -> None:
        """Take over a promise of an earlier leader. One that this leader has stored is never older, and stays."""
        if expires_millis and job_id not in self._promises:
            self._promises[job_id] = Promise(expires_millis, is_recovered=True)

    # --- time ---------------------------------------------------------------------------------------------

    def at(self, now_millis: int, now: float) -> Effects:
        """Time passed: cancel the jobs whose clients did not come back."""
        is_late = self._ticked is not None and now - self._ticked > LATE_SECONDS
        self._ticked = now
        effects: Effects = []
        for job_id, promise in list(self._promises.items()):
            entry = self._jobs.entry(job_id)
            if promise.writing is not None:
                continue
            if entry is None or entry.phase.state is JobPhase.TERMINAL:
                del self._promises[job_id]
            elif not promise.expires_millis or entry.wants_cancel:
                continue
            elif promise.is_over(now_millis, now, self._grace, is_late=is_late):
                promise.due = now + self._grace  # for the next try, should the store be away
                reason = f"its client did not come back by {_time(promise.expires_millis)}"
                effects += self._jobs.want_cancel(entry, reason)
        return effects


def _refusal(entry: JobEntry) -> FlinklikeError | None:
    if isinstance(entry.cancel, CancelStored):
        why = f": {entry.cancel.reason}" if entry.cancel.reason else ""
        return ConflictError(f"job {entry.job_id} is being cancelled{why}")
    if entry.wants_cancel or entry.phase.state in {JobPhase.SUBMITTING, JobPhase.ABORTING}:
        return UnavailableError(f"something else about job {entry.job_id} is being stored")
    return None


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
