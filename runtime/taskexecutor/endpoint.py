"""TaskExecutor: the endpoint of a TaskManager. One mailbox; a pure core decides, this executes.

Everything that happens (orders of owners and of the leader, news of slots, timers) becomes an event in the mailbox and
is handled without suspending. It is a mailbox, and not `aio/turns`, because a turn takes all that has gathered: what it
produces for one peer leaves in one write, and a stream is read on when its batch is handled, so no peer fills memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from runtime.aio.mailbox import Mailbox
from runtime.aio.scope import Scope, ServiceScope
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId
from runtime.gateways.delegation_tokens import DelegationToken
from runtime.gateways.job_master import CancelTasks, TriggerCheckpoint
from runtime.gateways.process import ProcessGateway
from runtime.gateways.resource_manager import (
    DrainTaskManager,
    JobsEnded,
    PreemptSlots,
    RegisterTaskManager,
    RequestSlot,
    SlotRequestRefused,
)
from runtime.gateways.task_executor import (
    TaskExecutorGateway,
)
from runtime.heartbeat.service import HeartbeatService
from runtime.metrics.registry import NO_METRICS, MetricRegistry
from runtime.rpc.service import RpcService
from runtime.taskexecutor.attempts import Attempts, bare_report, system_failure
from runtime.taskexecutor.connections.contact import ContactKeeper
from runtime.taskexecutor.connections.job_master_connections import JobMasterConnections
from runtime.taskexecutor.connections.mailbox_messages import (
    ContactChanged,
    LeaderBatch,
    Mail,
    OwnerBatch,
    SlotsChanged,
)
from runtime.taskexecutor.connections.outbox import Outbox
from runtime.taskexecutor.connections.resource_manager_connection import (
    LeaderConnected,
    LeaderDisconnected,
    LeaderRetrieval,
    ResourceManagerConnection,
)
from runtime.taskexecutor.connections.stream_service import Receiver
from runtime.taskexecutor.core.events import (
    AskPositions,
    AttemptReported,
    CancelAttempt,
    ClusterChanged,
    ConnectJobMaster,
    ContactLost,
    ContactRegained,
    DeletePartitions,
    Deregistered,
    DoSavepoint,
    DrainChanged,
    Effect,
    EnvironmentRenewed,
    Event,
    FenceObeyed,
    FenceReadable,
    FenceRequested,
    ForgetJob,
    FreeSlot,
    GiveSplit,
    MoveOutputs,
    OwnersAwaited,
    OwnerSpoke,
    PositionsTold,
    Refused,
    Released,
    RenewEnvironment,
    ReportUnstarted,
    RunAttempt,
    SendProgress,
    SendReport,
    SlotTimedOut,
    StartSlotTimer,
    StopMove,
    TellOwner,
    TellResourceManager,
)
from runtime.taskexecutor.core.jobs import JobMasterLocation
from runtime.taskexecutor.core.reports import AttemptState
from runtime.taskexecutor.credentials.secret_files import SecretFiles
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.job_directory import BlobFiles, JobDirectories
from runtime.taskexecutor.directories.job_users import JobUsers
from runtime.taskexecutor.draining import Draining
from runtime.taskexecutor.ending_queries import EndingQueries
from runtime.taskexecutor.endpoint_gateway import EndpointGateway
from runtime.taskexecutor.job_departures import JobDepartures, remove_part
from runtime.taskexecutor.moving_queries import MovingQueries
from runtime.taskexecutor.outputs.committer import OutputCommitter
from runtime.taskexecutor.outputs.output_turns import StoredJobs
from runtime.taskexecutor.savepoints import Savepoints
from runtime.taskexecutor.settings import TaskExecutorSettings
from runtime.taskexecutor.slot_pool import SlotPool, SparkState
from runtime.taskexecutor.slot_reports import SlotReports
from runtime.taskexecutor.slots.work import ProcessGuard
from runtime.taskexecutor.task_manager_metrics import JvmLooks, TaskManagerMetrics, slot_samples, spark_samples

logger = logging.getLogger(__name__)

_STOPS = "this TaskManager stops"


class TaskExecutor:
    """One per TaskManager process. `start`, then `wait_failed`; `drain` and `stop` at the end."""

    def __init__(
        self,
        settings: TaskExecutorSettings,
        registration: RegisterTaskManager,
        rpc: RpcService,
        retrieval: LeaderRetrieval,
        pool: SlotPool,
        *,
        blobs: BlobFiles,
        exchange: ExchangeDirectory,
        job_root: Path,
        spark: SparkState | None,
        clock: Clock,
        boot_clock: Clock,
        entropy: Entropy,
        contact: ContactKeeper | None = None,
        jobs: StoredJobs | None = None,
        guard: ProcessGuard | None = None,
        take_tokens: Callable[[Sequence[DelegationToken]], None] = lambda _: None,
        users: JobUsers | None = None,
        own_process: ProcessGateway | None = None,
        metrics: MetricRegistry = NO_METRICS,
    ) -> None:
        self._settings = settings
        self._metrics = TaskManagerMetrics(metrics)
        self._contact = contact
        if contact is not None:
            contact.obeyer = self
        self._rpc, self._own_process = rpc, own_process
        self._pool = pool
        self._exchange = exchange
        self._clock = clock
        self._scope = ServiceScope("task executor")
        self._mailbox: Mailbox[Mail] = Mailbox("task executor", capacity=settings.mailbox_max)
        self._heartbeats = HeartbeatService(clock)
        self._core = settings.new_core(registration)
        self._outputs = self._make_outputs(contact, jobs, guard, boot_clock)
        self.running: Watch[int] = Watch(0)
        """How many attempts run."""
        self._moving = self._make_moving(pool)
        self._ending = EndingQueries(pool.queries, self._scope, settings.drain_timeout, self._runs, self.flush)
        self._savepoints = Savepoints(pool.queries, self._scope, self._post, self._is_moving)
        unpacker_of = None if users is None else users.unpacker_of
        self._directories = JobDirectories(job_root, blobs, self._scope, settings.archives, unpacker_of)
        self._attempts = self._make_attempts(registration.task_manager_id, users)
        self._job_masters = self._make_job_masters(registration.incarnation, entropy)
        self._leader = ResourceManagerConnection(
            rpc,
            retrieval,
            registration,
            settings.connections,
            registration_timeout=settings.registration_timeout,
            clock=clock,
            heartbeats=self._heartbeats,
            entropy=entropy.child("resource manager"),
            scope=self._scope,
            receiver=self._receive_from_leader,
            post=self._post,
            take_tokens=take_tokens,
        )
        self._outbox = Outbox(self._job_masters.send, self._leader.send)
        self._spark = spark
        self._slot_reports = SlotReports(self._core, pool, spark, self._leader)
        self._gateway = EndpointGateway(self._core.jobs, settings.log_directory, self._post, pool.views)
        self._departures = JobDepartures(pool, spark, self._directories, exchange, self._attempts, self._outputs)
        self._timers: dict[AllocationId, asyncio.TimerHandle] = {}
        self.blob_address: str | None = None
        """Where the leader's BlobServer listens, as far as it is known."""
        self._kept: Watch[int] = Watch(0)
        self._draining = self._make_draining()

    def _make_outputs(
        self, contact: ContactKeeper | None, jobs: StoredJobs | None, guard: ProcessGuard | None, boot_clock: Clock
    ) -> OutputCommitter:
        return OutputCommitter(
            self._scope, self._post, self._clock, contact, jobs=jobs, guard=guard, boot_clock=boot_clock
        )

    def _make_moving(self, pool: SlotPool) -> MovingQueries:
        is_held = self._core.ledger.is_held
        return MovingQueries(pool.queries, self._scope, self._post_drain, is_held, self.running, self.flush)

    def _runs(self, attempt_id: ExecutionAttemptId) -> bool:
        is_stopping = self._core.isolation.is_stopping(attempt_id)
        return self._core.ledger.state(attempt_id) is AttemptState.STARTED and not is_stopping

    def _is_moving(self, attempt_id: ExecutionAttemptId) -> bool:
        return self._moving.is_moving(attempt_id) or self._ending.is_ending(attempt_id)

    def _make_draining(self) -> Draining:
        timeout = self._settings.drain_timeout
        return Draining(timeout, self.running, self._kept, self._post_drain, self.flush, self._moving)

    def _make_job_masters(self, incarnation: Incarnation, entropy: Entropy) -> JobMasterConnections:
        return JobMasterConnections(
            self._rpc,
            incarnation,
            self._settings.connections,
            heartbeats=self._heartbeats,
            entropy=entropy.child("job masters"),
            scope=self._scope,
            receiver_of=self._receiver_of,
            post=self._post,
            is_needed=self._core.has_jobs_of,
        )

    def _make_attempts(self, task_manager_id: str, users: JobUsers | None) -> Attempts:
        return Attempts(
            self._pool,
            self._directories,
            self._exchange,
            log_directory=self._settings.log_directory,
            secrets=SecretFiles(self._settings.secrets_directory, task_manager_id),
            clock=self._clock,
            scope=self._scope,
            post=self._post,
            users=users,
            metrics=self._metrics,
        )

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to serve and to look for the leader."""
        await self._scope.open()
        self._read_metrics()
        self._rpc.server.add_gateway(TaskExecutorGateway, self._gateway, check=self._gateway.check_tokens)
        if self._own_process is not None:
            self._rpc.server.add_gateway(ProcessGateway, self._own_process, check=self._gateway.check_tokens)
        self._scope.spawn_eternal("mailbox", self._serve())
        self._scope.spawn_eternal("heartbeats", self._heartbeats.run())
        self._scope.spawn_eternal("readiness", self._watch(self._pool.readiness))
        if self._spark is not None:
            self._scope.spawn_eternal("spark environments", self._watch(self._spark.changes))
        self._scope.spawn_eternal("ticks", self._tick())
        self._scope.spawn_eternal("resource manager", self._leader.run())

    def _read_metrics(self) -> None:
        registry, pool, spark = self._metrics.registry, self._pool, self._spark
        registry.read("slots", lambda: slot_samples(self._core.slots, pool))
        registry.read("streams", lambda: self._metrics.streams.samples(self._clock.epoch_millis()))
        if spark is not None:
            registry.read("spark", lambda: spark_samples(spark))
            if registry.is_on:
                looks = JvmLooks(spark, self._clock)
                registry.read("spark jvms", looks.samples)
                self._scope.spawn_eternal("figures of jvms", looks.run())

    async def wait_failed(self) -> None:
        """Wait for the end of the endpoint. Raises the ExceptionGroup of what ended it."""
        await self._scope.wait_failed()

    async def drain(self, timeout: float, *, report_patience: float) -> None:
        """Take no more slots, for good; wait until nothing runs, for `timeout` seconds, and then release the rest."""
        await self._draining.finish(timeout, report_patience=report_patience)

    def _post_drain(self, event: DrainChanged | Released) -> None:
        self._post(event)
        self._post(SlotsChanged())

    async def stop_moves(self) -> None:
        """R27: returns when nothing moves outputs here any more, and nothing will."""
        self._outputs.stop_all(_STOPS)
        await self._outputs.wait_stopped()

    async def stop(self) -> None:
        """Send what waits on the streams, then end. The pool is stopped before, so that its last reports leave."""
        self._slot_reports.is_stopping = True
        self._draining.close()
        self._outputs.stop_all(_STOPS)
        self._rpc.server.remove_gateway(ProcessGateway)
        self._rpc.server.remove_gateway(TaskExecutorGateway)
        self._outbox.flush()
        async with Scope("task executor/close") as closing:
            closing.spawn("leader", self._leader.close())
            closing.spawn("job masters", self._job_masters.close())
        for timer in self._timers.values():
            timer.cancel()
        if self._scope.is_open:
            self._gateway.close()
            await self._scope.close()

    async def flush(self) -> None:
        """Return when everything that was posted before is handled; at once when nothing is handled any more."""
        if not self._scope.is_open:
            return
        done = asyncio.get_running_loop().create_future()
        self._mailbox.put(LeaderBatch((), done))
        await done

    @property
    def is_serving(self) -> Watch[bool]:
        """True while registered with slots that can take tasks."""
        return self._slot_reports.is_serving

    @property
    def attempt_ids(self) -> frozenset[ExecutionAttemptId]:
        """Attempts that are here now."""
        return self._attempts.ids

    def unattended_jobs(self, *, idle: bool) -> Sequence[JobId]:
        """Jobs without an owner that is connected; with `idle` also those that have no slot here."""
        return self._core.unattended_jobs(idle=idle)

    def end_jobs(self, jobs: Sequence[JobId], kept: Sequence[JobId] = ()) -> None:
        """R16: these jobs are over. `kept`: what has finished of these is kept (R28)."""
        self._post(JobsEnded(tuple(jobs), tuple(kept)))

    # --- mailbox --------------------------------------------------------------------------------------------

    def _post(self, mail: Mail) -> None:
        self._mailbox.put(mail)

    async def _serve(self) -> None:
        while True:
            batch = await self._mailbox.get_all()
            self._heed_contact()
            for mail in batch:
                self._handle(mail)
            self._outbox.deliver()
            if self.running.value != self._core.running:
                self.running.set(self._core.running)
            if self._kept.value != self._core.ledger.kept:
                self._kept.set(self._core.ledger.kept)

    def _heed_contact(self) -> None:
        """R14: before anything else, also after a freeze."""
        if self._contact is None:
            return
        loss = self._contact.loss
        if bool(loss) == self._core.isolation.is_isolated:
            return
        if loss and self._core.running:
            logger.warning("%s", loss)
        self._apply(ContactLost(loss) if loss else ContactRegained())

    def _handle(self, mail: Mail) -> None:
        match mail:
            case OwnerBatch():
                self._on_owner_batch(mail)
            case LeaderBatch():
                self._on_leader_batch(mail)
            case LeaderConnected():
                self._on_leader_connected(mail)
            case LeaderDisconnected():
                self._slot_reports.forget_reported()
                self._slot_reports.note_serving()
            case SlotsChanged():
                self._slot_reports.report()
                self._slot_reports.note_serving()
            case ContactChanged():
                pass
            case AttemptReported(report):
                self._outputs.note(report)
                self._apply(mail)
            case _:
                self._apply(mail)

    def _apply(self, event: Event) -> None:
        logger.debug("event %s", event)
        for effect in self._core.handle(event):
            logger.debug("effect %s", effect)
            self._execute(effect)

    # --- what peers say -------------------------------------------------------------------------------------

    def _receiver_of(self, location: JobMasterLocation, number: int) -> Receiver:
        async def receive(messages: Sequence[Any]) -> None:
            done = asyncio.get_running_loop().create_future()
            self._mailbox.put(OwnerBatch(location, number, messages, done))
            await done

        return receive

    async def _receive_from_leader(self, messages: Sequence[Any]) -> None:
        done = asyncio.get_running_loop().create_future()
        self._mailbox.put(LeaderBatch(messages, done))
        await done

    def _on_owner_batch(self, batch: OwnerBatch) -> None:
        if self._job_masters.is_current(batch.location.incarnation, batch.number):  # R11
            for message in batch.messages:
                is_stale = isinstance(message, CancelTasks) and self._core.jobs.refusal(message.job_id, message.epoch)
                if isinstance(message, CancelTasks) and message.ends_batches and not is_stale:
                    self._ending.defer(message, lambda one: self._post(OwnerSpoke(batch.location, one)))
                else:
                    self._apply(OwnerSpoke(batch.location, message))
        _release(batch.done)

    def _on_leader_batch(self, batch: LeaderBatch) -> None:
        for message in batch.messages:
            match message:
                case RequestSlot() if self._slot_reports.is_stopping:
                    reason = "this TaskManager is stopping"
                    self._leader.send(SlotRequestRefused(message.allocation_id, message.slot_index, reason))
                case RequestSlot() | JobsEnded() | PreemptSlots():
                    self._apply(message)
                case DrainTaskManager(is_draining):
                    self._draining.ask(is_draining=is_draining)
                case _:
                    logger.warning("the ResourceManager sent a %s, which is ignored", type(message).__name__)
        _release(batch.done)

    def _on_leader_connected(self, connected: LeaderConnected) -> None:
        cluster = connected.registered.cluster
        if self._gateway.cluster not in {"", cluster}:
            logger.error(
                "cluster %s has become cluster %s: everything that runs here is ended", self._gateway.cluster, cluster
            )
            self._apply(ClusterChanged())  # R1
        self._gateway.cluster = cluster
        self.blob_address = connected.registered.blob_address or None
        self._slot_reports.forget_reported()
        self._slot_reports.report()
        self._slot_reports.note_serving()

    # --- slots and the leader -------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """R50: the jobs of one namespace have left, one of another namespace waits."""
        logger.info("a job of another namespace waits: Spark and all slot processes are replaced")
        self._post(SlotsChanged())
        await self._pool.renew()
        self._post(EnvironmentRenewed())
        self._post(SlotsChanged())

    async def _watch(self, reported: Watch[Any]) -> None:
        """Eternal: each change of something that slot reports say."""
        generation = -1
        while True:
            await reported.wait_changed(generation)
            generation = reported.generation
            self._post(SlotsChanged())

    async def _tick(self) -> None:
        """R18: time counts as waiting for owners only while they could come, so not while this process was frozen."""
        interval = self._settings.connections.heartbeat.interval
        while True:
            before = self._clock.monotonic()
            await asyncio.sleep(interval)
            if self._contact is None or not self._contact.is_away:
                self._post(OwnersAwaited(min(self._clock.monotonic() - before, 2 * interval)))
            self._post(SlotsChanged())

    # --- effects --------------------------------------------------------------------------------------------

    def _execute(self, effect: Effect) -> None:
        match effect:
            case SendReport():
                self._outbox.add_report(effect)
            case SendProgress():
                self._outbox.add_progress(effect)
            case RunAttempt():
                self._attempts.run(effect)
            case CancelAttempt(slot_index, attempt_id):
                self._attempts.cancel(slot_index, attempt_id)
            case ReportUnstarted():
                self._report_unstarted(effect)
            case GiveSplit() | AskPositions() | DoSavepoint() | RenewEnvironment():
                self._execute_in_pool(effect)
            case FenceObeyed(job_id, revision):
                assert self._contact is not None, revision
                self._contact.note_stopped(job_id, revision)
            case StopMove(job_id, reason):
                self._outputs.stop(job_id, reason)
            case Refused(reason):
                logger.warning("refused: %s", reason)
            case _:
                self._execute_for_slots(effect)

    def _execute_for_slots(
        self,
        effect: ConnectJobMaster
        | TellOwner
        | TellResourceManager
        | FreeSlot
        | StartSlotTimer
        | DeletePartitions
        | MoveOutputs
        | ForgetJob,
    ) -> None:
        match effect:
            case TellOwner(owner, message):
                self._job_masters.send(owner, message)
            case ConnectJobMaster(location):
                self._job_masters.connect(location)
            case TellResourceManager(message):
                self._leader.send(message)
            case FreeSlot(_, allocation_id):
                self._timers.pop(allocation_id).cancel()
                if self._slot_reports.are_slots_usable:
                    self._outbox.add_freed(allocation_id)
                else:
                    self._post(SlotsChanged())  # the next report says that the slot is not usable
            case StartSlotTimer(allocation_id):
                self._start_timer(allocation_id)
            case DeletePartitions(partitions):
                released = remove_part("released partitions", self._exchange.release(partitions))
                self._scope.spawn("release partitions", released)
            case MoveOutputs(message):
                self._outputs.begin(message)
            case ForgetJob(job_id, deletes_finished):
                self._attempts.departing.begin(job_id)
                self._scope.spawn(
                    f"forget {job_id}", self._departures.remove(job_id, deletes_finished=deletes_finished)
                )
            case _:
                assert_never(effect)

    def _execute_in_pool(self, effect: GiveSplit | AskPositions | DoSavepoint | RenewEnvironment) -> None:
        match effect:
            case GiveSplit(attempt_id, split):
                self._pool.give_split(attempt_id, split)
            case AskPositions(asked):
                self._scope.spawn(f"checkpoint {asked.checkpoint_id}", self._ask_positions(asked))
            case DoSavepoint(order):
                self._savepoints.obey(order)
            case RenewEnvironment():
                self._scope.spawn("renew the environment", self._renew())
            case _:
                assert_never(effect)

    async def _ask_positions(self, asked: TriggerCheckpoint) -> None:
        answers = await self._pool.positions(asked.attempts)
        self._post(PositionsTold(asked.job_id, asked.checkpoint_id, answers))

    def _report_unstarted(self, effect: ReportUnstarted) -> None:
        failure = system_failure(effect.reason, self._clock) if effect.state.name == "FAILED" else None
        report = bare_report(effect.attempt_id, effect.state, failure, self._clock)
        self._post(AttemptReported(replace(report, has_not_begun=True)))

    def _start_timer(self, allocation_id: AllocationId) -> None:
        """Kept until the slot is freed: the core ignores a timer whose slot was taken."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._settings.slot_timeout, self._post, SlotTimedOut(allocation_id))
        self._timers[allocation_id] = timer

    # --- FenceObeyer ----------------------------------------------------------------------------------------

    def stop_fenced(self, job_id: JobId, epoch: int, revision: int, /, *, is_readable: bool) -> None:
        """R14: ends in the contact's `note_stopped`."""
        self._post(FenceRequested(job_id, epoch, revision, is_readable))

    def reopen(self, job_id: JobId, /) -> None:
        """R31: only what is known of the job's fence forbids anything."""
        self._post(FenceReadable(job_id))

    def contact_changed(self) -> None:
        """Exclusive tasks may, or may not, run now."""
        self._post(ContactChanged())

    async def stop_everything(self) -> None:
        """End all jobs and take no more slots."""
        self._slot_reports.is_stopping = True
        self._post(Deregistered())
        await self.flush()


def _release(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
