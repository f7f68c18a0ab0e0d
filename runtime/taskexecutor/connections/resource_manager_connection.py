"""The connection to the leading ResourceManager: follow the leader, register, report, hear its orders.

Invariants: one stream at a time, numbered (R11); a leader of a lower term than one heard before is left (R1); the
TaskManager registers afresh with every leader and after every loss. A refusal ends the process with the leader's
sentence, and so does a start that finds no leader for `taskmanager.registration.timeout`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.aio.retry import is_worth_logging
from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.common.clock import Clock, Deadline
from runtime.common.entropy import Entropy
from runtime.common.errors import BackpressureError, FlinklikeError, PermanentError, UnavailableError
from runtime.gateways.delegation_tokens import DelegationToken, NewDelegationTokens
from runtime.gateways.resource_manager import (
    RegisterTaskManager,
    RegistrationRefused,
    TaskManagerRegistered,
)
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream, RpcService, StreamHello, StreamKind
from runtime.taskexecutor.connections.stream_service import serve_stream
from runtime.taskexecutor.settings import ConnectionSettings

logger = logging.getLogger(__name__)

LEADER_BEGINS_SECONDS = 5.0
"""A leader that is not reached, or takes no registrations, for so long after its election is told as a warning."""


@dataclass(frozen=True, slots=True)
class LeaderLocation:
    """Where the leader is, and its term as far as it is known (0: not)."""

    address: str
    epoch: int = 0


class LeaderRetrieval(Protocol):
    """Which JobManager leads. Implementations: StaticLeader here, one that watches etcd in highavailability."""

    def leaders(self) -> AsyncIterator[LeaderLocation | None]:
        """The leader now, then each change; None while there is none. Never ends."""


class StaticLeader:
    """high-availability.type none: the one JobManager at its configured address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def leaders(self) -> AsyncIterator[LeaderLocation | None]:
        """The one address, for ever."""
        yield LeaderLocation(self._address)
        await asyncio.Event().wait()


class RegistrationRefusedError(PermanentError):
    """The leader does not accept this TaskManager, and says why: the process ends with that sentence."""


class NoLeaderError(PermanentError):
    """No leader accepted this TaskManager for as long as it may wait at its start."""


@dataclass(frozen=True, slots=True)
class LeaderConnected:
    """Registered with this leader: it waits for a slot report."""

    registered: TaskManagerRegistered


@dataclass(frozen=True, slots=True)
class LeaderDisconnected:
    """The leader is lost or has ended; the connection looks for another one by itself."""


def failure_level(error: FlinklikeError, seconds_known: float) -> int:
    """Of a leader that is known for so long. One that has just been elected serves when it has recovered."""
    is_expected = isinstance(error, UnavailableError) and seconds_known < LEADER_BEGINS_SECONDS
    return logging.INFO if is_expected else logging.WARNING


