"""The role that each route takes (R48): one row each. Without its row a route keeps the application from being made."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from runtime.security.principals import Role


@dataclass(frozen=True, slots=True)
class Access:
    """`role`: the least that may. `is_of_all`: what it does concerns all jobs, so that it takes one of all namespaces.

    `is_own`: a submitter may do it to its own jobs only. A route with a job in its path takes a principal that sees it.
    `action`: what the audit log calls it (R49); "" where nothing is changed.
    """

    role: Role
    is_of_all: bool = False
    is_own: bool = False
    action: str = ""


_LOOK = Access(Role.VIEWER)
_LOOK_AT_ALL = Access(Role.VIEWER, is_of_all=True)
_UPLOAD = Access(Role.SUBMITTER)
_OWN = Access(Role.SUBMITTER, is_own=True)
_OPERATE_ALL = Access(Role.OPERATOR, is_of_all=True)
_ADMINISTER = Access(Role.ADMIN, is_of_all=True)
_CANCEL = replace(_OWN, action="cancel")
_DRAIN = replace(_OPERATE_ALL, action="drain")
_UNDRAIN = replace(_OPERATE_ALL, action="undrain")

SPARK_PAGES = replace(_LOOK_AT_ALL, action="open-spark-ui")
"""Spark's own pages show jobs of all namespaces."""

_CHECKPOINTS = "/jobs/{job_id}/checkpoints"
_RESCALES = "/jobs/{job_id}/rescales"
_VERTEX = "/jobs/{job_id}/vertices/{vertex_id}"
_PROCESSES = ("/jobmanager", "/taskmanagers/{task_manager_id}", "/jobmasters/{job_master_id}")
_VIEWS = ("logs", "logs/{file_name}", "log", "stdout", "thread-dump")

