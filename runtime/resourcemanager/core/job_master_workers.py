"""When JobMaster processes are started, and when they hand their jobs over and go (R65).

Invariants: no more processes than `maximum`, of pending and leaving ones too; a process is released only when it drains
and has no job, so no job is without an owner for that; what the process was asked to give away fits the others. Against
flapping, a process goes only when the others would still be below `RELAXED` of every bound that has called for one, for
`scale_down` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from runtime.common.ids import Incarnation
from runtime.resourcemanager.core.worker_lives import WorkerEffect, WorkerLives, WorkerState, WorkerTimes

RELAXED = 0.8
"""The share of a bound below which processes are too many."""
DRAIN_PATIENCE = 15.0
"""Seconds after which a process that was told to drain, and does not, counts as one that serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMasterWorkerSettings(WorkerTimes):
    """`jobs`: of one process, before another one is started; `lag_max`: how late its event loop may be, on average.

    A lag above the bound for `stabilization` seconds calls for one more process, and so does each further time.
    """

    minimum: int = 0
    maximum: int = 1
    jobs: int = 200
    lag_max: float = 0.5
    stabilization: float = 30.0
    scale_down: float = 60.0


@dataclass(frozen=True, slots=True)
class JobMasterSupply:
    """A JobMaster process that the leader knows. `worker_id`: "" for one that no driver has started, or that has not
    registered with this leader yet. `lag`: how late its event loop is, in seconds.
    """

    incarnation: Incarnation
    worker_id: str
    jobs: int
    capacity: int
    lag: float = 0.0
    is_connected: bool = True
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class DrainProcess:
    """Have a process give its jobs away and take none, or take jobs again."""

    incarnation: Incarnation
    is_draining: bool
    reason: str = ""


JobMasterEffect = WorkerEffect | DrainProcess


