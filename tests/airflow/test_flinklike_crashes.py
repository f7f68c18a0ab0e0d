"""A worker dies at any step: there is exactly one job, and its value is that of the task."""

import functools
import itertools
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.task_instance.stored_job import STORE_KEY
from tests.kit.airflow.context import FakeStateStore, FakeTaskInstance, context
from tests.kit.airflow.jobs import submit
from tests.kit.rest.fake_cluster import FakeCluster

RUN = SimpleNamespace(start_date=datetime(2024, 5, 6, tzinfo=UTC))
REQUESTS = ("submit", "status", "heartbeat", "result_within", "wait_for_result")


class KilledError(BaseException):
    """Stands for SIGKILL: no handler catches it."""


class Steps:
    """Counts the external actions of a try, and ends the try before or after one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, store: FakeStateStore) -> None:
        self.names: list[str] = []
        self.fatal: tuple[int, str] | None = None
        for name in REQUESTS:
            patch.setattr(FlinklikeClient, name, self._counted(name, getattr(FlinklikeClient, name)))
        patch.setattr(FakeTaskInstance, "xcom_push", self._counted("xcom", FakeTaskInstance.xcom_push))
        for name in ("get", "set"):
            patch.setattr(store, name, self._counted(f"store {name}", getattr(store, name)))

    def _counted(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            number = len(self.names)
            self.names.append(name)
            if self.fatal == (number, "before"):
                raise KilledError
            value = original(*args, **kwargs)
            if self.fatal == (number, "after"):
                raise KilledError
            return value

        return step


def try_once(store: FakeStateStore, number: int, name: str, *, deferrable: bool) -> Any:
    """The return value of the task. A deferred task is resumed when its job has ended."""
    fields: dict[str, Any] = {"deferrable": deferrable, "inline_timeout": 0}
    seen = context(store, try_number=number, dag_run=RUN)
    try:
        return submit(name, **fields).execute(seen)
    except TaskDeferred as deferral:
        trigger: Any = deferral.trigger
        event = {"reason": "finished", "job_id": trigger.job_id, "message": "", "bookmark": trigger.bookmark}
        return submit(name, **fields).execute_complete(seen, event)


def crashes() -> list[tuple[int, str]]:
    return [*itertools.product(range(7), ("before", "after"))]


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("loses_store", [False, True])
@pytest.mark.parametrize("second", [None, pytest.param(2, marks=pytest.mark.extended)])
@pytest.mark.parametrize("first", crashes())
def test_one_job_whenever_workers_die(
    rest: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    *,
    first: tuple[int, str],
    second: int | None,
    loses_store: bool,
    deferrable: bool,
) -> None:
    rest.results["finish"] = {"rows": 5}
    store = FakeStateStore()
    steps = Steps(monkeypatch, store)
    value: Any = None
    fatal = [first] if second is None else [first, (second, "after")]
    for number, steps.fatal in enumerate([*fatal, None], start=1):
        steps.names.clear()
        try:
            value = try_once(store, number, "finish", deferrable=deferrable)
        except KilledError:
            if loses_store:
                store.values.pop(STORE_KEY, None)
            continue
        break
    assert value == {"rows": 5}
    assert len(rest.jobs) == 1


def test_every_step_was_one_to_die_at(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers above cover every step, also one that is added later."""
    del rest
    store = FakeStateStore()
    steps = Steps(monkeypatch, store)
    try_once(store, 1, "finish", deferrable=False)
    assert steps.names == ["store get", "store set", "submit", "xcom", "xcom", "result_within"]
    steps.names.clear()
    try_once(store, 2, "finish", deferrable=False)
    assert steps.names == ["store get", "status", "xcom", "xcom", "result_within"]
