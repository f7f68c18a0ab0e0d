"""Observers: one for each waiting task, in the worker and in the triggerer, called after each look at the job's state.

An observer logs changes of the state, progress, and the output of the attempts. The two waits (operators/job_run.py,
triggers/job.py) use these classes only.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from airflow_flinklike.client.protocol import understood
from airflow_flinklike.exceptions import FlinklikeClientError
from airflow_flinklike.task_instance.task_log import LogLine, TaskLog
from runtime.common.printable import printable
from runtime.common.states import JobStatus

if TYPE_CHECKING:
    from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient, JobState

_LOOK_SECONDS = 10.0
"""The time limit of a look at the logs, which must not delay the task."""
_LAST_LOOKS_MAX = 20
_LOOKS_AT_ONCE = 4
_WORKER_QUIET_SECONDS = 30.0
_TRIGGER_QUIET_SECONDS = 120.0
_WAITING = frozenset({JobStatus.INITIALIZING, JobStatus.CREATED})


def now_seconds() -> float:
    """Seconds since 1970: the clock of observers in workers and triggerers."""
    return time.time()  # noqa: TID251 - Airflow's processes have no other clock


class Log(Protocol):
    """The log of a task: Airflow has several forms of it."""

    def info(self, message: str, /, *args: Any) -> Any:
        """Log at level INFO."""

    def warning(self, message: str, /, *args: Any) -> Any:
        """Log at level WARNING."""

    def error(self, message: str, /, *args: Any) -> Any:
        """Log at level ERROR."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The task's log shows about `limit` bytes of the job's output, and then the address of the job's page.

    The address is `pages` and the job's id.
    """

    limit: int
    pages: str


class _JobLines:
    """One line for each change of the job's state, and the lines of TaskLog."""

    def __init__(
        self,
        log: Log,
        bookmark: Mapping[str, Any] | None,
        settings: LogSettings | None,
        clock: Callable[[], float],
        quiet_seconds: float,
    ) -> None:
        self._log = log
        self._clock = clock
        self._quiet_seconds = quiet_seconds
        bookmark = bookmark or {}
        self._seen = str(bookmark.get("state", ""))
        self._kept: Mapping[str, Any] = bookmark.get("log") or {}
        if settings is None and self._kept:
            settings = LogSettings(int(self._kept["limit"]), str(self._kept["pages"]))
        self._settings = settings
        self._task_log: TaskLog | None = None
        self._has_failed = False

    @property
    def interval(self) -> float:
        """Seconds until the next look that the task's log needs, also without a change of the state."""
        return math.inf if self._task_log is None else self._task_log.seconds_to_look(self._clock())

    def bookmark(self) -> dict[str, Any]:
        """The position from which another process goes on. It passes Airflow's database, so it holds no output."""
        settings = self._settings
        if settings is None:
            return {"state": self._seen}
        kept = self._kept if self._task_log is None else self._task_log.kept()
        return {"state": self._seen, "log": {**kept, "limit": settings.limit, "pages": settings.pages}}

    def _tell(self, state: JobState) -> None:
        line = f"{state.status.value} {state.pending_reason}".rstrip()
        if line != self._seen:
            self._log.info("Job %s: %s", state.job_id, printable(line))
        self._seen = line
        if self._task_log is None and self._settings is not None and state.status not in _WAITING:
            self._task_log = TaskLog(
                state.job_id,
                self._settings.pages + state.job_id,
                now=self._clock(),
                limit=self._settings.limit,
                kept=self._kept,
                quiet_seconds=self._quiet_seconds,
            )

    def _say(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            say = {logging.WARNING: self._log.warning, logging.ERROR: self._log.error}.get(line.level, self._log.info)
            say("%s", line.text)

    def _look_failed(self, task_log: TaskLog, error: Exception) -> None:
        """The task goes on without output: a failed look does not fail it."""
        task_log.postpone(self._clock())
        if not self._has_failed:
            self._has_failed = True
            self._log.warning("The output of job %s cannot be read now: %s", task_log.job_id, str(error) or "no answer")


class JobObserver(_JobLines):
    """The observer in a worker. It runs in the thread of the look, after each look, also after the last one.

    At the end of the job it reads the remaining output: one request for a job that has written little.
    """

    def __init__(
        self,
        log: Log,
        bookmark: Mapping[str, Any] | None = None,
        *,
        settings: LogSettings | None = None,
        clock: Callable[[], float],
    ) -> None:
        """`bookmark` is that of the observer before, in another process."""
        super().__init__(log, bookmark, settings, clock, _WORKER_QUIET_SECONDS)

    def observe(self, client: FlinklikeClient, state: JobState) -> None:
        """Log what is new after a look that has shown `state`."""
        self._tell(state)
        task_log = self._task_log
        if task_log is None:
            return
        if state.status.is_globally_terminal:
            looks = _LAST_LOOKS_MAX
            while task_log.is_reading and looks and self._look(client, task_log, is_last=True):
                looks = looks - 1 if task_log.has_more else 0
        elif task_log.seconds_to_look(self._clock()) <= 0:
            self._look(client, task_log)

    def _look(self, client: FlinklikeClient, task_log: TaskLog, *, is_last: bool = False) -> bool:
        """False when the request failed."""
        before = client.retry_for
        client.retry_for = min(before, _LOOK_SECONDS)
        try:
            with understood("the look at its logs"):
                lines = task_log.take(client.run(task_log.look()), self._clock(), is_last=is_last)
        except FlinklikeClientError as error:
            self._look_failed(task_log, error)
            return False
        finally:
            client.retry_for = before
        self._say(lines)
        return True


class AsyncJobObserver(_JobLines):
    """The observer in a triggerer. The worker reads the remaining output at the end, from the bookmark."""

    def __init__(self, log: Log, bookmark: Mapping[str, Any] | None = None, *, clock: Callable[[], float]) -> None:
        """`bookmark` is that of the worker's observer: whether to read output, and from which position."""
        super().__init__(log, bookmark, None, clock, _TRIGGER_QUIET_SECONDS)

    async def observe(self, client: AsyncFlinklikeClient, state: JobState) -> None:
        """Log what is new after a look that has shown `state`."""
        self._tell(state)
        task_log = self._task_log
        if task_log is None or state.status.is_globally_terminal or task_log.seconds_to_look(self._clock()) > 0:
            return
        try:
            async with _gate(), asyncio.timeout(_LOOK_SECONDS):
                answer = await client.run(task_log.look())
            with understood("the look at its logs"):
                lines = task_log.take(answer, self._clock())
        except (FlinklikeClientError, TimeoutError) as error:
            self._look_failed(task_log, error)
            return
        self._say(lines)


_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _gate() -> asyncio.Semaphore:
    """Bounds the looks at once of one event loop, which may have a thousand triggers."""
    return _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_LOOKS_AT_ONCE))