class JobMasterWorkers:
    """Decides for one term, which began `at`. `new_id` makes labels."""

    def __init__(self, settings: JobMasterWorkerSettings, new_id: Callable[[], str], at: float) -> None:
        self._settings = settings
        self.lives = WorkerLives(settings, new_id, at, "did not register")
        self._drained: dict[str, float] = {}
        """By label, when this term told it to drain."""
        self._lags_since: float | None = None
        self._surplus_since: float | None = None
        self._dense = float("inf")
        """The fewest jobs of one process with which event loops were late; forgotten when there is no job."""
        self._has_room = True

    @property
    def is_more_coming(self) -> bool:
        """True while processes are expected, or would be started for jobs that wait."""
        return not self.lives.problem and (self.lives.pending > 0 or self._has_room)

    def decide(
        self, waiting: int, supplies: Sequence[JobMasterSupply], running: Collection[str], *, asked_at: float, at: float
    ) -> list[JobMasterEffect]:
        """What to do now. `waiting`: jobs without an owner; `running`: what the driver saw at `asked_at`."""
        by_id = {one.worker_id: one for one in supplies if one.worker_id}
        effects: list[JobMasterEffect] = [*self.lives.look(by_id, running, asked_at=asked_at, at=at)]
        effects += self._release_empty(by_id, at)
        self._forget_drains(by_id, at)
        leaving = {*self.lives.leaving, *self._drained}
        serving = [one for one in supplies if not one.is_draining and not (one.worker_id and one.worker_id in leaving)]
        load = waiting + sum(one.jobs for one in supplies)
        if load == 0:
            self._dense = float("inf")
        wanted = self._wanted(waiting, load, serving, at)
        missing = wanted - len(serving) - self.lives.pending
        total = len(supplies) + len(self.lives.unseen(by_id))
        self._has_room = total < self._settings.maximum
        if missing > 0:
            self._surplus_since = None
            return effects + self._add(missing, total, by_id, at)
        return effects + self._remove(load, serving, at)

    def _wanted(self, waiting: int, load: int, serving: Sequence[JobMasterSupply], at: float) -> int:
        """How many processes there should be; those that are away for a moment count as serving."""
        settings = self._settings
        wanted = max(settings.minimum, -(-load // settings.jobs))
        if waiting and not any(one.jobs < one.capacity for one in serving):
            wanted = max(wanted, len(serving) + -(-waiting // settings.jobs))
        if self._is_late(serving, at):
            self._dense = min(self._dense, load / len(serving))
            self._lags_since = at
            wanted = max(wanted, len(serving) + self.lives.pending + 1)
        return min(wanted, settings.maximum)

    def _is_late(self, serving: Sequence[JobMasterSupply], at: float) -> bool:
        """True if a process with several jobs was late for long. One that comes has that time to take its share."""
        lags = any(one.is_connected and one.lag > self._settings.lag_max and one.jobs > 1 for one in serving)
        if not lags or self.lives.pending:
            self._lags_since = None
        elif self._lags_since is None:
            self._lags_since = at
        return self._lags_since is not None and at - self._lags_since >= self._settings.stabilization

    def _add(self, missing: int, total: int, by_id: dict[str, JobMasterSupply], at: float) -> list[JobMasterEffect]:
        """Take back what this term has told to go, and start the others."""
        effects: list[JobMasterEffect] = []
        for worker_id in list(self._drained)[:missing]:
            del self._drained[worker_id]
            effects.append(DrainProcess(by_id[worker_id].incarnation, is_draining=False))
        room = self._settings.maximum - total
        if self.lives.may_start(at):
            effects += [self.lives.start(at) for _ in range(min(missing - len(effects), room))]
        return effects

    def _needed(self, load: int) -> int:
        """How many processes have to stay."""
        bound = RELAXED * min(self._settings.jobs, self._dense)
        by_load = 0 if load == 0 else max(1, -int(-load // bound))
        return max(self._settings.minimum, by_load)

    def _remove(self, load: int, serving: Sequence[JobMasterSupply], at: float) -> list[JobMasterEffect]:
        surplus = len(serving) - self._needed(load)
        is_moving = self.lives.pending or self._drained or self._lags_since is not None
        if surplus <= 0 or is_moving or not all(one.is_connected for one in serving):
            self._surplus_since = None
            return []
        if self._surplus_since is None:
            self._surplus_since = at
        if at - self._surplus_since < self._settings.scale_down:
            return []
        self._surplus_since = None
        return self._drain(surplus, load, serving, at)

    def _drain(self, surplus: int, load: int, serving: Sequence[JobMasterSupply], at: float) -> list[JobMasterEffect]:
        """Those with the fewest jobs, as long as all jobs fit what stays."""
        capacity = sum(one.capacity for one in serving)
        effects: list[JobMasterEffect] = []
        for one in sorted(serving, key=lambda one: (one.jobs, one.incarnation)):
            worker = self.lives.get(one.worker_id)
            is_mine = worker is not None and worker.state is WorkerState.REGISTERED
            if len(effects) == surplus or not is_mine or capacity - one.capacity < load:
                continue
            capacity -= one.capacity
            self._drained[one.worker_id] = at
            reason = f"{len(serving) - len(effects) - 1} processes are enough for {load} jobs"
            effects.append(DrainProcess(one.incarnation, is_draining=True, reason=reason))
        return effects

    def _release_empty(self, by_id: dict[str, JobMasterSupply], at: float) -> list[JobMasterEffect]:
        """Whoever told it to drain: this term, an earlier one, or a person."""
        return [
            self.lives.release(worker, "it drains, and has no job", at)
            for worker in self.lives
            if worker.state is WorkerState.REGISTERED
            and (one := by_id[worker.worker_id]).is_draining
            and one.is_connected
            and one.jobs == 0
        ]

    def _forget_drains(self, by_id: dict[str, JobMasterSupply], at: float) -> None:
        """A drain is over when the process has gone, or does not say that it drains."""
        leaving = self.lives.leaving
        for worker_id, since in list(self._drained.items()):
            one = by_id.get(worker_id)
            is_deaf = one is not None and not one.is_draining and at - since > DRAIN_PATIENCE
            if one is None or is_deaf or worker_id in leaving:
                del self._drained[worker_id]
