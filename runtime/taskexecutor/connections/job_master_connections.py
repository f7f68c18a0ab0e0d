"""Streams to JobMaster processes: dialled when a slot request names one, kept while it owns a job that is here.

Invariants: at most one stream per process; each is numbered higher than all before it (R11); what arrived on an older
one is dropped. A message that finds no stream is dropped too: a new stream begins with everything that is not
acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.aio.retry import is_worth_logging
from runtime.aio.scope import Scope, ServiceScope
from runtime.common.entropy import Entropy
from runtime.common.errors import BackpressureError, FlinklikeError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream, RpcService, StreamHello, StreamKind
from runtime.taskexecutor.connections.stream_service import Receiver, serve_stream
from runtime.taskexecutor.core.events import JobMasterConnected, JobMasterDisconnected
from runtime.taskexecutor.core.jobs import JobMasterLocation
from runtime.taskexecutor.settings import ConnectionSettings

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Connection:
    """One JobMaster process: where it is, and the open stream if there is one."""

    location: JobMasterLocation
    stream: MessageStream | None = None


class JobMasterConnections:
    """All connections of one TaskManager.

    `receiver_of` makes the receiver of one stream's messages; `post` takes the changes.
    """

    def __init__(
        self,
        rpc: RpcService,
        incarnation: Incarnation,
        settings: ConnectionSettings,
        *,
        heartbeats: HeartbeatService,
        entropy: Entropy,
        scope: ServiceScope,
        receiver_of: Callable[[JobMasterLocation, int], Receiver],
        post: Callable[[JobMasterConnected | JobMasterDisconnected], None],
        is_needed: Callable[[Incarnation], bool],
    ) -> None:
        self._rpc = rpc
        self._incarnation = incarnation
        self._settings = settings
        self._heartbeats = heartbeats
        self._entropy = entropy
        self._scope = scope
        self._receiver_of = receiver_of
        self._post = post
        self._is_needed = is_needed
        self._connections: dict[Incarnation, _Connection] = {}
        self._number = 0
        self._is_closing = False

    def connect(self, location: JobMasterLocation) -> None:
        """Open a stream unless there is one or one is being opened."""
        connection = self._connections.get(location.incarnation)
        if connection is None:
            connection = self._connections[location.incarnation] = _Connection(location)
            self._scope.spawn(f"job master {location.incarnation}", self._keep(connection))

    def is_current(self, incarnation: Incarnation, number: int) -> bool:
        """True for the stream that is open now: messages of older ones are dropped (R11)."""
        connection = self._connections.get(incarnation)
        return connection is not None and connection.stream is not None and connection.stream.hello.number == number

    def send(self, incarnation: Incarnation, message: Any) -> None:
        """Send on the open stream, if there is one."""
        connection = self._connections.get(incarnation)
        if connection is None or connection.stream is None:
            return
        try:
            connection.stream.send(message)
        except UnavailableError:
            return  # it has just ended; the next one begins with what is not acknowledged
        except BackpressureError as error:
            # Nothing may get lost between two messages: a fresh stream starts over with what is not acknowledged.
            connection.stream.abort(f"the peer does not read: {error}")

    async def close(self) -> None:
        """Flush and end all streams, and dial no more."""
        self._is_closing = True
        async with Scope("job masters/close") as closing:
            for connection in self._connections.values():
                if connection.stream is not None:
                    closing.spawn(str(connection.location.incarnation), connection.stream.close())

    async def _keep(self, connection: _Connection) -> None:
        """Dial the process, serve its stream, dial again: while this TaskManager has a job of that process."""
        location = connection.location
        failures = 0
        try:
            while self._is_needed(location.incarnation) and not self._is_closing:
                try:
                    connection.stream = await self._dial(location)
                except FlinklikeError as error:
                    if is_worth_logging(failures):
                        logger.warning("JobMaster process %s cannot be reached: %s", location, error)
                    await asyncio.sleep(self._settings.retry.delay(failures, self._entropy))
                    failures += 1
                    continue
                failures = 0
                await self._serve(connection, connection.stream)
        finally:
            del self._connections[location.incarnation]

    async def _dial(self, location: JobMasterLocation) -> MessageStream:
        self._number += 1
        hello = StreamHello(
            kind=StreamKind.TASK_MANAGER_TO_JOB_MASTER,
            dialer=self._incarnation,
            dialer_address=self._rpc.server.address,
            number=self._number,
            target=None,
            target_incarnation=location.incarnation,
        )
        return await self._rpc.open_stream(location.address, hello, timeout=self._settings.connect_timeout)

    async def _serve(self, connection: _Connection, stream: MessageStream) -> None:
        location = connection.location
        self._post(JobMasterConnected(location.incarnation))
        receiver = self._receiver_of(location, stream.hello.number)
        reason = await serve_stream(stream, receiver, self._heartbeats, self._settings.heartbeat)
        connection.stream = None
        logger.info("stream to JobMaster process %s ended: %s", location.incarnation, reason)
        self._post(JobMasterDisconnected(location.incarnation))
