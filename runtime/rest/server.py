"""RestServer: the application on a socket of this process's loop, from the first request to an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn

from runtime.aio.scope import Scope
from runtime.common.errors import UnavailableError
from runtime.rest.app import create_app
from runtime.rest.context import RestContext
from runtime.rest.guards import TokenCheck

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_KEEP_ALIVE_SECONDS = 75
_CONNECTIONS_MAX = 16_384
"""Above it a connection is answered 503: each long poll of a client holds one."""


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Where to listen, and how large a request may be. Port 0 picks a free one."""

    bind_address: str
    port: int
    content_length_max: int


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the process decides when to stop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell when requests are answered."""
        await super().startup(sockets)
        self.is_serving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class RestServer:
    """Serves from `start` until `stop`, whether or not this process leads."""

    def __init__(self, context: RestContext, settings: RestSettings, *, check_token: TokenCheck | None) -> None:
        self._settings = settings
        app = create_app(context, check_token=check_token, content_length_max=settings.content_length_max)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            limit_concurrency=_CONNECTIONS_MAX,
        )
        self._server = _Server(config)
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int:
        """The port it listens on, after `bind`."""
        assert self._socket is not None, "bind first"
        return int(self._socket.getsockname()[1])

    def bind(self) -> None:
        """Take the port. Raises UnavailableError with the option that moves it when somebody else has it."""
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
                "stop what uses it, or move REST with -D rest.port=<port>"
            )
            raise UnavailableError(message) from error
        listener.listen(_BACKLOG)
        listener.setblocking(False)  # noqa: FBT003 (the name of the method says it)
        self._socket = listener

    async def start(self, scope: Scope) -> None:
        """Serve in the background of `scope`; returns when requests are answered."""
        assert self._socket is not None, "bind first"
        scope.spawn("rest/serve", self._server.serve(sockets=[self._socket]))
        await self._server.is_serving.wait()
        logger.info("REST listens on %s:%d", self._settings.bind_address, self.port)

    def stop(self) -> None:
        """Refuse new connections and end what runs within a second."""
        self._server.should_exit = True
