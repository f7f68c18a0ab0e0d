"""Triggers of the sensors: they wait in the triggerer, never cancel anything, and fire one event."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_flinklike.client import AsyncFlinklikeClient
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    FlinklikeClientError,
    JobNotFoundError,
)
from airflow_flinklike.hooks.flinklike import FlinklikeHook
from airflow_flinklike.sensing import (
    ClusterWish,
    JobLook,
    JobWish,
    Verdict,
    look_at_cluster,
    look_at_job,
    parse_states,
)
from airflow_flinklike.triggers.job import TRIGGER_RETRY_SECONDS, JobEventReason
from airflow_flinklike.triggers.shared_wait import wait_for_change
from runtime.common.ids import JobId

_REASON_OF_ERROR = {
    JobNotFoundError: JobEventReason.NOT_FOUND,
    AuthenticationError: JobEventReason.UNAUTHENTICATED,
    AirflowNotFoundException: JobEventReason.NO_CONNECTION,
}


class _SensorTrigger(BaseTrigger):
    """Fires `{"verdict": ...}` when it has seen what it waits for, `{"reason", "message"}` when it cannot go on."""

    retry_for = TRIGGER_RETRY_SECONDS

    def __init__(self, flinklike_conn_id: str, *, poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow has no hints here
        self.flinklike_conn_id = flinklike_conn_id
        self.poll_interval = poll_interval

    @abstractmethod
    async def _wait(self, client: AsyncFlinklikeClient) -> dict[str, Any]:
        """The event's payload, once it is there."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        try:
            async with await FlinklikeHook(self.flinklike_conn_id, retry_for=self.retry_for).aget_conn() as client:
                payload = await self._wait(client)
        except (FlinklikeClientError, AirflowNotFoundException, OSError) as error:
            reason = _REASON_OF_ERROR.get(type(error), JobEventReason.ERROR)
            payload = {"reason": reason.value, "message": str(error)}
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow has no hints here


class FlinklikeJobStateTrigger(_SensorTrigger):
    """Waits for a job in one of some states, or for one of a name."""

    def __init__(
        self,
        flinklike_conn_id: str,
        *,
        target_states: Sequence[str],
        job_id: str | None = None,
        job_name: str = "",
        started_after_millis: int = 0,
        poll_interval: float = 10.0,
    ) -> None:
        super().__init__(flinklike_conn_id, poll_interval=poll_interval)
        self.target_states = list(target_states)
        self.job_id = job_id
        self.job_name = job_name
        self.started_after_millis = started_after_millis

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        return "airflow_flinklike.triggers.sensing.FlinklikeJobStateTrigger", {
            "flinklike_conn_id": self.flinklike_conn_id,
            "target_states": self.target_states,
            "job_id": self.job_id,
            "job_name": self.job_name,
            "started_after_millis": self.started_after_millis,
            "poll_interval": self.poll_interval,
        }

    async def _wait(self, client: AsyncFlinklikeClient) -> dict[str, Any]:
        job_id = JobId(self.job_id) if self.job_id else None
        wish = JobWish(parse_states(self.target_states), job_id, self.job_name, self.started_after_millis)
        look = await client.run(look_at_job(wish))
        while look.verdict is Verdict.WAITING:
            await self._wait_for_news(look)
            seen, look = look, await client.run(look_at_job(wish))
            if str(look) != str(seen):
                self.log.info("%s", look)
        return {"verdict": look.verdict.value, "job_id": look.job_id}

    async def _wait_for_news(self, look: JobLook) -> None:
        """Of the job by the question that all triggers share; while there is no job, and later whether there is a newer
        one, it is asked again from time to time.
        """
        if look.job_id is None:
            await asyncio.sleep(self.poll_interval)
        else:
            patience = None if self.job_id else self.poll_interval
            await wait_for_change(self.flinklike_conn_id, look.job_id, look.last_modification, patience)


class FlinklikeClusterTrigger(_SensorTrigger):
    """Waits for free slots. A cluster that is away is one that has none yet."""

    retry_for = 0.0

    def __init__(
        self,
        flinklike_conn_id: str,
        *,
        free_slots: int = 1,
        has_spark: bool = False,
        spark_profile: str = "",
        poll_interval: float = 10.0,
    ) -> None:
        super().__init__(flinklike_conn_id, poll_interval=poll_interval)
        self.free_slots = free_slots
        self.has_spark = has_spark
        self.spark_profile = spark_profile

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        return "airflow_flinklike.triggers.sensing.FlinklikeClusterTrigger", {
            "flinklike_conn_id": self.flinklike_conn_id,
            "free_slots": self.free_slots,
            "has_spark": self.has_spark,
            "spark_profile": self.spark_profile,
            "poll_interval": self.poll_interval,
        }

    async def _wait(self, client: AsyncFlinklikeClient) -> dict[str, Any]:
        wish = ClusterWish(self.free_slots, self.has_spark, self.spark_profile)
        said = ""
        while True:
            try:
                look = await client.run(look_at_cluster(wish))
            except ClusterUnavailableError as error:
                text = str(error)
            else:
                if look.is_reached:
                    return {"verdict": Verdict.REACHED.value, "free_slots": look.free_slots}
                text = str(look)
            if text != said:
                self.log.info("%s", text)
                said = text
            await asyncio.sleep(self.poll_interval)
