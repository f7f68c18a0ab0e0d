"""The life of each process that a driver has started: a worker (R65), which is a TaskManager or a JobMaster process.

Who starts how many, and which one goes, is decided elsewhere (`workers`, `job_master_workers`). Invariant: the workers
are those that the driver sees, by their labels, so that a new leader neither loses nor doubles one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from runtime.common.worker_ids import profile_of, with_profile

RATE_SECONDS = 60.0
"""The interval of `failures_max`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTimes:
    """Times in seconds.

    A worker that has not registered within `registration_timeout` is given up, and killed when it has not ended
    `leave_timeout` after its release. More than `failures_max` failed starts a minute pause them for `retry_interval`.
    A term starts none before `recovery_timeout`: what served the last leader registers meanwhile. A start that has
    failed may happen for as long all the same: it counts for the maximum.
    """

    registration_timeout: float = 300.0
    failures_max: float = 10.0
    retry_interval: float = 3.0
    recovery_timeout: float = 3.0
    leave_timeout: float = 80.0


class WorkerState(Enum):
    """STARTING: the driver was asked. PENDING: it runs, and does not serve yet. LOST: it runs, and does not serve any
    more. LEAVING: it was released.
    """

    STARTING = "starting"
    PENDING = "pending"
    REGISTERED = "registered"
    LOST = "lost"
    LEAVING = "leaving"


_EXPECTED = frozenset({WorkerState.STARTING, WorkerState.PENDING})
_AWAITED = frozenset({WorkerState.PENDING, WorkerState.LOST})


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
    """A worker never served: its start failed, it ended, or it was given up."""

    worker_id: str
    reason: str


WorkerEffect = StartWorker | ReleaseWorker | WorkerFailed


@dataclass(slots=True)
class Worker:
    """One worker. `since`: when its state began; `reason`: why it leaves; `idle_since`: when it had work last.

    `uses`: the allocations that it had until then. `did_serve`: it was registered when it was released. `may_be_told`:
    the driver could not say whether the call that releases it has arrived, so it may be about to leave.
    """

    worker_id: str
    state: WorkerState
    since: float
    idle_since: float | None = None
    slots: int = 0
    uses: int = 0
    reason: str = ""
    did_serve: bool = False
    may_be_told: bool = False

    @property
    def profile(self) -> str:
        """Its profile, "" for the cluster's own configuration."""
        return profile_of(self.worker_id)

    def become(self, state: WorkerState, at: float) -> None:
        """Change the state."""
        self.state, self.since = state, at
        self.idle_since = None


