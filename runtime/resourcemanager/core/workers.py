"""When TaskManagers are started and released: slots that jobs lack against slots that are there, or come.

The decisions of Flink's ActiveResourceManager (R65). A worker is a TaskManager that a driver has started. Invariants:
the workers are those that the driver sees, by their labels, so that a new leader neither loses nor doubles one; all
slots together, of pending and leaving workers too, never exceed `slots_max`; only a worker without an allocation is
released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

RATE_SECONDS = 60.0
"""The interval of `failures_max`."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Slots of one worker, and of all TaskManagers together; times in seconds.

    `redundant`: workers that stay free for the next job. A worker that has not registered within
    `registration_timeout` is given up, and killed when it has not ended `leave_timeout` after its release. More than
    `failures_max` failed starts a minute pause them for `retry_interval`. A term starts none before `recovery_timeout`:
    TaskManagers of the last leader register meanwhile.
    """

    slots: int
    slots_min: int = 0
    slots_max: int = 10_000
    redundant: int = 0
    idle_timeout: float = 30.0
    registration_timeout: float = 300.0
    failures_max: float = 10.0
    retry_interval: float = 3.0
    recovery_timeout: float = 3.0
    leave_timeout: float = 80.0


class WorkerState(Enum):
    """STARTING: the driver was asked. PENDING: it runs, and has no slots here yet. LOST: it runs, and has none here any
    more. LEAVING: it was released.
    """

    STARTING = "starting"
    PENDING = "pending"
    REGISTERED = "registered"
    LOST = "lost"
    LEAVING = "leaving"


_AWAITED = frozenset({WorkerState.PENDING, WorkerState.LOST})


@dataclass(frozen=True, slots=True)
class Supply:
    """A registered TaskManager. `worker_id`: "" for one that no driver has started. `free`: slots without allocation.

    `is_usable`: it is connected and does not drain.
    """

    worker_id: str
    slots: int
    free: int
    is_usable: bool = True

    @property
    def is_idle(self) -> bool:
        """True for slots without allocations; without any slot it may be starting."""
        return self.slots > 0 and self.free == self.slots


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Ask the driver for a worker with this label."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class ReleaseWorker:
    """Ask the driver to end a worker, which drains first; one that is overdue is killed."""

    worker_id: str
    reason: str
    is_overdue: bool = False


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker never gave slots: its start failed, it ended, or it was given up."""

    worker_id: str
    reason: str


WorkerEffect = StartWorker | ReleaseWorker | WorkerFailed


@dataclass(slots=True)
class Worker:
    """One worker. `since`: when its state began; `idle_since`: when it had an allocation last, None with some."""

    worker_id: str
    state: WorkerState
    since: float
    idle_since: float | None = None
    slots: int = 0

    def become(self, state: WorkerState, at: float) -> None:
        """Change the state."""
        self.state, self.since = state, at
        self.idle_since = None


