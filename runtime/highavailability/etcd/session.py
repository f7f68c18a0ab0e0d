"""EtcdSession: the connections, the one in use, and the logins, shared by calls and watches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc

from runtime.common.clock import Clock
from runtime.common.errors import UnavailableError
from runtime.common.watched import Watched
from runtime.highavailability.etcd.channels import (
    Certificates,
    Connection,
    Metadata,
    open_connections,
    watch_certificates,
)
from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.etcd.status import translate

_CALLS_END_SECONDS = 60.0
"""Longer than any call but a watch."""


class EtcdSession:
    """All connections, the one in use, and a login token for each."""

    def __init__(self, settings: EtcdSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._certificates: Watched[Certificates] | None = None
        self._shown: Certificates | None = None
        self._replaced: list[tuple[float, Connection]] = []
        """Connections with earlier certificates, since when: their calls end, their watches go on (R47)."""
        self._connections: Sequence[Connection] = ()
        self._current = 0
        self._login_lock = asyncio.Lock()
        self._is_closed = False

    async def open(self) -> None:
        """Make the channels on the running loop. Idempotent; connects nothing yet."""
        if not self._connections:
            self._certificates = watch_certificates(self._settings, self._clock)
            self._shown = None if self._certificates is None else self._certificates.value
            self._connections = open_connections(self._settings, self._shown)

    async def close(self) -> None:
        """End every call. Idempotent."""
        self._is_closed = True
        for connection in (*self._connections, *(one for _, one in self._replaced)):
            await connection.close()

    @property
    def connections(self) -> Sequence[Connection]:
        """Every connection, in the order of the settings."""
        return self._connections

    @property
    def has_user(self) -> bool:
        """True when etcd wants a login."""
        return bool(self._settings.username)

    def connection(self) -> Connection:
        """The connection in use. Raises UnavailableError before `open` and after `close`."""
        if self._is_closed or not self._connections:
            message = "the etcd store is not open"
            raise UnavailableError(message)
        self._renew()
        return self._connections[self._current]

    def _renew(self) -> None:
        certificates = None if self._certificates is None else self._certificates.value
        if certificates is not self._shown:
            now = self._clock.monotonic()
            self._replaced += [(now, one) for one in self._connections]
            self._shown, self._connections = certificates, open_connections(self._settings, certificates)

    async def _close_replaced(self) -> None:
        before = self._clock.monotonic() - _CALLS_END_SECONDS
        for one in [one for one in self._replaced if one[0] < before and not one[1].watches]:
            self._replaced.remove(one)
            await one[1].close()

    def rotate_from(self, failed: Connection) -> None:
        """Use the next connection after `failed`, unless another call has rotated already."""
        if self._connections[self._current] is failed:
            self._current = (self._current + 1) % len(self._connections)

    async def metadata(self, connection: Connection, *, timeout: float) -> Metadata:
        """The login token as metadata, () without a user; logs in when there is no token yet."""
        if self._replaced:
            await self._close_replaced()
        if not self.has_user:
            return ()
        if not connection.token:
            await self.login(connection, stale_token="", timeout=timeout)
        return (("token", connection.token),)

    async def login(self, connection: Connection, *, stale_token: str, timeout: float) -> None:
        """Replace `stale_token`, once for all its holders. Raises UnauthenticatedError, UnavailableError."""
        async with self._login_lock:
            if connection.token != stale_token:
                return
            request = pb.AuthenticateRequest(name=self._settings.username, password=self._settings.password)
            try:
                response = await connection.authenticate(request, timeout=timeout, metadata=())
            except grpc.aio.AioRpcError as error:
                raise translate(error, f"login of {self._settings.username}", is_write=False) from error
            connection.token = response.token
