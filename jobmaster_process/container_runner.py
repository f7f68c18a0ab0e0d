"""JobMasterContainerRunner: the container of all JobMasters of one JobMaster process, and its stream to the leader.

The container follows the leader: when another JobManager leads, or the stream ends, it registers again, after a delay
with jitter, so that hundreds of processes do not dial a new leader at once. The JobMasters do not notice. Invariant:
the termination future is resolved exactly once, when nothing of the container runs any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from jobmaster_process.secondary_dispatcher import JobMasterSecondaryDispatcher
from runtime.aio.retry import RetryPolicy, is_worth_logging
from runtime.aio.scope import Scope, ServiceScope
from runtime.aio.watch import Watch
from runtime.common.clock import Clock, Deadline
from runtime.common.entropy import Entropy
from runtime.common.errors import PermanentError, RetryableError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.fsm import StateMachine, TransitionTable
from runtime.common.ids import Incarnation
from runtime.common.version import PROTOCOL_VERSION, VERSION
from runtime.gateways.dispatcher import (
    JOB_DETAILS_SOURCE,
    DispatcherGateway,
    DispatcherOrder,
    JobMasterRegistered,
    RegisterJobMaster,
)
from runtime.gateways.process import ProcessGateway
from runtime.gateways.resource_manager import RegistrationRefused
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream, RpcService, StreamHello, StreamKind

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_POLICY = RetryPolicy(delay_initial=0.1, delay_max=2.0)
_FAILURES_EXPECTED = 8
CHALLENGE_PAUSE = 0.02
CHALLENGE_PAUSE_MAX = 0.25
"""Seconds between two looks for the leader's challenge: the first pause, and the longest."""


class ContainerState(Enum):
    """The life of a container. READY: registered with a leader."""

    CREATED = "CREATED"
    CONNECTING = "CONNECTING"
    READY = "READY"
    TERMINATED = "TERMINATED"


_S = ContainerState
CONTAINER_STATES = TransitionTable(
    {
        _S.CREATED: frozenset({_S.CONNECTING, _S.TERMINATED}),
        _S.CONNECTING: frozenset({_S.READY, _S.TERMINATED}),
        _S.READY: frozenset({_S.CONNECTING, _S.TERMINATED}),
        _S.TERMINATED: frozenset(),
    }
)


class JobMasterRefusedError(PermanentError):
    """The leader does not accept this process; it ends with the leader's sentence."""


@dataclass(frozen=True, slots=True)
class LeaderAddress:
    """The leading JobManager: its term, and where its Dispatcher listens."""

    token: FencingToken
    address: str


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """`timeout` bounds dialling and registering, each in seconds.

    `challenge_timeout`: seconds to wait for the leader's challenge, which the leader writes when it learns of the
    registration in the store. Well below heartbeat.timeout, after which the leader revokes the lease of a process
    without a stream. `stops_jobs`: when this process leaves, cancel the jobs that no other process takes.
    `savepoints`: the directory for savepoints of streaming jobs that are cancelled so, "" for none, which are given up
    after `savepoints_time` seconds. `metrics_address`: where this process serves its metrics, "" where it does not.
    `worker_id`: the label of one that a driver has started (R65), "" for others.
    """

    incarnation: Incarnation
    capacity: int
    timeout: float
    challenge_timeout: float = 2.0
    stops_jobs: bool = False
    savepoints: str = ""
    savepoints_time: float = 0.0
    metrics_address: str = ""
    worker_id: str = ""


class StorageAnswers(Protocol):
    """R20, the half of the JobMaster process: `runtime.blob.storage_probe.StorageProbe`."""

    async def answer(self, incarnation: Incarnation, term: int, /) -> None:
        """Answer the leader's challenge. Raises PermanentError when it is not there (yet)."""


