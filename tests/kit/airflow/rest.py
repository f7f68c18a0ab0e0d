"""Airflow's REST API, as the UI uses it: runs, their one task, its log, XComs, links and states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from airflow_flinklike.task_instance.stored_job import STORE_KEY
from tests.kit.host.levels import reached

TASK = "job"
ENDED = ("success", "failed")
PATIENCE = 180.0
LOCKED_SECONDS = 60.0


class AirflowRest:
    """One client for all threads of a test; close it."""

    def __init__(self, url: str, token: str = "") -> None:
        self._http = httpx.Client(base_url=url, timeout=120.0, limits=httpx.Limits(max_connections=20))
        if not token:
            answer = self._http.get("/auth/token")
            answer.raise_for_status()
            token = answer.json()["access_token"]
        self._http.headers["authorization"] = f"Bearer {token}"
        version = self.ask("GET", "/version")["version"]
        self.has_stores = tuple(int(part) for part in version.split(".")[:2]) >= (3, 3)
        """This Airflow has `task_state_store`."""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, method: str, path: str, *, body: Any = None, missing: Any = ..., **params: Any) -> Any:
        """The JSON of the answer; `missing` instead of a 404. Retries while SQLite is locked."""

        def look() -> httpx.Response | None:
            try:
                answer = self._http.request(method, f"/api/v2{path}", json=body, params=params)
            except (httpx.ReadError, httpx.RemoteProtocolError):  # a kept connection, closed after such an error
                return None
            return None if _says_locked(answer) else answer

        answer = reached(look, f"{method} {path} beside others", timeout=LOCKED_SECONDS, every=0.5)
        if answer.status_code == httpx.codes.NOT_FOUND and missing is not ...:
            return missing
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait until the DAG is parsed."""
        reached(lambda: self.ask("GET", f"/dags/{dag_id}", missing=None), f"DAG {dag_id} is there", timeout=PATIENCE)

    def trigger(
        self, dag_id: str, run_id: str, conf: Mapping[str, Any] | None = None, *, logical_date: str | None = None
    ) -> Run:
        """Trigger a run. Templates know `ds` when it has a date, as a run of a schedule has."""
        body = {"dag_run_id": run_id, "logical_date": logical_date, "conf": dict(conf or {})}
        self.ask("POST", f"/dags/{dag_id}/dagRuns", body=body)
        return Run(self, dag_id, run_id)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a DAG, and its task."""

    rest: AirflowRest
    dag_id: str
    run_id: str
    task_id: str = TASK

    @property
    def _run(self) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{self.run_id}"

    @property
    def _task(self) -> str:
        return f"{self._run}/taskInstances/{self.task_id}"

    def at(self, task_id: str) -> Run:
        """Another task of the run."""
        return Run(self.rest, self.dag_id, self.run_id, task_id)

    # --- what is ------------------------------------------------------------------------------------------

    def state(self) -> str:
        """The state of the run."""
        return str(self.rest.ask("GET", self._run)["state"])

    def task(self) -> dict[str, Any]:
        """The task instance."""
        found: dict[str, Any] = self.rest.ask("GET", self._task)
        return found

    def tries(self) -> list[str | None]:
        """The state of every try, the first one first."""
        found = self.rest.ask("GET", f"{self._task}/tries", missing={"task_instances": []})["task_instances"]
        return [one["state"] for one in sorted(found, key=lambda one: one["try_number"])]

    def state_mismatches(self) -> int:
        """The number of tries that the scheduler began because of a late event of its executor."""
        return int(self.rest.ask("GET", "/eventLogs", run_id=self.run_id, event="state mismatch")["total_entries"])

    def log(self) -> str:
        """The lines of the logs of all tries, as the UI shows them; "" without a log."""
        found = []
        for number in range(1, self.task()["try_number"] + 1):
            answer = self.rest.ask("GET", f"{self._task}/logs/{number}", missing={"content": []}, full_content=True)
            found += [f"--- try {number}", *(_line(one) for one in answer["content"])]
        return "\n".join(found)

    def xcom(self, key: str = "return_value") -> Any:
        """The XCom of that key, None without one."""
        found = self.rest.ask("GET", f"{self._task}/xcomEntries/{key}", missing=None)
        return _value(found["value"]) if found else None

    def links(self) -> dict[str, str | None]:
        """The extra links by name."""
        found: dict[str, str | None] = self.rest.ask("GET", f"{self._task}/links")["extra_links"]
        return found

    def store(self) -> dict[str, Any]:
        """The task's state store; below Airflow 3.3 the XCom that stands for it."""
        if not self.rest.has_stores:
            value = self.xcom(STORE_KEY)
            return {} if value is None else {STORE_KEY: value}
        found = self.rest.ask("GET", f"{self._task}/state-store")
        return {one["key"]: one["value"] for one in found["task_state_store"]}

    # --- what a person does -------------------------------------------------------------------------------

    def mark(self, state: str) -> None:
        """Mark the task 'failed' or 'success'."""
        self.rest.ask("PATCH", self._task, body={"new_state": state})

    def clear(self) -> None:
        """Clear the task."""
        body = {"dry_run": False, "dag_run_id": self.run_id, "task_ids": [self.task_id], "only_failed": False}
        self.rest.ask("POST", f"/dags/{self.dag_id}/clearTaskInstances", body=body)

    def mark_run(self, state: str) -> None:
        """Mark the whole run."""
        self.rest.ask("PATCH", self._run, body={"state": state})

    def delete(self) -> None:
        """Delete the run, which must have ended."""
        self.rest.ask("DELETE", self._run)

    def write_store(self, key: str, value: Any) -> None:
        """Edit the task's state store."""
        self.rest.ask("PUT", f"{self._task}/state-store/{key}", body={"value": value})

    def empty_store(self) -> None:
        """Delete the task's state store."""
        self.rest.ask("DELETE", f"{self._task}/state-store")

    # --- waiting ------------------------------------------------------------------------------------------

    def wait_task(self, *states: str, try_number: int = 0, timeout: float = PATIENCE) -> dict[str, Any]:
        """Wait until the task is in one of `states`, in this try or a later one."""

        def look() -> dict[str, Any] | None:
            found = self.task()
            return found if found["state"] in states and found["try_number"] >= try_number else None

        return reached(look, f"{self.run_id}: the task is {' or '.join(states)}", timeout=timeout) or {}

    def wait(self, *states: str, timeout: float = PATIENCE) -> str:
        """Wait until the run has ended, or is in one of `states`."""

        def look() -> str:
            found = self.state()
            return found if found in (states or ENDED) else ""

        return reached(look, f"{self.run_id}: the run has ended", timeout=timeout)

    def story(self) -> str:
        """A description of the run for a failure message."""
        told = f"{self.tries()}, {self.state_mismatches()} state mismatches, store {self.store()}"
        return f"{self.dag_id} {self.run_id} {self.task_id}: {told}\n{self.log()}"


def _says_locked(answer: httpx.Response) -> bool:
    """Airflow 3.2 does not say why."""
    is_error = answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR
    return is_error and ("Database error" in answer.text or answer.text == "Internal Server Error")


def _line(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    more = {key: value for key, value in entry.items() if key not in {"event", "timestamp", "level", "logger"}}
    return f"{entry.get('event', '')} {more or ''}".rstrip()


def _value(value: Any) -> Any:
    """The value as a task gets it; the API shows the stored text, which may be JSON."""
    if isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    return value
