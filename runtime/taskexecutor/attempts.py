"""Attempts from RunAttempt to AttemptEnded: prepare the job's files, run in the slot, and report whatever happens.

Invariants: every attempt gets exactly one terminal report, also when its preparation fails, when it is cancelled before
it reached its slot, and when the slot says nothing; AttemptEnded is the last that is heard of it.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from runtime.aio.scope import ServiceScope
from runtime.common.clock import Clock
from runtime.common.errors import BugError, FlinklikeError, InvalidInputError, RetryableError
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import (
    FailureInfo,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskMetrics,
    TaskProgress,
)
from runtime.taskexecutor.attempt_logs.log_files import attempt_directory
from runtime.taskexecutor.core.events import (
    AttemptEnded,
    AttemptProgressed,
    AttemptReported,
    RunAttempt,
    SplitWanted,
)
from runtime.taskexecutor.core.reports import MESSAGE_SIZE_BYTES_MAX, report_size_bytes
from runtime.taskexecutor.credentials.secret_files import SecretFiles
from runtime.taskexecutor.directories.departing_jobs import DepartingJobs
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.job_directory import JobDirectories, JobDirectory
from runtime.taskexecutor.directories.job_users import JobUsers
from runtime.taskexecutor.slot_pool import SlotPool
from runtime.taskexecutor.slots.work import SlotWork
from runtime.taskexecutor.storage.directory_tree import local_path
from runtime.taskexecutor.task_manager_metrics import TaskManagerMetrics

logger = logging.getLogger(__name__)

REPORT_BYTES_MAX = 3 * MESSAGE_SIZE_BYTES_MAX
"""A report must fit into one message of the transport (4 MiB by default)."""

Post = Callable[[AttemptReported | AttemptProgressed | SplitWanted | AttemptEnded], None]


class _Attempt:
    """One attempt; also the SlotListener of its slot. What comes after the terminal report is dropped."""

    __slots__ = (
        "_begin",
        "_clock",
        "_metrics",
        "_post",
        "_stream_uid",
        "attempt_id",
        "is_cancelled",
        "is_reported",
        "preparation",
    )

    def __init__(self, task: TaskDeploymentDescriptor, post: Post, clock: Clock, metrics: TaskManagerMetrics) -> None:
        self.attempt_id = task.attempt_id
        self._stream_uid = task.task.stream_uid
        self.preparation: asyncio.Timeout | None = None
        self.is_cancelled = False
        self.is_reported = False
        self._post = post
        self._clock = clock
        self._metrics = metrics
        self._begin = clock.monotonic()
        metrics.started()

    def task_state_changed(self, report: TaskExecutionReport, /) -> None:
        """The slot has news."""
        if self.is_reported:
            return
        size = report_size_bytes(report)
        if size > REPORT_BYTES_MAX:
            reason = f"its report of {size} bytes is above the limit of {REPORT_BYTES_MAX}: too many output files"
            self.report_state(ExecutionState.FAILED, reason)
            return
        self._post_report(report)

    def task_progressed(self, progress: TaskProgress, /) -> None:
        """Something visible changed."""
        if not self.is_reported:
            self._metrics.streams.progressed(self._stream_uid, progress)
        self._post(AttemptProgressed(progress))

    def split_wanted(self, attempt_id: ExecutionAttemptId, sequence: int, /) -> None:
        """It waits for a split."""
        self._post(SplitWanted(attempt_id, sequence))

    def fail(self, error: Exception) -> None:
        """The attempt could not be run."""
        if not self.is_reported:
            self._report(ExecutionState.FAILED, failure_of(error, self._clock))

    def report_state(self, state: ExecutionState, reason: str) -> None:
        """A terminal report of ours."""
        self._report(state, system_failure(reason, self._clock) if reason else None)

    def _report(self, state: ExecutionState, failure: FailureInfo | None) -> None:
        self._post_report(bare_report(self.attempt_id, state, failure, self._clock))

    def _post_report(self, report: TaskExecutionReport) -> None:
        self.is_reported = report.state.is_terminal
        if self.is_reported:
            self._metrics.ended(report, self._clock.monotonic() - self._begin)
        self._post(AttemptReported(report))


def bare_report(
    attempt_id: ExecutionAttemptId, state: ExecutionState, failure: FailureInfo | None, clock: Clock
) -> TaskExecutionReport:
    """A report of an attempt that produced nothing."""
    return TaskExecutionReport(attempt_id, state, clock.epoch_millis(), failure, b"", (), (), TaskMetrics())


def system_failure(message: str, clock: Clock) -> FailureInfo:
    """A failure of ours, not of user code."""
    return FailureInfo(
        "SlotError", message, message, "SYSTEM", is_recoverable=True, timestamp_millis=clock.epoch_millis()
    )


def failure_of(error: Exception, clock: Clock) -> FailureInfo:
    """Why an attempt could not be run. What the user brought and cannot be used is the user's failure.

    What we say of it is a sentence that says what to do; only of a mistake of ours the frames say more.
    """
    is_told = isinstance(error, FlinklikeError | OSError) and not isinstance(error, BugError)
    name = type(error).__name__
    return FailureInfo(
        class_name=name,
        message=str(error),
        stack_trace=f"{name}: {error}" if is_told else "".join(traceback.format_exception(error)),
        kind="USER" if isinstance(error, InvalidInputError) else "SYSTEM",
        is_recoverable=isinstance(error, RetryableError | OSError),
        timestamp_millis=clock.epoch_millis(),
    )


class Attempts:
    """Runs the attempts that the core starts, and posts their reports."""

    def __init__(
        self,
        pool: SlotPool,
        directories: JobDirectories,
        exchange: ExchangeDirectory,
        *,
        log_directory: Path,
        secrets: SecretFiles,
        clock: Clock,
        scope: ServiceScope,
        post: Post,
        users: JobUsers | None = None,
        metrics: TaskManagerMetrics | None = None,
    ) -> None:
        self._users = users
        self._metrics = metrics or TaskManagerMetrics()
        self._pool = pool
        self._directories = directories
        self._exchange = exchange
        self._log_directory = log_directory
        self._secrets = secrets
        self._clock = clock
        self._scope = scope
        self._post = post
        self._running: dict[ExecutionAttemptId, _Attempt] = {}
        self.departing = DepartingJobs()
        """Jobs that leave: no attempt of one that has come back is prepared before that has ended."""

    def run(self, order: RunAttempt) -> None:
        """Start an attempt."""
        attempt_id = order.task.attempt_id
        attempt = self._running[attempt_id] = _Attempt(order.task, self._post, self._clock, self._metrics)
        self._scope.spawn(f"attempt {attempt_id}", self._run(order, attempt))

    def cancel(self, slot_index: int, attempt_id: ExecutionAttemptId) -> None:
        """Cancel an attempt, wherever it is."""
        attempt = self._running.get(attempt_id)
        if attempt is None:
            return
        attempt.is_cancelled = True
        if attempt.preparation is not None:
            attempt.preparation.reschedule(asyncio.get_running_loop().time())
        else:
            self._scope.spawn(f"cancel {attempt_id}", self._pool.cancel(slot_index, attempt_id))

    def forget(self, job_id: JobId, *, is_removed: bool) -> None:
        """The job's processes have ended, and its files are deleted if all `is_removed`."""
        if self._users is not None:
            self._users.leave(job_id, is_removed=is_removed)
        self.departing.end(job_id)

    @property
    def ids(self) -> frozenset[ExecutionAttemptId]:
        """Attempts that are here now: their logs are kept."""
        return frozenset(self._running)

    async def _run(self, order: RunAttempt, attempt: _Attempt) -> None:
        try:
            await self._run_in_slot(order, attempt)
        except (FlinklikeError, OSError) as error:
            logger.info("attempt %s cannot be run", attempt.attempt_id, exc_info=True)
            attempt.fail(error)
        except Exception as error:
            # The boundary of an attempt: our mistake in one attempt must not end the others.
            logger.exception("attempt %s ended by a bug", attempt.attempt_id)
            attempt.fail(error)
        finally:
            del self._running[attempt.attempt_id]
        if not attempt.is_reported:
            attempt.report_state(ExecutionState.FAILED, "its slot ended without a report")
        self._post(AttemptEnded(order.slot_index, attempt.attempt_id))

    async def _run_in_slot(self, order: RunAttempt, attempt: _Attempt) -> None:
        work = await self._prepare(order, attempt)
        if work is None or attempt.is_cancelled:  # R50: also while its job was given a group
            attempt.report_state(ExecutionState.CANCELED, "")
            return
        if self._users is None or work.user is None:
            await self._pool.run(order.slot_index, work, attempt)
            return
        logs = attempt_directory(self._log_directory, attempt.attempt_id)
        self._users.open_logs(work.user, logs)
        try:
            await self._pool.run(order.slot_index, work, attempt)
        finally:
            self._users.close_logs(logs)

    async def _prepare(self, order: RunAttempt, attempt: _Attempt) -> SlotWork | None:
        """The job's files in place; None when the attempt was cancelled meanwhile."""
        job, task = order.job, order.task
        directory: JobDirectory | None = None
        code_files: Mapping[str, Path] = {}
        secrets: Mapping[str, str] = {}
        try:
            async with asyncio.timeout(None) as attempt.preparation:
                await self.departing.wait(job.job_id)
                if task.outputs:
                    self._exchange.expect(job.job_id)
                directory = await self._directories.prepare(job)
                code_files = await self._directories.code_files(job.job_id, task.task)
                if job.secrets:
                    secrets = await asyncio.to_thread(self._secrets.read, job.secrets, job.namespace)
        except TimeoutError:
            if not attempt.is_cancelled:
                raise
        finally:
            attempt.preparation = None
        if directory is None or attempt.is_cancelled:
            return None
        user, partitions = None, ""
        if self._users is not None:
            user = await self._users.admit(job.job_id, order.slot_index, directory, code_files.values())
            if task.outputs and (path := local_path(partitions := self._exchange.directory_of(job.job_id))):
                self._users.open_partitions(job.job_id, Path(path))
        return SlotWork(
            job=job,
            task=task,
            job_directory=directory.work,
            exchange_directory=self._exchange.directory,
            log_directory=self._log_directory,
            python_path=directory.python_path,
            brought=directory.brought,
            code_files=code_files,
            secrets=secrets,
            partition_directory=partitions,
            user=user,
            jars=directory.jars,
            remote=directory.remote,
            shares=order.shares,
        )