class JobMasterContainerRunner:
    """Runs one container until it is cancelled, or refused by a leader.

    `check_cluster` runs whenever no leader admits the process: what it raises, unless it is retryable, ends the
    container (R1).
    """

    def __init__(
        self,
        settings: ContainerSettings,
        *,
        rpc: RpcService,
        heartbeats: HeartbeatService,
        leader: Watch[LeaderAddress | None],
        storage: StorageAnswers,
        check_cluster: Callable[[], Awaitable[None]],
        own_process: ProcessGateway,
        make_dispatcher: Callable[[ServiceScope], JobMasterSecondaryDispatcher],
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._settings = settings
        self._rpc = rpc
        self._heartbeats = heartbeats
        self._leader = leader
        self._storage = storage
        self._check_cluster = check_cluster
        self._own_process = own_process
        self._proven: FencingToken | None = None
        self._jobs = ServiceScope("job-masters")
        self._clock = clock
        self._entropy = entropy
        self._machine = StateMachine(f"container {settings.incarnation}", CONTAINER_STATES, ContainerState.CREATED)
        self._streams = 0
        self.dispatcher = make_dispatcher(self._jobs)
        self.state: Watch[ContainerState] = Watch(ContainerState.CREATED)
        self.terminated: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def _enter(self, state: ContainerState, reason: str) -> None:
        if self._machine.state is not state:
            self._machine.to(state, reason)
            self.state.set(state)

    async def run(self) -> None:
        """Serve until cancelled. Raises JobMasterRefusedError, and what `check_cluster` raises in an ExceptionGroup."""
        reason = "stopped"
        await self._jobs.open()
        self._rpc.server.add_gateway(DispatcherGateway, self.dispatcher, check=self.dispatcher.check)
        self._rpc.server.add_gateway(ProcessGateway, self._own_process, check=self.dispatcher.check)
        self._rpc.server.add_chunk_source(JOB_DETAILS_SOURCE, self.dispatcher.job_details)
        try:
            async with Scope("container") as scope:
                scope.spawn_eternal("jobs", self._jobs.wait_failed())
                scope.spawn_eternal("event-loop", self.dispatcher.watch_load())
                reason = await self._follow()
                scope.cancel_all()
            raise JobMasterRefusedError(reason)
        finally:
            self._rpc.server.remove_gateway(ProcessGateway)
            self._rpc.server.remove_gateway(DispatcherGateway)
            self._enter(ContainerState.TERMINATED, reason)
            try:
                await self._jobs.close()
            finally:
                self.terminated.set_result(reason)

    async def leave(self) -> bool:
        """Give every job to another process. True if no job is left here.

        Jobs that no process can take are left as a lost process leaves them: their tasks go on, and the next process
        that registers takes them over. Or they are cancelled, if `stops_jobs` says so.
        """
        dispatcher = self.dispatcher
        generation = dispatcher.not_taken.generation
        dispatcher.drain(is_draining=True)
        async with Scope("leave") as scope:
            emptied = scope.start("emptied", dispatcher.wait_empty())
            refused = scope.start("refused", dispatcher.not_taken.wait_changed(generation))
            _ = await asyncio.wait({emptied, refused}, return_when=asyncio.FIRST_COMPLETED)
            is_empty = emptied.done()
            scope.cancel_all()
        if is_empty:
            return True
        reason, count = dispatcher.not_taken.value, dispatcher.jobs_running
        if not self._settings.stops_jobs:
            logger.warning("%s: %d jobs are left to the next process that registers", reason, count)
            return False
        if self._settings.savepoints:
            logger.warning("%s: streaming jobs are stopped with savepoints", reason)
            await dispatcher.save_all(self._settings.savepoints, self._settings.savepoints_time, self._entropy)
            count = dispatcher.jobs_running
        logger.warning("%s: %d jobs are cancelled", reason, count)
        dispatcher.cancel_all()
        await dispatcher.wait_empty()
        return True

    async def _follow(self) -> str:
        """Register with each leader, until one refuses this process. Returns the reason of the refusal."""
        attempt = failures = 0
        while True:
            self._enter(ContainerState.CONNECTING, "no leader yet")
            leader = await self._leader.wait_until(lambda known: known is not None)
            assert leader is not None
            try:
                await self._serve(leader)
            except JobMasterRefusedError as error:
                return str(error)
            except (RetryableError, PermanentError, TimeoutError) as error:
                # A false answer is such a failure too: another program may have the port of a former leader (R52).
                # Between two leaders some failures are normal; many in a row need an operator.
                failures = 0 if self._machine.state is ContainerState.READY else failures + 1
                if is_worth_logging(max(0, failures - 1)):
                    level = logging.WARNING if failures > _FAILURES_EXPECTED else logging.INFO
                    logger.log(level, "not registered with the JobManager at %s (any more): %s", leader.address, error)
            with suppress(RetryableError):
                await self._check_cluster()
            attempt = 0 if self._machine.state is ContainerState.READY else attempt + 1
            self._enter(ContainerState.CONNECTING, "the stream has ended")
            await asyncio.sleep(CONNECT_POLICY.delay(attempt, self._entropy))

    async def _serve(self, leader: LeaderAddress) -> None:
        """One stream, from registration to its end. Raises RetryableError, PermanentError, TimeoutError."""
        settings = self._settings
        if self._proven != leader.token:
            await self._answer_challenge(leader.token.revision)
        self._streams += 1
        hello = StreamHello(
            kind=StreamKind.JOB_MASTER_TO_DISPATCHER,
            dialer=settings.incarnation,
            dialer_address=self._rpc.server.address,
            number=self._streams,
            target=leader.token,
            target_incarnation="",
        )
        generation = self._leader.generation
        dialling = self._rpc.open_stream(leader.address, hello, timeout=settings.timeout)
        stream = await self._while_leading(leader, dialling)
        try:
            registered, early = await self._while_leading(leader, self._register(stream))
            self.dispatcher.attach(stream, FencingToken(registered.cluster, registered.epoch))
            for message in early:
                self.dispatcher.handle(message)
            self._proven = leader.token
            self._enter(ContainerState.READY, f"leader term {registered.epoch}")
            logger.info("registered with the JobManager at %s, term %d", leader.address, registered.epoch)
            # The inventory goes out every interval (R5), and tells the leader that we live.
            timing = HeartbeatTiming(registered.heartbeat_interval, registered.heartbeat_timeout, is_unconditional=True)
            async with Scope("leader-stream") as scope:
                scope.spawn_eternal("leader", self._watch_leader(stream, leader, generation))
                with self._heartbeats.keep_alive(stream, timing, lambda _number: self.dispatcher.heartbeat()):
                    await self._read(stream, leader)
                scope.cancel_all()
        finally:
            self.dispatcher.detach(stream)
            await stream.close()

    async def _answer_challenge(self, term: int) -> None:
        """R20: show the leader that this process sees its storage. The leader judges the answer."""
        deadline = Deadline.after(self._clock, self._settings.challenge_timeout)
        pause = CHALLENGE_PAUSE
        while True:
            try:
                await self._storage.answer(self._settings.incarnation, term)
            except PermanentError as error:
                if deadline.has_passed(self._clock):
                    logger.warning("the leader's challenge cannot be answered: %s", error)
                    return
            else:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, CHALLENGE_PAUSE_MAX)

    async def _while_leading(self, leader: LeaderAddress, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which a frozen leader may hold up. UnavailableError once another JobManager leads."""
        async with Scope("leader-dial") as scope:
            working = scope.start("work", _outcome(work))
            moved = scope.start("moved", self._leader.wait_until(lambda known: known not in {None, leader}))
            _ = await asyncio.wait({working, moved}, return_when=asyncio.FIRST_COMPLETED)
            scope.cancel_all()
        if working.cancelled():
            message = f"another JobManager than the one at {leader.address} leads"
            raise UnavailableError(message)
        result, error = working.result()
        if error is not None:
            raise error
        assert result is not None, leader
        return result

    async def _register(self, stream: MessageStream) -> tuple[JobMasterRegistered, list[DispatcherOrder]]:
        """The answer of the leader that admits this process, and the orders that arrived right behind it."""
        settings = self._settings
        stream.send(
            RegisterJobMaster(
                settings.incarnation,
                self._rpc.server.address,
                VERSION,
                PROTOCOL_VERSION,
                settings.capacity,
                self.dispatcher.is_draining.value,
                settings.metrics_address,
                settings.worker_id,
            )
        )
        async with asyncio.timeout(settings.timeout):
            answer, *early = await stream.receive()
        if isinstance(answer, RegistrationRefused):
            raise JobMasterRefusedError(answer.reason)
        if not isinstance(answer, JobMasterRegistered):
            message = f"the leader answered a registration with {type(answer).__name__}"
            raise UnavailableError(message)
        return answer, early

    async def _read(self, stream: MessageStream, leader: LeaderAddress) -> None:
        """Follow orders until the stream ends."""
        try:
            while True:
                for message in await stream.receive():
                    self.dispatcher.handle(message)
        except UnavailableError as error:
            logger.info("stream to the JobManager at %s ended: %s", leader.address, error)

    async def _watch_leader(self, stream: MessageStream, leader: LeaderAddress, generation: int) -> None:
        """End the stream when another JobManager leads."""
        while True:
            latest = await self._leader.wait_changed(generation)
            generation = self._leader.generation
            if latest is not None and latest != leader:
                stream.abort(f"another JobManager leads: {latest.address}")


async def _outcome(work: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    """A failure as a value, so that it reaches the caller and does not end the scope."""
    try:
        return await work, None
    except (RetryableError, PermanentError, TimeoutError) as error:
        return None, error
