"""Outputs of sinks: what accepted attempts wrote becomes visible, what others wrote disappears.

`ctx.output_path(base)` is a hidden directory of one attempt below `base`. CommitOutputs has the files of all accepted
attempts of a job become visible in their bases (`output_move`). Invariants: one move per job at a time; directories
that a commit has claimed are deleted by that commit only (R28).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from runtime.aio.scope import ServiceScope
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError, InvalidInputError, UnavailableError
from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import FailureInfo, OutputDirectory, TaskExecutionReport
from runtime.taskexecutor.attempts import failure_of
from runtime.taskexecutor.connections.contact import ContactKeeper
from runtime.taskexecutor.core.events import MoveProgressed, OutputsMoved
from runtime.taskexecutor.outputs.commit_records import commit_names, read_claim
from runtime.taskexecutor.outputs.move_permit import MoveStoppedError, MoveSupersededError, Permit
from runtime.taskexecutor.outputs.output_move import OutputMove
from runtime.taskexecutor.outputs.output_turns import StoredJobs
from runtime.taskexecutor.outputs.storage_steps import PARALLEL_MAX
from runtime.taskexecutor.slots.work import ProcessGuard
from runtime.taskexecutor.storage.directory_tree import tree_of
from runtime.taskexecutor.storage.output_files import output_files

logger = logging.getLogger(__name__)

PATIENCE = 600.0
"""Seconds without a success after which a commit whose storage fails ends its job, with what is left for a repeat."""

PROGRESS_INTERVAL = 1.0

_GUARD_PAUSE = 0.1


class OutputCommitter:
    """Moves on threads, and deletes what was never committed when a job is over.

    Without `contact` (there is no etcd) no fence forbids a move. `guard` ends this process at the isolation deadline
    while something moves (R27): a look at the permit says nothing of a thread that is frozen behind it.
    """

    def __init__(
        self,
        scope: ServiceScope,
        post: Callable[[OutputsMoved | MoveProgressed], None],
        clock: Clock,
        contact: ContactKeeper | None = None,
        *,
        patience: float = PATIENCE,
        jobs: StoredJobs | None = None,
        guard: ProcessGuard | None = None,
        boot_clock: Clock | None = None,
    ) -> None:
        self._jobs = jobs
        self._scope = scope
        self._post = post
        self._clock = clock
        self._boot_clock = boot_clock
        self._contact = contact
        self._patience = patience
        self._guard = guard
        self._is_marked = False
        self._permits: dict[JobId, Permit] = {}
        self._executors: dict[JobId, ThreadPoolExecutor] = {}
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._written: dict[JobId, dict[OutputDirectory, bool]] = {}

    def note(self, report: TaskExecutionReport) -> None:
        """Remember where an attempt has written, and whether it may count."""
        if report.outputs:
            written = self._written.setdefault(report.attempt_id.job_id, {})
            written.update(dict.fromkeys(report.outputs, report.state is ExecutionState.FINISHED))

    def begin(self, message: CommitOutputs) -> None:
        """Do what the message asks for; ends in OutputsMoved."""
        assert message.job_id not in self._permits, message.job_id
        if self._is_stopping:
            return
        permit = self._permits[message.job_id] = Permit(self._loss)
        for output in message.outputs:
            self._written.setdefault(message.job_id, {})[output] = True
        task = self._scope.start(f"commit {message.job_id}", self._move(message, permit))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _loss(self) -> str:
        """On any thread, by the clock of the contact, which goes on while the host is suspended (R14)."""
        return self._contact.loss if self._contact is not None else ""

    def stop(self, job_id: JobId, reason: str) -> None:
        """R27: the mover of this job ends before its next file."""
        permit = self._permits.get(job_id)
        if permit is not None:
            permit.withdraw(reason)

    def stop_all(self, reason: str) -> None:
        """The process ends."""
        self._is_stopping = True
        for permit in self._permits.values():
            permit.withdraw(reason)

    async def wait_stopped(self) -> None:
        """Behind `stop_all`: returns when no mover touches any file any more. The key goes after that (R13, R27)."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        for executor in self._executors.values():
            # The threads of a move that was cancelled.
            await asyncio.to_thread(executor.shutdown)

    async def _move(self, message: CommitOutputs, permit: Permit) -> None:
        job_id = message.job_id
        failure: FailureInfo | None = None
        is_stopped = is_superseded = False
        # R27: one for each job, another one's storage may hang with all its threads.
        executor = self._executors[job_id] = ThreadPoolExecutor(PARALLEL_MAX, "commit")
        report = _Reports(job_id, self._post, self._clock).report
        move = OutputMove(
            message,
            permit,
            executor,
            report,
            self._clock,
            patience=self._patience,
            jobs=self._jobs,
            boot_clock=self._boot_clock,
        )
        try:
            await self._mark(permit)
            await move.run()
        except MoveStoppedError as error:
            logger.info("the commit of job %s is stopped: %s", job_id, error)
            is_stopped = True
        except MoveSupersededError as error:
            logger.warning("the commit of job %s is another one's: %s", job_id, error)
            is_superseded = True
        except (FlinklikeError, OSError) as error:
            logger.warning("outputs of job %s cannot be committed: %s", job_id, error)
            failure = failure_of(error, self._clock)
        except Exception as error:
            # The boundary of a commit: our mistake in one must not end what runs for other jobs.
            logger.exception("the commit of job %s ended by a bug", job_id)
            failure = failure_of(error, self._clock)
        finally:
            del self._permits[job_id]
        del self._executors[job_id]
        executor.shutdown(wait=False)  # nothing of it is under way
        self._unmark()  # not when this was cancelled: its threads go on until they see it
        self._post(OutputsMoved(job_id, failure, is_stopped, is_superseded))

    async def _mark(self, permit: Permit) -> None:
        """R27: returns when no file that is moved from here on can be touched behind the isolation deadline."""
        while self._guard is not None:
            permit.check()
            try:
                self._guard.mark_exclusive(os.getpid())
            except UnavailableError as error:
                logger.warning("no outputs are moved yet: %s", error)
                await asyncio.sleep(_GUARD_PAUSE)
            else:
                self._is_marked = True
                return

    def _unmark(self) -> None:
        if self._guard is None or not self._is_marked or self._permits:
            return
        try:
            self._guard.unmark(os.getpid())
        except UnavailableError as error:
            logger.warning("this TaskManager stays marked as one that moves outputs: %s", error)
        else:
            self._is_marked = False

    async def end_job(self, job_id: JobId, *, deletes_finished: bool) -> None:
        """Delete the output directories of attempts that do not count: no file in them ever becomes visible.

        Without `deletes_finished`, directories of finished attempts stay: another owner may commit them (R28).
        """
        written = self._written.pop(job_id, {})
        bases: dict[str, list[str]] = {}
        for output, may_count in written.items():
            kept = bases.setdefault(output.base, [])
            if deletes_finished or not may_count:
                kept.append(output.directory)
        if not bases:
            return
        claims = await asyncio.to_thread(_read_claims, job_id, bases)
        finished = {output.directory for output, may_count in written.items() if may_count}
        untouchable = finished if claims is None else claims
        for base, directories in bases.items():
            doomed = [directory for directory in directories if directory not in untouchable]
            try:
                await asyncio.to_thread(
                    _delete_uncommitted, job_id, base, doomed, deletes_finished=deletes_finished and not untouchable
                )
            except (OSError, FlinklikeError) as error:
                logger.warning("outputs of job %s in %s cannot be deleted: %s", job_id, base, error)


