"""RestServer: the application on a socket of this process's loop, from the first request to an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.errors import UnavailableError
from runtime.logs.rate_limit import RateLimitFilter
from runtime.rest.access.audit import Audit
from runtime.rest.access.principal_limits import NO_LIMITS, LimitSettings
from runtime.rest.access.sign_in import SignIn
from runtime.rest.app import create_app
from runtime.rest.connections.handshakes import FailedHandshakes, Handshake
from runtime.rest.connections.limited_connections import Connections, connections_max, protocol_among
from runtime.rest.connections.tls import RestTls
from runtime.rest.context import RestContext
from runtime.rest.routes.changes import ActivitySamples
from runtime.rest.spark_ui.app import spark_ui_app

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 32
"""Of connections that wait, before the loop serves others again: asyncio takes this for the backlog as well."""
_KEEP_ALIVE_SECONDS = 75
_OF_ONE_PEER = 0.75
"""The part of all connections that one address may have: each long poll of a client holds one."""
_PART_OF_PAGES = 10
"""Spark's pages have so small a part of the connections that REST has."""


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where to listen. Port 0 picks a free one. `port_option`: its name in the configuration."""

    bind_address: str
    port: int
    port_option: str = field(default="rest.port", kw_only=True)


@dataclass(frozen=True, slots=True)
class RestSettings(ListenSettings):
    """Where to listen, how large a request may be, and by which names clients ask.

    `hosts`: names of this host. `allowed_hosts`: those of proxies, with or without a port.
    """

    content_length_max: int
    hosts: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()


_UVICORN_WARNINGS = RateLimitFilter(SystemClock())


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the process decides when to stop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()
        self._is_stopped = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Set `is_serving` when requests are answered."""
        await super().startup(sockets)
        self.is_serving.set()

    async def main_loop(self) -> None:
        """Set the date of answers once a second; uvicorn's own wakes ten times a second to see whether it is to end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._is_stopped.wait()

    def stop(self) -> None:
        """End `main_loop` now."""
        self.should_exit = True
        self._is_stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class HttpServer:
    """An application on a socket of this process's loop. `what`: what it serves, for the log."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ListenSettings,
        connections: Connections,
        tls: RestTls | None,
        audit: Audit,
        what: str,
    ) -> None:
        self._settings = settings
        self._is_encrypted = tls is not None
        self._what = what
        self.connections = connections
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            backlog=_ACCEPTED_AT_ONCE,
            server_header=False,
            proxy_headers=False,  # a client on this host would say in X-Forwarded-For whom the audit log names
            headers=[("x-content-type-options", "nosniff")],  # what a job has written is no page
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            http=_protocol(connections, tls, audit),
        )
        logging.getLogger("uvicorn.error").addFilter(_UVICORN_WARNINGS)
        self._server = _Server(config)
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int:
        """The port it listens on, after `bind`."""
        assert self._socket is not None, "bind first"
        return int(self._socket.getsockname()[1])

    def bind(self) -> None:
        """Take the port. Raises UnavailableError, with the option that moves it, when another process has it."""
        family = socket.AF_INET6 if ":" in self._settings.bind_address else socket.AF_INET
        # The protocol by name: asyncio turns Nagle's algorithm off only where it is set, and answers would wait 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._settings.bind_address, self._settings.port))
        except OSError as error:
            listener.close()
            message = (
                f"cannot listen on {self._settings.bind_address}:{self._settings.port} ({error.strerror}): "
                f"stop what uses it, or move it with -D {self._settings.port_option}=<port>"
            )
            raise UnavailableError(message) from error
        listener.listen(_BACKLOG)
        listener.setblocking(False)  # noqa: FBT003 (the name of the method says it)
        self._socket = listener

    async def start(self, scope: Scope) -> None:
        """Serve in the background of `scope`; returns when requests are answered."""
        assert self._socket is not None, "bind first"
        scope.spawn(f"{self._what}/serve", self._serve(self._socket))
        await self._server.is_serving.wait()
        self._socket.listen(_BACKLOG)
        how = "with TLS" if self._is_encrypted else "in plain text"
        logger.info("%s listens on %s:%d, %s", self._what, self._settings.bind_address, self.port, how)

    async def _serve(self, listener: socket.socket) -> None:
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Refuse new connections and end what runs within a second."""
        self._server.stop()


class RestServer(HttpServer):
    """Serves from `start` until `stop`, whether or not this process leads; and Spark's own pages beside (R58)."""

    def __init__(self, context: RestContext, settings: RestSettings, *, sign_in: SignIn | None) -> None:
        most = connections_max()
        connections = Connections(most, int(most * _OF_ONE_PEER))
        if sign_in is not None:
            context = replace(context, limits=limits_within(context.limits, connections.peer_max))
        self._activity = ActivitySamples(context)
        app = create_app(
            context,
            sign_in=sign_in,
            content_length_max=settings.content_length_max,
            hosts=settings.hosts,
            allowed_hosts=settings.allowed_hosts,
            activity=self._activity,
        )
        super().__init__(app, settings, connections, context.tls, context.audit, "REST")
        self._spark_ui = context.spark_ui
        self._pages: HttpServer | None = None
        if context.spark_ui is not None:
            ui = context.spark_ui.settings
            self._pages = HttpServer(
                spark_ui_app(context, context.spark_ui, sign_in, settings.hosts, settings.allowed_hosts),
                ListenSettings(ui.bind_address, ui.port, port_option="rest.spark-ui.port"),
                Connections(most // _PART_OF_PAGES, int(most // _PART_OF_PAGES * _OF_ONE_PEER)),
                context.tls,
                context.audit,
                "Spark's UI",
            )

    def bind(self) -> None:
        """Take the port, and that of Spark's pages. Raises UnavailableError."""
        super().bind()
        if self._pages is not None and self._spark_ui is not None:
            self._pages.bind()
            self._spark_ui.port = self._pages.port

    async def start(self, scope: Scope) -> None:
        """Serve in the background of `scope`; returns when requests are answered."""
        await super().start(scope)
        if self._pages is not None:
            await self._pages.start(scope)

    async def _serve(self, listener: socket.socket) -> None:
        async with Scope("rest") as scope:
            scope.spawn("activity", self._activity.run())
            await super()._serve(listener)
            scope.cancel_all()

    def stop(self) -> None:
        """Refuse new connections and end what runs within a second."""
        super().stop()
        if self._pages is not None:
            self._pages.stop()


def limits_within(limits: LimitSettings, peer_max: int) -> LimitSettings:
    """Half of what others leave of the connections of one address may run requests of one principal (R49).

    Of whichever address they are: so others are served there, and elsewhere.
    """
    if limits is NO_LIMITS:
        return limits
    running_max = max(1, peer_max // 2)
    limits = replace(limits, places_max=max(2, peer_max))
    if limits.running_max <= running_max:
        return limits
    logger.warning(
        "security.principal.max-running-requests is %d, and %d holds here: half of the %d connections that REST takes "
        "from one address. For more raise the limit of open files (ulimit -n)",
        limits.running_max,
        running_max,
        peer_max,
    )
    return replace(limits, running_max=running_max)


def _protocol(places: Connections, tls: RestTls | None, audit: Audit) -> type[asyncio.Protocol]:
    """What uvicorn calls for each connection."""
    http: Any = protocol_among(places)
    if tls is None:
        return cast("type[asyncio.Protocol]", http)
    failed = FailedHandshakes(audit)

    def make(**more: Any) -> Handshake:
        return Handshake(http(**more), places, tls.server_context, failed)

    return cast("type[asyncio.Protocol]", make)
