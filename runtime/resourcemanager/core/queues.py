"""The jobs that lack slots, in queues: which of them is served next (R64, D-128).

Invariants: a queue below its minimum comes first, then the one with the fewest slots for its weight; a queue at a limit
gets none. Within a queue the higher priority comes first, then who waits longest since its last turn: one queue without
priorities is round robin. Of queues that are equal, the one that was served least for its weight is next, so that one
slot serves all of them in turn and none starves.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from runtime.common.ids import JobId
from runtime.common.shares import UNSET, JobShare, QueueSettings, in_slots
from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.resourcemanager.core.slots import Allocation

Place = tuple[int, int]
"""Where a job stands in its queue, lowest first: its priority negated, and its turn."""

Rank = tuple[bool, float, float]

_STALE_MAX = 64


@dataclass(slots=True)
class Queue:
    """One queue: its waiting jobs by place, and the slots of each job that holds some.

    `served` grows by 1/weight with each slot that the queue gets.
    """

    name: str
    settings: QueueSettings
    served: float
    line: dict[JobId, Place] = field(default_factory=dict)
    holders: dict[JobId, int] = field(default_factory=dict)
    held: int = 0
    _positions: dict[JobId, int] = field(default_factory=dict)
    """Counted anew when somebody asks and the line has changed since."""
    _heap: list[tuple[Place, JobId]] = field(default_factory=list)
    """The places again, with some of jobs that have left."""

    @property
    def is_idle(self) -> bool:
        """True if it has no job that waits or holds a slot."""
        return not self.line and not self.held

    @property
    def is_at_max_slots(self) -> bool:
        """True if it holds all slots that it may."""
        return self.settings.max_slots is not None and self.held >= self.settings.max_slots

    @property
    def is_at_max_jobs(self) -> bool:
        """True if only jobs of it that hold slots may get more."""
        return self.settings.max_running_jobs is not None and len(self.holders) >= self.settings.max_running_jobs

    def limit_of(self, job_id: JobId, shares: int = 1) -> Waiting:
        """The limit that keeps so many slots at once from the job; NOT_WAITING if none does."""
        if self.is_at_max_slots:
            reason = f"queue {self.name} holds the {self.held} slots that it may have at most"
        elif self.settings.max_slots is not None and self.held + shares > self.settings.max_slots:
            most = in_slots(self.settings.max_slots)
            reason = f"queue {self.name} holds {self.held} of {most} it may have at most, and a task takes {shares}"
        elif self.is_at_max_jobs and job_id not in self.holders:
            reason = f"queue {self.name} runs the {len(self.holders)} jobs that it may run at once"
        else:
            return NOT_WAITING
        return Waiting(WaitingKind.QUEUE, reason)

    @property
    def rank(self) -> Rank:
        """Which queue is next, lowest first."""
        if self.held < self.settings.min_slots:
            return False, self.held / self.settings.min_slots, self.served
        return True, self.held / self.settings.weight, self.served

    def enter(self, job_id: JobId, place: Place) -> None:
        """The job waits there."""
        self.line[job_id] = place
        self._positions.clear()
        heapq.heappush(self._heap, (place, job_id))

    def leave(self, job_id: JobId) -> None:
        """The job waits no more."""
        del self.line[job_id]
        self._positions.clear()
        if len(self._heap) > 2 * len(self.line) + _STALE_MAX:
            self._heap = [(place, one) for one, place in self.line.items()]
            heapq.heapify(self._heap)

    def pass_over(self, job_id: JobId) -> bool:
        """Look at the job no more in this round. True if it has to be put back."""
        is_first = bool(self._heap) and self._heap[0][1] == job_id
        if is_first:
            heapq.heappop(self._heap)
        return is_first

    def put_back(self, job_id: JobId) -> None:
        """Look at the job again; it has kept its place."""
        heapq.heappush(self._heap, (self.line[job_id], job_id))

    def first(self, passed_over: Container[JobId]) -> JobId | None:
        """The waiting job that is next; None if the queue is at a limit or has none that was not passed over."""
        if self.is_at_max_slots:
            return None
        if self.is_at_max_jobs:
            begun = [(self.line[one], one) for one in self.holders if one in self.line and one not in passed_over]
            return min(begun)[1] if begun else None
        while self._heap:
            place, job_id = self._heap[0]
            if self.line.get(job_id) == place:
                return job_id
            heapq.heappop(self._heap)
        return None

    def in_order(self) -> list[JobId]:
        """The waiting jobs, the next one first."""
        return sorted(self.line, key=self.line.__getitem__)

    def position(self, job_id: JobId) -> int:
        """The place of a waiting job from 1 on."""
        if not self._positions:
            self._positions = {one: number for number, one in enumerate(self.in_order(), 1)}
        return self._positions[job_id]


@dataclass(slots=True)
class Room:
    """What a queue may get beside what it holds: slots, and jobs beside its `holders`, which count already."""

    slots: float
    jobs: float
    holders: Container[JobId]

    def take(self, job_id: JobId, count: int) -> int:
        """Slots that the job would get, of `count` that it lacks. Jobs take theirs in their order in the queue."""
        is_new = job_id not in self.holders
        if is_new and self.jobs <= 0:
            return 0
        taken = int(min(count, self.slots))
        self.slots -= taken
        self.jobs -= is_new and taken > 0
        return taken


class Queues:
    """All queues with a job, and all that have settings. A job is in one queue for as long as it waits."""

    def __init__(self, settings: Mapping[str, QueueSettings]) -> None:
        self._settings = settings
        self._queues: dict[str, Queue] = {}
        self._waiting: dict[JobId, Queue] = {}
        self._passed_over: dict[JobId, bool] = {}
        self._round: list[tuple[Rank, int, Queue]] | None = None
        """The queues by rank, then by their order, with some of ranks that they had before. None between rounds."""
        self._held_back: set[str] = set()
        self._turns = 0
        self._served = 0.0
        """How far the queues that were served have come: who had no job that fits has no claim to what it missed."""

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._waiting

    def __iter__(self) -> Iterator[JobId]:
        """The waiting jobs, queue by queue, each in its order."""
        for queue in self._queues.values():
            yield from queue.in_order()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def all(self) -> Iterator[Queue]:
        """The queues with a job."""
        return iter(self._queues.values())

    def queue_of(self, job_id: JobId) -> Queue | None:
        """The queue that the job waits in; None if it does not wait."""
        return self._waiting.get(job_id)

    def limit_of(self, job_id: JobId, shares: int = 1) -> Waiting:
        """The limit of its queue by which the job waits for so many slots; NOT_WAITING if it waits for none."""
        queue = self._waiting.get(job_id)
        return NOT_WAITING if queue is None else queue.limit_of(job_id, shares)

    def room_of(self, name: str) -> Room:
        """What the limits of a queue leave, beside what it holds."""
        queue = self._queues.get(name) or Queue(name, self._settings.get(name, UNSET), 0.0)
        slots, jobs = queue.settings.max_slots, queue.settings.max_running_jobs
        return Room(
            math.inf if slots is None else max(0, slots - queue.held),
            math.inf if jobs is None else max(0, jobs - len(queue.holders)),
            queue.holders,
        )

    # --- waiting jobs -------------------------------------------------------------------------------------

    def enter(self, job_id: JobId, share: JobShare) -> None:
        """The job lacks a slot. One that waits already keeps its place."""
        if job_id in self._waiting:
            return
        queue = self._named(share.queue)
        self._turns += 1
        queue.enter(job_id, (-share.priority, self._turns))
        self._waiting[job_id] = queue

    def leave(self, job_id: JobId) -> None:
        """The job lacks none, or must not get any."""
        queue = self._waiting.pop(job_id, None)
        if queue is not None:
            queue.leave(job_id)
            self._drop_idle(queue)

    # --- one round ----------------------------------------------------------------------------------------

    def next(self) -> JobId | None:
        """The job to be served next in this round; None if all that are left were passed over or may get none."""
        if self._round is None:
            waiting = (queue for queue in self._queues.values() if queue.line)
            self._round = [(queue.rank, number, queue) for number, queue in enumerate(waiting)]
            heapq.heapify(self._round)
        while self._round:
            rank, number, queue = self._round[0]
            if queue.rank != rank:  # it was served
                heapq.heapreplace(self._round, (queue.rank, number, queue))
            elif queue.name not in self._held_back and (job_id := queue.first(self._passed_over)) is not None:
                return job_id
            else:
                heapq.heappop(self._round)  # within a round no limit goes, and no job comes
        return None

    def pass_over(self, job_id: JobId) -> None:
        """No free slot fits the job: it keeps its place, and this round goes on without it."""
        self._passed_over[job_id] = self._waiting[job_id].pass_over(job_id)

    def has_room_for(self, job_id: JobId, shares: int) -> bool:
        """True if the maximum of its queue leaves so many slots. If it leaves fewer, the queue gets none in this round:
        small requests would take each slot that becomes free below the maximum.
        """
        queue = self._waiting[job_id]
        if shares <= self.room_of(queue.name).slots:
            return True
        if shares <= (queue.settings.max_slots or 0):
            self._held_back.add(queue.name)
        return False

    def end_round(self) -> None:
        """The next round looks at all jobs again."""
        self._held_back.clear()
        for job_id, has_to_be_put_back in self._passed_over.items():
            if has_to_be_put_back:
                self._waiting[job_id].put_back(job_id)
        self._passed_over.clear()
        self._round = None

    # --- slots --------------------------------------------------------------------------------------------

    def hold(self, allocation: Allocation, share: JobShare) -> None:
        """Count an allocation that was found."""
        queue = self._named(share.queue)
        allocation.queue = queue.name
        queue.held += allocation.shares
        queue.holders[allocation.job_id] = queue.holders.get(allocation.job_id, 0) + allocation.shares

    def serve(self, allocation: Allocation, share: JobShare) -> None:
        """Count an allocation that a queue gets by its turn."""
        self.hold(allocation, share)
        queue = self._queues[allocation.queue]
        self._served = max(queue.served, self._served)
        queue.served = self._served + allocation.shares / queue.settings.weight

    def release(self, allocation: Allocation) -> None:
        """Count an allocation out."""
        queue = self._queues[allocation.queue]
        if allocation.preempted_for:
            # It has not had its turn, and is not the last to have the next.
            queue.served -= allocation.shares / queue.settings.weight
        queue.held -= allocation.shares
        queue.holders[allocation.job_id] -= allocation.shares
        if not queue.holders[allocation.job_id]:
            del queue.holders[allocation.job_id]
        self._drop_idle(queue)

    def _named(self, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name, self._settings.get(name, UNSET), self._served)
        return queue

    def _drop_idle(self, queue: Queue) -> None:
        if queue.is_idle:
            del self._queues[queue.name]