TABLE: dict[tuple[str, str], Access] = {
    ("GET", "/"): _LOOK,
    ("GET", "/overview"): _LOOK,
    ("GET", "/overview/history"): _LOOK,
    ("GET", "/changes"): _LOOK,
    ("GET", "/events"): _LOOK,
    ("GET", "/audit"): _ADMINISTER,
    ("GET", "/config"): _LOOK,
    ("GET", "/principal"): _LOOK,
    ("GET", "/jobmanager/config"): _LOOK,
    ("GET", "/jobmanager/store"): _LOOK_AT_ALL,
    # Numbers of jobs of all namespaces, where /overview has those that one may see.
    ("GET", "/metrics"): _LOOK_AT_ALL,
    ("GET", "/metrics/targets"): _LOOK_AT_ALL,
    ("GET", "/taskmanagers"): _LOOK,
    ("GET", "/taskmanagers/{task_manager_id}"): _LOOK,
    ("POST", "/taskmanagers/{task_manager_id}/drain"): _DRAIN,
    ("POST", "/taskmanagers/{task_manager_id}/undrain"): _UNDRAIN,
    ("POST", "/taskmanagers/{task_manager_id}/spark-ui"): SPARK_PAGES,
    # Of those that the caller may use.
    ("GET", "/queues"): _LOOK,
    ("GET", "/resourcemanager"): _LOOK,
    ("GET", "/jobmasters"): _LOOK,
    ("GET", "/jobmasters/{job_master_id}"): _LOOK,
    ("POST", "/jobmasters/{job_master_id}/drain"): _DRAIN,
    ("POST", "/jobmasters/{job_master_id}/undrain"): _UNDRAIN,
    # Logs and stacks of a process show what all jobs do.
    **{("GET", f"{process}/{view}"): _OPERATE_ALL for process in _PROCESSES for view in _VIEWS},
    **{("GET", f"{process}/environment"): _OPERATE_ALL for process in _PROCESSES},
    ("POST", "/log-level"): replace(_ADMINISTER, action="set-log-level"),
    ("DELETE", "/cluster"): replace(_ADMINISTER, action="stop-cluster"),
    ("GET", "/jobs"): _LOOK,
    ("POST", "/jobs"): replace(_UPLOAD, action="submit"),
    ("GET", "/jobs/overview"): _LOOK,
    ("GET", "/jobs/metrics"): _LOOK,
    ("GET", "/jobs/{job_id}/metrics"): _LOOK,
    ("GET", f"{_VERTEX}/metrics"): _LOOK,
    ("GET", f"{_VERTEX}/subtasks/metrics"): _LOOK,
    ("GET", f"{_VERTEX}/subtasks/{{index}}/metrics"): _LOOK,
    # What jobs of all namespaces take together.
    ("GET", "/jobmanager/metrics"): _LOOK_AT_ALL,
    ("GET", "/taskmanagers/metrics"): _LOOK_AT_ALL,
    ("GET", "/taskmanagers/{task_manager_id}/metrics"): _LOOK_AT_ALL,
    ("GET", "/taskmanagers/{task_manager_id}/usage"): _LOOK_AT_ALL,
    ("POST", "/jobs/wait"): _LOOK,
    ("GET", "/jobs/{job_id}"): _LOOK,
    ("PATCH", "/jobs/{job_id}"): _CANCEL,
    ("GET", "/jobs/{job_id}/yarn-cancel"): _CANCEL,
    ("PATCH", "/jobs/{job_id}/clientHeartbeat"): _OWN,
    ("POST", "/jobs/{job_id}/move"): Access(Role.OPERATOR, action="move"),
    ("GET", "/jobs/{job_id}/status"): _LOOK,
    ("GET", "/jobs/{job_id}/execution-result"): _LOOK,
    ("GET", "/jobs/{job_id}/accumulators"): _LOOK,
    ("GET", "/jobs/{job_id}/spark"): _LOOK,
    ("GET", "/jobs/{job_id}/streams"): _LOOK,
    ("GET", _CHECKPOINTS): _LOOK,
    ("GET", f"{_CHECKPOINTS}/config"): _LOOK,
    ("GET", f"{_CHECKPOINTS}/details/{{checkpoint_id}}"): _LOOK,
    ("GET", f"{_CHECKPOINTS}/details/{{checkpoint_id}}/subtasks/{{vertex_id}}"): _LOOK,
    ("POST", _CHECKPOINTS): replace(_OWN, action="checkpoint"),
    ("GET", f"{_CHECKPOINTS}/{{trigger_id}}"): _LOOK,
    ("POST", "/jobs/{job_id}/savepoints"): replace(_OWN, action="savepoint"),
    ("GET", "/jobs/{job_id}/savepoints/{trigger_id}"): _LOOK,
    ("POST", "/jobs/{job_id}/stop"): replace(_OWN, action="stop"),
    # A submitter's own, an operator's of its namespace: whose a savepoint is, a TaskManager reads (R62).
    ("POST", "/savepoint-disposal"): replace(_UPLOAD, action="dispose-savepoint"),
    ("GET", "/savepoint-disposal/{trigger_id}"): _LOOK,
    ("GET", "/jobs/{job_id}/plan"): _LOOK,
    ("GET", "/jobs/{job_id}/config"): _LOOK,
    ("GET", "/jobs/{job_id}/exceptions"): _LOOK,
    ("GET", "/jobs/{job_id}/attempts"): _LOOK,
    ("POST", "/jobs/{job_id}/logs"): _LOOK,
    ("GET", _VERTEX): _LOOK,
    ("GET", f"{_VERTEX}/subtasktimes"): _LOOK,
    ("GET", f"{_VERTEX}/taskmanagers"): _LOOK,
    ("GET", f"{_VERTEX}/flamegraph"): _LOOK,
    ("GET", f"{_VERTEX}/watermarks"): _LOOK,
    ("GET", f"{_VERTEX}/backpressure"): _LOOK,
    ("GET", f"{_VERTEX}/accumulators"): _LOOK,
    ("GET", f"{_VERTEX}/subtasks/accumulators"): _LOOK,
    ("GET", f"{_VERTEX}/subtasks/{{index}}/attempts/{{attempt}}/accumulators"): _LOOK,
    ("GET", f"{_VERTEX}/subtasks/{{index}}"): _LOOK,
    ("GET", f"{_VERTEX}/subtasks/{{index}}/attempts/{{attempt}}"): _LOOK,
    ("GET", f"{_VERTEX}/subtasks/{{index}}/attempts/{{attempt}}/log"): _LOOK,
    ("POST", "/blobs/missing"): _UPLOAD,
    ("PUT", "/blobs/{sha256}"): _UPLOAD,
    ("GET", "/jars"): _LOOK,
    ("POST", "/jars/upload"): replace(_UPLOAD, action="upload-jar"),
    # It may run a job that builds the plan.
    ("GET", "/jars/{jar_id}/plan"): replace(_UPLOAD, action="plan-jar"),
    ("POST", "/jars/{jar_id}/plan"): replace(_UPLOAD, action="plan-jar"),
    ("POST", "/jars/{jar_id}/run"): replace(_UPLOAD, action="run-jar"),
    ("POST", "/jars/{jar_id}/run-application"): replace(_UPLOAD, action="run-jar"),
    # A submitter deletes its own: the handler looks.
    ("DELETE", "/jars/{jar_id}"): replace(_UPLOAD, action="delete-jar"),
    # Code of all jobs, and nothing that a client needs.
    ("GET", "/blobs/{key}"): _OPERATE_ALL,
    ("GET", "/tokens"): _ADMINISTER,
    ("POST", "/tokens"): replace(_ADMINISTER, action="create-token"),
    ("POST", "/tokens/{name}/rotate"): replace(_ADMINISTER, action="rotate-token"),
    ("DELETE", "/tokens/{name}"): replace(_ADMINISTER, action="revoke-token"),
    ("POST", "/tokens/{name}/forget"): replace(_ADMINISTER, action="forget-token"),
    ("GET", "/applications/overview"): _LOOK,
    ("GET", "/applications/{job_id}"): _LOOK,
    ("POST", "/applications/{job_id}/cancel"): _CANCEL,
    ("GET", "/applications/{job_id}/exceptions"): _LOOK,
    ("GET", "/applications/{job_id}/jobmanager/config"): _LOOK,
    ("GET", "/jobs/{job_id}/jobmanager/config"): _LOOK,
    ("GET", "/jobs/{job_id}/jobmanager/environment"): _OPERATE_ALL,
    ("GET", "/jobs/{job_id}/jobmanager/log-url"): _LOOK,
    ("GET", "/jobs/{job_id}/taskmanagers/{task_manager_id}/log-url"): _LOOK,
    ("GET", "/datasets"): _LOOK,
    # All that follow are refused: they change nothing, whoever asks.
    ("GET", "/jobs/{job_id}/yarn-stop"): _OWN,
    ("GET", f"{_RESCALES}/overview"): _LOOK,
    ("GET", f"{_RESCALES}/history"): _LOOK,
    ("GET", f"{_RESCALES}/config"): _LOOK,
    ("GET", f"{_RESCALES}/summary"): _LOOK,
    ("GET", f"{_RESCALES}/details/{{rescale_id}}"): _LOOK,
    ("PATCH", "/jobs/{job_id}/rescaling"): _OWN,
    ("GET", "/jobs/{job_id}/rescaling/{trigger_id}"): _LOOK,
    ("GET", "/jobs/{job_id}/resource-requirements"): _LOOK,
    ("PUT", "/jobs/{job_id}/resource-requirements"): replace(_OWN, action="rescale"),
    ("POST", "/jobs/{job_id}/coordinators/{operator_id}"): _OWN,
    ("DELETE", "/datasets/{dataset_id}"): _UPLOAD,
    ("GET", "/datasets/delete/{trigger_id}"): _LOOK,
    ("GET", "/ui"): _LOOK,
    ("GET", "/ui/static/{digest}/{name:path}"): _LOOK,
    ("GET", "/ui/{page:path}"): _LOOK,
}


