"""Who is told of every look at a job's state: one object per waiting task, in the worker and in the triggerer.

The two waits (operators/job_run.py, triggers/job.py) know no more of it than these classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient, JobState


class Log(Protocol):
    """The log of a task, in whichever form Airflow gives it."""

    def info(self, message: str, /, *args: Any) -> Any:
        """A line that says what goes on."""

    def warning(self, message: str, /, *args: Any) -> Any:
        """A line about something that is not as it should be."""


class _StateLines:
    """One line in the task's log for every change of the job's state."""

    interval = math.inf
    """Seconds after which it wants another look, although nothing has changed."""

    def __init__(self, log: Log, bookmark: Mapping[str, Any] | None = None) -> None:
        """`bookmark` is what the one before left."""
        self._log = log
        self._seen: str = str((bookmark or {}).get("state", ""))

    def bookmark(self) -> dict[str, Any]:
        """A few scalars from which another process goes on. They travel through Airflow's database."""
        return {"state": self._seen}

    def _tell(self, state: JobState) -> None:
        line = f"{state.status.value} {state.pending_reason}".rstrip()
        if line != self._seen:
            self._log.info("Job %s: %s", state.job_id, line)
        self._seen = line


class JobObserver(_StateLines):
    """In a worker. Called in the thread of the look, after every look, also after the one that shows the end."""

    def observe(self, client: FlinklikeClient, state: JobState) -> None:
        """A look has shown this state."""
        del client
        self._tell(state)


class AsyncJobObserver(_StateLines):
    """In a triggerer."""

    async def observe(self, client: AsyncFlinklikeClient, state: JobState) -> None:
        """A look has shown this state."""
        del client
        self._tell(state)