class WorkerLives:
    """The workers of one kind in one term, which began `at`. `new_id` makes labels.

    `duty`: what a worker that is given up has not done.
    """

    def __init__(self, times: WorkerTimes, new_id: Callable[[], str], at: float, duty: str) -> None:
        self._times = times
        self._new_id = new_id
        self._begun = at
        self._duty = duty
        self._workers: dict[str, Worker] = {}
        self._failures: deque[float] = deque(maxlen=1000)
        self._unsure: dict[str, float] = {}
        """Labels of starts that have failed, and when: they may have happened all the same, or may happen yet."""
        self.problem = ""
        """Why the last start failed, until a worker registers."""

    def __iter__(self) -> Iterator[Worker]:
        """All workers, oldest first."""
        return iter(self._workers.values())

    @property
    def pending(self) -> int:
        """Workers that are expected to serve."""
        return sum(worker.state in _EXPECTED for worker in self)

    @property
    def leaving(self) -> frozenset[str]:
        """Those that were released and have not ended."""
        return frozenset(worker.worker_id for worker in self if worker.state is WorkerState.LEAVING)

    def get(self, worker_id: str) -> Worker | None:
        """The worker with that label."""
        return self._workers.get(worker_id)

    def pending_of(self, profile: str) -> int:
        """Workers with a profile that are expected to serve."""
        return sum(one.state in _EXPECTED and one.profile == profile for one in self)

    def unseen(self, registered: Collection[str]) -> Collection[str]:
        """Labels of what runs, or will, or may, without being among the registered ones."""
        return {*self._workers, *self._unsure}.difference(registered)

    def may_start(self, at: float) -> bool:
        """Whether a start is due: the term has seen those of the last one, and starts do not fail all the time."""
        return at >= self._begun + self._times.recovery_timeout and not self._is_paused(at)

    def start(self, at: float, profile: str = "") -> StartWorker:
        """One more, with a profile."""
        worker = Worker(with_profile(self._new_id(), profile), WorkerState.STARTING, at)
        self._workers[worker.worker_id] = worker
        return StartWorker(worker.worker_id)

    def release(self, worker: Worker, reason: str, at: float) -> ReleaseWorker:
        """One less."""
        worker.did_serve = worker.state is WorkerState.REGISTERED
        worker.become(WorkerState.LEAVING, at)
        worker.reason = reason
        return ReleaseWorker(worker.worker_id, reason)

    def release_failed(self, worker_id: str, at: float) -> None:
        """The driver could not tell it, or could not say that it has. One that serves may get work meanwhile, so it is
        not killed for having stayed: it is released again when that is due again, or leaves when it says that it does
        (`leaves`). Another one is killed when it is overdue.
        """
        worker = self._workers.get(worker_id)
        if worker is not None and worker.state is WorkerState.LEAVING and worker.did_serve:
            worker.become(WorkerState.LOST, at)
            worker.reason, worker.may_be_told = "", True

    def leaves(self, worker: Worker, at: float) -> None:
        """It says that it drains: where a release may be why, though the driver could not say so, its time counts."""
        if worker.may_be_told and worker.state is WorkerState.REGISTERED:
            self.release(worker, "it was released", at)

    def had_work(self, worker: Worker, at: float) -> None:
        """It has served since the last look, and does not any more: the time until it is given up begins now."""
        if worker.state in _AWAITED:
            worker.since = at

    def started(self, worker_id: str, at: float) -> None:
        """The driver has started a worker."""
        worker = self._workers.get(worker_id)
        if worker is not None and worker.state is WorkerState.STARTING:
            worker.become(WorkerState.PENDING, at)

    def start_failed(self, worker_id: str, reason: str, at: float) -> list[WorkerEffect]:
        """The driver could not start it, or could not say that it has."""
        worker = self._workers.pop(worker_id, None)
        self._unsure[worker_id] = at
        return [] if worker is None else [self._failed(worker, reason, at)]

    def look(
        self, registered: Collection[str], running: Collection[str], *, asked_at: float, at: float
    ) -> list[WorkerEffect]:
        """Take over what there is. `running`: what the driver saw at `asked_at`; `registered`: those that serve."""
        return [*self._compare(running, asked_at, at), *self._register(registered, at)]

    def _compare(self, running: Collection[str], asked_at: float, at: float) -> list[WorkerEffect]:
        """Believe the driver. What it has started after it was asked is in its next answer."""
        over = asked_at - self._times.recovery_timeout
        self._unsure = {worker_id: since for worker_id, since in self._unsure.items() if since >= over}
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

    def _register(self, registered: Collection[str], at: float) -> list[WorkerEffect]:
        effects: list[WorkerEffect] = []
        for worker in self._workers.values():
            if worker.state is WorkerState.LEAVING and at - worker.since > self._times.leave_timeout:
                worker.become(WorkerState.LEAVING, at)
                effects.append(ReleaseWorker(worker.worker_id, "it has not ended yet", is_overdue=True))
            if worker.worker_id in registered:
                if worker.state in {WorkerState.STARTING, *_AWAITED}:
                    worker.become(WorkerState.REGISTERED, at)
                    self.problem = ""
            elif worker.state is WorkerState.REGISTERED:
                worker.become(WorkerState.LOST, at)
            elif worker.state in _AWAITED and at - worker.since > self._times.registration_timeout:
                reason = f"it {self._duty} within {self._times.registration_timeout:.0f} s"
                if worker.state is WorkerState.PENDING:
                    effects.append(self._failed(worker, reason, at))
                effects.append(self.release(worker, reason, at))
        return effects

    def _failed(self, worker: Worker, reason: str, at: float) -> WorkerFailed:
        self._failures.append(at)
        self.problem = reason
        return WorkerFailed(worker.worker_id, reason)

    def _is_paused(self, at: float) -> bool:
        recent = sum(at - failure < RATE_SECONDS for failure in self._failures)
        return recent > self._times.failures_max and at - self._failures[-1] < self._times.retry_interval
