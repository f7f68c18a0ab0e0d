"""All triggers of one event loop wait for the jobs of a cluster by one long poll, and share one client."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from airflow_flinklike.client import AsyncFlinklikeClient, JobState
from airflow_flinklike.client.protocol import Operation
from airflow_flinklike.client.shared_poll import SharedPoll
from airflow_flinklike.hooks.flinklike import ClusterAccess, FlinklikeHook
from runtime.common.ids import JobId

T = TypeVar("T")

TRY_SECONDS = 60.0
"""How long one request is tried, before the connection is looked up again."""

_POLLS: dict[asyncio.AbstractEventLoop, dict[str, SharedPoll[ClusterAccess]]] = {}


async def wait_for_change(conn_id: str, job_id: str, since: int, timeout: float | None) -> JobState | None:
    """A job's state when its last modification is another one than `since` (0: now); None after `timeout` seconds.

    Raises JobNotFoundError, AuthenticationError, ClusterUnavailableError when nobody has answered for 15 minutes, and
    what looking up the connection raises. A cluster that fails over or restarts, or a connection that is changed, only
    takes longer.
    """
    return await _poll(conn_id).wait(JobId(job_id), since, timeout)


async def run(conn_id: str, operation: Operation[T]) -> T:
    """Any other operation (`airflow_flinklike.client.operations`), with the client that all triggers share."""
    return await _poll(conn_id).run(operation)


def _poll(conn_id: str) -> SharedPoll[ClusterAccess]:
    loop = asyncio.get_running_loop()
    for closed in [other for other in _POLLS if other.is_closed()]:
        del _POLLS[closed]
    polls = _POLLS.setdefault(loop, {})
    if conn_id not in polls:
        polls[conn_id] = SharedPoll(FlinklikeHook(conn_id).aaccess, _connect)
    return polls[conn_id]


def _connect(access: ClusterAccess) -> AsyncFlinklikeClient:
    return AsyncFlinklikeClient(access.addresses, access.token, retry_for=TRY_SECONDS, verify=access.verify)
