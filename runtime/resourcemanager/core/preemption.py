"""Which slots are taken from queues that hold more than their share, for those that wait with less (R64, D-130).

Pure. A slot is taken only if the queue that loses it still has as much for its weight as the one that gets it, or if
that one is below its minimum: so no slot goes to and fro. What began last is ended first, since least is lost of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from runtime.common.ids import JobId
from runtime.common.shares import in_slots
from runtime.resourcemanager.core.fair_shares import fair_shares
from runtime.resourcemanager.core.queues import Queue, Queues
from runtime.resourcemanager.core.slots import Allocation

ASK_AGAIN_SECONDS = 60.0
"""A slot that is held for so long after it was asked back does not count as given, and may be asked back again."""
ASK_KEPT_AGAIN_SECONDS = 3.0
"""After this long a slot that is kept may be asked back again: what runs there may be another task by then."""
_JOBS_LOOKED_AT = 16
"""Of a queue that waits: a job behind these waits for them."""


class WaitingJobs(Protocol):
    """The jobs that wait for slots."""

    def lacks(self, job_id: JobId, /) -> int:
        """How many slots the job lacks."""
        ...

    def is_misfit(self, job_id: JobId, share: float, /) -> bool:
        """True if no slot fits the job, in use or not, or it needs more at once than its queue's `share` has left."""
        ...

    def fits(self, job_id: JobId, allocation: Allocation, /) -> bool:
        """True if the slot of the allocation would serve the job."""
        ...


@dataclass(frozen=True, slots=True)
class Preempted:
    """A slot to be given back, and why, for people."""

    allocation: Allocation
    reason: str


class Preemption:
    """Remembers since when each queue waits with less than its share. `timeout` in seconds: how long it may."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._waiting_since: dict[str, float] = {}

    def choose(
        self, queues: Queues, slots: int, allocations: Iterable[Allocation], jobs: WaitingJobs, now: float
    ) -> list[Preempted]:
        """What has to be given back now, of `slots` in all. Each is marked, and is not chosen again."""
        there = {one.name: one for one in queues.all()}
        shares = fair_shares({name: one.settings for name, one in there.items()}, slots)
        late = self._late(there, shares, jobs, now)
        if not late:
            return []
        round_ = _Round(there, shares, allocations, jobs, now)
        found: list[Preempted] = []
        for queue, waiting in late:
            room = queues.room_of(queue.name)
            lacking = [one for one in waiting for _ in range(room.take(one, min(slots, jobs.lacks(one))))]
            why = self._why(queue, shares[queue.name])
            found.extend(Preempted(allocation, why) for allocation in round_.take_for(queue, lacking))
        return found

    def _late(
        self, queues: Mapping[str, Queue], shares: Mapping[str, float], jobs: WaitingJobs, now: float
    ) -> list[tuple[Queue, list[JobId]]]:
        """The queues that have waited for too long, those first that come first, and their jobs."""
        left = {name: shares[name] - one.held for name, one in queues.items() if one.held < shares[name]}
        waiting = {name: first for name, some in left.items() if (first := _first_of(queues[name], some, jobs))}
        self._waiting_since = {name: self._waiting_since.get(name, now) for name in waiting}
        late = [name for name, since in self._waiting_since.items() if now - since >= self._timeout]
        return [(queues[name], waiting[name]) for name in sorted(late, key=lambda name: queues[name].rank)]

    def _why(self, queue: Queue, share: float) -> str:
        return (
            f"its slot goes to queue {queue.name}, which holds {queue.held} of its share of {in_slots(share)} and has "
            f"waited for more than {self._timeout:g} s (slotmanager.preemption.timeout)"
        )


class _Round:
    """One choice: what each queue holds, counting the slots that are on their way."""

    def __init__(
        self,
        queues: Mapping[str, Queue],
        shares: Mapping[str, float],
        allocations: Iterable[Allocation],
        jobs: WaitingJobs,
        now: float,
    ) -> None:
        self._queues = queues
        self._shares = shares
        self._jobs = jobs
        self._now = now
        self._held = Counter({name: one.held for name, one in queues.items()})
        self._open: dict[str, list[Allocation]] = {name: [] for name in queues}
        for one in allocations:
            if now >= one.ask_again_at:
                self._open[one.queue].append(one)
            elif one.preempted_for:
                self._held[one.preempted_for] += one.shares
                self._held[one.queue] -= one.shares
        for several in self._open.values():
            several.sort(key=lambda one: one.since)

    def take_for(self, queue: Queue, lacking: Sequence[JobId]) -> Iterator[Allocation]:
        """Slots for the queue up to its share. `lacking`: its jobs in their order, each once for each slot."""
        ahead = 0
        for job_id in lacking[max(0, self._held[queue.name] - queue.held) :]:
            if ahead:  # the last allocation had several slots
                ahead -= 1
                continue
            if self._held[queue.name] + 1 > max(1.0, self._shares[queue.name]):
                return
            allocation = self._latest_for(queue, job_id)
            if allocation is not None:
                self._mark(allocation, queue)
                ahead = allocation.shares - 1
                yield allocation

    def _latest_for(self, queue: Queue, job_id: JobId) -> Allocation | None:
        """That of the queue which has most for its weight, of those that may lose one."""
        losers = [one for one in self._queues.values() if self._open[one.name] and self._may_lose(one, queue, 1)]
        losers.sort(key=self._weight_of, reverse=True)
        latest_first = (
            one
            for loser in losers
            for one in reversed(self._open[loser.name])
            if one.shares == 1 or self._may_lose(loser, queue, one.shares)
        )
        return next((one for one in latest_first if self._jobs.fits(job_id, one)), None)

    def _weight_of(self, loser: Queue) -> tuple[float, float]:
        """What it has for its weight; of equal ones, and those of one job each are, the one that has got one last."""
        return self._held[loser.name] / loser.settings.weight, self._open[loser.name][-1].since

    def _may_lose(self, loser: Queue, queue: Queue, shares: int) -> bool:
        after, gets = self._held[loser.name] - shares, self._held[queue.name] + shares
        if loser is queue or after < loser.settings.min_slots or after + shares <= self._shares[loser.name]:
            return False
        if gets <= queue.settings.min_slots:
            return True
        return after / loser.settings.weight >= gets / queue.settings.weight

    def _mark(self, allocation: Allocation, queue: Queue) -> None:
        allocation.preempted_for, allocation.ask_again_at = queue.name, self._now + ASK_AGAIN_SECONDS
        self._open[allocation.queue].remove(allocation)
        self._held[allocation.queue] -= allocation.shares
        self._held[queue.name] += allocation.shares


def _first_of(queue: Queue, left: float, jobs: WaitingJobs) -> list[JobId]:
    """The next waiting jobs that some slot fits, and that no limit of the queue keeps from one."""
    open_to = (one for one in queue.in_order() if not queue.limit_of(one) and not jobs.is_misfit(one, left))
    return [*islice(open_to, _JOBS_LOOKED_AT)]
