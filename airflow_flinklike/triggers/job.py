"""FlinklikeJobTrigger: waits in the triggerer for the end of a job and fires one event.

Only scalars are kept; the event carries a reason and never the job's result, which the worker fetches itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from enum import Enum
from typing import Any

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_flinklike.client import AsyncFlinklikeClient, JobState
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    FlinklikeClientError,
    JobNotFoundError,
)
from airflow_flinklike.hooks.flinklike import FlinklikeHook
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

TRIGGER_RETRY_SECONDS = 900.0


class JobEventReason(Enum):
    """Why the trigger fired."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"
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


def error_of_event(event: Mapping[str, Any]) -> Exception:
    """What a waiting worker would have raised, for an event that is not about the job's end."""
    return _ERROR_OF.get(JobEventReason(event["reason"]), ClusterUnavailableError)(str(event.get("message", "")))


class FlinklikeJobTrigger(BaseTrigger):
    """Fires when the job ends, or at `deadline_millis` (since 1970).

    `cancel_on_kill`: a user's kill of the deferred task cancels the job; sensors leave it alone.
    """

    def __init__(
        self,
        job_id: str,
        flinklike_conn_id: str,
        *,
        cancel_on_kill: bool = False,
        deadline_millis: int | None = None,
        poll_interval: float = 20.0,
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

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        return "airflow_flinklike.triggers.job.FlinklikeJobTrigger", {
            "job_id": self.job_id,
            "flinklike_conn_id": self.flinklike_conn_id,
            "cancel_on_kill": self.cancel_on_kill,
            "deadline_millis": self.deadline_millis,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait by long poll; yield one event."""
        try:
            async with await self._connect() as client:
                reason, message = await self._wait(client)
        except JobNotFoundError as error:
            reason, message = JobEventReason.NOT_FOUND, str(error)
        except AuthenticationError as error:
            reason, message = JobEventReason.UNAUTHENTICATED, str(error)
        except AirflowNotFoundException as error:
            reason, message = JobEventReason.NO_CONNECTION, str(error)
        except (FlinklikeClientError, OSError) as error:
            reason, message = JobEventReason.ERROR, f"{type(error).__name__}: {error}"
        payload = {"reason": reason.value, "job_id": self.job_id, "message": message}
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow has no hints here

    async def on_kill(self) -> None:
        """A user marked the deferred task failed or succeeded, or cleared it."""
        if self.cancel_on_kill:
            async with await self._connect(retry_for=10.0) as client:
                await client.cancel(JobId(self.job_id))
            self.log.info("Job %s: cancellation requested, the task was killed", self.job_id)

    async def _connect(self, *, retry_for: float = TRIGGER_RETRY_SECONDS) -> AsyncFlinklikeClient:
        return await FlinklikeHook(self.flinklike_conn_id, retry_for=retry_for).aget_conn()

    async def _wait(self, client: AsyncFlinklikeClient) -> tuple[JobEventReason, str]:
        seen: JobState | None = None
        while True:
            remaining = self._remaining_seconds()
            if remaining <= 0:
                return JobEventReason.TIMEOUT, "the time of the task is over"
            since = seen.last_modification if seen else 0
            state = await client.status(JobId(self.job_id), wait=min(self.poll_interval, remaining), since=since)
            if seen is None or (state.status, state.pending_reason) != (seen.status, seen.pending_reason):
                self.log.info("Job %s: %s %s", self.job_id, state.status.value, state.pending_reason)
            seen = state
            if state.status in _REASON_OF:
                return _REASON_OF[state.status], ""

    def _remaining_seconds(self) -> float:
        if self.deadline_millis is None:
            return float("inf")
        return self.deadline_millis / 1000 - timezone.utcnow().timestamp()
