"""Savepoints and stops that a task of Airflow asks for once, over retries, lost workers and lost answers.

The ids of the requests follow from what asks, one after the other. The first one that has not failed is the request:
who comes again finds it, and who comes after a failure takes the next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_flinklike.client.operations import LONG_POLL_SECONDS, get_json, post_json, status
from airflow_flinklike.client.protocol import Operation
from airflow_flinklike.client.savepoints import location_of
from airflow_flinklike.exceptions import JobNotFoundError, SavepointFailedError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus

_REQUESTS_MAX = 1000
"""A job remembers 20 that have ended, so that an id before is free again."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A savepoint of a job, or a stop with one. `asks`: texts and numbers that say who asks, the same in each retry."""

    job_id: JobId
    asks: tuple[str | int, ...]
    is_stop: bool = False
    drain: bool = False
    directory: str = ""

    def trigger_ids(self) -> Iterator[str]:
        """The ids of its requests."""
        kind = "stop" if self.is_stop else "savepoint"
        for number in range(1, _REQUESTS_MAX + 1):
            parts = [kind, self.job_id, *self.asks, number]
            yield hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def request_once(request: StreamRequest) -> Operation[str]:
    """Ask, or find what was asked for before. The id of the request, which is under way or has been completed.

    Raises JobNotFoundError, JobConflictError and JobRefusedError, as the cluster refuses a request.
    """
    for trigger_id in request.trigger_ids():
        found = yield from _outcome(request.job_id, trigger_id)
        if found is None:
            yield from post_json(*_trigger(request, trigger_id))
        if found is None or "failure-cause" not in found:
            return trigger_id
    message = f"all {_REQUESTS_MAX} requests of this task have failed"
    raise SavepointFailedError(request.job_id, message)


def completed(request: StreamRequest) -> Operation[str]:
    """The location of the savepoint that was asked for before, "" when none was completed. Asks for nothing."""
    for trigger_id in request.trigger_ids():
        found = yield from _outcome(request.job_id, trigger_id)
        if found is None or "failure-cause" not in found:
            return str((found or {}).get("location", ""))
    return ""


def savepoint_of(request: StreamRequest, trigger_id: str) -> Operation[str]:
    """Wait for the savepoint, and after a stop for the end of the job. Its location. Raises SavepointFailedError."""
    location = yield from location_of(request.job_id, trigger_id)
    if request.is_stop:
        yield from until_ended(request.job_id)
    return location


def until_ended(job_id: JobId) -> Operation[JobStatus | None]:
    """Wait for the end of a job. Its state; None for a job that the cluster does not know."""
    since = 0
    while True:
        try:
            state = yield from status(job_id, wait=LONG_POLL_SECONDS, since=since)
        except JobNotFoundError:
            return None
        if state.status.is_globally_terminal:
            return state.status
        since = state.last_modification


def _outcome(job_id: JobId, trigger_id: str) -> Operation[Mapping[str, Any] | None]:
    """None for a request that the cluster does not know, {} for one that is under way."""
    try:
        body = yield from get_json(f"/jobs/{job_id}/savepoints/{trigger_id}")
    except JobNotFoundError:
        return None
    found: Mapping[str, Any] = body.get("operation") or {}
    return found


def _trigger(request: StreamRequest, trigger_id: str) -> tuple[str, dict[str, Any]]:
    if not request.is_stop:
        target = {"target-directory": request.directory} if request.directory else {}
        return f"/jobs/{request.job_id}/savepoints", {"triggerId": trigger_id, **target}
    target = {"targetDirectory": request.directory} if request.directory else {}
    return f"/jobs/{request.job_id}/stop", {"triggerId": trigger_id, "drain": request.drain, **target}
