"""Parameters of SparkSubmitOperator and `@task.pyspark` that a warm session cannot follow.

They are refused when a DAG is parsed, with what to use instead.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from airflow_flinklike.api.spark_start import SET_AT_START
from airflow_flinklike.exceptions import PipelineError

INSTEAD: Mapping[str, str] = {
    "java_class": "only Python applications run on warm slots; keep SparkSubmitOperator for a main class of a jar",
    **SET_AT_START,
    "deploy_mode": "leave it out: the driver always is in a TaskManager, never in Airflow's worker",
    "master": "leave it out: the connection names the cluster, and its TaskManagers have the master",
    "spark_binary": "leave it out: no spark-submit is started",
    "verbose": "leave it out: no spark-submit is started, and the job's own lines are in the task's log",
    "keytab": "jobs run as the TaskManagers' user: use secrets= for credentials of a job",
    "principal": "jobs run as the TaskManagers' user: use secrets= for credentials of a job",
    "proxy_user": "jobs run as the TaskManagers' user: use secrets= for credentials of a job",
    "use_krb5ccache": "jobs run as the TaskManagers' user: use secrets= for credentials of a job",
    "post_submit_commands": "use on_success_callback, or a task downstream",
    "reconnect_on_retry": "use durable=, which is on by default",
    "track_driver_via_k8s_api": "leave it out: the cluster itself knows what its jobs do",
    "yarn_track_via_application_status": "leave it out: the cluster itself knows what its jobs do",
    "status_poll_interval": "use poll_interval=, the seconds of one long poll: changes are seen at once",
}
"""Parameter -> one sentence that says what to use instead."""


def refuse_spark_parameters(given: MutableMapping[str, Any], *, task_id: str) -> None:
    """Remove these parameters from `given`. Raises PipelineError if one has a value other than None, False and ""."""
    problems = [
        f"{name} does not apply to a warm session: {INSTEAD[name]}"
        for name in INSTEAD
        if name in given and _says_something(given.pop(name))
    ]
    if problems:
        raise PipelineError(f"task {task_id!r}: {'; '.join(problems)}", tuple(problems))


def _says_something(value: Any) -> bool:
    return not (value is None or value is False or value == "")
