"""JobMasters of one process in a box: memory store, local transport, scripted TaskManagers, no other component."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.retry import RetryPolicy
from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.errors import UnavailableError
from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import AssignJob, JobSummary
from runtime.gateways.job_manager_runner import JobManagerRunnerResult
from runtime.gateways.job_master import (
    AnswerSlotOffers,
    CancelTasks,
    CommitOutputs,
    DeployTasks,
    HeldAttempt,
    JobCensus,
    JobMasterToTaskManager,
    OfferSlots,
    OutputsCommitted,
    SlotOffer,
    TaskReports,
)
from runtime.gateways.resource_manager import JobRequirements
from runtime.gateways.task import (
    FailureInfo,
    OutputDirectory,
    PartitionDescriptor,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskMetrics,
)
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.highavailability.jobs.fences import OwnerFences
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvOwnerJobStore
from runtime.highavailability.jobs.payloads import Payloads, inline_payload
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.record_codec import decode_record, encode_record
from runtime.highavailability.records import GraphRecord, OwnerRecord, ResultRecord
from runtime.jobgraph.graph import JobGraph
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.jobmaster.endpoint import JobMasterSettings
from runtime.jobmaster.fence_keeper import FenceKeeper
from runtime.jobmaster.job_master_metrics import JobMasterMetrics
from runtime.jobmaster.runner import DefaultJobManagerRunner, DefaultJobManagerRunnerFactory, GraphSource
from runtime.metrics import table
from runtime.metrics.counted import CountedMetrics
from runtime.rpc.local import LocalNetwork, LocalRpcService
from runtime.rpc.service import MessageStream, StreamHello, StreamKind
from runtime.rpc.settings import RpcLimits, RpcSettings
from runtime.scheduler.core.failover.settings import NO_FAILOVER
from tests.kit.control_plane.job_master_driver import parquet
from tests.kit.control_plane.memory_objects import MemoryObjectStore

JOB_MASTER = Incarnation("b" * 32)

Behaviour = Callable[[TaskDeploymentDescriptor], Iterable[TaskExecutionReport]]


def reports_of(
    task: TaskDeploymentDescriptor,
    *states: ExecutionState,
    value: bytes = b"null",
    failure: FailureInfo | None = None,
    partitions: tuple[PartitionDescriptor, ...] | None = None,
    outputs: tuple[OutputDirectory, ...] = (),
) -> list[TaskExecutionReport]:
    """The reports of one attempt that goes through these states."""
    written = tuple(parquet(task.attempt_id, spec) for spec in task.outputs) if partitions is None else partitions
    return [
        TaskExecutionReport(
            attempt_id=task.attempt_id,
            state=state,
            timestamp_millis=0,
            failure=failure if state is ExecutionState.FAILED else None,
            value=value if state is ExecutionState.FINISHED else b"",
            partitions=written if state is ExecutionState.FINISHED else (),
            outputs=outputs if state is ExecutionState.FINISHED else (),
            metrics=TaskMetrics(),
        )
        for state in states
    ]


def finishing(task: TaskDeploymentDescriptor) -> Iterable[TaskExecutionReport]:
    """Every attempt runs and finishes at once."""
    return reports_of(task, ExecutionState.RUNNING, ExecutionState.FINISHED)


def sleeping(task: TaskDeploymentDescriptor) -> Iterable[TaskExecutionReport]:
    """Every attempt runs and does not end by itself."""
    return reports_of(task, ExecutionState.RUNNING)


class ScriptedTaskManager:
    """One TaskManager process: answers deployments as its behaviour says, cancels with CANCELED, commits outputs."""

    def __init__(self, box: JobMasterBox, number: int, behaviour: Behaviour) -> None:
        self._box = box
        self.incarnation = Incarnation(f"{number:032x}")
        self.name = f"tm-{number}"
        self.behaviour = behaviour
        self.streams = 0
        self.stream: MessageStream | None = None
        self.batches: list[list[JobMasterToTaskManager]] = []
        self.received: Watch[int] = Watch(0)
        self.accepted: list[AllocationId] = []
        self._offers = 0

    async def connect(self) -> None:
        """Dial the JobMaster process."""
        self.streams += 1
        hello = StreamHello(
            StreamKind.TASK_MANAGER_TO_JOB_MASTER,
            self.incarnation,
            f"{self.name}:1",
            self.streams,
            None,
            JOB_MASTER,
        )
        stream = self.stream = await self._box.task_manager_rpc.open_stream(self._box.address, hello, timeout=5)
        self._box.scope.spawn(f"{self.name}/{self.streams}", self._serve(stream))

    def offer(self, job_id: JobId, epoch: int, count: int = 1) -> None:
        """Offer fresh slots."""
        first, self._offers = self._offers, self._offers + count
        offers = tuple(
            SlotOffer(AllocationId(f"{self.incarnation[-4:]}{number:028x}"), number)
            for number in range(first, first + count)
        )
        self.send(OfferSlots(job_id, epoch, offers, self.name))

    def count(self, job_id: JobId, epoch: int, *attempts: HeldAttempt, slots: tuple[SlotOffer, ...] = ()) -> None:
        """Say what there is of a job, as the first thing on a new stream."""
        self.send(JobCensus(job_id, epoch, slots, attempts, True, self.name))

    def send(self, message: JobCensus | OfferSlots | TaskReports | OutputsCommitted) -> None:
        """Say something."""
        assert self.stream is not None
        self.stream.send(message)

    def report(self, job_id: JobId, epoch: int, *reports: TaskExecutionReport) -> None:
        """Report attempts."""
        self.send(TaskReports(job_id, epoch, reports))

    def messages(self) -> list[JobMasterToTaskManager]:
        """Everything received."""
        return [message for batch in self.batches for message in batch]

    async def wait_for(self, kind: type[JobMasterToTaskManager], count: int = 1) -> None:
        """Until `count` messages of a kind have been received."""
        await self.received.wait_until(lambda _: sum(isinstance(message, kind) for message in self.messages()) >= count)

    async def _serve(self, stream: MessageStream) -> None:
        try:
            while True:
                batch = list(await stream.receive())
                self.batches.append(batch)
                for message in batch:
                    self._on_message(message)
                self.received.set(self.received.value + len(batch))
        except UnavailableError:
            return

    def _on_message(self, message: JobMasterToTaskManager) -> None:
        match message:
            case AnswerSlotOffers(_, _, accepted, _):
                self.accepted.extend(accepted)
            case DeployTasks(job_id, epoch, tasks):
                reports = tuple(report for task in tasks for report in self.behaviour(task))
                if reports:
                    self.report(job_id, epoch, *reports)
            case CancelTasks(job_id, epoch, attempts):
                self.report(job_id, epoch, *(canceled(attempt_id) for attempt_id in attempts))
            case CommitOutputs(job_id, epoch, vertex_id, order=order):
                self.send(OutputsCommitted(job_id, epoch, vertex_id, None, order))
            case _:
                pass


def canceled(attempt_id: ExecutionAttemptId) -> TaskExecutionReport:
    """The attempt was cancelled."""
    return TaskExecutionReport(attempt_id, ExecutionState.CANCELED, 0, None, b"", (), (), TaskMetrics())


class RecordingListener:
    """What a Dispatcher would hear."""

    def __init__(self) -> None:
        self.summaries: list[JobSummary] = []
        self.requirements: list[JobRequirements] = []
        self.changes: Watch[int] = Watch(0)

    def job_summary_changed(self, summary: JobSummary) -> None:
        """Something visible changed."""
        self.summaries.append(summary)
        self.changes.set(self.changes.value + 1)

    def requirements_changed(self, requirements: JobRequirements) -> None:
        """The requirement set of a job changed."""
        self.requirements.append(requirements)
        self.changes.set(self.changes.value + 1)


class JobMasterBox:
    """One JobMaster process, and a network on which TaskManagers can dial it."""

    def __init__(
        self, scope: Scope, *, limits: RpcLimits, settings: JobMasterSettings, timing: HeartbeatTiming
    ) -> None:
        self.scope = scope
        self.clock = LoopClock()
        self.network = LocalNetwork()
        self.kv = MemoryKeyValueStore(self.clock)
        self.keys = Keys.of_cluster("test")
        self.objects = MemoryObjectStore()
        entropy = SeededEntropy(1)
        self.store = KvOwnerJobStore(
            self.kv, self.keys, Payloads(self.objects), JobStoreSettings(timeout=5.0), entropy.child("store")
        )
        self.rpc = LocalRpcService(self.network, RpcSettings(JOB_MASTER, None, limits=limits), self.clock)
        self.task_manager_rpc = LocalRpcService(
            self.network, RpcSettings(Incarnation("c" * 32), None, limits=limits), self.clock
        )
        self.heartbeats = HeartbeatService(self.clock)
        self.connections = TaskManagerConnections(self.heartbeats, timing, self.clock)
        self.fences = FenceKeeper(OwnerFences(self.kv, self.keys, entropy, timeout=5.0), entropy)
        self.graphs: dict[str, bytes | Exception] = {}
        self.graph_reads = 0
        self.graph_source: GraphSource | None = None
        self.listener = RecordingListener()
        self.metrics = CountedMetrics(100)
        self.factory = DefaultJobManagerRunnerFactory(
            store=self.store,
            connections=self.connections,
            graph_source=self.read_graph,
            census_taker=None,
            clock=self.clock,
            entropy=entropy,
            settings=settings,
            fence_keeper=self.fences,
            metrics=JobMasterMetrics(self.metrics),
        )

    @property
    def counted(self) -> tuple[float, float]:
        """Takeovers and restarts so far."""
        values = {family.metric: family.values for family in self.metrics.families()}
        return values[table.TAKEOVERS][()], values[table.RESTARTS][()]

    @property
    def preemptions(self) -> float:
        """Preempted attempts so far."""
        values = {family.metric: family.values for family in self.metrics.families()}
        return values[table.PREEMPTIONS][()]

    @property
    def address(self) -> str:
        """Where the JobMaster process listens."""
        return self.rpc.server.address

    async def read_graph(self, key: str, sha256: str, /) -> bytes:
        """A GraphSource over `graphs`, unless the test has another one."""
        assert sha256
        self.graph_reads += 1
        if self.graph_source is not None:
            return await self.graph_source(key, sha256)
        found = self.graphs[key]
        if isinstance(found, Exception):
            raise found
        return found

    async def assign(
        self,
        job_id: JobId,
        graph: JobGraph | bytes,
        *,
        graph_key: str = "",
        settled: CheckpointSettings | None = None,
    ) -> AssignJob:
        """Make a job durable with this process as its owner."""
        data = graph if isinstance(graph, bytes) else graph.canonical_json()
        owner = encode_record(OwnerRecord(JOB_MASTER, self.address))
        record = encode_record(GraphRecord(inline_payload(b"graph"), "job", 1, "client", checkpointing=settled))
        puts = (Put(self.keys.graph(job_id), record), Put(self.keys.owner(job_id), owner))
        result = await self.kv.txn(Txn((), puts), timeout=5)
        return AssignJob(
            job_id=job_id,
            epoch=result.revision,
            is_fresh=True,
            graph=b"" if graph_key else data,
            graph_key=graph_key,
            digest=hashlib.sha256(data).hexdigest(),
            submit_millis=self.clock.epoch_millis(),
        )

    def start(self, assignment: AssignJob) -> tuple[DefaultJobManagerRunner, asyncio.Task[JobManagerRunnerResult]]:
        """Run a job."""
        runner = self.factory.create(assignment, self.listener)
        return runner, self.scope.start(f"job-{assignment.job_id}", runner.run())

    async def begin(
        self, task_manager: ScriptedTaskManager, job_id: JobId, graph: JobGraph, *, slots: int = 1
    ) -> tuple[int, DefaultJobManagerRunner, asyncio.Task[JobManagerRunnerResult]]:
        """Run a job and offer it slots of a TaskManager once it asks for some: its epoch, its runner, its run."""
        assignment = await self.assign(job_id, graph)
        runner, running = self.start(assignment)
        await self.listener.changes.wait_until(lambda _: bool(self.listener.requirements))
        task_manager.offer(job_id, assignment.epoch, slots)
        return assignment.epoch, runner, running

    async def task_manager(self, number: int = 1, behaviour: Behaviour = finishing) -> ScriptedTaskManager:
        """A connected TaskManager."""
        task_manager = ScriptedTaskManager(self, number, behaviour)
        await task_manager.connect()
        return task_manager


async def stored_result(box: JobMasterBox, job_id: JobId) -> ResultRecord:
    """The result of a job."""
    key = box.keys.result(job_id)
    found = await box.kv.range(key, is_prefix=False, timeout=5)
    return decode_record(ResultRecord, found.kvs[0].value, key=key)


async def stored_archive(box: JobMasterBox, job_id: JobId) -> ArchivedExecutionGraph:
    """The execution graph in it."""
    record = await stored_result(box, job_id)
    return ArchivedExecutionGraph.from_json(await box.store.load(record.archive))


@asynccontextmanager
async def job_master_box(
    *,
    limits: RpcLimits | None = None,
    settings: JobMasterSettings | None = None,
    timing: HeartbeatTiming | None = None,
) -> AsyncIterator[JobMasterBox]:
    """A box that is started, and stopped at the end."""
    quick = RetryPolicy(delay_initial=0.001, delay_max=0.002)
    default = JobMasterSettings(
        write_retry=quick, graph_retry=quick, graph_second_look=0.001, failover=NO_FAILOVER, validate=True
    )
    async with Scope("box") as scope:
        box = JobMasterBox(
            scope,
            limits=limits or RpcLimits(),
            settings=settings or default,
            timing=timing or HeartbeatTiming(interval=2.0, timeout=10.0),
        )
        scope.spawn_eternal("heartbeats", box.heartbeats.run())
        scope.spawn_eternal("wheel", box.connections.run())
        scope.spawn_eternal("fences", box.fences.run())
        await box.rpc.start()
        await box.task_manager_rpc.start()
        box.rpc.server.add_stream_handler(
            StreamKind.TASK_MANAGER_TO_JOB_MASTER, box.connections.serve, check=lambda _target, _sender: None
        )
        try:
            yield box
        finally:
            await box.task_manager_rpc.stop(grace=0.1)
            await box.rpc.stop(grace=0.1)
            await box.kv.close()
            scope.cancel_all()
