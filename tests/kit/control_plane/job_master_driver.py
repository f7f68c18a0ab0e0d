"""Drives a JobMasterCore by hand: plays the store, the TaskManagers and the clock, and records every effect."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from runtime.common.accumulators import UserAccumulator
from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId, PartitionId, VertexId
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    CancelTasks,
    CommitOutputs,
    CommitProgress,
    DeployTasks,
    FreeSlots,
    HeldAttempt,
    JobCensus,
    JobMasterToTaskManager,
    JobMessage,
    OfferSlots,
    OutputsCommitted,
    SlotOffer,
    SlotsDraining,
    SlotsLost,
    TaskProgresses,
    TaskReports,
)
from runtime.gateways.resource_manager import JobRequirements
from runtime.gateways.task import (
    DEFAULT_PROFILE,
    TASK_ISOLATED,
    FailureInfo,
    OutputDirectory,
    PartitionDescriptor,
    PartitionFile,
    PartitionKind,
    ResourceProfile,
    ResultPartitionSpec,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskMetrics,
    TaskProgress,
)
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.jobmaster.core.job_master_core import JobMasterCore
from runtime.scheduler.core import events as ev
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
from runtime.scheduler.core.failover.settings import NO_FAILOVER, FailoverSettings
from runtime.scheduler.core.job_events import JobEvent, decode_events, encode_events
from runtime.scheduler.core.parallelism.settings import DEFAULT_ADAPTIVE, AdaptiveSettings
from runtime.scheduler.core.takeover.job_recovery import RecoveredJob, recover
from tests.kit.control_plane.job_graphs import two_readers

MessageT = TypeVar("MessageT")

JOB_ID = JobId("0" * 31 + "1")
EPOCH = 7
ISOLATION_TIMEOUT = 60.0
UNCONFIRMED_WAIT = 65.6
THREE_RESTARTS = FailoverSettings(
    restart_strategy=FixedDelayRestartStrategy(attempts=3, delay_seconds=0.0), user_failures="restart"
)


def location(number: int = 0) -> TaskManagerLocation:
    """A TaskManager."""
    return TaskManagerLocation(Incarnation(f"{number:032x}"), f"tm-{number}", f"host-{number}:1")


def allocation(number: int) -> AllocationId:
    """An allocation."""
    return AllocationId(f"a{number:031x}")


def user_failure(message: str = "boom", class_name: str = "ValueError") -> FailureInfo:
    """What user code raised."""
    return FailureInfo(class_name, message, f"{class_name}: {message}", "USER", True, 0)


def unreadable(*partitions: PartitionId) -> FailureInfo:
    """What a task says that cannot read partitions."""
    return FailureInfo("PartitionUnavailableError", "gone", "", "SYSTEM", True, 0, partitions)


def durable_view(graph: ExecutionGraph) -> dict[str, list[object]]:
    """What has to survive an owner: accepted attempts with their partitions, and which attempt comes next."""
    return {
        vertex.vertex.name: [
            (
                execution.ordinal,
                execution.attempt_id if execution.is_accepted else None,
                (execution.value, execution.outputs, execution.accumulators) if execution.is_accepted else None,
                tuple(edge.partition(index) for edge in vertex.outputs),
            )
            for index, execution in enumerate(vertex.executions)
        ]
        for vertex in graph.vertices.values()
    }


def parquet(
    attempt_id: ExecutionAttemptId, spec: ResultPartitionSpec, *, empty: Iterable[int] = (), per_consumer: bool = True
) -> PartitionDescriptor:
    """What an attempt reports for one out-edge: a file per consumer, or one for all."""
    consumers = range(spec.consumer_parallelism) if per_consumer else (-1,)
    files = tuple(PartitionFile(f"p/{consumer}", 10, 1, consumer) for consumer in consumers if consumer not in empty)
    return PartitionDescriptor(PartitionId(attempt_id, spec.output), PartitionKind.PARQUET, "p", "{}", files, b"")


def inline(attempt_id: ExecutionAttemptId, output: int, value: bytes) -> PartitionDescriptor:
    """A JSON value for one out-edge."""
    return PartitionDescriptor(PartitionId(attempt_id, output), PartitionKind.JSON, "", "", (), value)


@dataclass(frozen=True)
class Fence:
    """A fence as its TaskManager finds it."""

    revision: int
    epoch: int
    obeyed_by: float
    """By then its TaskManager has obeyed it, or has stopped what is exclusive for want of contact."""


def with_census(event: ev.TaskManagerSpoke, **changes: object) -> ev.TaskManagerSpoke:
    """A census with other fields."""
    return replace(event, message=replace(event.message, **changes))  # type: ignore[arg-type]


class JobMasterDriver:
    """One job, its effects, and short ways to make things happen to it."""

    def __init__(
        self,
        graph: JobGraph | None = None,
        *,
        validate: bool = True,
        failover: FailoverSettings = NO_FAILOVER,
        adaptive: AdaptiveSettings = DEFAULT_ADAPTIVE,
    ) -> None:
        self.epoch = self.revision = EPOCH
        self.graph = graph
        self.failover = failover
        self.adaptive = adaptive
        self.validate = validate
        self.core = self._new_core()
        self.now = 0.0
        self.sent: list[tuple[Incarnation, tuple[JobMasterToTaskManager, ...]]] = []
        self.deployed: dict[ExecutionAttemptId, TaskDeploymentDescriptor] = {}
        self.running_millis: dict[ExecutionAttemptId, int] = {}
        self.in_slot: dict[AllocationId, list[ExecutionAttemptId]] = defaultdict(list)
        self.places: dict[AllocationId, TaskManagerLocation] = {}
        self.cancelled: list[ExecutionAttemptId] = []
        self.slots: set[AllocationId] = set()
        self.rejected: set[AllocationId] = set()
        self.unacknowledged: dict[ExecutionAttemptId, tuple[TaskManagerLocation, TaskExecutionReport]] = {}
        self.fences: list[Incarnation] = []
        """Asked for and not written yet."""
        self.written_fences: dict[Incarnation, Fence] = {}
        """On TaskManagers that have not obeyed them."""
        self.fence_revisions: dict[Incarnation, int] = {}
        self.cut: set[Incarnation] = set()
        self.commits: list[tuple[Incarnation, CommitOutputs]] = []
        self.pending_events: WriteEvents | None = None
        self.pending_result: WriteResult | None = None
        self.pending_checkpoints: list[WriteCheckpoint] = []
        self.pending_operations: list[WriteOperation] = []
        self.answers: list[AnswerOperation] = []
        self.requirement_answers: list[AnswerRequirements] = []
        self.durable: list[tuple[JobEvent, ...]] = []
        self.requirements: list[JobRequirements] = []
        self.summaries: list[JobSummary] = []
        self.deadlines: list[float] = []
        self.restarts: list[float] = []
        self.ended: list[JobSummary | None] = []
        if graph is not None:
            self.load(graph)

    def _new_core(self) -> JobMasterCore:
        return JobMasterCore(
            JOB_ID,
            self.epoch,
            digest="d" * 64,
            submit_millis=1000,
            is_first_owner=self.epoch == EPOCH,
            failover=self.failover,
            validate=self.validate,
            adaptive_of=lambda _configuration: self.adaptive,
        )

    def at(self) -> ev.Moment:
        """Now."""
        return ev.Moment(self.now, 1000 + int(self.now * 1000))

    def handle(self, event: ev.Event) -> list[Effect]:
        """Give an event to the core and record what it wants done."""
        self._isolate()
        effects = self.core.handle(event)
        for effect in effects:
            self._record(effect)
        return effects

    def _record(self, effect: Effect) -> None:
        match effect:
            case SendMessages(incarnation, messages):
                self.sent.append((incarnation, messages))
                for message in messages if incarnation not in self.cut else ():
                    self._deliver(incarnation, message)
            case WriteEvents() | WriteCheckpoint() | WriteOperation() | WriteResult():
                self._record_write(effect)
            case AnswerOperation() | AnswerRequirements():
                told: list[Any] = self.answers if isinstance(effect, AnswerOperation) else self.requirement_answers
                told.append(effect)
            case DeclareRequirements(requirements):
                self.requirements.append(requirements)
            case PublishSummary(summary):
                self.summaries.append(summary)
            case WriteFence(incarnation):
                self.fences.append(incarnation)
            case EndRunner(summary):
                self.ended.append(summary)
            case ScheduleDeadline() | ScheduleRestart():
                timers = self.deadlines if isinstance(effect, ScheduleDeadline) else self.restarts
                timers.append(effect.at)

    def _record_write(self, effect: WriteEvents | WriteCheckpoint | WriteOperation | WriteResult) -> None:
        match effect:
            case WriteEvents():
                assert self.pending_events is None, "two writes in flight"
                assert self.pending_result is None, "two writes in flight"
                self.pending_events = effect
            case WriteCheckpoint():
                self.pending_checkpoints.append(effect)
            case WriteOperation():
                self.pending_operations.append(effect)
            case WriteResult():
                assert self.pending_events is None, "two writes in flight"
                assert self.pending_result is None, "two results"
                self.pending_result = effect

    def _deliver(self, incarnation: Incarnation, message: JobMasterToTaskManager) -> None:
        match message:
            case AnswerSlotOffers(_, _, accepted, rejected):
                self.slots.update(accepted)
                self.rejected.update(rejected)
            case DeployTasks(_, _, tasks):
                fence = self.written_fences.get(incarnation)
                assert fence is None or fence.epoch < self.epoch, "R14: deployed before the fence is confirmed"
                revision = max(self.epoch, message.fence_revision)
                assert revision >= self.fence_revisions.get(incarnation, 0), "R14: the TaskManager refuses this"
                for task in tasks:
                    assert task.attempt_id not in self.deployed, "deployed twice"
                    assert task.allocation_id in self.slots, "deployed into a slot that is not ACTIVE"
                    self.deployed[task.attempt_id] = task
                    self.in_slot[task.allocation_id].append(task.attempt_id)
            case CancelTasks(_, _, attempts):
                self.cancelled.extend(attempts)
            case FreeSlots(_, _, allocations):
                self.slots.difference_update(allocations)
            case AcknowledgeReports(_, _, attempts):
                for attempt_id in attempts:
                    self.unacknowledged.pop(attempt_id, None)
            case CommitOutputs():
                self.commits.append((incarnation, message))
            case _:
                pass

    # --- things that happen -------------------------------------------------------------------------------

    def load(self, graph: JobGraph) -> list[Effect]:
        """The graph arrives."""
        return self.handle(ev.JobGraphLoaded(graph, self.at()))

    def offer(self, *numbers: int, tm: int = 0, profile: ResourceProfile = DEFAULT_PROFILE) -> list[Effect]:
        """A TaskManager offers slots."""
        offers = tuple(SlotOffer(allocation(number), number, profile) for number in numbers)
        self.places.update({allocation(number): location(tm) for number in numbers})
        return self.says(OfferSlots(JOB_ID, self.epoch, offers), tm)

    def says(self, message: JobMessage, tm: int = 0) -> list[Effect]:
        """A TaskManager sends a message about the job."""
        return self.handle(ev.TaskManagerSpoke(location(tm), message, self.at()))

    def counts(
        self,
        tm: int = 0,
        slots: tuple[SlotOffer, ...] = (),
        attempts: tuple[HeldAttempt, ...] = (),
        *,
        is_moving: bool = False,
    ) -> list[Effect]:
        """A TaskManager says all that it has of the job."""
        return self.says(JobCensus(JOB_ID, self.epoch, slots, attempts, is_complete=True, is_moving=is_moving), tm)

    def drains(self, tm: int, *allocations: AllocationId) -> list[Effect]:
        """A TaskManager drains: these slots take nothing more."""
        return self.says(SlotsDraining(JOB_ID, self.epoch, allocations, "draining"), tm)

    def loses(self, tm: int, *allocations: AllocationId, reason: str) -> list[Effect]:
        """A TaskManager has lost slots of the job."""
        return self.says(SlotsLost(JOB_ID, self.epoch, allocations, reason), tm)

    def progresses(self, progress: TaskProgress) -> list[Effect]:
        """A TaskManager says what a running attempt does."""
        return self.says(TaskProgresses(JOB_ID, self.epoch, (progress,)))

    def moving(self, order: int, files_moved: int, files_total: int, problem: str = "") -> list[Effect]:
        """The mover says how far it is."""
        return self.says(CommitProgress(JOB_ID, self.epoch, order, files_moved, files_total, problem))

    def moved(self, order: int, failure: FailureInfo | None = None) -> list[Effect]:
        """The mover's last word about an order."""
        return self.says(OutputsCommitted(JOB_ID, self.epoch, VertexId("0" * 32), failure, order))

    def running(self) -> list[ExecutionAttemptId]:
        """Attempts that were deployed and have not been reported as terminal, in order of deployment."""
        return [attempt_id for attempts in self.in_slot.values() for attempt_id in attempts]

    def report(
        self,
        attempt_id: ExecutionAttemptId,
        state: ExecutionState = ExecutionState.FINISHED,
        *,
        value: bytes = b"",
        failure: FailureInfo | None = None,
        partitions: tuple[PartitionDescriptor, ...] | None = None,
        outputs: tuple[OutputDirectory, ...] = (),
        has_not_begun: bool = False,
        accumulators: tuple[UserAccumulator, ...] = (),
    ) -> list[Effect]:
        """A TaskManager reports one attempt; partitions are made up if it finished and none are given."""
        report = self.make_report(
            attempt_id, state, value=value, failure=failure, partitions=partitions, outputs=outputs
        )
        return self.reports(replace(report, has_not_begun=has_not_begun, accumulators=accumulators))

    def make_report(
        self,
        attempt_id: ExecutionAttemptId,
        state: ExecutionState = ExecutionState.FINISHED,
        *,
        value: bytes = b"",
        failure: FailureInfo | None = None,
        partitions: tuple[PartitionDescriptor, ...] | None = None,
        outputs: tuple[OutputDirectory, ...] = (),
    ) -> TaskExecutionReport:
        """The report of one attempt, not sent."""
        if partitions is None:
            specs = self.deployed[attempt_id].outputs if state is ExecutionState.FINISHED else ()
            partitions = tuple(parquet(attempt_id, spec) for spec in specs)
        millis = self.at().millis
        return TaskExecutionReport(attempt_id, state, millis, failure, value, partitions, outputs, TaskMetrics())

    def reports(self, *reports: TaskExecutionReport) -> list[Effect]:
        """A TaskManager reports several attempts in one message; a TaskManager that is cut off keeps what has ended."""
        heard = []
        for report in reports:
            if report.state is ExecutionState.RUNNING:
                self.running_millis[report.attempt_id] = report.timestamp_millis
            if report.state.is_terminal:
                for number, attempts in self.in_slot.items():
                    if report.attempt_id in attempts:
                        attempts.remove(report.attempt_id)
                        self.unacknowledged[report.attempt_id] = (self.places[number], report)
            if self.whereabouts(report.attempt_id).incarnation not in self.cut:
                heard.append(report)
        if not heard:
            return []
        place = self.whereabouts(heard[0].attempt_id)
        return self.handle(ev.TaskManagerSpoke(place, TaskReports(JOB_ID, self.epoch, tuple(heard)), self.at()))

    def whereabouts(self, attempt_id: ExecutionAttemptId) -> TaskManagerLocation:
        """Where an attempt was deployed to."""
        task = self.deployed.get(attempt_id)
        return self.places[task.allocation_id] if task is not None else location()

    def cut_off(self, tm: int = 0) -> list[Effect]:
        """The stream to a TaskManager ends; what is sent there from now on is lost."""
        self.cut.add(location(tm).incarnation)
        return self.handle(ev.TaskManagerDisconnected(location(tm).incarnation, "stream ended", self.at()))

    def reconnect(self, tm: int = 0) -> None:
        """A new stream opens, with what there is."""
        place = location(tm)
        self.cut.discard(place.incarnation)
        kept = tuple(report for where, report in self.unacknowledged.values() if where == place)
        self.handle(self.census_of(place))
        if kept:
            self.handle(ev.TaskManagerSpoke(place, TaskReports(JOB_ID, self.epoch, kept), self.at()))

    def finish_all(self) -> None:
        """Report FINISHED for everything that runs, and make all writes durable, until nothing moves."""
        while self.running() or self.pending_events is not None:
            for attempt_id in self.running():
                self.report(attempt_id)
            self.events_durable()

    def events_durable(self) -> list[Effect]:
        """The events transaction succeeds, if one is in flight."""
        if self.pending_events is None:
            return []
        return self.handle(ev.EventsWritten(self.events_applied(), self.at()))

    def events_applied(self) -> int:
        """The events transaction in flight succeeds, and its owner does not learn it (yet). The batch's number."""
        assert self.pending_events is not None
        written, self.pending_events = self.pending_events, None
        self.durable.append(written.events)
        return written.number

    def restart_due(self) -> list[Effect]:
        """The pauses before all restarts pass."""
        self.now = max(self.now, *self.restarts, 0.0)
        self.restarts.clear()
        return self.handle(ev.RestartDue(self.at()))

    def recovered(self) -> RecoveredJob:
        """What the next owner would know of the job."""
        assert self.graph is not None
        return recover(
            self.graph,
            JOB_ID,
            self.epoch + 1,
            [event for batch in self.durable for event in decode_events(encode_events(batch))],
            submit_millis=1000,
            at_millis=self.at().millis,
            settings=self.failover,
        )

    def result_durable(self) -> list[Effect]:
        """The result transaction succeeds."""
        assert self.pending_result is not None
        return self.handle(ev.ResultWritten(self.at()))

    def lose_task_manager(self, tm: int = 0, reason: str = "stream ended", *, is_reaped: bool = False) -> list[Effect]:
        """A TaskManager is gone, and its reports with it."""
        self.cut.discard(location(tm).incarnation)
        self.unacknowledged = {
            attempt_id: (place, report)
            for attempt_id, (place, report) in self.unacknowledged.items()
            if place != location(tm)
        }
        for number, place in self.places.items():
            if place == location(tm):
                self.in_slot.pop(number, None)
                self.slots.discard(number)
        event = ev.TaskManagerDied if is_reaped else ev.TaskManagerLost
        return self.handle(event(location(tm).incarnation, reason, self.at()))

    # --- fences (R14) -------------------------------------------------------------------------------------

    def go_silent(self, tm: int = 0) -> list[Effect]:
        """A TaskManager counts as lost and lives."""
        self.cut_off(tm)
        return self.handle(ev.TaskManagerLost(location(tm).incarnation, "no sign of life", self.at()))

    def write_fences(self) -> None:
        """What was asked for is durable, and its owner knows."""
        while self.fences:
            incarnation = self.fences.pop(0)
            self.revision += 1
            self.fence_revisions[incarnation] = self.revision
            fence = self.written_fences[incarnation] = Fence(self.revision, self.epoch, self.now + ISOLATION_TIMEOUT)
            self.handle(ev.FenceWritten(incarnation, fence.revision, self.at()))

    def obey_fence(self, incarnation: Incarnation) -> None:
        """The TaskManager reads its prefix: it stops what the fence is for, and confirms."""
        fence = self.written_fences.pop(incarnation)
        self._stop_isolated(incarnation, lambda attempt_id: attempt_id.epoch <= fence.epoch)
        if fence.epoch == self.epoch:
            self.handle(ev.FenceConfirmed(incarnation, self.at()))

    def wait_out_fences(self) -> None:
        """So much time passes that guards stop what is exclusive, and after it the owner goes on."""
        self.now += UNCONFIRMED_WAIT
        self.handle(ev.RestartDue(self.at()))

    def _isolate(self) -> None:
        """Guards act before any other process can know that it is time."""
        if self.graph is None:
            return
        graph = self.graph
        exclusive = {vertex.id for vertex in graph.vertices if vertex.is_exclusive(graph)}
        late = [one for one, fence in self.written_fences.items() if fence.obeyed_by <= self.now]
        for incarnation in late:
            self.written_fences[incarnation] = replace(self.written_fences[incarnation], obeyed_by=math.inf)
            self._stop_isolated(incarnation, lambda attempt_id: attempt_id.vertex_id in exclusive)

    def _stop_isolated(self, incarnation: Incarnation, is_for: Callable[[ExecutionAttemptId], bool]) -> None:
        stopped = [one for one in self.running() if self.whereabouts(one).incarnation == incarnation and is_for(one)]
        failure = FailureInfo(TASK_ISOLATED, "fenced off", "", "SYSTEM", True, 0, (), is_isolation=True)
        for attempt_id in stopped:
            self.report(attempt_id, ExecutionState.FAILED, failure=failure)

    def begin_next_owner(self) -> None:
        """The owner is gone, and another one begins that knows nothing yet."""
        self.revision += 1
        self.epoch = self.revision
        self.fences.clear()
        self.cut.clear()
        self.core = self._new_core()
        self.pending_events = None

    def change_owner(self, task_managers: Iterable[int], silent: Iterable[int] = ()) -> None:
        """The owner is gone, and what it had not made durable; the next one reads and takes a census (R6), which
        `silent` ones do not answer.
        """
        assert self.graph is not None
        self.begin_next_owner()
        for told in (self.requirements, self.restarts, self.deadlines):
            told.clear()
        unheard = {location(tm).incarnation for tm in silent}
        self.cut |= unheard
        everyone = [location(tm) for tm in task_managers]
        self.handle(ev.TaskManagersRegistered(frozenset(one.incarnation for one in everyone), self.at()))
        batches = tuple(decode_events(encode_events(batch)) for batch in self.durable)
        self.handle(ev.JobRead(self.graph, batches, self.at()))
        for one in everyone:
            if one.incarnation in unheard:
                self.handle(ev.TaskManagerLost(one.incarnation, "no answer", self.at()))
                continue
            self.handle(self.census_of(one))
            kept = tuple(report for place, report in self.unacknowledged.values() if place == one)
            if kept:
                self.handle(ev.TaskManagerSpoke(one, TaskReports(JOB_ID, self.epoch, kept), self.at()))

    def census_of(self, place: TaskManagerLocation) -> ev.TaskManagerSpoke:
        """What a TaskManager has of the job."""
        numbers = [number for number in sorted(self.slots) if self.places[number] == place]
        attempts = [
            self._held(one, self._held_state(one, index), number if number in self.slots else None)
            for number, held in self.in_slot.items()
            if self.places[number] == place
            for index, one in enumerate(held)
        ]  # fmt: skip
        attempts += [
            self._held(one, report.state, None)
            for one, (where, report) in self.unacknowledged.items()
            if where == place
        ]
        slots = tuple(SlotOffer(number, 0) for number in numbers)
        census = JobCensus(JOB_ID, self.epoch, slots, tuple(attempts), is_complete=True)
        return ev.TaskManagerSpoke(place, census, self.at())

    def _held(self, attempt_id: ExecutionAttemptId, state: ExecutionState, place: AllocationId | None) -> HeldAttempt:
        deployed, running = self.deployed[attempt_id], self.running_millis.get(attempt_id, 0)
        return HeldAttempt(attempt_id, deployed.ordinal, state, place, deployed.deployed_millis, running)

    def _held_state(self, attempt_id: ExecutionAttemptId, index: int) -> ExecutionState:
        if attempt_id in self.cancelled:
            return ExecutionState.CANCELING
        return ExecutionState.DEPLOYING if index else ExecutionState.RUNNING

    def status(self) -> JobStatus:
        """The job's status (a call: mypy must not think that it stays)."""
        return self.core.status

    def has_result(self) -> bool:
        """True once the result was asked to be written."""
        return self.pending_result is not None

    def messages(self, kind: type[MessageT]) -> list[MessageT]:
        """All messages of one kind, to all receivers."""
        return [message for _, messages in self.sent for message in messages if isinstance(message, kind)]


def running_pair() -> JobMasterDriver:
    """`two_readers`, one reader on each of two TaskManagers."""
    job = JobMasterDriver(two_readers(), failover=THREE_RESTARTS)
    job.offer(1, tm=1)
    job.offer(2, tm=2)
    return job
