"""FlinklikeJobTrigger waits in the triggerer for the end of a job, and fires one event.

Its arguments are scalars and the bookmark. The event carries a reason; the worker fetches the result of the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_flinklike.airflow_options import configured
from airflow_flinklike.airflow_version import AirflowNotFoundException
from airflow_flinklike.client import AsyncFlinklikeClient, JobState, operations
from airflow_flinklike.client.shared_poll import SharedPoll
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    FlinklikeClientError,
    JobConflictError,
    JobNotFoundError,
)
from airflow_flinklike.hooks.connection import ClusterAccess
from airflow_flinklike.hooks.flinklike import FlinklikeHook
from airflow_flinklike.hooks.questions import answered, despite_cancellations
from airflow_flinklike.task_instance.observation import AsyncJobObserver, now_seconds
from airflow_flinklike.task_instance.task_states import KillCause, TaskKey, trigger_kill_cause
from airflow_flinklike.triggers.conditions import START_LOOK_SECONDS, have_all_started
from airflow_flinklike.triggers.shared_wait import shared_poll
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

_ASK_SECONDS = 10.0
_CANCEL_SECONDS = 10.0


def trigger_patience() -> float:
    """A cluster that does not answer is retried for so many seconds where no deadline bounds it."""
    return float(configured("retry_for"))


class JobEventReason(Enum):
    """Why the trigger fired."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"
    RUNNING = "running"
    TIMEOUT = "timeout"
    NOT_FOUND = "not_found"
    UNAUTHENTICATED = "unauthenticated"
    NO_CONNECTION = "no_connection"
    ERROR = "error"


_REASON_OF = {
    JobStatus.FINISHED: JobEventReason.FINISHED,
    JobStatus.FAILED: JobEventReason.FAILED,
    JobStatus.CANCELED: JobEventReason.CANCELED,
}
_ERROR_OF: Mapping[JobEventReason, type[Exception]] = {
    JobEventReason.NOT_FOUND: JobNotFoundError,
    JobEventReason.UNAUTHENTICATED: AuthenticationError,
    JobEventReason.NO_CONNECTION: AirflowNotFoundException,
}


TOLD_ERRORS = (FlinklikeClientError, AirflowNotFoundException, OSError)
"""After these errors a trigger fires, and its task fails with the same error."""


def told(error: Exception) -> tuple[JobEventReason, str]:
    """The reason and the message of an event for that error."""
    for reason, kind in _ERROR_OF.items():
        if isinstance(error, kind):
            return reason, str(error)
    return JobEventReason.ERROR, f"{type(error).__name__}: {error}"


def error_of_event(event: Mapping[str, Any]) -> Exception:
    """The error for an event whose reason is not an end of the job: a waiting worker would have raised it."""
    return _ERROR_OF.get(JobEventReason(event["reason"]), ClusterUnavailableError)(str(event.get("message", "")))


