"""TaskManagerRunner: one TaskManager from its first process to its last.

Start: working directory, template process (before any JVM, so that no slot holds its pipes), Spark in the background,
the registration key (before the first slot report), then the endpoint. Stop: no more slots, a short drain, slots, the
last reports, Spark, movers of outputs, and only then the registration key: its deletion says that nothing
runs here (R13).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from runtime.aio.periodic import Reconciler
from runtime.aio.retry import RetryPolicy, retry
from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.blob.client import BlobSharedClient
from runtime.common.clock import Clock, Deadline
from runtime.common.entropy import Entropy
from runtime.common.errors import UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.gateways.process import ProcessGateway, SlotFigures
from runtime.gateways.resource_manager import RegisterTaskManager
from runtime.highavailability.leadership.registration import TaskManagerRegistry
from runtime.highavailability.leadership.retrieval import LeaderInformation
from runtime.highavailability.records import TaskManagerRecord
from runtime.highavailability.services import HighAvailabilityServices
from runtime.metrics.registry import NO_METRICS, MetricRegistry
from runtime.rpc.service import RpcService
from runtime.taskexecutor.attempt_logs.log_directory import AttemptLogs
from runtime.taskexecutor.connections.contact import ContactKeeper, ContactSettings
from runtime.taskexecutor.connections.resource_manager_connection import LeaderLocation, LeaderRetrieval, StaticLeader
from runtime.taskexecutor.credentials.delegation_tokens import DelegationTokenReceiverRepository
from runtime.taskexecutor.directories.ended_checkpoints import EndedCheckpoints
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.failed_savepoints import LeftSavepoints
from runtime.taskexecutor.directories.job_users import JobUsers
from runtime.taskexecutor.directories.working_directory import LeftoverCollector, WorkingDirectory
from runtime.taskexecutor.endpoint import TaskExecutor
from runtime.taskexecutor.guard.connection import GuardConnection
from runtime.taskexecutor.job_lookups import JobLookups
from runtime.taskexecutor.settings import TaskExecutorSettings
from runtime.taskexecutor.slot_pool import SlotPool
from runtime.taskexecutor.spark.environments import SparkEnvironments
from runtime.taskexecutor.spark.supervision import supervise_spark

logger = logging.getLogger(__name__)

_RELEASE_TIME_MAX = 5.0
_IDLE_LOOKUPS = 10
"""Every so many looks at the job store the runner also looks up jobs that have an owner and no slot here."""


class EarlierLives(Protocol):
    """TaskManagers that ran in this run directory before this one, as the guard has found them (R30)."""

    def earlier_lives(self, *, age: float) -> list[str]:
        """Incarnations of which everything was reaped, at least `age` seconds ago."""

    def forget(self, incarnation: str, /) -> None:
        """Forget a life whose key is deleted."""


class StartableSlotPool(SlotPool, Protocol):
    """A pool with its life."""

    async def start(self) -> None:
        """Start the processes."""

    def figures(self) -> tuple[SlotFigures, ...]:
        """What runs in each slot, and its memory against its limit."""

    def stacks(self) -> AsyncIterator[tuple[str, str]]:
        """(name, stack) of each Python thread of its processes, which go on meanwhile."""

    async def stop(self) -> None:
        """Reap all processes; attempts that ran have reported."""


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Times of a TaskManager's life, in seconds. The whole stop has to fit into what the scripts wait: 10 s.

    It begins with a short drain, `stop_patience`; a caller that has more time drains before. `end_stated_for`: for how
    long the guard states a sudden end where it listens (R30), 0 where no process will ask.
    """

    executor: TaskExecutorSettings
    contact: ContactSettings
    stop_patience: float = 2.0
    report_patience: float = 5.0
    step_timeout: float = 6.0
    end_stated_for: float = 300.0
    log_period: float = 60.0
    leftover_period: float = 600.0
    ended_jobs_period: float = 30.0
    spark_retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(delay_initial=1.0, delay_max=30.0))


