"""Where a task stores its job: Airflow's `task_state_store`, and an XCom of the task below Airflow 3.3, which has none.

The XCom lasts until the next try begins. Until then the listener finds the job there. A later try finds the job by the
ids that tries choose (`operators/adoption.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow.sdk import Context


class Store(Protocol):
    """What Airflow's `task_state_store` promises."""

    def get(self, key: str) -> Any:
        """The value, None without one."""

    def set(self, key: str, value: Any) -> None:
        """Keep the value."""


class XComStore:
    """Values as XComs of the task."""

    def __init__(self, task_instance: Any) -> None:
        self._task_instance = task_instance

    def get(self, key: str) -> Any:
        """The value that this try has set, None without one."""
        task = self._task_instance
        return task.xcom_pull(task_ids=task.task_id, key=key, map_indexes=task.map_index)

    def set(self, key: str, value: Any) -> None:
        """Keep the value until the next try begins."""
        self._task_instance.xcom_push(key=key, value=value)


def job_store(context: Context) -> tuple[Store, bool]:
    """The store of a task, and whether its values outlive the try."""
    store: Store | None = context.get("task_state_store")
    return (XComStore(context["ti"]), False) if store is None else (store, True)
