"""An attached run: live progress per vertex until the job ends, Ctrl-C, and the exit code."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from airflow_flinklike.cli.render import duration_text, state_text, vertices_table
from airflow_flinklike.client import FlinklikeClient, JobExecutionResult
from airflow_flinklike.client.operations import LONG_POLL_SECONDS
from airflow_flinklike.exceptions import ClusterUnavailableError, JobConflictError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

ATTACHED_RETRY_SECONDS = 300.0
"""How long a cluster that does not answer is asked again for a job that it has accepted."""

_POLL_SECONDS = 2.0


def follow(client: FlinklikeClient, job_id: JobId, console: Console, errors: Console, *, as_json: bool) -> int:
    """Watch a job to its end: 0 when FINISHED, 1 when it failed or was canceled, 130 when the user cancelled it.

    Ctrl-C asks on a terminal whether to detach or to cancel; without a terminal it detaches and leaves the job alone.
    """
    asked_to_cancel = False
    ended: JobExecutionResult | None = None
    while ended is None:
        try:
            ended = _watch(client, job_id, errors)
        except KeyboardInterrupt:
            choice = _ask(job_id, errors)
            if choice == "detach":
                errors.print(f"Detached; the job goes on: flinklike status {job_id}")
                if as_json:
                    sys.stdout.write(json.dumps({"job_id": job_id, "detached": True}) + "\n")
                return 0
            if choice == "cancel":
                asked_to_cancel = True
                _cancel(client, job_id, errors)
        except ClusterUnavailableError:
            errors.print(f"The job may go on: flinklike status {job_id}")
            raise
    return _report(ended, console, errors, as_json=as_json, asked_to_cancel=asked_to_cancel)


def _watch(client: FlinklikeClient, job_id: JobId, errors: Console) -> JobExecutionResult:
    if not errors.is_terminal:
        found = None
        while found is None:
            found = client.result_within(job_id, wait=LONG_POLL_SECONDS)
        return found
    since = 0
    with Live(console=errors, refresh_per_second=8, transient=True) as live:
        while True:
            details = client.get(f"/jobs/{job_id}", wait=f"{_POLL_SECONDS:g}", since=str(since))
            since = int(details.get("last-modification", 0))
            live.update(_progress(details))
            found = client.result_within(job_id, wait=_POLL_SECONDS if _is_over(details) else 0.0)
            if found is not None:
                return found


def _is_over(details: Mapping[str, Any]) -> bool:
    return JobStatus(details["state"]).is_globally_terminal


def _progress(details: Mapping[str, Any]) -> Group:
    head = Text.assemble(
        str(details["name"]), " ", state_text(details["state"]), " ", duration_text(details["duration"])
    )
    reason = str(details.get("pending-reason", ""))
    return Group(head, *([Text(reason, style="dim")] if reason else []), vertices_table(details))


def _ask(job_id: JobId, errors: Console) -> str:
    if not (sys.stdin.isatty() and errors.is_terminal):
        return "detach"
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        question = f"Job {job_id}: [d]etach and let it run, [c]ancel it, or [w]atch on? "
        answer = errors.input(question, markup=False).strip().lower()
    except (KeyboardInterrupt, EOFError):
        return "detach"
    finally:
        signal.signal(signal.SIGINT, previous)
    return {"c": "cancel", "w": "watch"}.get(answer[:1], "detach")


def _cancel(client: FlinklikeClient, job_id: JobId, errors: Console) -> None:
    try:
        client.cancel(job_id)
    except JobConflictError as error:
        errors.print(str(error))


def _report(
    ended: JobExecutionResult, console: Console, errors: Console, *, as_json: bool, asked_to_cancel: bool
) -> int:
    if as_json:
        document = {
            "job_id": ended.job_id,
            "status": ended.status.value,
            "result": ended.value,
            "failure": {key: value for key, value in ended.failure.items() if key != "serialized-throwable"},
            "net_runtime_millis": ended.net_runtime_millis,
        }
        sys.stdout.write(json.dumps(document) + "\n")
    if ended.status is JobStatus.FINISHED:
        if not as_json:
            errors.print(f"Job {ended.job_id} FINISHED in {duration_text(ended.net_runtime_millis)}.", style="green")
            if ended.value is not None:
                console.print_json(json.dumps(ended.value))
        return 0
    if ended.status is JobStatus.CANCELED:
        errors.print(f"Job {ended.job_id} was CANCELED.", style="yellow")
        return 130 if asked_to_cancel else 1
    failure = ended.failure
    cause = f"{failure.get('class', 'Error')}: {failure.get('message', '')}"
    errors.print(Text(cause, style="bold red"))
    stack = str(failure.get("stack-trace", "")).strip()
    if stack not in {"", cause.strip()}:
        errors.print(Text(stack))
    errors.print(f"Job {ended.job_id} FAILED after {duration_text(ended.net_runtime_millis)}.", style="red")
    return 1