class FlinklikeJobTrigger(BaseTrigger):
    """Fires when the job ends, or at `deadline_millis` (since 1970).

    `cancel_on_kill`: a mark or a clear of the deferred task by a user cancels the job, and so does the deadline; False
    for sensors. `until_running`: it fires also when all tasks of the job run. `insist_interval`: seconds between
    heartbeats for a job for which a worker has promised one to the cluster (D-035). `bookmark` is that of the worker's
    observer.
    """

    def __init__(
        self,
        job_id: str,
        flinklike_conn_id: str,
        *,
        cancel_on_kill: bool = False,
        deadline_millis: int | None = None,
        poll_interval: float = 20.0,
        insist_interval: float | None = None,
        bookmark: Mapping[str, Any] | None = None,
        until_running: bool = False,
    ) -> None:
        if poll_interval <= 0:
            message = f"poll_interval is {poll_interval:g}: it must be above 0"
            raise ValueError(message)
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow has no hints here
        self.job_id = job_id
        self.flinklike_conn_id = flinklike_conn_id
        self.cancel_on_kill = cancel_on_kill
        self.deadline_millis = deadline_millis
        self.poll_interval = poll_interval
        self.insist_interval = insist_interval
        self.bookmark = dict(bookmark or {})
        self.until_running = until_running

    def make_observer(self) -> AsyncJobObserver:
        """The observer of this trigger."""
        return AsyncJobObserver(self.log, self.bookmark, clock=now_seconds)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The path of the class, and its arguments."""
        return "airflow_flinklike.triggers.job.FlinklikeJobTrigger", {
            "job_id": self.job_id,
            "flinklike_conn_id": self.flinklike_conn_id,
            "cancel_on_kill": self.cancel_on_kill,
            "deadline_millis": self.deadline_millis,
            "poll_interval": self.poll_interval,
            "insist_interval": self.insist_interval,
            "bookmark": self.bookmark,
            **({"until_running": True} if self.until_running else {}),
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait by long polls; yield one event."""
        observer = self.make_observer()
        try:
            async with shared_poll(self.flinklike_conn_id).attached() as shared:
                reason, message = await self._wait(shared, observer)
        except TOLD_ERRORS as error:
            reason, message = told(error)
        except asyncio.CancelledError:
            if not hasattr(BaseTrigger, "on_kill"):  # Airflow calls it from 3.3 on
                await despite_cancellations(self.on_kill())
            raise
        if reason is JobEventReason.ERROR and self._remaining_seconds() <= 0:
            reason = JobEventReason.TIMEOUT
        if reason is JobEventReason.TIMEOUT and self.cancel_on_kill:
            await self._cancel("the time of the task is over")
        payload = {"reason": reason.value, "job_id": self.job_id, "message": message, "bookmark": observer.bookmark()}
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow has no hints here

    async def on_kill(self) -> None:
        """Airflow has cancelled the trigger: a user marked or cleared the task, or another triggerer has it."""
        if self.cancel_on_kill and await self._kill_cause() is KillCause.USER:
            await self._cancel("the task was marked or cleared")

    async def _kill_cause(self) -> KillCause:
        if self.task_instance is None:
            return KillCause.USER
        task = TaskKey.of(self.task_instance)
        try:
            states = await answered(sync_to_async(task.ask, thread_sensitive=False)(), seconds=_ASK_SECONDS)
        except Exception as error:  # noqa: BLE001 - any error means that there is no answer
            self.log.warning("Airflow does not say why the trigger is killed (%s): job %s goes on", error, self.job_id)
            return KillCause.UNKNOWN
        return trigger_kill_cause(task, states)

    async def _cancel(self, why: str) -> None:
        try:
            async with asyncio.timeout(2 * _CANCEL_SECONDS), await self._connect(retry_for=_CANCEL_SECONDS) as client:
                await client.cancel(JobId(self.job_id))
        except (JobConflictError, JobNotFoundError):
            self.log.info("Job %s has ended already", self.job_id)
        except (FlinklikeClientError, OSError) as error:
            self.log.warning("Job %s could not be cancelled: %s", self.job_id, error)
        else:
            self.log.info("Job %s: cancellation requested, %s", self.job_id, why)

    async def _connect(self, *, retry_for: float) -> AsyncFlinklikeClient:
        return await FlinklikeHook(self.flinklike_conn_id, retry_for=retry_for).aget_conn()

    async def _wait(self, shared: SharedPoll[ClusterAccess], observer: AsyncJobObserver) -> tuple[JobEventReason, str]:
        state: JobState | None = None
        insist_at = 0.0 if self.insist_interval is not None else float("inf")
        while (remaining := self._remaining_seconds()) > 0:
            now = now_seconds()
            if self.insist_interval is not None and now >= insist_at:
                insist_at = now + self.insist_interval
                with suppress(JobConflictError, JobNotFoundError, ClusterUnavailableError):
                    await shared.run(lambda: operations.heartbeat(JobId(self.job_id), 0))
            since = 0 if state is None else state.last_modification
            wait = min(self.poll_interval, observer.interval, remaining, insist_at - now)
            if self.until_running and state is not None and state.status is JobStatus.RUNNING:
                wait = min(wait, START_LOOK_SECONDS)
            state = await shared.wait(JobId(self.job_id), since, wait, patience=self._ride_seconds()) or state
            if state is None:
                continue
            with suppress(ClusterUnavailableError):  # the wait raises it when it lasts too long
                await observer.observe(await shared.client(), state)
            if state.status in _REASON_OF:
                return _REASON_OF[state.status], ""
            if self.until_running and await self._has_started(shared, state):
                return JobEventReason.RUNNING, ""
        return JobEventReason.TIMEOUT, "the time of the task is over"

    async def _has_started(self, shared: SharedPoll[ClusterAccess], state: JobState) -> bool:
        if state.status is not JobStatus.RUNNING:
            return False
        return await shared.run(lambda: have_all_started(state.job_id), patience=self._ride_seconds())

    def _ride_seconds(self) -> float:
        """For how long a cluster that does not answer is retried: until the task's own timeout."""
        return trigger_patience() if self.deadline_millis is None else max(0.0, self._remaining_seconds())

    def _remaining_seconds(self) -> float:
        if self.deadline_millis is None:
            return float("inf")
        return self.deadline_millis / 1000 - now_seconds()
