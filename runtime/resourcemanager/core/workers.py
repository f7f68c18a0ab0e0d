"""When TaskManagers are started and released: slots that jobs lack against slots that are there, or come.

The decisions of Flink's ActiveResourceManager (R65). Invariants: all slots together, of pending and leaving workers
too, never exceed `slots_max`; only a worker without an allocation is released.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from runtime.resourcemanager.core.worker_lives import (
    Worker,
    WorkerEffect,
    WorkerLives,
    WorkerState,
    WorkerTimes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(WorkerTimes):
    """Slots of one worker, and of all TaskManagers together; times in seconds.

    `redundant`: workers that stay free for the next job.
    """

    slots: int
    slots_min: int = 0
    slots_max: int = 10_000
    redundant: int = 0
    idle_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Supply:
    """A registered TaskManager. `worker_id`: "" for one that no driver has started. `free`: slots without allocation.

    `is_usable`: it is connected and does not drain. `uses`: changes with each allocation.
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
        self, lacking: int, supplies: Sequence[Supply], running: Collection[str], *, asked_at: float, at: float
    ) -> list[WorkerEffect]:
        """What to do now. `lacking`: slots that waiting jobs lack; `running`: what the driver saw at `asked_at`."""
        by_id = {one.worker_id: one for one in supplies if one.slots > 0}
        effects = self.lives.look(by_id, running, asked_at=asked_at, at=at)
        for worker in self.lives:
            if (supply := by_id.get(worker.worker_id)) is not None:
                _note(worker, supply, at)
                if supply.is_draining:
                    self.lives.leaves(worker, at)
        leaving = self.lives.leaving
        there = [one for one in supplies if one.is_usable and one.worker_id not in leaving]
        effects += self._start(lacking, there, self._total(supplies), at)
        if lacking == 0:
            effects += self._release(there, at)
        return effects

    def _total(self, supplies: Sequence[Supply]) -> int:
        """All slots that there are or will be, of leaving workers too. One that drains shows those in use alone."""
        shown = {one.worker_id for one in supplies if one.slots > 0}
        each = self._settings.slots
        there = sum(max(one.slots, each) if one.worker_id and one.slots else one.slots for one in supplies)
        return there + self.lives.unseen(shown) * each

    def _start(self, lacking: int, there: Sequence[Supply], total: int, at: float) -> list[WorkerEffect]:
        settings = self._settings
        if not self.lives.may_start(at):
            return []
        free = sum(one.free for one in there)
        short = max(
            lacking + settings.redundant * settings.slots - (0 if lacking else free),
            settings.slots_min - sum(one.slots for one in there),
        )
        wanted = -(-short // settings.slots) - self.pending
        room = (settings.slots_max - total) // settings.slots
        self._has_room = room > 0
        return [self.lives.start(at) for _ in range(min(wanted, room))]

    def _release(self, there: Sequence[Supply], at: float) -> list[WorkerEffect]:
        settings = self._settings
        slots, free = sum(one.slots for one in there), sum(one.free for one in there)
        usable = {one.worker_id for one in there}
        effects: list[WorkerEffect] = []
        for worker in self.lives:
            is_due = worker.idle_since is not None and at - worker.idle_since >= settings.idle_timeout
            if worker.state is not WorkerState.REGISTERED or not is_due or worker.worker_id not in usable:
                continue
            if slots - worker.slots < settings.slots_min or free - worker.slots < settings.redundant * settings.slots:
                continue
            slots, free = slots - worker.slots, free - worker.slots
            effects.append(self.lives.release(worker, f"it was idle for {settings.idle_timeout:.0f} s", at))
        return effects


def _note(worker: Worker, supply: Supply, at: float) -> None:
    worker.slots = supply.slots
    was_used, worker.uses = worker.uses != supply.uses, supply.uses
    if not supply.is_idle:
        worker.idle_since = None
    elif worker.idle_since is None or was_used:
        worker.idle_since = at
