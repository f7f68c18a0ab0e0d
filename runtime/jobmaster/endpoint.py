"""One JobMaster: executes what the core decides, over the job store and the streams to TaskManagers.

Invariants: events go to the core by `post` only, one at a time; one write is in flight, repeated identically until its
outcome is known (R2), and later ones wait behind it; a refused write ends this JobMaster and nothing else, since
another owner has a higher epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from runtime.aio.retry import RetryPolicy, retry
from runtime.aio.turns import Turns
from runtime.checkpoint.checkpoint_record import checkpoint_record
from runtime.common.checkpoint_settings import NO_CHECKPOINTS, CheckpointSettings
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import ConflictError, MessageTooLargeError, StaleTokenError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.states import JobStatus, SchedulerType
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.executiongraph.core.failures import system_failure
from runtime.gateways.dispatcher import AssignJob, JobSummary
from runtime.gateways.job_manager_runner import JobMasterListener
from runtime.gateways.job_master import (
    CommitOutputs,
    DeployTasks,
    JobMasterToTaskManager,
    JobMessage,
    RegisterJob,
)
from runtime.gateways.kept_outputs import how_to_commit
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.highavailability.jobs.job_store import OwnerJobStore
from runtime.highavailability.jobs.payloads import inline_payload
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import ResultRecord
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.jobmaster.core.job_master_core import JobMasterCore
from runtime.jobmaster.fence_keeper import FenceKeeper
from runtime.jobmaster.job_master_metrics import NO_JOB_MASTER_METRICS, JobMasterMetrics
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.adaptive.settings import DEFAULT_ADAPTIVE_SCHEDULER, AdaptiveSchedulerSettings
from runtime.scheduler.core.effects import (
    AnswerOperation,
    AnswerRequirements,
    DeclareRequirements,
    Effect,
    EndRunner,
    PublishSummary,
    ScheduleDeadline,
    ScheduleRestart,
    SendMessages,
    WriteCheckpoint,
    WriteEvents,
    WriteFence,
    WriteOperation,
    WriteResult,
)
from runtime.scheduler.core.failover.settings import DEFAULT_FAILOVER, FailoverSettings
from runtime.scheduler.core.job_events import encode_events
from runtime.scheduler.core.parallelism.settings import AdaptiveOf, default_adaptive

logger = logging.getLogger(__name__)

_ENDED = "the job's JobMaster has ended"
Write = WriteEvents | WriteCheckpoint | WriteOperation | WriteResult


@dataclass(frozen=True, slots=True)
class JobMasterSettings:
    """`write_retry` is for a store that is away; `validate` makes cores check all invariants after every event.

    `failover` is the cluster's, for jobs that do not say otherwise. `scheduler_type`: as configured;
    `adaptive_of`: bounds of a parallelism that is chosen, by the job's configuration; `adaptive`: of streaming jobs.
    """

    write_retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(delay_initial=0.1, delay_max=5.0))
    graph_retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(delay_initial=0.1, delay_max=5.0))
    graph_second_look: float = 10.0
    failover: FailoverSettings = DEFAULT_FAILOVER
    checkpointing: CheckpointSettings = NO_CHECKPOINTS
    scheduler_type: SchedulerType = SchedulerType.ADAPTIVE_BATCH
    adaptive_of: AdaptiveOf = default_adaptive
    adaptive: AdaptiveSchedulerSettings = DEFAULT_ADAPTIVE_SCHEDULER
    validate: bool = False


class JobMaster:
    """Runs one job under one epoch. Implements `ConnectedJob`. A bug in here ends `run` and no other job."""

    __slots__ = (
        "_asked",
        "_clock",
        "_connections",
        "_core",
        "_entropy",
        "_failure",
        "_fence_keeper",
        "_final",
        "_jitter",
        "_listener",
        "_metrics",
        "_requirements",
        "_settings",
        "_store",
        "_timers",
        "_turns",
        "_waiter",
        "_writes",
        "epoch",
        "initialized",
        "job_id",
    )

    def __init__(
        self,
        assignment: AssignJob,
        *,
        store: OwnerJobStore,
        connections: TaskManagerConnections,
        listener: JobMasterListener,
        clock: Clock,
        entropy: Entropy,
        settings: JobMasterSettings,
        fence_keeper: FenceKeeper | None = None,
        metrics: JobMasterMetrics = NO_JOB_MASTER_METRICS,
    ) -> None:
        self._fence_keeper = fence_keeper
        self._metrics = metrics
        self.job_id: JobId = assignment.job_id
        self.epoch: int = assignment.epoch
        self._core = JobMasterCore(
            assignment.job_id,
            assignment.epoch,
            digest=assignment.digest,
            submit_millis=assignment.submit_millis,
            is_first_owner=assignment.is_fresh,
            failover=settings.failover,
            validate=settings.validate,
            namespace=assignment.namespace or DEFAULT_NAMESPACE,
            checkpointing=settings.checkpointing,
            scheduler_type=settings.scheduler_type,
            adaptive_of=settings.adaptive_of,
            adaptive=settings.adaptive,
        )
        self._store = store
        self._connections = connections
        self._listener = listener
        self._clock = clock
        self._entropy = entropy
        self._jitter = entropy.child("restarts")
        self._settings = settings
        self._turns = Turns(self._handle)
        self._writes: deque[Write] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._asked: dict[str, list[asyncio.Future[StreamOperation]]] = {}
        self._requirements: dict[str, asyncio.Future[RequirementsUpdated]] = {}
        self._final: JobSummary | None = None
        self._failure: Exception | None = None
        self.initialized = asyncio.Event()

    @property
    def status(self) -> JobStatus:
        """Where the job is in its life."""
        return self._core.status

    @property
    def is_over(self) -> bool:
        """True once nothing is left to do."""
        return self._core.is_over

    def summary(self) -> JobSummary:
        """What is known of the job now."""
        return self._core.summary()

    def archived(self) -> ArchivedExecutionGraph:
        """The execution graph as it is now."""
        return self._core.archived()

    def moment(self) -> ev.Moment:
        """Both clocks, read now, and a number drawn."""
        return ev.Moment(self._clock.monotonic(), self._clock.epoch_millis(), self._jitter.uniform(-1.0, 1.0))

    async def run(self) -> JobSummary | None:
        """Execute writes until the job's result is durable (returns its summary) or another owner has the job (None).

        Raises what broke this JobMaster; nothing has an effect on it any more then.
        """
        try:
            while not self._core.is_over:
                if self._failure is not None:
                    raise self._failure
                if not self._writes:
                    await self._wait()
                    continue
                await self._write(self._writes.popleft())
            return self._final
        finally:
            for timer in self._timers:
                timer.cancel()
            for trigger_id in list(self._asked):
                self._answer(AnswerOperation(trigger_id, None, _ENDED, is_for_now=True))
            self._refuse_requirements()
            if self._fence_keeper is not None:
                self._fence_keeper.forget(self)

    async def trigger(self, wanted: TriggerOperation) -> StreamOperation:
        """Returns when the operation is durable (R61). Raises ConflictError where it is refused, UnavailableError."""
        asked: asyncio.Future[StreamOperation] = asyncio.get_running_loop().create_future()
        waiting = self._asked.setdefault(wanted.trigger_id, [])
        waiting.append(asked)
        self.post(ev.OperationWanted(wanted, self.moment()))
        if self._core.is_over or self._failure is not None:
            self._answer(AnswerOperation(wanted.trigger_id, None, _ENDED, is_for_now=True))
        try:
            return await asked
        finally:
            if asked in waiting:
                waiting.remove(asked)

    async def update_requirements(self, wanted: UpdateRequirements) -> RequirementsUpdated:
        """Returns when they are durable (R69). Raises ConflictError where they are refused, UnavailableError."""
        asked: asyncio.Future[RequirementsUpdated] = asyncio.get_running_loop().create_future()
        self._requirements[wanted.request_id] = asked
        self.post(ev.RequirementsWanted(wanted, self.moment()))
        if self._core.is_over or self._failure is not None:
            self._refuse_requirements()
        try:
            return await asked
        finally:
            self._requirements.pop(wanted.request_id, None)

    def _refuse_requirements(self) -> None:
        for request_id in list(self._requirements):
            self._answer_requirements(AnswerRequirements(request_id, _ENDED, is_for_now=True))

    def _answer_requirements(self, answer: AnswerRequirements) -> None:
        asked = self._requirements.pop(answer.request_id, None)
        if asked is None or asked.done():
            return
        if not answer.refusal:
            asked.set_result(RequirementsUpdated())
        else:
            error = UnavailableError if answer.is_for_now else ConflictError
            asked.set_exception(error(answer.refusal))

    def _answer(self, answer: AnswerOperation | AnswerRequirements) -> None:
        if isinstance(answer, AnswerRequirements):
            self._answer_requirements(answer)
            return
        for asked in self._asked.pop(answer.trigger_id, ()):
            if asked.done():
                continue
            if answer.operation is not None:
                asked.set_result(answer.operation)
            elif answer.is_for_now:
                asked.set_exception(UnavailableError(answer.refusal))
            else:
                asked.set_exception(ConflictError(answer.refusal))

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # --- events ---------------------------------------------------------------------------------------------------

    def post(self, event: ev.Event) -> None:
        """Give an event to the core and execute the effects. Events that effects bring about wait their turn."""
        if self._failure is None:
            self._turns.post(event)

    def _handle(self, event: ev.Event) -> None:
        if self._failure is not None:
            return
        before, failed = self._core.status, self._core.failed_checkpoints
        preempted, speculation = self._core.preempted_attempts, self._core.speculation
        try:
            for effect in self._core.handle(event):
                self._execute(effect)
        except Exception as error:  # noqa: BLE001 - the boundary of this job: the caller serves other ones too
            self._failure = error
            self._wake()
        self._note_initialized()
        self._metrics.checkpoints_failed(self._core.failed_checkpoints - failed)
        preempted = self._core.preempted_attempts - preempted
        self._metrics.preemptions.inc(preempted)
        if self._core.speculation is not speculation:
            self._metrics.speculated(speculation, self._core.speculation)
        if isinstance(event, ev.CheckpointWritten):
            self._metrics.checkpoint_completed()
        elif isinstance(event, ev.OperationWritten):
            self._metrics.operation_ended(event.operation)
        if self._core.status is not before:
            if self._core.status is JobStatus.RESTARTING and not preempted:
                self._metrics.restarts.inc()
            reason = self._core.summary().pending_reason if self._failure is None else ""
            after = f"{self._core.status.name} ({reason})" if reason else self._core.status.name
            logger.info("job %s: %s -> %s", self.job_id, before.name, after)

    def _note_initialized(self) -> None:
        if self._core.status is JobStatus.INITIALIZING or self.initialized.is_set():
            return
        self.initialized.set()
        configured, chosen = self._settings.scheduler_type, self._core.graph.scheduler_type
        if configured is SchedulerType.ADAPTIVE and chosen is not configured:
            logger.info("job %s has the scheduler %s: Adaptive is for streaming jobs", self.job_id, chosen.value)

    def receive(self, location: TaskManagerLocation, message: JobMessage) -> None:
        """A message of a TaskManager."""
        self.post(ev.TaskManagerSpoke(location, message, self.moment()))

    def task_manager_disconnected(self, incarnation: Incarnation, reason: str) -> None:
        """A stream has ended."""
        self.post(ev.TaskManagerDisconnected(incarnation, reason, self.moment()))

    def task_manager_lost(self, incarnation: Incarnation, reason: str) -> None:
        """A TaskManager was silent for too long."""
        self.post(ev.TaskManagerLost(incarnation, reason, self.moment()))

    def task_manager_died(self, incarnation: Incarnation, reason: str) -> None:
        """Nothing of a TaskManager runs any more."""
        self.post(ev.TaskManagerDied(incarnation, reason, self.moment()))

    def task_managers_registered(self, addresses: Mapping[Incarnation, str]) -> None:
        """The TaskManagers that the census has to ask, with their addresses (R6)."""
        known = self._core.awaited
        unreadable = frozenset(incarnation for incarnation, address in addresses.items() if not address)
        self.post(ev.TaskManagersRegistered(frozenset(addresses), self.moment(), unreadable))
        awaited = self._core.awaited - known
        self._connections.expect(self.job_id, {one: addresses[one] for one in awaited if one in addresses})

    def fence_written(self, incarnation: Incarnation, revision: int) -> None:
        """A fence is acknowledged."""
        self.post(ev.FenceWritten(incarnation, revision, self.moment()))

    def fence_confirmed(self, incarnation: Incarnation) -> None:
        """A fence is obeyed."""
        self.post(ev.FenceConfirmed(incarnation, self.moment()))

    def superseded(self, reason: str) -> None:
        """The job has another owner."""
        self.post(ev.OwnershipLost(reason, self.moment()))

    def tick(self) -> None:
        """The process's wheel has turned."""
        if self._core.wants_tick:
            self.post(ev.Ticked(self.moment()))

    # --- effects --------------------------------------------------------------------------------------------------

    def _execute(self, effect: Effect) -> None:
        match effect:
            case SendMessages(incarnation, messages):
                self._send(incarnation, messages)
            case WriteEvents() | WriteCheckpoint() | WriteOperation() | WriteResult():
                self._writes.append(effect)
                self._wake()
            case AnswerOperation() | AnswerRequirements():
                self._answer(effect)
            case DeclareRequirements(requirements):
                self._listener.requirements_changed(requirements)
            case PublishSummary(summary):
                self._listener.job_summary_changed(summary)
            case ScheduleDeadline(at):
                self._schedule(at, ev.DeadlineReached)
            case ScheduleRestart(at):
                self._schedule(at, ev.RestartDue)
            case WriteFence(incarnation):
                assert self._fence_keeper is not None, incarnation
                self._fence_keeper.fence(self, incarnation)
            case EndRunner(summary):
                self._final = summary
                self._wake()
            case _:
                assert_never(effect)

    def _schedule(self, at: float, event: Callable[[ev.Moment], ev.Event]) -> None:
        def due() -> None:
            self._timers.discard(timer)
            self.post(event(self.moment()))

        timer = asyncio.get_running_loop().call_at(at, due)
        self._timers.add(timer)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _send(self, incarnation: Incarnation, messages: tuple[JobMasterToTaskManager, ...]) -> None:
        refusal = ""
        for message in messages:
            if refusal and isinstance(message, DeployTasks):
                self._cannot_deploy(message, refusal)
                continue
            try:
                self._connections.send(incarnation, message)
            except MessageTooLargeError as error:
                refusal = self._too_large(incarnation, message, error)

    def _too_large(self, incarnation: Incarnation, message: JobMasterToTaskManager, error: MessageTooLargeError) -> str:
        """Send less at once where that helps, else fail what cannot be sent. Returns why nothing can be deployed."""
        match message:
            case RegisterJob():
                return f"what the tasks of the job share cannot be sent: {error}"
            case DeployTasks(job_id, epoch, tasks, fence) if len(tasks) > 1:
                self._send(incarnation, tuple(DeployTasks(job_id, epoch, (task,), fence) for task in tasks))
            case DeployTasks():
                self._cannot_deploy(message, f"the task cannot be sent: {error}")
            case CommitOutputs():
                at = self.moment()
                reason = f"outputs cannot be moved: {error}; {how_to_commit(message.outputs)}"
                self.post(ev.SendFailed(message, system_failure(type(error).__name__, reason, at.millis), at))
            case _:
                raise error
        return ""

    def _cannot_deploy(self, message: DeployTasks, reason: str) -> None:
        at = self.moment()
        failure = system_failure("MessageTooLargeError", reason, at.millis, kind="RESOURCE", is_recoverable=False)
        self.post(ev.SendFailed(message, failure, at))

    # --- writes ---------------------------------------------------------------------------------------------------

    async def _write(self, write: Write) -> None:
        """Repeat one transaction until its outcome is known (R2), then tell the core."""
        what, attempt = self._attempt_of(write)

        def on_retry(error: Exception, delay: float) -> None:
            logger.warning("job %s: writing %s failed, next try in %.1f s: %s", self.job_id, what, delay, error)
            self.post(ev.WriteDelayed(f"the job store does not take {what}, it is tried again: {error}", self.moment()))

        done: ev.Event
        try:
            await retry(
                attempt,
                policy=self._settings.write_retry,
                clock=self._clock,
                entropy=self._entropy,
                deadline=None,
                on_retry=on_retry,
            )
        except StaleTokenError as error:
            logger.info("job %s: writing %s was refused, this owner is over: %s", self.job_id, what, error)
            done = ev.OwnershipLost(str(error), self.moment())
        else:
            done = _written(write, self.moment())
        self.post(done)

    def _attempt_of(self, write: Write) -> tuple[str, Callable[[], Awaitable[None]]]:
        match write:
            case WriteEvents(number):
                return f"events {number}", self._append(write)
            case WriteCheckpoint(checkpoint, subsumed):
                record = checkpoint_record(checkpoint)
                number = checkpoint.checkpoint_id

                async def attempt() -> None:
                    await self._store.write_checkpoint(self.job_id, self.epoch, number, record, subsumed)

                return f"checkpoint {number}", attempt
            case WriteOperation():
                return f"operation {write.operation.trigger_id}", self._note_operation(write)
            case WriteResult(status):
                return f"result {status.name}", self._store_result(write)
            case _:
                assert_never(write)

    def _note_operation(self, write: WriteOperation) -> Callable[[], Awaitable[None]]:
        async def attempt() -> None:
            await self._store.write_operation(self.job_id, self.epoch, write.operation, write.dropped)

        return attempt

    def _append(self, write: WriteEvents) -> Callable[[], Awaitable[None]]:
        payload = inline_payload(encode_events(write.events))

        async def attempt() -> None:
            # An object that is stored stays stored: the next try writes its pointer only.
            nonlocal payload
            payload = await self._store.spill(payload)
            await self._store.append_events(self.job_id, self.epoch, write.number, payload)

        return attempt

    def _store_result(self, write: WriteResult) -> Callable[[], Awaitable[None]]:
        record = result_record(write)

        async def attempt() -> None:
            nonlocal record
            record = replace(record, archive=await self._store.spill(record.archive))
            await self._store.write_result(self.job_id, self.epoch, record)

        return attempt


def _written(write: Write, at: ev.Moment) -> ev.Event:
    match write:
        case WriteEvents(number):
            return ev.EventsWritten(number, at)
        case WriteCheckpoint(checkpoint):
            return ev.CheckpointWritten(checkpoint.checkpoint_id, at)
        case WriteOperation(operation, dropped):
            return ev.OperationWritten(operation, dropped, at)
        case WriteResult():
            return ev.ResultWritten(at)
        case _:
            assert_never(write)


def result_record(write: WriteResult) -> ResultRecord:
    """The durable form of a result; the store moves a large archive out of line."""
    archive = inline_payload(write.archived.to_json())
    return ResultRecord(status=write.status, summary=encode_record(write.summary), archive=archive)
