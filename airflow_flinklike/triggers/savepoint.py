"""FlinklikeSavepointTrigger waits for a savepoint that a worker has asked for, and fires one event."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow_flinklike.client.operations import get_json
from airflow_flinklike.exceptions import JobNotFoundError
from airflow_flinklike.triggers.conditions import Verdict
from airflow_flinklike.triggers.job import trigger_patience
from airflow_flinklike.triggers.sensing import SensorTrigger, Shared
from runtime.common.ids import JobId


class FlinklikeSavepointTrigger(SensorTrigger):
    """Fires `{"verdict": "reached", ...}` when the request has ended: the worker asks how. It never asks again itself.

    `is_stop`: when the job has ended, too.
    """

    def __init__(
        self, flinklike_conn_id: str, *, job_id: str, trigger_id: str, is_stop: bool, poll_interval: float = 2.0
    ) -> None:
        super().__init__(flinklike_conn_id, poll_interval=poll_interval)
        self.job_id = job_id
        self.trigger_id = trigger_id
        self.is_stop = is_stop

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        return "airflow_flinklike.triggers.savepoint.FlinklikeSavepointTrigger", {
            "flinklike_conn_id": self.flinklike_conn_id,
            "job_id": self.job_id,
            "trigger_id": self.trigger_id,
            "is_stop": self.is_stop,
            "poll_interval": self.poll_interval,
        }

    async def _wait(self, shared: Shared) -> dict[str, Any]:
        path = f"/jobs/{self.job_id}/savepoints/{self.trigger_id}"
        while True:
            body = await shared.run(lambda: get_json(path), patience=trigger_patience())
            if (outcome := body.get("operation")) is not None:
                break
            await asyncio.sleep(self.poll_interval)
        if self.is_stop and "failure-cause" not in outcome:
            await self._end_of_job(shared)
        return {"verdict": Verdict.REACHED.value, "job_id": self.job_id, "trigger_id": self.trigger_id}

    async def _end_of_job(self, shared: Shared) -> None:
        since = 0
        while True:
            try:
                state = await shared.wait(JobId(self.job_id), since, None, patience=trigger_patience())
            except JobNotFoundError:
                return
            if state is not None and state.status.is_globally_terminal:
                return
            since = since if state is None else state.last_modification