class ResourceManagerConnection:
    """Owns the stream. `receiver` is awaited with the leader's orders; `post` takes the changes."""

    def __init__(
        self,
        rpc: RpcService,
        retrieval: LeaderRetrieval,
        registration: RegisterTaskManager,
        settings: ConnectionSettings,
        *,
        registration_timeout: float,
        clock: Clock,
        heartbeats: HeartbeatService,
        entropy: Entropy,
        scope: ServiceScope,
        receiver: Callable[[Sequence[Any]], Awaitable[None]],
        post: Callable[[LeaderConnected | LeaderDisconnected], None],
        take_tokens: Callable[[Sequence[DelegationToken]], None],
    ) -> None:
        self._rpc = rpc
        self._retrieval = retrieval
        self._registration = registration
        self._settings = settings
        self._registration_timeout = registration_timeout
        self._clock = clock
        self._heartbeats = heartbeats
        self._entropy = entropy
        self._scope = scope
        self._receiver = receiver
        self._post = post
        self._take_tokens = take_tokens
        self._leader: Watch[LeaderLocation | None] = Watch(None)
        self._stream: MessageStream | None = None
        self._leader_since = 0.0
        self._is_registered = False
        self._epoch = 0
        self._cluster = ""
        self._number = 0
        self._is_closing = False
        self._last_failure = "no JobManager is known"

    @property
    def is_registered(self) -> bool:
        """True while there is a leader that can be told things."""
        return self._is_registered

    def send(self, message: Any) -> None:
        """Tell the leader, if registered with one; what it misses is in the next slot report."""
        if self._stream is None or not self._is_registered:
            return
        try:
            self._stream.send(message)
        except UnavailableError:
            return  # it has just ended: register again, report again
        except BackpressureError as error:
            self._stream.abort(f"the leader does not read: {error}")

    async def close(self) -> None:
        """Flush and end the stream, and dial no more."""
        self._is_closing = True
        if self._stream is not None:
            await self._stream.close()

    async def run(self) -> None:
        """Stay registered until cancelled. Raises RegistrationRefusedError, NoLeaderError."""
        self._scope.spawn_eternal("leader retrieval", self._follow())
        deadline = Deadline.after(self._clock, self._registration_timeout)
        failures = 0
        while True:
            if self._is_closing:
                await asyncio.Event().wait()
            location = await self._next_leader(deadline)
            try:
                await self._session(location)
                failures = 0
            except RegistrationRefusedError:
                raise
            except FlinklikeError as error:
                self._last_failure = str(error)
                if is_worth_logging(failures):
                    level = failure_level(error, self._clock.monotonic() - self._leader_since)
                    logger.log(level, "cannot register with the JobManager at %s: %s", location.address, error)
            self._is_registered = False
            if not self._cluster and deadline.has_passed(self._clock):
                raise self._no_leader()
            await asyncio.sleep(self._settings.retry.delay(failures, self._entropy))
            failures += 1

    async def _next_leader(self, deadline: Deadline) -> LeaderLocation:
        """The leader as soon as there is one; only the very first one has to come in time."""
        limit = None if self._cluster else max(deadline.remaining(self._clock), 0.0)
        try:
            async with asyncio.timeout(limit):
                location = await self._leader.wait_until(lambda leader: leader is not None)
        except TimeoutError:
            raise self._no_leader() from None
        assert location is not None, "waited for a leader"
        return location

    def _no_leader(self) -> NoLeaderError:
        message = (
            f"no JobManager accepted this TaskManager within {self._registration_timeout:g} s "
            f"(taskmanager.registration.timeout): {self._last_failure}"
        )
        return NoLeaderError(message)

    async def _follow(self) -> None:
        async for location in self._retrieval.leaders():
            if location == self._leader.value:
                continue
            logger.info("the leading JobManager is %s", location.address if location is not None else "unknown")
            self._leader_since = self._clock.monotonic()
            self._leader.set(location)
            if self._stream is not None and location is not None:
                self._stream.abort(f"the leader is {location.address} now")

    async def _session(self, location: LeaderLocation) -> None:
        """One stream from dialling to its end."""
        self._number += 1
        hello = StreamHello(
            kind=StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER,
            dialer=self._registration.incarnation,
            dialer_address=self._rpc.server.address,
            number=self._number,
            target=None,  # at registration the leader's term is not known for sure (R1)
            target_incarnation="",
        )
        stream = await self._rpc.open_stream(location.address, hello, timeout=self._settings.connect_timeout)
        self._stream = stream
        try:
            early = await self._register(stream)
            self._is_registered = True
            if early:
                await self._receive(early)
            reason = await serve_stream(stream, self._receive, self._heartbeats, self._settings.heartbeat)
        finally:
            stream.abort("over")
            self._stream = None
            if self._is_registered:
                self._is_registered = False
                self._post(LeaderDisconnected())
        logger.info("stream to the ResourceManager at %s ended: %s", location.address, reason)

    async def _register(self, stream: MessageStream) -> Sequence[Any]:
        """Register; what the leader sent right behind its answer."""
        stream.send(self._registration)
        try:
            async with asyncio.timeout(self._settings.heartbeat.timeout):
                answer, *early = await stream.receive()
        except TimeoutError:
            message = f"the leader did not answer the registration within {self._settings.heartbeat.timeout:g} s"
            raise UnavailableError(message) from None
        match answer:
            case RegistrationRefused(reason):
                raise RegistrationRefusedError(reason)
            case TaskManagerRegistered():
                self._accept(answer)
            case _:
                message = f"the leader answered the registration with a {type(answer).__name__}"
                raise UnavailableError(message)
        return early

    async def _receive(self, messages: Sequence[Any]) -> None:
        """Delegation tokens bypass the mailbox, because the next read of them needs the newest (R51); the rest are
        orders.
        """
        for message in messages:
            if isinstance(message, NewDelegationTokens):
                self._take_tokens(message.tokens)
        if orders := [message for message in messages if not isinstance(message, NewDelegationTokens)]:
            await self._receiver(orders)

    def _accept(self, registered: TaskManagerRegistered) -> None:
        if registered.cluster == self._cluster and registered.epoch < self._epoch:
            message = f"it is of term {registered.epoch}, and term {self._epoch} has given orders already"  # R1
            raise UnavailableError(message)
        self._cluster, self._epoch = registered.cluster, registered.epoch
        self._last_failure = ""
        logger.info("registered with the ResourceManager of term %d of cluster %s", self._epoch, self._cluster)
        self._take_tokens(registered.tokens)  # R51: before there is a slot to give away
        # The stream must be ours to send on before the endpoint reacts to the news.
        self._is_registered = True
        self._post(LeaderConnected(registered))
