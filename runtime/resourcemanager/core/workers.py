"""When TaskManagers are started and released: slots that jobs lack against slots that are there, or come.

The decisions of Flink's ActiveResourceManager (R65), profile by profile (D-141). Invariants: all slots together, of
pending and leaving workers too, never exceed `slots_max`; only a worker without an allocation is released.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from runtime.common.worker_ids import profile_of
from runtime.gateways.task import ResourceProfile
from runtime.resourcemanager.core.worker_lives import (
    Worker,
    WorkerEffect,
    WorkerLives,
    WorkerState,
    WorkerTimes,
)
from runtime.resourcemanager.core.worker_profiles import Demand, WorkerProfile, slots_in, task_managers_for

ANY_CORES = ResourceProfile(cpu_cores=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(WorkerTimes):
    """Slots of one worker, and of all TaskManagers together; times in seconds.

    `redundant`: workers that stay free for the next job. `slot`: what a slot of one offers. `profiles`: those that have
    a name; without one they are made of the cluster's own configuration, like those that are kept without jobs.
    """

    slots: int
    slot: ResourceProfile = ANY_CORES
    profiles: tuple[WorkerProfile, ...] = ()
    slots_min: int = 0
    slots_max: int = 10_000
    redundant: int = 0
    idle_timeout: float = 30.0

    @property
    def all_profiles(self) -> tuple[WorkerProfile, ...]:
        """All profiles."""
        return (WorkerProfile("", self.slots, self.slot), *self.profiles)

    def slots_of(self, profile: str) -> int:
        """Of a worker with that profile; of one with a profile that is not there any more, those of the others."""
        return next((one.slots for one in self.profiles if one.name == profile), self.slots)


@dataclass(frozen=True, slots=True)
class Supply:
    """A registered TaskManager. `worker_id`: "" for one that no driver has started. `free`: slots without allocation.

    `is_usable`: it is connected and does not drain. `uses`: grows with each allocation.
    """

    worker_id: str
    slots: int
    free: int
    is_usable: bool = True
    is_draining: bool = False
    uses: int = 0

    @property
    def is_idle(self) -> bool:
        """True for slots without allocations; without any slot it may be starting."""
        return self.slots > 0 and self.free == self.slots


class ActiveWorkers:
    """Decides for one term, which began `at`. `new_id` makes labels."""

    def __init__(self, settings: WorkerSettings, new_id: Callable[[], str], at: float) -> None:
        self._settings = settings
        self.lives = WorkerLives(settings, new_id, at, "gave no slots")
        self._has_room = True

    @property
    def pending(self) -> int:
        """Workers that are expected to give slots."""
        return self.lives.pending

    @property
    def is_more_coming(self) -> bool:
        """True while workers are expected to give slots, or would be started for jobs that lack some."""
        return not self.lives.problem and (self.pending > 0 or self._has_room)

    def workers(self) -> Iterator[Worker]:
        """All workers, oldest first."""
        return iter(self.lives)

    def decide(
        self, demand: Demand, supplies: Sequence[Supply], running: Collection[str], *, asked_at: float, at: float
    ) -> list[WorkerEffect]:
        """What to do now. `demand`: what waiting jobs lack; `running`: what the driver saw at `asked_at`."""
        by_id = {one.worker_id: one for one in supplies if one.slots > 0}
        self._note_work(supplies, at)
        effects = self.lives.look(by_id, running, asked_at=asked_at, at=at)
        for worker in self.lives:
            if (supply := by_id.get(worker.worker_id)) is not None:
                _note(worker, supply, at)
                if supply.is_draining:
                    self.lives.leaves(worker, at)
        leaving = self.lives.leaving
        there = [one for one in supplies if one.is_usable and one.worker_id not in leaving]
        effects += self._start(demand, there, self._total(supplies), at)
        return effects + self._release(demand, there, at)

    def _note_work(self, supplies: Sequence[Supply], at: float) -> None:
        """Of those that show no slots: one that drains may have been back and emptied between two looks."""
        for one in supplies:
            worker = None if one.slots else self.lives.get(one.worker_id)
            if worker is not None and one.uses > worker.uses:
                worker.uses = one.uses
                self.lives.had_work(worker, at)

    def _total(self, supplies: Sequence[Supply]) -> int:
        """All slots that there are or will be, of leaving workers too. One that drains shows those in use alone."""
        shown = {one.worker_id for one in supplies if one.slots > 0}
        there = sum(
            max(one.slots, self._slots_of(one.worker_id)) if one.worker_id and one.slots else one.slots
            for one in supplies
        )
        return there + sum(map(self._slots_of, self.lives.unseen(shown)))

    def _slots_of(self, worker_id: str) -> int:
        return self._settings.slots_of(profile_of(worker_id))

    def _start(self, demand: Demand, there: Sequence[Supply], total: int, at: float) -> list[WorkerEffect]:
        if not self.lives.may_start(at):
            return []
        effects: list[WorkerEffect] = []
        left = self._settings.slots_max - total
        self._has_room = left >= min((self._settings.slots_of(name) for name in demand), default=self._settings.slots)
        for name in dict.fromkeys((*demand, "")):
            slots = self._settings.slots_of(name)
            wanted = self._wanted(name, demand, there) - self.lives.pending_of(name)
            starts = max(0, min(wanted, left // slots))
            effects += [self.lives.start(at, name) for _ in range(starts)]
            left -= starts * slots
        return effects

    def _wanted(self, name: str, demand: Demand, there: Sequence[Supply]) -> int:
        """Workers with a profile beside those that serve."""
        settings, requests = self._settings, demand.get(name, Counter())
        slots = settings.slots_of(name)
        wanted = task_managers_for(requests, slots, -(-settings.slots_max // slots))
        if name:
            return wanted
        free = 0 if requests else sum(one.free for one in there if not profile_of(one.worker_id))
        spare = max(0, -(-(settings.redundant * slots - free) // slots)) if settings.redundant else 0
        kept = sum(one.slots for one in there if not profile_of(one.worker_id))
        least = -(-(settings.slots_min - kept) // slots)
        return max(wanted + spare, least)

    def _release(self, demand: Demand, there: Sequence[Supply], at: float) -> list[WorkerEffect]:
        """Idle ones of a profile that no job waits for; of the cluster's own configuration some are kept."""
        settings = self._settings
        usable = {one.worker_id for one in there}
        plain = [one for one in there if not profile_of(one.worker_id)]
        slots, free = sum(one.slots for one in plain), sum(one.free for one in plain)
        effects: list[WorkerEffect] = []
        for worker in self.lives:
            is_due = worker.idle_since is not None and at - worker.idle_since >= settings.idle_timeout
            is_free = worker.state is WorkerState.REGISTERED and is_due and worker.worker_id in usable
            if not is_free or slots_in(demand.get(worker.profile, {})):
                continue
            if not worker.profile:
                left, spare = slots - worker.slots, free - worker.slots
                if left < settings.slots_min or spare < settings.redundant * settings.slots:
                    continue
                slots, free = left, spare
            effects.append(self.lives.release(worker, f"it was idle for {settings.idle_timeout:.0f} s", at))
        return effects


def _note(worker: Worker, supply: Supply, at: float) -> None:
    worker.slots = supply.slots
    was_used, worker.uses = worker.uses != supply.uses, supply.uses
    if not supply.is_idle:
        worker.idle_since = None
    elif worker.idle_since is None or was_used:
        worker.idle_since = at
