"""What became of one's own task: why a worker or a triggerer is told to stop working on it.

Airflow does not say so: a person's mark and the end of a worker arrive as the same signal. The state of the task tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


class KillCause(Enum):
    """Why a task is killed."""

    USER = "user"
    """A person marked or cleared the task, or deleted its run: nobody wants the job any more."""

    PROCESS = "process"
    """The process goes away while the task goes on: whoever comes next goes on with the job."""

    SUPERSEDED = "superseded"
    """Airflow has started another try beside this one: the job is that one's."""

    UNKNOWN = "unknown"
    """Nobody could say, or another try has the task already. The job is left alone too."""


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
        """What Airflow calls it within its run."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"

    @classmethod
    def of(cls, task_instance: _Identified) -> TaskKey:
        """The key of a task instance, in whichever form Airflow has it here."""
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
"""States of a task that some try works on, or will. A try after a clear ends the old job itself."""


def worker_kill_cause(task: TaskKey, states: object) -> KillCause:
    """Why a worker is told to stop, from the answer of `ask`; None when there was none."""
    return _cause(task, states, expected="running", worked_on=_WORKED_ON)


def trigger_kill_cause(task: TaskKey, states: object) -> KillCause:
    """The same for a triggerer, which is told so also when another one takes the trigger over.

    A task that is no longer deferred although its trigger had not fired was cleared, and may be under way again.
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
