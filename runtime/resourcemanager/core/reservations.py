"""Slots that are kept for requests of several slots of one TaskManager: a flow of small ones does not starve them.

A job is given a TaskManager when it is next in its queue and lacks such slots: what becomes free there is for it alone.
Invariants: one job of a queue has one at a time, and a TaskManager is kept for one job; fewer slots are idle there than
the request takes. Nobody knows when what runs there ends, so the job gets another TaskManager after a while, each time
for twice as long: whatever has an end is outlasted. When it has tried all, nothing is kept for it for as long as at
last: where something runs for ever on each of them, others have what is free there at least half of the time (D-141).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from runtime.common.ids import Incarnation, JobId
from runtime.gateways.resource_manager import ResourceProfile
from runtime.resourcemanager.core.slots import TaskManagerSlots

FIRST_WINDOW_SECONDS = 60.0
_WINDOW_MAX_SECONDS = 86_400.0


@dataclass(slots=True)
class Reservation:
    """The TaskManager of one job, until a moment. `tried`: those that it has had since it last got what it lacked."""

    job_id: JobId
    queue: str
    profile: ResourceProfile
    incarnation: Incarnation
    until: float
    window: float
    tried: frozenset[Incarnation]


class Reservations:
    """Those of one leader term."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, Reservation] = {}
        self._before: dict[JobId, Reservation] = {}
        """The last one of each job that has none now, and still lacks what it lacked."""

    def __iter__(self) -> Iterator[Reservation]:
        return iter(tuple(self._by_job.values()))

    def of(self, job_id: JobId) -> Reservation | None:
        """That of the job."""
        return self._by_job.get(job_id)

    def had(self, job_id: JobId, profile: ResourceProfile) -> bool:
        """True if the job has or had one for such requests, and still lacks what it lacked."""
        found = self._by_job.get(job_id) or self._before.get(job_id)
        return found is not None and found.profile == profile

    def jobs(self) -> set[JobId]:
        """All that have or had one."""
        return {*self._by_job, *self._before}

    def has_one(self, queue: str) -> bool:
        """True if a job of the queue has one: another one gets none."""
        return any(one.queue == queue for one in self)

    def holder_of(self, incarnation: Incarnation) -> JobId | None:
        """The job that a TaskManager is kept for."""
        return next((one.job_id for one in self if one.incarnation == incarnation), None)

    def is_kept_from(self, peer: TaskManagerSlots, job_id: JobId, profile: ResourceProfile) -> bool:
        """True if free slots of the TaskManager are not for this request. A job keeps them from its own small ones."""
        kept = next((one for one in self if one.incarnation == peer.incarnation), None)
        return kept is not None and (kept.job_id, kept.profile) != (job_id, profile)

    def choose(
        self, job_id: JobId, queue: str, profile: ResourceProfile, fits: Sequence[TaskManagerSlots], now: float
    ) -> Reservation | None:
        """Keep one of the TaskManagers that fit, for a queue without one; None if none is left, or it is not time."""
        taken = {one.incarnation for one in self}
        open_ones = [peer for peer in fits if peer.incarnation not in taken]
        if not open_ones:
            return None
        before = self._before.get(job_id)
        tried = before.tried if before is not None else frozenset[Incarnation]()
        window = FIRST_WINDOW_SECONDS if before is None else min(2 * before.window, _WINDOW_MAX_SECONDS)
        fresh = [peer for peer in open_ones if peer.incarnation not in tried]
        if not fresh and before is not None and now < before.until + before.window:
            return None
        if not fresh:
            fresh, tried = open_ones, frozenset[Incarnation]()
        peer = max(fresh, key=lambda one: (len(one.free), one.incarnation))
        made = Reservation(job_id, queue, profile, peer.incarnation, now + window, window, tried | {peer.incarnation})
        self._by_job[job_id] = made
        self._before.pop(job_id, None)
        return made

    def end(self, job_id: JobId) -> bool:
        """The job needs none any more, or has what it lacked. True if it had one."""
        self._before.pop(job_id, None)
        return self._by_job.pop(job_id, None) is not None

    def check(self, is_needed: Callable[[Reservation], bool], now: float) -> None:
        """End those that are of no use any more, or over."""
        for one in (*self, *self._before.values()):
            if not is_needed(one):
                self.end(one.job_id)
        for one in self:
            if now >= one.until:
                self._before[one.job_id] = self._by_job.pop(one.job_id)