class _Reports:
    """At most one a second, and every word of trouble."""

    def __init__(self, job_id: JobId, post: Callable[[MoveProgressed], None], clock: Clock) -> None:
        self._job_id = job_id
        self._post = post
        self._clock = clock
        self._last = clock.monotonic()
        self._problem = ""

    def report(self, moved: int, total: int, problem: str) -> None:
        """How far it is."""
        now = self._clock.monotonic()
        if problem == self._problem and now - self._last < PROGRESS_INTERVAL:
            return
        self._last, self._problem = now, problem
        self._post(MoveProgressed(self._job_id, moved, total, problem))


def _read_claims(job_id: JobId, bases: Iterable[str]) -> set[str] | None:
    """R28: the directories that a commit has claimed that is not done: a claim in one base holds for all of the job.

    None: not known, because the record cannot be read; then everything stays that may count.
    """
    names, claimed, is_known = commit_names(job_id), set[str](), True
    for base in bases:
        try:
            files = output_files(base)
        except InvalidInputError:
            continue  # this TaskManager cannot reach it, and so deletes nothing there
        try:
            data = files.read(names.order)
            if data is None or files.read(names.done) is not None:
                continue
            claim = read_claim(data)
        except (OSError, FlinklikeError) as error:
            logger.warning("what job %s wrote is kept: %s/%s: %s", job_id, base, names.order, error)
            is_known = False
            continue
        if claim is None:
            is_known = False  # written in part: a commit had begun
        else:
            claimed.update(output.directory for output in claim.outputs)
    return claimed if is_known else None


def _delete_uncommitted(job_id: JobId, base: str, directories: list[str], *, deletes_finished: bool) -> None:
    """Directories of attempts; with `deletes_finished`, and when nothing is left to be committed, the tombstone."""
    files, names = output_files(base), commit_names(job_id)
    failures: list[OSError | FlinklikeError] = []
    for directory in directories:
        try:
            tree, path = tree_of(directory)
            tree.delete(path)
        except (OSError, FlinklikeError) as error:
            failures.append(error)
    if deletes_finished:
        files.remove(names.preceded)
        if files.read(names.done) is not None:
            files.remove(names.turn)
            files.remove_tree(names.directory)
    if failures:
        raise failures[0]