_IN_HISTORY = frozenset(
    {
        ("GET", "/"),
        ("GET", "/changes"),
        ("GET", "/config"),
        ("GET", "/principal"),
        ("GET", "/ui"),
        ("GET", "/ui/static/{digest}/{name:path}"),
        ("GET", "/ui/{page:path}"),
        ("GET", "/jobs"),
        ("POST", "/jobs/wait"),
        ("POST", "/jobs/{job_id}/logs"),
    }
)
NOT_IN_HISTORY = (
    "a history server shows jobs that have ended, and knows nothing of what runs: ask the JobManager of the cluster"
)


def is_in_history(method: str, path: str) -> bool:
    """R56. True for the routes of a history server (D-115): what is read of jobs, and what the dashboard is made of."""
    is_read_of_jobs = method == "GET" and path.startswith("/jobs/") and not TABLE[method, path].action
    is_of_process = "/jobmanager/" in path or "/taskmanagers/" in path
    return (is_read_of_jobs and not is_of_process) or (method, path) in _IN_HISTORY


def role_for(method: str, path: str) -> str:
    """The least role that may ask this, "" where there is no such route: for the message of a refused sign-in."""
    for expression, access in _patterns(method):
        if expression.fullmatch(path.removeprefix("/v1")):
            return access.role.text
    return ""


@cache
def _patterns(method: str) -> list[tuple[re.Pattern[str], Access]]:
    found = [(path, access) for (of, path), access in TABLE.items() if of == method]

    def one(part: re.Match[str]) -> str:
        return ".+" if part[1] else "[^/]+"

    return [(re.compile(re.sub(r"{\w+(:path)?}", one, path)), access) for path, access in sorted(found)]
