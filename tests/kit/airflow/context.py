"""The context of an operator: a task instance that keeps XComs, and a state store."""

from __future__ import annotations

from typing import Any


class FakeTaskInstance:
    """A task instance that keeps XComs."""

    dag_id = "dag"
    run_id = "manual__1"
    task_id = "run"
    map_index = -1

    def __init__(self, max_tries: int = 2, try_number: int = 1) -> None:
        self.max_tries = max_tries
        self.try_number = try_number
        self.xcoms: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value


class FakeStateStore:
    """A `task_state_store`, for all tries of a task."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.values[key] = value


def context(store: FakeStateStore | None = None, *, max_tries: int = 2, try_number: int = 1, **more: Any) -> Any:
    """An execution context."""
    return {
        "ti": FakeTaskInstance(max_tries, try_number),
        "task_state_store": FakeStateStore() if store is None else store,
        "run_id": "manual__1",
        "params": {},
        "ds": "2024-05-06",
        **more,
    }
