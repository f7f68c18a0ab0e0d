"""JobManagerRunnerRegistry: the JobMasters that run in this process, in both kinds of Dispatcher.

Invariants: at most one runner of a job runs at a time; a pair (job, epoch) is run at most once in the life of the
registry, because attempt ids of a second JobMaster under one epoch would collide with those of the first (R9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from runtime.aio.scope import Scope, ScopeClosedError, ServiceScope
from runtime.aio.watch import Watch
from runtime.common.ids import JobId
from runtime.common.waiting import Waiting
from runtime.gateways.dispatcher import AssignJob, JobInventoryEntry
from runtime.gateways.job_manager_runner import (
    JobManagerRunner,
    JobManagerRunnerFactory,
    JobManagerRunnerResult,
    JobMasterListener,
)
from runtime.jobgraph.graph import JobGraph

logger = logging.getLogger(__name__)

REMEMBERED_MAX = 100_000
"""(job, epoch) pairs that are remembered after their runner ended; an order that is repeated is never that old."""


@dataclass(frozen=True, slots=True)
class RunnerFailed:
    """A runner broke: the job needs another owner."""

    job_id: JobId
    epoch: int
    reason: str


@dataclass(slots=True)
class _Running:
    runner: JobManagerRunner
    task: asyncio.Task[None]
    successor: AssignJob | None = None
    cancel_reason: str | None = None
    """Why the successor is to be cancelled, None if it is not: its runner, which is to be told, does not exist yet."""


class JobManagerRunnerRegistry:
    """Runs runners in `scope`. `ended` is called at the end of each runner that was not dropped."""

    def __init__(
        self,
        scope: Scope | ServiceScope,
        factory: JobManagerRunnerFactory,
        listener: JobMasterListener,
        ended: Callable[[JobManagerRunnerResult | RunnerFailed], None],
    ) -> None:
        self._scope = scope
        self._factory = factory
        self._listener = listener
        self._ended = ended
        self._running: dict[JobId, _Running] = {}
        self._begun: dict[tuple[JobId, int], None] = {}
        self.count: Watch[int] = Watch(0)
        """How many runners run."""

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[JobManagerRunner]:
        return (running.runner for running in self._running.values())

    def get(self, job_id: JobId) -> JobManagerRunner | None:
        """The job's runner, while it runs."""
        running = self._running.get(job_id)
        return None if running is None else running.runner

    def has_begun(self, job_id: JobId, epoch: int) -> bool:
        """True if a runner of this job has run under this epoch."""
        return (job_id, epoch) in self._begun

    def start(self, assignment: AssignJob, graph: JobGraph | None = None) -> None:
        """Run a job. Idempotent by (job, epoch). An older epoch is ignored, a newer one waits for the older's end.

        `graph`: the assignment's, where this process has verified it.
        """
        if self.has_begun(assignment.job_id, assignment.epoch):
            return
        running = self._running.get(assignment.job_id)
        if running is not None:
            self._succeed(running, assignment)
            return
        self._begun[assignment.job_id, assignment.epoch] = None
        while len(self._begun) > REMEMBERED_MAX:
            del self._begun[next(iter(self._begun))]
        runner = self._factory.create(assignment, self._listener, graph)
        task = self._scope.start(f"job {assignment.job_id}", self._run(runner))
        running = self._running[assignment.job_id] = _Running(runner, task)
        self.count.set(len(self._running))
        task.add_done_callback(lambda _: self._never_ran(running))

    def _succeed(self, running: _Running, assignment: AssignJob) -> None:
        waiting = running.runner.epoch if running.successor is None else running.successor.epoch
        if assignment.epoch > waiting:
            running.successor = assignment
            running.task.cancel()

    async def _run(self, runner: JobManagerRunner) -> None:
        outcome: JobManagerRunnerResult | RunnerFailed | None = None
        try:
            outcome = await runner.run()
        except Exception as error:  # the boundary of one job: its JobMaster's bug must not end the others
            logger.exception("the JobMaster of job %s (epoch %d) broke", runner.job_id, runner.epoch)
            outcome = RunnerFailed(runner.job_id, runner.epoch, f"its JobMaster broke: {type(error).__name__}: {error}")
        finally:
            running = self._running.pop(runner.job_id)
            # Cancelled by drop or by a successor, the task ends here without an outcome.
            if outcome is not None:
                self._ended(outcome)
            self._start_successor(running)
            self.count.set(len(self._running))

    def _never_ran(self, running: _Running) -> None:
        """Forget the runner here: a task that is cancelled before its first step does not run its `finally`."""
        job_id = running.runner.job_id
        if self._running.get(job_id) is running:
            del self._running[job_id]
            self._start_successor(running)
            self.count.set(len(self._running))

    def _start_successor(self, running: _Running) -> None:
        assignment = running.successor
        if assignment is None:
            return
        try:
            self.start(assignment)
            if running.cancel_reason is not None:
                self.cancel(assignment.job_id, running.cancel_reason)
        except ScopeClosedError:
            logger.debug("job %s is not started again: this process lets go of its jobs", assignment.job_id)

    def cancel(self, job_id: JobId, reason: str = "") -> None:
        """Cancel a job: because of `reason`, or for a client without one."""
        running = self._running.get(job_id)
        if running is None:
            return
        running.runner.cancel_job(reason)
        if running.successor is not None:
            running.cancel_reason = reason

    def notify_resources(self, job_id: JobId, waiting: Waiting) -> None:
        """Tell a JobMaster why its requirements are not fulfilled, or that they are."""
        running = self._running.get(job_id)
        if running is not None:
            running.runner.notify_resources(waiting)

    def drop(self, entry: JobInventoryEntry) -> None:
        """Stop running a job. A runner whose job has ended is left alone: it sends its last messages, and returns."""
        running = self._running.get(entry.job_id)
        if running is None or running.runner.epoch != entry.epoch:
            return
        if not entry.status.is_globally_terminal:
            running.task.cancel()
