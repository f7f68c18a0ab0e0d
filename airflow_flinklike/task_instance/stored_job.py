"""The job that a task keeps in Airflow's `task_state_store`, for its later tries and for the listener."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, parse_job_id

STORE_KEY = "flinklike_job"
"""Do not rename it: tries under way read it."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The value in `task_state_store`: the job, and the life of the task that submitted it (`max_tries` and
    `run_started`; None and "" when they are unreadable).

    `number`: that of a job id that is not one of the first numbers of its life (`TaskLife.job_id_of`).
    `is_unanswered`: the submit got no answer, and no cluster had ever answered that try.
    `conn_id` and `cancel_on_kill` are for the listener, which cancels the job while the task has no process, and so is
    `outlives_task`: without an `orphan_timeout`, the job runs on when its task has failed without it.
    """

    job_id: JobId
    max_tries: int | None
    run_started: str = ""
    conn_id: str = ""
    cancel_on_kill: bool = True
    is_unanswered: bool = False
    outlives_task: bool = False
    number: int | None = None

    def to_json(self) -> dict[str, str | int | bool | None]:
        """The stored JSON."""
        known = {"run_started": self.run_started} if self.run_started else {}
        return {
            "job_id": self.job_id,
            "max_tries": self.max_tries,
            **known,
            "conn_id": self.conn_id,
            "cancel_on_kill": self.cancel_on_kill,
            **({"is_unanswered": True} if self.is_unanswered else {}),
            **({"outlives_task": True} if self.outlives_task else {}),
            **({"number": self.number} if self.number is not None else {}),
        }

    def is_of(self, max_tries: int, run_started: str) -> bool:
        """True if this life of the task has submitted the job, or nothing is known to the contrary."""
        is_same_run = not self.run_started or not run_started or self.run_started == run_started
        return is_same_run and self.max_tries == max_tries


def parse_stored(value: object) -> StoredJob | None:
    """The stored job; None for a value that names no job, since users can edit the store."""
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
    number = value.get("number")
    return StoredJob(
        job_id,
        max_tries if type(max_tries) is int else None,
        run_started if isinstance(run_started, str) else "",
        conn_id if isinstance(conn_id, str) else "",
        value.get("cancel_on_kill") is not False,
        value.get("is_unanswered") is True,
        value.get("outlives_task") is True,
        number if type(number) is int else None,
    )
