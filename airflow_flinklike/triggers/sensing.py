"""The triggers of the sensors. They fire one event, and never cancel a job.

The triggers of one event loop share the connections, the poll for jobs, and the lists of jobs and of TaskManagers.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_flinklike.client.shared_poll import SharedPoll
from airflow_flinklike.exceptions import ClusterUnavailableError
from airflow_flinklike.hooks.connection import ClusterAccess
from airflow_flinklike.triggers.conditions import (
    JOBS,
    TASK_MANAGERS,
    ClusterWish,
    JobLook,
    JobWish,
    Verdict,
    judge,
    newest,
    parse_states,
    room,
)
from airflow_flinklike.triggers.job import TOLD_ERRORS, told, trigger_patience
from airflow_flinklike.triggers.shared_wait import shared_poll
from airflow_flinklike.triggers.stream_conditions import StreamLook, StreamWish, look_at_streams
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

Shared = SharedPoll[ClusterAccess]


class SensorTrigger(BaseTrigger):
    """Fires `{"verdict": ...}` when its condition is met or missed, `{"reason", "message"}` after an error."""

    def __init__(self, flinklike_conn_id: str, *, poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow has no hints here
        self.flinklike_conn_id = flinklike_conn_id
        self.poll_interval = poll_interval

    @abstractmethod
    async def _wait(self, shared: Shared) -> dict[str, Any]:
        """Wait, and return the payload of the event."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        try:
            async with shared_poll(self.flinklike_conn_id).attached() as shared:
                payload = await self._wait(shared)
        except TOLD_ERRORS as error:
            reason, message = told(error)
            payload = {"reason": reason.value, "message": message}
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow has no hints here


class JobSensorTrigger(SensorTrigger):
    """Of one job, by its id, or the newest of a name."""

    def __init__(
        self,
        flinklike_conn_id: str,
        *,
        job_id: str | None,
        job_name: str,
        started_after_millis: int,
        poll_interval: float,
    ) -> None:
        super().__init__(flinklike_conn_id, poll_interval=poll_interval)
        self.job_id = job_id
        self.job_name = job_name
        self.started_after_millis = started_after_millis

    def _arguments(self) -> dict[str, Any]:
        """Those of `serialize` that are of the job."""
        return {
            "flinklike_conn_id": self.flinklike_conn_id,
            "job_id": self.job_id,
            "job_name": self.job_name,
            "started_after_millis": self.started_after_millis,
            "poll_interval": self.poll_interval,
        }

    def _job_wish(self, states: frozenset[JobStatus]) -> JobWish:
        return JobWish(states, JobId(self.job_id) if self.job_id else None, self.job_name, self.started_after_millis)

    async def _newest(self, shared: Shared, wish: JobWish) -> JobId | None:
        """The job of a wish by name; None while there is none."""
        jobs = await shared.looks.get(JOBS, age=self.poll_interval / 2, patience=trigger_patience())
        return newest(wish, jobs)


class FlinklikeJobStateTrigger(JobSensorTrigger):
    """Waits until a job, by its id or its name, is in one of the target states."""

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
        super().__init__(
            flinklike_conn_id,
            job_id=job_id,
            job_name=job_name,
            started_after_millis=started_after_millis,
            poll_interval=poll_interval,
        )
        self.target_states = list(target_states)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        return "airflow_flinklike.triggers.sensing.FlinklikeJobStateTrigger", {
            **self._arguments(),
            "target_states": self.target_states,
        }

    async def _wait(self, shared: Shared) -> dict[str, Any]:
        wish = self._job_wish(parse_states(self.target_states))
        look = JobLook(Verdict.WAITING)
        while look.verdict is Verdict.WAITING or look.state is None:
            seen, look = look, await self._look(shared, wish, look)
            if str(look) != str(seen):
                self.log.info("%s", look)
        return {"verdict": look.verdict.value, "job_id": look.state.job_id}

    async def _look(self, shared: Shared, wish: JobWish, seen: JobLook) -> JobLook:
        """The next look. A wish by name lists the jobs again after each interval, since a newer job may come."""
        job_id, timeout = wish.job_id, None
        if job_id is None:
            job_id, timeout = await self._newest(shared, wish), self.poll_interval
        if job_id is None:
            await asyncio.sleep(self.poll_interval)
            return seen
        state = await shared.wait(job_id, seen.since(job_id), timeout, patience=trigger_patience())
        if state is None:
            return seen
        return await shared.run(lambda: judge(wish, state), patience=trigger_patience())


class FlinklikeStreamTrigger(JobSensorTrigger):
    """Waits until the streaming queries of a job, by its id or its name, are as far as `wish` says."""

    def __init__(
        self,
        flinklike_conn_id: str,
        *,
        wish: Mapping[str, Any],
        job_id: str | None = None,
        job_name: str = "",
        started_after_millis: int = 0,
        poll_interval: float = 10.0,
    ) -> None:
        super().__init__(
            flinklike_conn_id,
            job_id=job_id,
            job_name=job_name,
            started_after_millis=started_after_millis,
            poll_interval=poll_interval,
        )
        self.wish = dict(wish)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        return "airflow_flinklike.triggers.sensing.FlinklikeStreamTrigger", {
            **self._arguments(),
            "wish": self.wish,
        }

    async def _wait(self, shared: Shared) -> dict[str, Any]:
        wish = StreamWish(**self.wish)
        job = self._job_wish(frozenset(JobStatus))
        look = StreamLook(Verdict.WAITING)
        while True:
            seen, look = look, await self._look(shared, wish, job)
            if str(look) != str(seen):
                self.log.info("%s", look)
            if look.verdict is not Verdict.WAITING and look.state is not None:
                return {"verdict": look.verdict.value, "job_id": look.state.job_id, "queries": look.value()}
            await asyncio.sleep(self.poll_interval)

    async def _look(self, shared: Shared, wish: StreamWish, job: JobWish) -> StreamLook:
        job_id = job.job_id or await self._newest(shared, job)
        if job_id is None:
            return StreamLook(Verdict.WAITING)
        state = await shared.wait(job_id, 0, None, patience=trigger_patience())
        assert state is not None
        return await shared.run(lambda: look_at_streams(wish, state), patience=trigger_patience())


class FlinklikeClusterTrigger(SensorTrigger):
    """Waits for free slots. A cluster that does not answer has none yet."""

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

    async def _wait(self, shared: Shared) -> dict[str, Any]:
        wish = ClusterWish(self.free_slots, self.has_spark, self.spark_profile)
        said = ""
        while True:
            try:
                look = room(wish, await shared.looks.get(TASK_MANAGERS, age=self.poll_interval / 2))
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
