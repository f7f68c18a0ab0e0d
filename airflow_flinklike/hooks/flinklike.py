"""FlinklikeHook makes REST clients, blocking or asyncio, from an Airflow connection."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow_flinklike.airflow_version import BaseHook
from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient
from airflow_flinklike.client.connections import shared_connections
from airflow_flinklike.client.retrying import check_addresses
from airflow_flinklike.connection_form import HIDDEN_FIELDS, PLACEHOLDERS, RELABELING
from airflow_flinklike.exceptions import AuthenticationError
from airflow_flinklike.hooks.connection import ClusterAccess, parse_connection
from airflow_flinklike.hooks.questions import answered

DEFAULT_CONN_ID = "flinklike_default"
RETRY_SECONDS = 300.0
"""A cluster that does not answer is retried for so long, over a restart or a failover."""


class FlinklikeHook(BaseHook):
    """The hook of connections of type `flinklike`. Its constructor reads no connection and opens none."""

    conn_name_attr: ClassVar[str] = "flinklike_conn_id"
    default_conn_name: ClassVar[str] = DEFAULT_CONN_ID
    conn_type: ClassVar[str] = "flinklike"
    hook_name: ClassVar[str] = "Flinklike"

    def __init__(
        self,
        flinklike_conn_id: str = DEFAULT_CONN_ID,
        *,
        retry_for: float = RETRY_SECONDS,
        first_contact: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.flinklike_conn_id = flinklike_conn_id
        self.retry_for = retry_for
        self.first_contact = first_contact

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """The form of connections below Airflow 3.2, which takes it from the provider's metadata from there on."""
        return {
            "hidden_fields": list(HIDDEN_FIELDS),
            "relabeling": dict(RELABELING),
            "placeholders": dict(PLACEHOLDERS),
        }

    def access(self) -> ClusterAccess:
        """Read the connection. Raises JobRefusedError, AuthenticationError."""
        return parse_connection(self.get_connection(self.flinklike_conn_id))

    async def aaccess(self) -> ClusterAccess:
        """`access` without blocking."""
        return await answered(self._look_up())

    async def _look_up(self) -> ClusterAccess:
        if hasattr(self, "aget_connection"):
            return parse_connection(await self.aget_connection(self.flinklike_conn_id))
        # Airflow 3.0. Its connections tell the triggerer which parts of them are secret, by a call that blocks.
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - comes with it

        return await sync_to_async(self.access)()

    def get_conn(self) -> FlinklikeClient:
        """A blocking client. The connection is read again."""
        return self.connect(self.access())

    def connect(self, access: ClusterAccess) -> FlinklikeClient:
        """A blocking client on HTTP connections that the clients of this process share; `close` leaves them open."""
        addresses = check_addresses(access.addresses)
        connections = shared_connections(addresses, access.credential, tls=access.tls)
        return FlinklikeClient(
            addresses,
            access.credential,
            retry_for=self.retry_for,
            first_contact=self.first_contact,
            connections=connections,
        )

    async def aget_conn(self) -> AsyncFlinklikeClient:
        """An asyncio client. Close it, or use it in an `async with`."""
        access = await self.aaccess()
        return AsyncFlinklikeClient(access.addresses, access.credential, retry_for=self.retry_for, tls=access.tls)

    def test_connection(self) -> tuple[bool, str]:
        """The test of the connection form: it asks each address, and succeeds when one answers."""
        try:
            access = self.access()
        except Exception as error:  # noqa: BLE001 - any failure is the answer of this test
            return False, str(error)
        found, silent = "", []
        for address in access.addresses:
            try:
                with FlinklikeClient([address], access.credential, retry_for=0.0, tls=access.tls) as client:
                    welcome = _welcome(client.get("/overview"), address)
                found = found or welcome
            except AuthenticationError as error:
                return False, f"{address}: {error}"
            except Exception as error:  # noqa: BLE001 - any failure is the answer of this test
                silent.append(f"{address}: {error}")
        if not found:
            return False, "; ".join(silent)
        return True, found + (f". No answer from {'; '.join(silent)}" if silent else "")


def _welcome(overview: dict[str, Any], address: str) -> str:
    managers = int(overview.get("taskmanagers", 0))
    return (
        f"Connected: leader {overview.get('leader') or address}, version {overview.get('flink-version', 'unknown')}, "
        f"{overview.get('slots-available', 0)} of {overview.get('slots-total', 0)} slots free "
        f"on {managers} TaskManager{'' if managers == 1 else 's'}"
    )
