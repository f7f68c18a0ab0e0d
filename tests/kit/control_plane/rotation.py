"""Round robin over all jobs, as it was before there were queues: what one queue without priorities has to equal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from runtime.common.ids import JobId
from runtime.common.shares import JobShare
from runtime.common.waiting import NOT_WAITING, Waiting
from runtime.resourcemanager.core.queues import Room
from runtime.resourcemanager.core.slots import Allocation


class Rotation:
    """In place of the `Queues` of a SlotManager."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, None] = {}
        self.skipped: dict[JobId, None] = {}

    def __contains__(self, job_id: object) -> bool:
        return job_id in self.jobs

    def __iter__(self) -> Iterator[JobId]:
        return iter(self.jobs)

    def __bool__(self) -> bool:
        return bool(self.jobs)

    def enter(self, job_id: JobId, _share: JobShare) -> None:
        self.jobs.setdefault(job_id)

    def leave(self, job_id: JobId) -> None:
        self.jobs.pop(job_id, None)

    def next(self) -> JobId | None:
        return next(iter(self.jobs), None)

    def pass_over(self, job_id: JobId) -> None:
        del self.jobs[job_id]
        self.skipped[job_id] = None

    def end_round(self) -> None:
        self.jobs = self.skipped | self.jobs
        self.skipped = {}

    def has_room_for(self, _job_id: JobId, _shares: int) -> bool:
        return True

    def limit_of(self, _job_id: JobId, _shares: int = 1) -> Waiting:
        return NOT_WAITING

    def room_of(self, _name: str) -> Room:
        return Room(math.inf, math.inf, ())

    def hold(self, _allocation: Allocation, _share: JobShare) -> None:
        pass

    serve = hold

    def release(self, _allocation: Allocation) -> None:
        pass
