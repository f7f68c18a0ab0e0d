"""The kill cause, from the state of the task in Airflow."""

from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_flinklike.task_instance.task_states import KillCause, TaskKey, trigger_kill_cause, worker_kill_cause

TASK = TaskKey("dag", "run", "task")
MAPPED = TaskKey("dag", "run", "task", 3)
ALL = [
    *("removed", "scheduled", "queued", "running", "success", "restarting", "failed", "up_for_retry", "skipped"),
    *("up_for_reschedule", "upstream_failed", "deferred", None),
]


class State(Enum):
    """Airflow's answer may hold its enum instead of texts."""

    RUNNING = "running"
    FAILED = "failed"


@pytest.mark.parametrize("state", ALL)
def test_a_worker_leaves_what_some_try_goes_on_with(state: str | None) -> None:
    others = dict.fromkeys(["scheduled", "queued", "up_for_retry", "up_for_reschedule", "deferred"], KillCause.UNKNOWN)
    expected = {"running": KillCause.PROCESS, **others}.get(str(state), KillCause.USER)
    assert worker_kill_cause(TASK, {"run": {"task": state}}) is expected
    assert worker_kill_cause(MAPPED, {"run": {"task_3": state}}) is expected


@pytest.mark.parametrize("state", ALL)
def test_a_triggerer_leaves_only_what_is_still_deferred(state: str | None) -> None:
    expected = KillCause.PROCESS if state == "deferred" else KillCause.USER
    assert trigger_kill_cause(TASK, {"run": {"task": state}}) is expected


def test_states_may_be_enums() -> None:
    assert worker_kill_cause(TASK, {"run": {"task": State.RUNNING}}) is KillCause.PROCESS
    assert worker_kill_cause(TASK, {"run": {"task": State.FAILED}}) is KillCause.USER


@pytest.mark.parametrize("answer", [{}, {"run": {}}, {"other": {"task": "running"}}, {"run": {"task_3": "running"}}])
def test_what_was_deleted_is_wanted_by_nobody(answer: dict[str, Any]) -> None:
    assert worker_kill_cause(TASK, answer) is KillCause.USER
    assert trigger_kill_cause(TASK, answer) is KillCause.USER


@pytest.mark.parametrize("answer", [None, "running", 5, []])
def test_without_an_answer_the_job_is_left(answer: object) -> None:
    assert worker_kill_cause(TASK, answer) is KillCause.UNKNOWN
    assert trigger_kill_cause(TASK, answer) is KillCause.UNKNOWN


@pytest.mark.parametrize(("index", "expected"), [(-1, -1), (0, 0), (3, 3), (None, -1)])
def test_the_key_of_a_task_instance(index: int | None, expected: int) -> None:
    instance = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=index)
    assert TaskKey.of(instance) == TaskKey("d", "r", "t", expected)