class WatchedLeader:
    """LeaderRetrieval over what highavailability knows of the leader."""

    def __init__(self, leader: Watch[LeaderInformation | None]) -> None:
        self._leader = leader

    async def leaders(self) -> AsyncIterator[LeaderLocation | None]:
        """The leader now, then each change."""
        while True:
            generation = self._leader.generation
            known = self._leader.value
            yield None if known is None else LeaderLocation(known.record.address, known.epoch)
            await self._leader.wait_changed(generation)


class TaskManagerRunner:
    """Everything it is given is made but not started; it starts and stops all of it.

    Without `services` the leader is the one JobManager at `leader_address`. `make_blobs` gets the function that tells
    where the leader's BlobServer is.
    """

    def __init__(
        self,
        settings: RunnerSettings,
        registration: RegisterTaskManager,
        *,
        rpc: RpcService,
        leader_address: str,
        services: HighAvailabilityServices | None,
        guard: GuardConnection,
        lives: EarlierLives,
        pool: StartableSlotPool,
        spark: SparkEnvironments | None,
        make_blobs: Callable[[Callable[[], str | None]], BlobSharedClient],
        exchange: ExchangeDirectory,
        directory: WorkingDirectory,
        logs: AttemptLogs,
        tokens: DelegationTokenReceiverRepository,
        clock: Clock,
        boot_clock: Clock,
        entropy: Entropy,
        users: JobUsers | None = None,
        own_process: ProcessGateway | None = None,
        metrics: MetricRegistry = NO_METRICS,
        checkpoints_url: str = "",
    ) -> None:
        self._settings = settings
        self._checkpoints_url = checkpoints_url
        self._own_process = own_process
        self._metrics = metrics
        self._users = users
        self._registration = registration
        self._rpc = rpc
        self._leader_address = leader_address
        self._services = services
        self._guard = guard
        self._lives = lives
        self._unreaped: list[str] = []
        self._pool = pool
        self._spark = spark
        self._blobs = make_blobs(lambda: None if self._executor is None else self._executor.blob_address)
        self._exchange = exchange
        self._directory = directory
        self._logs = logs
        self._tokens = tokens
        self._clock = clock
        self._boot_clock = boot_clock
        self._entropy = entropy
        self._executor: TaskExecutor | None = None
        self._lookups = 0
        self._jobs = None if services is None else JobLookups(services, registration.incarnation, settings.step_timeout)
        self._steps: list[tuple[str, Callable[[], Awaitable[None]], bool]] = []

    async def run(self, on_ready: Callable[[RegisterTaskManager], None]) -> None:
        """Serve until cancelled, then stop in order. `on_ready` is called once, when the slots can be used."""
        try:
            await self._serve(on_ready)
        finally:
            await self._stop()

    @property
    def drain_time_max(self) -> float:
        """How long `drain` takes at most: it releases what does not end within `taskmanager.drain-timeout`."""
        settings = self._settings
        return settings.executor.drain_timeout + settings.report_patience + _RELEASE_TIME_MAX

    async def drain(self) -> bool:
        """Take no more slots, and return when nothing runs here any more. The caller then ends `run`."""
        settings = self._settings
        if self._executor is not None:
            await self._executor.drain(settings.executor.drain_timeout, report_patience=settings.report_patience)
        return True

    async def _serve(self, on_ready: Callable[[RegisterTaskManager], None]) -> None:
        self._guard.open()
        self._at_stop("guard", self._close_guard)
        self._directory.acquire()
        self._at_stop("working directory", self._remove_directory)
        await asyncio.to_thread(self._logs.acquire)
        if self._users is not None:
            await asyncio.to_thread(self._users.claim)
        if self._services is None:
            for life in self._lives.earlier_lives(age=self._settings.end_stated_for):
                self._lives.forget(life)
        await self._pool.start()
        async with Scope("task manager") as scope:
            if self._spark is not None:
                await self._spark.open()
                scope.spawn_eternal("spark environments", self._spark.wait_failed())
                default, entropy = self._spark.default, self._entropy.child("spark")
                scope.spawn_eternal("spark", supervise_spark(default, self._settings.spark_retry, entropy))
            scope.spawn_eternal("delegation tokens", self._tokens.run())
            executor = await self._start_executor(scope)
            scope.spawn_eternal("task executor", executor.wait_failed())
            scope.spawn_eternal("transport", self._rpc.wait_failed())
            scope.spawn_eternal("blobs", self._blobs.wait_failed())
            for reconciler in self._reconcilers(executor):
                scope.spawn_eternal(reconciler.name, reconciler.run())
            await executor.is_serving.wait_until(bool)
            on_ready(self._registration)
            await asyncio.Event().wait()

    async def _start_executor(self, scope: Scope) -> TaskExecutor:
        """Transport, services, key, endpoint, in this order: the key is there before the first slot report (R13)."""
        await self._rpc.start()
        self._at_stop("transport", lambda: self._rpc.stop(grace=0.5))
        self._registration = replace(self._registration, address=self._rpc.server.address)
        retrieval: LeaderRetrieval = StaticLeader(self._leader_address)
        if self._services is not None:
            retrieval = await self._start_services(self._services, scope)
        contact = None if self._services is None else self._contact(self._services)
        await self._blobs.start()
        self._at_stop("blob client", self._blobs.stop)
        executor = self._executor = TaskExecutor(
            self._settings.executor,
            self._registration,
            self._rpc,
            retrieval,
            self._pool,
            blobs=self._blobs,
            exchange=self._exchange,
            job_root=self._directory.jobs,
            spark=self._spark,
            clock=self._clock,
            boot_clock=self._boot_clock,
            entropy=self._entropy,
            contact=contact,
            jobs=self._jobs,
            guard=self._guard if self._services is not None else None,
            take_tokens=self._tokens.take,
            users=self._users,
            own_process=self._own_process,
            metrics=self._metrics,
        )
        self._at_stop("task executor", executor.stop)
        await self._guard.state_end(self._settings.end_stated_for)
        if self._services is not None:
            record = await self._register(self._services)
            if contact is not None:
                contact.registration = record
        self._at_stop("the moves of outputs", executor.stop_moves, is_needed_for_key=True)
        self._at_stop("Spark", self._stop_spark, is_needed_for_key=True)
        self._at_stop("slots", self._stop_slots, is_needed_for_key=True)
        self._at_stop("drain", lambda: executor.drain(self._settings.stop_patience, report_patience=0.5))
        await executor.start()
        if contact is not None:
            scope.spawn_eternal("contact", contact.run())
        return executor

    async def _start_services(self, services: HighAvailabilityServices, scope: Scope) -> LeaderRetrieval:
        """Connect to etcd. It may come up after us, for as long as a JobManager may."""
        deadline = Deadline.after(self._clock, self._settings.executor.registration_timeout)
        self._at_stop("high availability", services.close)
        await retry(
            services.start,
            policy=self._settings.executor.connections.retry,
            clock=self._clock,
            entropy=self._entropy,
            deadline=deadline,
            on_retry=lambda error, delay: logger.warning("etcd is away, next try in %.1f s: %s", delay, error),
        )
        await self._bury_earlier_lives(services)
        scope.spawn_eternal("job store", services.wait_failed())
        retrieval = services.leader_retrieval()
        scope.spawn_eternal("leader retrieval", retrieval.run())
        return WatchedLeader(retrieval.leader)

    def _contact(self, services: HighAvailabilityServices) -> ContactKeeper:
        return ContactKeeper(
            self._settings.contact,
            services.task_manager_fences(self._registration.incarnation),
            self._guard,
            self._boot_clock,
        )

    async def _register(self, services: HighAvailabilityServices) -> TaskManagerRecord:
        registration, registry = self._registration, services.task_manager_registry()
        # Also when the write is cut short: it may have been done.
        self._at_stop("registration", lambda: self._unregister(registry))
        record = TaskManagerRecord(
            incarnation=registration.incarnation,
            task_manager_id=registration.task_manager_id,
            address=registration.address,
            guard_address=registration.guard_address,
            boot_id=registration.boot_id,
            slots=registration.slots,
        )
        await registry.register(record)
        return record

    async def _unregister(self, registry: TaskManagerRegistry) -> None:
        """R13: only when everything is reaped. Else the key stays, and the guard states the end when it has come."""
        left = ", ".join(self._unreaped) or await self._guard.sweep()
        if left:
            logger.error("the key of this TaskManager stays until its guard has reaped everything: %s", left)
            return
        await registry.unregister(self._registration.incarnation)
        await self._guard.state_end(0.0)

    async def _bury_earlier_lives(self, services: HighAvailabilityServices) -> None:
        """R30: what died in this run directory is reaped; our guard has seen to it before this process began."""
        registry = services.task_manager_registry()
        for life in self._lives.earlier_lives(age=0.0):
            await registry.unregister(Incarnation(life))
            self._lives.forget(life)
            logger.warning("an earlier TaskManager of this run directory, %s, is reaped: its key is deleted", life)

    # --- background -----------------------------------------------------------------------------------------

    def _reconcilers(self, executor: TaskExecutor) -> list[Reconciler]:
        settings, jobs = self._settings, self._jobs
        leftovers = LeftoverCollector(self._directory, self._exchange, _is_over if jobs is None else jobs.is_over)
        durable = []
        if jobs is not None:
            ended = partial(self._end_jobs, executor, jobs)
            durable = [
                Reconciler("fences", jobs.drop_fences, period=settings.leftover_period),
                Reconciler("ended jobs", ended, period=settings.ended_jobs_period),
            ]
            left = LeftSavepoints(jobs.failed_savepoints)
            durable.append(Reconciler("failed savepoints", left.activate, period=settings.ended_jobs_period))
            if self._checkpoints_url:
                checkpoints = EndedCheckpoints(self._checkpoints_url, jobs.deletes_checkpoints)
                period = settings.ended_jobs_period
                durable.append(Reconciler("checkpoints of ended jobs", checkpoints.activate, period=period))
        return [
            *durable,
            Reconciler("leftovers", leftovers.activate, period=settings.leftover_period),
            Reconciler("log retention", partial(self._collect_logs, executor), period=settings.log_period),
        ]

    async def _collect_logs(self, executor: TaskExecutor) -> int:
        now_seconds = self._clock.epoch_millis() / 1000
        try:
            return await asyncio.to_thread(self._logs.collect, now_seconds=now_seconds, keep=executor.attempt_ids)
        except OSError as error:
            message = f"attempt logs cannot be collected: {error}"
            raise UnavailableError(message) from error

    async def _end_jobs(self, executor: TaskExecutor, jobs: JobLookups) -> int:
        """R16: end jobs that are over, should owner and leader have died before they told this TaskManager."""
        self._lookups += 1
        unattended = executor.unattended_jobs(idle=self._lookups % _IDLE_LOOKUPS == 0)
        over = [job_id for job_id in unattended if await jobs.is_over(job_id)]
        if over:
            logger.info("%d jobs are over that nobody has ended here: %s", len(over), ", ".join(over[:8]))
            executor.end_jobs(over, [job_id for job_id in over if await jobs.keeps_outputs(job_id)])
        return len(over)

    # --- stop -----------------------------------------------------------------------------------------------

    def _at_stop(self, name: str, step: Callable[[], Awaitable[None]], *, is_needed_for_key: bool = False) -> None:
        """`is_needed_for_key`: should it fail, something may go on here, and the key stays (R13)."""
        self._steps.append((name, step, is_needed_for_key))

    async def _stop(self) -> None:
        """Last started, first stopped. A step that fails or hangs does not keep the others from being taken."""
        while self._steps:
            name, step, is_needed_for_key = self._steps.pop()
            started = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._settings.step_timeout):
                    await step()
            except Exception:
                # The boundary of the stop: what is left is ended by the guard.
                logger.exception("stopping %s failed", name)
                if is_needed_for_key:
                    self._unreaped.append(f"stopping {name} failed")
            logger.debug("stopping %s took %.2f s", name, self._clock.monotonic() - started)

    async def _stop_slots(self) -> None:
        await self._pool.stop()
        if self._executor is not None:
            await self._executor.flush()

    async def _close_guard(self) -> None:
        self._guard.close()

    async def _stop_spark(self) -> None:
        if self._spark is not None:
            await self._spark.stop()

    async def _remove_directory(self) -> None:
        self._logs.release()
        is_needed = not await self._exchange.remove()
        await asyncio.to_thread(self._directory.leave if is_needed else self._directory.remove)


async def _is_over(_: JobId) -> bool:
    """Without durable services a job does not outlive its TaskManager (R16)."""
    return True