class ActiveWorkers:
    """Decides for one term, which began `at`. `new_id` makes labels."""

    def __init__(self, settings: WorkerSettings, new_id: Callable[[], str], at: float) -> None:
        self._settings = settings
        self._new_id = new_id
        self._begun = at
        self._workers: dict[str, Worker] = {}
        self._failures: deque[float] = deque(maxlen=1000)
        self.problem = ""
        """Why the last start failed, until a worker registers."""
        self._has_room = True

    @property
    def pending(self) -> int:
        """Workers that are expected to give slots."""
        return sum(worker.state in {WorkerState.STARTING, WorkerState.PENDING} for worker in self._workers.values())

    @property
    def is_more_coming(self) -> bool:
        """True while workers are expected to give slots, or would be started for jobs that lack some."""
        return not self.problem and (self.pending > 0 or self._has_room)

    def workers(self) -> Iterator[Worker]:
        """All workers, oldest first."""
        return iter(self._workers.values())

    def started(self, worker_id: str, at: float) -> None:
        """The driver has started a worker."""
        worker = self._workers.get(worker_id)
        if worker is not None and worker.state is WorkerState.STARTING:
            worker.become(WorkerState.PENDING, at)

    def start_failed(self, worker_id: str, reason: str, at: float) -> list[WorkerEffect]:
        """The driver could not start it."""
        worker = self._workers.pop(worker_id, None)
        return [] if worker is None else [self._failed(worker, reason, at)]

    def decide(
        self, lacking: int, supplies: Sequence[Supply], running: Collection[str], *, asked_at: float, at: float
    ) -> list[WorkerEffect]:
        """What to do now. `lacking`: slots that waiting jobs lack; `running`: what the driver saw at `asked_at`."""
        effects = self._compare(running, asked_at, at)
        effects += self._register(supplies, at)
        leaving = {one.worker_id for one in self.workers() if one.state is WorkerState.LEAVING}
        there = [one for one in supplies if one.is_usable and (not one.worker_id or one.worker_id not in leaving)]
        effects += self._start(lacking, there, self._total(supplies), at)
        if lacking == 0:
            effects += self._release(there, at)
        return effects

    def _compare(self, running: Collection[str], asked_at: float, at: float) -> list[WorkerEffect]:
        """Believe the driver. What it has started after it was asked is in its next answer."""
        for worker_id in running:
            self._workers.setdefault(worker_id, Worker(worker_id, WorkerState.PENDING, at))
        gone = [
            worker
            for worker in self._workers.values()
            if worker.worker_id not in running and worker.state is not WorkerState.STARTING and worker.since < asked_at
        ]
        for worker in gone:
            del self._workers[worker.worker_id]
        reason = "it ended before it registered"
        return [self._failed(worker, reason, at) for worker in gone if worker.state is WorkerState.PENDING]

    def _register(self, supplies: Sequence[Supply], at: float) -> list[WorkerEffect]:
        by_id = {one.worker_id: one for one in supplies if one.slots > 0}
        effects: list[WorkerEffect] = []
        for worker in self._workers.values():
            if worker.state is WorkerState.LEAVING and at - worker.since > self._settings.leave_timeout:
                worker.become(WorkerState.LEAVING, at)
                effects.append(ReleaseWorker(worker.worker_id, "it has not ended yet", is_overdue=True))
            supply = by_id.get(worker.worker_id)
            if supply is not None:
                self._note(worker, supply, at)
            elif worker.state is WorkerState.REGISTERED:
                worker.become(WorkerState.LOST, at)
            elif worker.state in _AWAITED and at - worker.since > self._settings.registration_timeout:
                reason = f"it gave no slots within {self._settings.registration_timeout:.0f} s"
                if worker.state is WorkerState.PENDING:
                    effects.append(self._failed(worker, reason, at))
                worker.become(WorkerState.LEAVING, at)
                effects.append(ReleaseWorker(worker.worker_id, reason))
        return effects

    def _note(self, worker: Worker, supply: Supply, at: float) -> None:
        worker.slots = supply.slots
        if worker.state in {WorkerState.STARTING, *_AWAITED}:
            worker.become(WorkerState.REGISTERED, at)
            self.problem = ""
        if not supply.is_idle:
            worker.idle_since = None
        elif worker.idle_since is None:
            worker.idle_since = at

    def _total(self, supplies: Sequence[Supply]) -> int:
        """All slots that there are or will be, of leaving workers too."""
        shown = {one.worker_id for one in supplies if one.slots > 0}
        unseen = sum(worker.worker_id not in shown for worker in self._workers.values())
        return sum(one.slots for one in supplies) + unseen * self._settings.slots

    def _start(self, lacking: int, there: Sequence[Supply], total: int, at: float) -> list[WorkerEffect]:
        settings = self._settings
        if at < self._begun + settings.recovery_timeout or self._is_paused(at):
            return []
        free = sum(one.free for one in there)
        short = max(
            lacking + settings.redundant * settings.slots - (0 if lacking else free),
            settings.slots_min - sum(one.slots for one in there),
        )
        wanted = -(-short // settings.slots) - self.pending
        room = (settings.slots_max - total) // settings.slots
        self._has_room = room > 0
        effects: list[WorkerEffect] = []
        for _ in range(min(wanted, room)):
            worker = Worker(self._new_id(), WorkerState.STARTING, at)
            self._workers[worker.worker_id] = worker
            effects.append(StartWorker(worker.worker_id))
        return effects

    def _release(self, there: Sequence[Supply], at: float) -> list[WorkerEffect]:
        settings = self._settings
        slots, free = sum(one.slots for one in there), sum(one.free for one in there)
        usable = {one.worker_id for one in there}
        effects: list[WorkerEffect] = []
        for worker in self._workers.values():
            is_due = worker.idle_since is not None and at - worker.idle_since >= settings.idle_timeout
            if worker.state is not WorkerState.REGISTERED or not is_due or worker.worker_id not in usable:
                continue
            if slots - worker.slots < settings.slots_min or free - worker.slots < settings.redundant * settings.slots:
                continue
            slots, free = slots - worker.slots, free - worker.slots
            worker.become(WorkerState.LEAVING, at)
            effects.append(ReleaseWorker(worker.worker_id, f"it was idle for {settings.idle_timeout:.0f} s"))
        return effects

    def _failed(self, worker: Worker, reason: str, at: float) -> WorkerFailed:
        self._failures.append(at)
        self.problem = reason
        return WorkerFailed(worker.worker_id, reason)

    def _is_paused(self, at: float) -> bool:
        recent = sum(at - failure < RATE_SECONDS for failure in self._failures)
        return recent > self._settings.failures_max and at - self._failures[-1] < self._settings.retry_interval
