"""The job that a task keeps in Airflow's `task_state_store`, for its later tries and for the listener."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, parse_job_id

STORE_KEY = "flinklike_job"
"""Never to be renamed: tries that are under way read it."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """What `task_state_store` holds: the job, and which life of the task submitted it (None: not readable).

    The rest is for those who have to end the job while no process of the task is there (listener.py).
    """

    job_id: JobId
    max_tries: int | None
    run_started: str = ""
    conn_id: str = ""
    cancel_on_kill: bool = True

    def to_json(self) -> dict[str, str | int | None]:
        """What is stored."""
        known = {"run_started": self.run_started} if self.run_started else {}
        return {
            "job_id": self.job_id,
            "max_tries": self.max_tries,
            **known,
            "conn_id": self.conn_id,
            "cancel_on_kill": self.cancel_on_kill,
        }

    def is_of(self, max_tries: int, run_started: str) -> bool:
        """True if this life of the task has submitted it, as far as that can be told."""
        is_same_run = not self.run_started or not run_started or self.run_started == run_started
        return is_same_run and self.max_tries == max_tries


def parse_stored(value: object) -> StoredJob | None:
    """The stored job; None when there is none, or what is there names no job. People can edit the store."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, Mapping):
        return None
    try:
        job_id = parse_job_id(str(value.get("job_id", "")))
    except InvalidInputError:
        return None
    max_tries, run_started, conn_id = value.get("max_tries"), value.get("run_started"), value.get("conn_id")
    return StoredJob(
        job_id,
        max_tries if type(max_tries) is int else None,
        run_started if isinstance(run_started, str) else "",
        conn_id if isinstance(conn_id, str) else "",
        value.get("cancel_on_kill") is not False,
    )
