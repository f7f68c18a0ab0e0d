"""HTTP connections to a cluster, and which of its addresses has answered last.

All threads of a process share connections. A forked process opens new ones: two processes cannot use one connection.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import httpx

from airflow_flinklike.client.deadlines import BoundedTransport
from airflow_flinklike.client.renewed_transports import RenewedTransport
from airflow_flinklike.client.retrying import needs_tls
from airflow_flinklike.client.tls import NO_FILES, ClientTls
from airflow_flinklike.client.token import Credential, bearer, shown_in_words


class Connections:
    """A pool of connections, thread-safe. `preferred` is the index of the first address to try.

    `shown` says in words which credential the requests show.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        token: Credential,
        *,
        tls: ClientTls = NO_FILES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.preferred = 0
        self.shown = shown_in_words(token, tls.cert)
        if transport is None:
            transport = RenewedTransport(tls) if needs_tls(addresses) else BoundedTransport()
        self.http = httpx.Client(
            auth=bearer(token),
            transport=transport,
            verify=False,  # noqa: S501 - plain http: its own transport loads no certificates
            trust_env=False,
        )

    def close(self) -> None:
        """Close all connections."""
        self.http.close()


_Key = tuple[tuple[str, ...], Credential, ClientTls]
_shared: dict[_Key, Connections] = {}
_lock = threading.Lock()
_of_parents: list[Connections] = []
"""A forked process keeps these unused: closing them would disturb the parent."""


def shared_connections(addresses: Sequence[str], token: Credential, *, tls: ClientTls = NO_FILES) -> Connections:
    """The connections of this process to that cluster. They open at their first use and stay open."""
    key: _Key = (tuple(addresses), token, tls)
    with _lock:
        found = _shared.get(key)
        if found is None or found.http.is_closed:
            found = _shared[key] = Connections(addresses, token, tls=tls)
        return found


def _begin_fork() -> None:
    global _lock  # noqa: PLW0603 - a thread of the parent may have held it
    _lock = threading.Lock()
    _of_parents.extend(_shared.values())
    _shared.clear()


os.register_at_fork(after_in_child=_begin_fork)
