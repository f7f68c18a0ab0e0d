"""What SparkSubmitOperator and @task.pyspark know and a warm session cannot do, and the files and texts they take.

Pure: what is refused is refused when a DAG is parsed, with what to use instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from datetime import timedelta
from typing import Any

from airflow_flinklike.exceptions import PipelineError

_OF_THE_CLUSTER = "name it in conf= ({}): the job then runs on a TaskManager that was started with it"
_START = "{} of the configuration of the TaskManagers"

INSTEAD: Mapping[str, str] = {
    "java_class": "only Python applications run on warm slots; keep SparkSubmitOperator for a main class of a jar",
    "jars": "jars are loaded when Spark starts: use " + _START.format("spark.jars"),
    "packages": "packages are loaded when Spark starts: use " + _START.format("spark.jars.packages"),
    "exclude_packages": "packages are loaded when Spark starts: use " + _START.format("spark.jars.excludes"),
    "repositories": "packages are loaded when Spark starts: use " + _START.format("spark.jars.repositories"),
    "driver_class_path": "the driver is running already: use " + _START.format("spark.driver.extraClassPath"),
    "driver_memory": "the driver is running already: use " + _START.format("taskmanager.memory.spark.size"),
    "driver_cores": "the driver is running already: use " + _START.format("spark.master, local[n],"),
    "executor_memory": "executors are running already: " + _OF_THE_CLUSTER.format("spark.executor.memory"),
    "executor_cores": "executors are running already: " + _OF_THE_CLUSTER.format("spark.executor.cores"),
    "total_executor_cores": "executors are running already: " + _OF_THE_CLUSTER.format("spark.cores.max"),
    "num_executors": "executors are running already: " + _OF_THE_CLUSTER.format("spark.executor.instances"),
    "deploy_mode": "leave it out: the driver always is in a TaskManager, never in Airflow's worker",
    "master": "leave it out: the connection names the cluster, and its TaskManagers have the master",
    "spark_binary": "leave it out: no spark-submit is started",
    "verbose": "leave it out: no spark-submit is started, and the job's own lines are in the task's log",
    "yarn_queue": "the application exists already: use " + _START.format("spark.yarn.queue"),
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
"""Parameter -> one sentence."""


def refuse_spark_parameters(given: MutableMapping[str, Any], *, task_id: str) -> None:
    """Take the parameters that cannot apply out of `given`. Raises PipelineError if one of them says something."""
    problems = [
        f"{name} does not apply to a warm session: {INSTEAD[name]}"
        for name in INSTEAD
        if name in given and _says_something(given.pop(name))
    ]
    if problems:
        raise PipelineError(f"task {task_id!r}: {'; '.join(problems)}", tuple(problems))


def _says_something(value: Any) -> bool:
    return not (value is None or value is False or value == "")


def one_of(task_id: str, **given: Any) -> Any:
    """The value of the one that is given of several names for the same. Raises PipelineError when several are."""
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        message = f"task {task_id!r}: {' and '.join(named)} are two names for the same: give one of them"
        raise PipelineError(message)
    return next(iter(named.values()), None)


def mapping_of(name: str, value: Any) -> dict[str, Any]:
    """A mapping, or the JSON of one: a template makes texts. Raises PipelineError."""
    found = _json_of(value) if isinstance(value, str) else value
    if not found:
        return {}
    if not isinstance(found, Mapping):
        message = (
            f"{name} is {value!r:.200}: expected a mapping or the text of a JSON object (`| tojson` in a template)"
        )
        raise PipelineError(message)
    return dict(found)


def arguments_of(value: Any) -> list[Any]:
    """A sequence, or the JSON of one. Raises PipelineError for any other text, whose letters nobody means."""
    found = _json_of(value) if isinstance(value, str) else value
    if not found:
        return []
    if isinstance(found, str | Mapping) or not hasattr(found, "__iter__"):
        message = f"application_args is {value!r:.200}: expected a list or the text of a JSON array"
        raise PipelineError(message)
    return list(found)


def timeout_of(value: float | str | timedelta | None) -> float | timedelta | None:
    """Seconds, or their text. Raises PipelineError."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if value.strip() else None
    except ValueError as error:
        message = f"job_timeout is {value!r}: expected seconds"
        raise PipelineError(message) from error


def _json_of(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        return text


_SEPARATOR = re.compile(r"(?<!\\)[=:]|(?<!\\)[ \t]")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> tuple[dict[str, str], list[str]]:
    """A spark-defaults.conf, which is a Java properties file: Spark's settings, and keys that are none of Spark's."""
    found: dict[str, str] = {}
    others: list[str] = []
    for line in _logical_lines(text):
        match = _SEPARATOR.search(line)
        key = line if match is None else line[: match.start()]
        rest = "" if match is None else line[match.start() :].lstrip(" \t")
        value = rest[1:].lstrip(" \t") if rest[:1] in {"=", ":"} else rest
        name = _unescaped(key)
        if name.startswith("spark."):
            found[name] = _unescaped(value).strip()
        else:
            others.append(name)
    return found, others


def _logical_lines(text: str) -> list[str]:
    """Without comments and empty lines; a backslash at the end of a line continues it."""
    lines: list[str] = []
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    return [*lines, pending] if pending else lines


def _unescaped(text: str) -> str:
    def letter(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _LETTERS.get(code, code)

    return _ESCAPED.sub(letter, text)
