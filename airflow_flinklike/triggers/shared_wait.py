"""The SharedPoll of each connection in each event loop: all triggers share one client and one long poll."""

from __future__ import annotations

import asyncio

from airflow_flinklike.client import AsyncFlinklikeClient
from airflow_flinklike.client.shared_poll import SharedPoll
from airflow_flinklike.hooks.connection import ClusterAccess
from airflow_flinklike.hooks.flinklike import FlinklikeHook

TRY_SECONDS = 60.0
"""One request is retried for so long. Then the connection is read again."""

_POLLS: dict[asyncio.AbstractEventLoop, dict[str, SharedPoll[ClusterAccess]]] = {}


def shared_poll(conn_id: str) -> SharedPoll[ClusterAccess]:
    """The SharedPoll of this event loop for that connection."""
    loop = asyncio.get_running_loop()
    for closed in [other for other in _POLLS if other.is_closed()]:
        del _POLLS[closed]
    polls = _POLLS.setdefault(loop, {})
    if conn_id not in polls:
        polls[conn_id] = SharedPoll(FlinklikeHook(conn_id).aaccess, _connect)
    return polls[conn_id]


def _connect(access: ClusterAccess) -> AsyncFlinklikeClient:
    return AsyncFlinklikeClient(access.addresses, access.credential, retry_for=TRY_SECONDS, tls=access.tls)
