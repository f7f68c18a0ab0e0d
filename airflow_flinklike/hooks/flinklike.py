"""FlinklikeHook: from an Airflow connection to a REST client, blocking or asyncio.

The connection: host (or several `host:port` separated by commas), port, schema http or https, password = the cluster's
token; extra: token_file, verify (false, or a CA file), ui_url (how browsers reach the cluster).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseHook

from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient, find_token

if TYPE_CHECKING:
    from airflow.sdk import Connection

DEFAULT_CONN_ID = "flinklike_default"
DEFAULT_PORT = 8081
RETRY_SECONDS = 300.0
"""How long a cluster that does not answer is tried again: a restart or a failover is ridden over."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """What a connection says."""

    addresses: tuple[str, ...]
    token: str | None
    verify: bool | str
    ui_url: str

    def job_url(self, job_id: str) -> str:
        """The page of a job."""
        return f"{self.ui_url}/ui/jobs/{job_id}"


class FlinklikeHook(BaseHook):
    """Talks to a cluster's REST endpoint. Opens no connection before a client is asked for."""

    conn_name_attr: ClassVar[str] = "flinklike_conn_id"
    default_conn_name: ClassVar[str] = DEFAULT_CONN_ID
    conn_type: ClassVar[str] = "flinklike"
    hook_name: ClassVar[str] = "Flinklike"

    def __init__(
        self, flinklike_conn_id: str = DEFAULT_CONN_ID, *, retry_for: float = RETRY_SECONDS, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.flinklike_conn_id = flinklike_conn_id
        self.retry_for = retry_for

    def access(self) -> ClusterAccess:
        """The connection, read."""
        return parse_connection(self.get_connection(self.flinklike_conn_id))

    def get_conn(self) -> FlinklikeClient:
        """A blocking client; close it, or use it in a `with`."""
        access = self.access()
        return FlinklikeClient(access.addresses, access.token, retry_for=self.retry_for, verify=access.verify)

    async def aget_conn(self) -> AsyncFlinklikeClient:
        """An asyncio client; close it, or use it in an `async with`."""
        access = parse_connection(await self.aget_connection(self.flinklike_conn_id))
        return AsyncFlinklikeClient(access.addresses, access.token, retry_for=self.retry_for, verify=access.verify)

    def test_connection(self) -> tuple[bool, str]:
        """What the button in the connection form does."""
        self.retry_for = 0.0
        try:
            with self.get_conn() as client:
                overview = client.get("/overview")
        except Exception as error:  # noqa: BLE001 - any failure is the answer of this test
            return False, str(error)
        return True, (
            f"Connected: {overview.get('taskmanagers', 0)} TaskManagers, "
            f"{overview.get('slots-available', 0)} of {overview.get('slots-total', 0)} slots free, "
            f"version {overview.get('flink-version', 'unknown')}"
        )


def parse_connection(connection: Connection) -> ClusterAccess:
    """Read a connection. The token is its password, then extra's token_file, then what `find_token` finds."""
    extra: Mapping[str, Any] = connection.extra_dejson
    scheme = connection.schema or "http"
    hosts = [one.strip() for one in (connection.host or "127.0.0.1").split(",") if one.strip()]
    addresses = tuple(_address(host, scheme, connection.port or DEFAULT_PORT) for host in hosts)
    token_file = str(extra.get("token_file") or "") or None
    token = connection.password or find_token(token_file=token_file)
    ui_url = str(extra.get("ui_url") or addresses[0]).rstrip("/")
    return ClusterAccess(addresses, token, _verify(extra.get("verify", True)), ui_url)


def _address(host: str, scheme: str, port: int) -> str:
    head, separator, rest = host.partition("://")
    if not separator:
        head, rest = scheme, host
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"  # a bare IPv6 address, which has no room for a port
    has_port = rest.rpartition(":")[2].isdecimal() and not rest.endswith("]")
    return f"{head}://{rest}" if has_port else f"{head}://{rest}:{port}"


def _verify(value: Any) -> bool | str:
    if isinstance(value, bool):
        return value
    text = str(value)
    return text.lower() == "true" if text.lower() in {"true", "false", ""} else text
