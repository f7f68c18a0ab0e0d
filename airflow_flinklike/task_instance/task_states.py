"""KillCause: why Airflow has told a worker or a triggerer to stop.

A mark by a user and the stop of a worker arrive as the same signal. The state of the task tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


class KillCause(Enum):
    """Why a task is killed."""

    USER = "user"
    """A user marked or cleared the task, or deleted its run: the job is to be cancelled."""

    PROCESS = "process"
    """The process stops while the task goes on: the next try or the triggerer goes on with the job."""

    SUPERSEDED = "superseded"
    """Airflow has started another try beside this one: the job belongs to that try."""

    UNKNOWN = "unknown"
    """Airflow did not answer, or another try has the task already: the job is left alone."""


class _Identified(Protocol):
    dag_id: Any
    run_id: Any
    task_id: Any
    map_index: Any


@dataclass(frozen=True, slots=True)
class TaskKey:
    """One task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    @property
    def label(self) -> str:
        """The name of the task within its run."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"

    @classmethod
    def of(cls, task_instance: _Identified) -> TaskKey:
        """The key of a task instance, of which Airflow has several classes."""
        index = getattr(task_instance, "map_index", None)
        return cls(
            str(task_instance.dag_id),
            str(task_instance.run_id),
            str(task_instance.task_id),
            index if isinstance(index, int) else -1,
        )

    def ask(self) -> Mapping[str, Any]:
        """States by run and task, from Airflow's task execution API. Blocks."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # noqa: PLC0415 - heavy, and rarely used

        states: Mapping[str, Any] = RuntimeTaskInstance.get_task_states(
            dag_id=self.dag_id,
            task_ids=[self.task_id],
            run_ids=[self.run_id],
            map_index=self.map_index if self.map_index >= 0 else None,
        )
        return states


_WORKED_ON = frozenset({"running", "scheduled", "queued", "deferred", "up_for_retry", "up_for_reschedule"})
"""States of a task that a try works on, or will work on. A try after a clear ends the old job itself."""


def worker_kill_cause(task: TaskKey, states: object) -> KillCause:
    """Why a worker is told to stop, from the answer of `ask`."""
    return _cause(task, states, expected="running", worked_on=_WORKED_ON)


def trigger_kill_cause(task: TaskKey, states: object) -> KillCause:
    """Why a triggerer is told to stop, which also happens when another triggerer takes the trigger over.

    A task that is not deferred any more, although its trigger has not fired, was cleared and may run again.
    """
    return _cause(task, states, expected="deferred", worked_on=frozenset())


def _cause(task: TaskKey, states: object, *, expected: str, worked_on: frozenset[str]) -> KillCause:
    if not isinstance(states, Mapping):
        return KillCause.UNKNOWN
    run = states.get(task.run_id)
    if not isinstance(run, Mapping) or task.label not in run:
        return KillCause.USER  # the run or the task was deleted
    state = run[task.label]
    state = str(getattr(state, "value", state))
    if state == expected:
        return KillCause.PROCESS
    return KillCause.UNKNOWN if state in worked_on else KillCause.USER
