"""Savepoints and stops as calls of the client: triggered under an id that the client chooses, and waited for.

A trigger that is repeated asks once, so that a lost answer, another leader and another owner of the job change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_flinklike.client.operations import get_json, post_json
from airflow_flinklike.client.protocol import Operation, Pause
from airflow_flinklike.exceptions import SavepointFailedError
from runtime.common.ids import JobId

_POLL_FIRST, _POLL_MAX = 0.1, 2.0


def make_savepoint(
    job_id: JobId, trigger_id: str, *, target: str = "", keep_going: Callable[[], bool] = lambda: True
) -> Operation[str]:
    """The location of a savepoint of a job that goes on. Raises SavepointFailedError."""
    document: dict[str, Any] = {"triggerId": trigger_id, **({"target-directory": target} if target else {})}
    yield from post_json(f"/jobs/{job_id}/savepoints", document)
    return (yield from location_of(job_id, trigger_id, keep_going=keep_going))


def stop_with_savepoint(
    job_id: JobId,
    trigger_id: str,
    *,
    target: str = "",
    drain: bool = False,
    keep_going: Callable[[], bool] = lambda: True,
) -> Operation[str]:
    """The location of the savepoint with which the job finishes. Raises SavepointFailedError; the job goes on then."""
    document: dict[str, Any] = {
        "triggerId": trigger_id,
        "drain": drain,
        **({"targetDirectory": target} if target else {}),
    }
    yield from post_json(f"/jobs/{job_id}/stop", document)
    return (yield from location_of(job_id, trigger_id, keep_going=keep_going))


def location_of(job_id: JobId, trigger_id: str, *, keep_going: Callable[[], bool] = lambda: True) -> Operation[str]:
    """Wait for the end of a savepoint or a stop; its location, "" when `keep_going` says no first."""
    pause = _POLL_FIRST
    while keep_going():
        body: Mapping[str, Any] = yield from get_json(f"/jobs/{job_id}/savepoints/{trigger_id}")
        if (outcome := body.get("operation")) is not None:
            if (cause := outcome.get("failure-cause")) is not None:
                raise SavepointFailedError(job_id, str(cause.get("stack-trace", "")).partition(": ")[2])
            return str(outcome["location"])
        yield Pause(pause)
        pause = min(2 * pause, _POLL_MAX)
    return ""
