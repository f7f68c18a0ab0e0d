"""The table of SparkSubmitOperator's parameters that have no effect here, and what happens instead of each.

None of them vanishes: the task says a line for each, in its log and when its DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_flinklike.airflow_options import OPTIONS
from airflow_flinklike.api.spark_start import SET_AT_START
from airflow_flinklike.exceptions import PipelineError

FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A parameter without effect. `instead` says what happens instead.

    `changes_job`: with the parameter, the job would do, or may access, something else; `on_unsupported="fail"` refuses
    it. Without, the parameter is a switch of something that is not there, and is accepted always.
    """

    instead: str
    changes_job: bool


_USER = "the job runs as the TaskManagers' user, with what that user may access: use secrets= for credentials of a job"
_TRACKED = "the cluster itself knows what its jobs do"

UNSUPPORTED: Mapping[str, Unsupported] = {
    "proxy_user": Unsupported(_USER, changes_job=True),
    "keytab": Unsupported(_USER, changes_job=True),
    "principal": Unsupported(_USER, changes_job=True),
    "use_krb5ccache": Unsupported(_USER, changes_job=True),
    "post_submit_commands": Unsupported(
        "no command is run: use on_success_callback, or a task downstream", changes_job=True
    ),
    "driver_cores": Unsupported(SET_AT_START["driver_cores"], changes_job=False),
    "deploy_mode": Unsupported("the driver always is in a TaskManager, never in Airflow's worker", changes_job=False),
    "master": Unsupported("the connection names the cluster, and its TaskManagers have the master", changes_job=False),
    "spark_binary": Unsupported("no spark-submit is started", changes_job=False),
    "verbose": Unsupported(
        "no spark-submit is started, and the job's own lines are in the task's log", changes_job=False
    ),
    "track_driver_via_k8s_api": Unsupported(_TRACKED, changes_job=False),
    "yarn_track_via_application_status": Unsupported(_TRACKED, changes_job=False),
    "status_poll_interval": Unsupported(
        "changes are seen at once, and poll_interval= bounds one request", changes_job=False
    ),
}
"""Parameter of SparkSubmitOperator -> what happens instead."""


class UnsupportedParameterWarning(UserWarning):
    """A task has a parameter that has no effect on this cluster."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One line about one parameter."""

    text: str
    changes_job: bool = False


def explanations(given: Mapping[str, Any], *, task_id: str, on_unsupported: str) -> tuple[Explanation, ...]:
    """One for each parameter of the table whose value is other than None, False and "".

    Raises PipelineError with `on_unsupported="fail"` for those that would change the job, and for another value of it.
    """
    if on_unsupported not in OPTIONS["on_unsupported"].choices:
        message = f"task {task_id!r}: on_unsupported is {on_unsupported!r}, expected 'warn' or 'fail'"
        raise PipelineError(message)
    found = [name for name in UNSUPPORTED if _says_something(given.get(name))]
    lines = tuple(
        Explanation(f"{name} has no effect: {UNSUPPORTED[name].instead}", UNSUPPORTED[name].changes_job)
        for name in found
    )
    problems = tuple(line.text for line in lines if line.changes_job)
    if problems and on_unsupported == FAIL:
        raise PipelineError(f"task {task_id!r}: {'; '.join(problems)}", problems)
    return lines


def _says_something(value: Any) -> bool:
    return not (value is None or value is False or value == "")
