"""Every call of PyPI's flink-rest-client, one after the other: `HOST PORT TOKEN FOLDER` -> JSON, the outcome by call.

Runs in a process of its own, with the client on PYTHONPATH. The client has no way to send a header, so the token comes
in by `requests`, which it uses.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from flink_rest_client import FlinkRestClient  # type: ignore[import-not-found]  # in .venv-flink
from flink_rest_client.common import RestException  # type: ignore[import-not-found]

NOBODY = "a" * 32
_OF_A_JOB = (
    "get", "get_config", "get_exceptions", "get_execution_result", "get_metrics", "get_plan", "get_vertex_ids",
    "get_accumulators", "get_checkpointing_configuration", "get_checkpoints", "get_checkpoint_ids",
)  # fmt: skip
_OF_A_VERTEX = ("details", "backpressure", "metric_names", "metrics", "subtasktimes", "taskmanagers", "watermarks")


class _Bearer(requests.auth.AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _with_token(token: str) -> None:
    begin = requests.Session.__init__

    def begin_with_token(session: requests.Session) -> None:
        begin(session)
        session.auth = _Bearer(token)

    requests.Session.__init__ = begin_with_token  # type: ignore[method-assign, assignment]


class Calls:
    """`outcomes`: "" for a call that was answered, else the refusal."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def of(self, name: str, call: Callable[[], Any]) -> Any:
        """Make one."""
        self.outcomes[name] = ""
        try:
            return call()
        except RestException as error:
            self.outcomes[name] = str(error)
            return None

    def each(self, prefix: str, client: Any, names: tuple[str, ...], *arguments: Any) -> None:
        """Make those of one part of the client."""
        for name in names:
            self.of(f"{prefix}.{name}", lambda: getattr(client, name)(*arguments))  # noqa: B023 - called at once


def main() -> None:
    """All calls."""
    host, port, token, folder = sys.argv[1:]
    _with_token(token)
    client, calls = FlinkRestClient.get(host=host, port=int(port)), Calls()
    calls.each("cluster", client, ("overview", "config", "datasets"))
    calls.of("cluster.delete_dataset", lambda: client.delete_dataset(NOBODY))
    calls.each("jobmanager", client.jobmanager, ("config", "logs", "metric_names", "metrics"))
    calls.of("jobmanager.get_log", lambda: client.jobmanager.get_log(client.jobmanager.logs()[0]["name"]))
    managers = client.taskmanagers
    calls.each("taskmanagers", managers, ("all", "taskmanager_ids", "metric_names", "metrics"))
    manager = managers.taskmanager_ids()[0]
    calls.each("taskmanagers", managers, ("get", "get_logs", "get_metrics", "get_thread_dump"), manager)
    job = _programs(client, calls, Path(folder))
    _jobs(client, calls, job)
    print(json.dumps(calls.outcomes))


def _programs(client: Any, calls: Calls, folder: Path) -> str:
    """Upload, plan and run. Returns a job that has finished."""
    jars = client.jars
    script = calls.of("jars.upload", lambda: jars.upload(str(folder / "etl.py")))["filename"].rpartition("/")[2]
    archive = jars.upload(str(folder / "flows.zip"))["filename"].rpartition("/")[2]
    calls.of("jars.all", jars.all)
    calls.of("jars.get_plan", lambda: jars.get_plan(script))
    job = calls.of("jars.run", lambda: jars.run(archive, entry_class="flows:pipeline"))
    calls.of("jars.run of a script", lambda: jars.run(archive, entry_class="etl.py", arguments={"day": 5}))
    nap = calls.of("jars.upload_and_run", lambda: jars.upload_and_run(str(folder / "nap.py")))
    calls.of("jobs.terminate", lambda: client.jobs.terminate(nap))
    calls.of("jars.delete", lambda: jars.delete(script))
    while client.jobs.get(job)["state"] != "FINISHED":
        time.sleep(0.1)
    return str(job)


def _jobs(client: Any, calls: Calls, job: str) -> None:
    jobs = client.jobs
    calls.each("jobs", jobs, ("all", "job_ids", "overview", "metric_names", "metrics"))
    calls.each("jobs", jobs, _OF_A_JOB, job)
    calls.of("jobs.rescale", lambda: jobs.rescale(job, 2))
    calls.of("jobs.create_savepoint", lambda: jobs.create_savepoint(job, "/x"))
    calls.of("jobs.stop", lambda: jobs.stop(job, "/x"))
    vertex = jobs.get_vertex(job, jobs.get_vertex_ids(job)[0])
    calls.each("vertex", vertex, _OF_A_VERTEX)
    calls.each("subtasks", vertex.subtasks, ("subtask_ids", "accumulators", "metric_names", "metrics"))
    calls.each("subtasks", vertex.subtasks, ("get", "get_attempt", "get_attempt_accumulators"), 0)


if __name__ == "__main__":
    main()
