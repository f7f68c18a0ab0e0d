"""Fakes behind the REST application: a Dispatcher and a ResourceManager that hold what a test puts into them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.aio.clock import LoopClock, SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.aio.watch import Watch
from runtime.common.errors import ConflictError, NotFoundError
from runtime.common.ids import Incarnation, JobId, VertexId
from runtime.common.shares import QueuePolicy
from runtime.common.states import ExecutionState, JobStatus
from runtime.dispatcher.waiters import JobWaiters
from runtime.executiongraph.archived import (
    ARCHIVE_SCHEMA_VERSION,
    CANCELLATION,
    NO_CONFIG,
    ArchivedEdge,
    ArchivedException,
    ArchivedExecution,
    ArchivedExecutionGraph,
    ArchivedSubtask,
    ArchivedVertex,
)
from runtime.executiongraph.core.failures import system_failure
from runtime.gateways.blob import BlobKey
from runtime.gateways.cluster_events import NO_EVENTS, ClusterEvents
from runtime.gateways.dispatcher import (
    Empty,
    JobDetailsResponse,
    JobRequest,
    JobSummary,
    SubmitJobRequest,
    SubmitJobResponse,
    SubmitOutcome,
    TaskCounts,
    is_same_run,
)
from runtime.gateways.operations import OperationState, StreamOperation, TriggerOperation
from runtime.gateways.overview import JobActivity, JobMasterInfo, Takeover
from runtime.gateways.process import (
    ConfValue,
    LogFileInfo,
    LogFileRequest,
    LogFileResponse,
    LogFilesRequest,
    LogFilesResponse,
    LogLevelChanged,
    LogLevelRequest,
    ProcessEnvironmentRequest,
    ProcessEnvironmentResponse,
    ProcessFiguresRequest,
    ProcessFiguresResponse,
    ProcessGateway,
    ProcessStopping,
    SlotFigures,
    SparkJvmFigures,
    StopProcessRequest,
    ThreadDumpRequest,
    ThreadDumpResponse,
    ThreadStack,
)
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.gateways.task import ExchangeMode, FailureInfo, TaskMetrics
from runtime.gateways.task_executor import (
    AttemptLogPiece,
    AttemptLogRequest,
    AttemptLogResponse,
    AttemptLogsRequest,
    AttemptLogsResponse,
    AttemptSpark,
    AttemptSparkRequest,
    AttemptSparkResponse,
    AttemptStacksRequest,
    AttemptStacksResponse,
    CensusAccepted,
    CensusRequest,
    DisposeSavepointRequest,
    LogStream,
    SampledStack,
    SavepointDisposed,
    SavepointFound,
    SavepointRequest,
    SparkPageRequest,
    SparkPageResponse,
    TaskExecutorGateway,
)
from runtime.highavailability.jars import JarStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.jobgraph.graph import JobGraph
from runtime.rest.access.audit import Audit, NoAudit
from runtime.rest.access.sign_in import SignIn, bearer_of
from runtime.rest.context import LeaderComponents, MetricsView, RestContext
from runtime.security.principals import ADMIN
from tests.kit.rest.disposals import FakeDisposals
from tests.kit.rest.fake_resource_manager import FakeResourceManager
from tests.kit.rest.store import FakeStore

JOB_MASTER = Incarnation("b" * 32)
FAILURE = FailureInfo("ValueError", "no such column", "Traceback ...\nValueError: no such column", "USER", True, 1500)

JOB = JobId("a" * 32)


def summary(job_id: JobId = JOB, status: JobStatus = JobStatus.RUNNING, modified: int = 1000) -> JobSummary:
    """A summary with one running task."""
    end = modified if status.is_globally_terminal else -1
    return JobSummary(job_id, "daily", status, 7, 1, 900, end, modified, TaskCounts(running=1), "")


def shown(*tokens: str) -> SignIn:
    """A request with one of these tokens is the admin's; every other request is refused."""
    return lambda scope: ADMIN if bearer_of(scope) in tokens else None


def archived(job_id: JobId = JOB, status: JobStatus = JobStatus.RUNNING) -> ArchivedExecutionGraph:
    """A graph of two vertices with an edge; FAILED ones have an exception, FINISHED ones a result."""
    state = ExecutionState.RUNNING if status is JobStatus.RUNNING else ExecutionState.FINISHED
    timestamps = {ExecutionState.CREATED: 900, ExecutionState.DEPLOYING: 950, ExecutionState.RUNNING: 1000}
    if state is ExecutionState.FINISHED:
        timestamps[ExecutionState.FINISHED] = 1100

    def vertex(number: int, name: str) -> ArchivedVertex:
        attempt_id = f"{job_id}_{number:032x}_0_7_0"
        attempt = ArchivedExecution(
            0, attempt_id, state, timestamps, "127.0.0.1:1", "tm-1", None, TaskMetrics(read_bytes=5), None
        )
        return ArchivedVertex(
            VertexId(f"{number:032x}"),
            name,
            (name,),
            1,
            128,
            "default",
            number == 2,
            (ArchivedSubtask(0, attempt, ()),),
        )

    return ArchivedExecutionGraph(
        schema_version=ARCHIVE_SCHEMA_VERSION,
        job_id=job_id,
        name="daily",
        epoch=7,
        graph_digest="d" * 64,
        status=status,
        timestamps={JobStatus.INITIALIZING: 900, JobStatus.RUNNING: 1000, status: 1100},
        last_modification_millis=1100,
        pending_reason="",
        vertices=(vertex(1, "read"), vertex(2, "write <b>")),
        edges=(ArchivedEdge(VertexId(f"{1:032x}"), VertexId(f"{2:032x}"), ExchangeMode.HASH, 0),),
        exceptions=(ArchivedException(FAILURE, "read (1/1)", "127.0.0.1:1", "tm-1", labels={"type": "USER"}),)
        if status is JobStatus.FAILED
        else (),
        config=NO_CONFIG,
        result='{"rows": 3}' if status is JobStatus.FINISHED else "",
        takeovers=(Takeover(990, Incarnation("e" * 32), "10.0.0.9:1", JOB_MASTER, "127.0.0.1:2", "it was <lost>"),),
    )


class FakeDispatcher:
    """DispatcherView over dictionaries; `put` wakes long polls."""

    def __init__(self) -> None:
        self.summaries: dict[JobId, JobSummary] = {}
        self.forgotten: dict[JobId, JobSummary] = {}
        self.graphs: dict[JobId, ArchivedExecutionGraph] = {}
        self.submitted: list[SubmitJobRequest] = []
        self.cancelled: list[JobId] = []
        self.operations: dict[tuple[JobId, str], StreamOperation] = {}
        self.heartbeats: list[tuple[JobId, int]] = []
        self.requirements: list[UpdateRequirements] = []
        self.polled: list[tuple[dict[JobId, int], str]] = []
        self.moves: list[tuple[JobId, Incarnation]] = []
        self.is_draining = False
        self.refusal: Exception | None = None
        self.waiters = JobWaiters()
        self.polls = 0
        self.activity = JobActivity(7, 0, 0, 0)

    def put(self, job_id: JobId, status: JobStatus, modified: int = 1000) -> None:
        """Make a job known."""
        made = summary(job_id, status, modified)
        for one in self.submitted:
            if one.job_id == job_id:
                made = replace(
                    made,
                    submitter=one.submitter,
                    namespace=one.namespace,
                    program_run=one.program_run,
                    client=one.client,
                )
        self.summaries[job_id] = made
        self.graphs[job_id] = archived(job_id, status)
        ended = self.activity.jobs_ended + status.is_globally_terminal
        self.activity = replace(self.activity, changes=self.activity.changes + 1, jobs_ended=ended)
        self.waiters.wake(job_id)

    def put_cancelled(self, job_id: JobId, reason: str) -> None:
        """The cluster has cancelled the job."""
        self.put(job_id, JobStatus.CANCELED)
        why = ArchivedException(system_failure(CANCELLATION, reason, 1000), "", "", "")
        self.graphs[job_id] = replace(self.graphs[job_id], exceptions=(why,))

    def set_config(self, job_id: JobId, params: dict[str, Any], spark_conf: dict[str, str]) -> None:
        """What the job was submitted with."""
        config = replace(NO_CONFIG, params=json.dumps(params), spark_conf=spark_conf)
        self.graphs[job_id] = replace(self.graphs[job_id], config=config)

    def set_result(self, job_id: JobId, result: str) -> None:
        """The job has finished with this JSON."""
        self.put(job_id, JobStatus.FINISHED)
        self.graphs[job_id] = replace(self.graphs[job_id], result=result)

    async def submit_verified(self, request: SubmitJobRequest, graph: JobGraph, /) -> SubmitJobResponse:
        """The same as any submit."""
        del graph
        return await self.submit_job(request)

    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        """Remember the submit; another digest under the same id is a conflict, unless it is the same run."""
        if self.refusal is not None:
            raise self.refusal
        known = [one for one in self.submitted if one.job_id == request.job_id]
        is_other = known and known[0].digest != request.digest
        if is_other and not is_same_run(known[0].program_run, request.program_run):
            raise ConflictError("job id is taken")
        self.submitted.append(request)
        outcome = SubmitOutcome.ALREADY_SUBMITTED if known else SubmitOutcome.ACCEPTED
        return SubmitJobResponse(outcome, JobStatus.INITIALIZING)

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """Remember the wish."""
        self.cancelled.append(request.job_id)
        return Empty()

    async def client_heartbeat(self, job_id: JobId, /, *, expires_millis: int) -> None:
        """Remember the promise."""
        if job_id not in self.summaries:
            raise NotFoundError(f"Job {job_id} not found")
        self.heartbeats.append((job_id, expires_millis))

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        """The graph."""
        if request.job_id not in self.graphs:
            raise NotFoundError(f"Job {request.job_id} not found")
        return JobDetailsResponse(self.graphs[request.job_id].to_json())

    async def set_requirements(self, request: UpdateRequirements, /) -> RequirementsUpdated:
        """Remember it."""
        if self.refusal is not None:
            raise self.refusal
        self.requirements.append(request)
        return RequirementsUpdated()

    async def request_operation(self, request: TriggerOperation, /) -> StreamOperation:
        """Remember it: IN_PROGRESS until a test says otherwise."""
        if self.refusal is not None:
            raise self.refusal
        key = (request.job_id, request.trigger_id)
        if key not in self.operations:
            directory = f"{request.target}/savepoint-{request.job_id[:6]}-000000000001" if request.target else ""
            self.operations[key] = StreamOperation(
                request.trigger_id, request.kind, OperationState.IN_PROGRESS, 7, 1000, directory, request.drains
            )
        return self.operations[key]

    async def find_operation(self, job_id: JobId, trigger_id: str, /) -> StreamOperation | None:
        """One of them."""
        return self.operations.get((job_id, trigger_id))

    def job_summaries(self) -> Sequence[JobSummary]:
        """All of them."""
        return list(self.summaries.values())

    def job_counts(self) -> Mapping[JobStatus, int]:
        """Counted when asked."""
        return Counter(one.status for one in self.summaries.values())

    def job_activity(self) -> JobActivity:
        """Of `put`."""
        return self.activity

    def job_summary(self, job_id: JobId, /) -> JobSummary | None:
        """The summary of a job."""
        return self.summaries.get(job_id)

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        """The same, and those that are not shown any more."""
        return self.summaries.get(job_id) or self.forgotten.get(job_id)

    def job_owner(self, job_id: JobId, /) -> JobMasterInfo | None:
        """The one process, until the job has ended."""
        return None if self.summaries[job_id].status.is_globally_terminal else self.job_masters()[0]

    async def find_jobs(self, jobs: Collection[JobId], /) -> Mapping[JobId, JobSummary]:
        """The same of many."""
        found = {one: await self.find_job(one) for one in jobs}
        return {one: summary for one, summary in found.items() if summary is not None}

    async def wait_for_jobs(
        self, known: Mapping[JobId, int], /, *, timeout: float, name: str = "", principal: str = ""
    ) -> frozenset[JobId]:
        """Wait for `put`."""
        self.polled.append((dict(known), name))
        self.waiters.end(name)
        news = frozenset(one for one in known if self._is_news(one, known[one]))
        if news or timeout <= 0:
            return news
        self.polls += 1
        return await self.waiters.wait(known.keys(), timeout, name, principal=principal)

    def _is_news(self, job_id: JobId, modified: int) -> bool:
        found = self.summaries.get(job_id)
        return found is None or found.status.is_globally_terminal or found.last_modification_millis != modified

    def job_masters(self) -> Sequence[JobMasterInfo]:
        """One process."""
        state = "draining" if self.is_draining else "ready"
        return [JobMasterInfo(JOB_MASTER, "127.0.0.1:2", state, "0.1.0", 1000, 3, 7, 0.1, 1 << 20, 5)]

    def jobs_of(self, incarnation: Incarnation, /) -> Sequence[JobSummary]:
        """It runs everything."""
        if incarnation != JOB_MASTER:
            raise NotFoundError(f"JobMaster process {incarnation} is not known")
        return list(self.summaries.values())

    async def drain_job_master(self, incarnation: Incarnation, /, *, is_draining: bool) -> None:
        """Obey."""
        self.jobs_of(incarnation)
        self.is_draining = is_draining

    async def move_job(self, job_id: JobId, target: Incarnation, /) -> None:
        """Remember the wish."""
        self.jobs_of(target)
        if job_id not in self.summaries:
            raise NotFoundError(f"Job {job_id} not found")
        self.moves.append((job_id, target))


def memory_jars() -> JarStore:
    """The real store of uploaded programs, in memory."""
    return JarStore(MemoryKeyValueStore(LoopClock()), Keys.of_cluster("fakes"), SystemEntropy(), timeout=5.0)


class FakeBlobs:
    """A blob store in memory."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    async def missing(self, digests: Sequence[tuple[str, int]], /) -> tuple[dict[str, BlobKey], Sequence[str]]:
        """What is not stored."""
        known = {sha: BlobKey(sha, "u1") for sha, _ in digests if sha in self.stored}
        return known, [sha for sha, _ in digests if sha not in self.stored]

    async def upload(self, sha256: str | None, chunks: AsyncIterator[bytes], /) -> BlobKey:
        """Keep it."""
        data = b"".join([chunk async for chunk in chunks])
        sha256 = sha256 or hashlib.sha256(data).hexdigest()
        self.stored[sha256] = data
        return BlobKey(sha256, "u1")

    async def read_range(self, key: str, /, *, offset: int, size_bytes: int) -> bytes:
        """A piece of it."""
        return self.stored[key.partition("-")[0]][offset : offset + size_bytes]

    async def download(self, key: BlobKey, /) -> AsyncIterator[bytes]:
        """Give it back."""
        if key.sha256 not in self.stored:
            raise NotFoundError(f"no blob {key}")
        yield self.stored[key.sha256]


class FakeTaskExecutor:
    """Answers logs from one text."""

    text = b"hello from the task\n"
    stream = LogStream.STDOUT
    spark: tuple[AttemptSpark, ...] = ()
    stacks: tuple[SampledStack, ...] = ()

    page: SparkPageResponse | None = None

    def __init__(self) -> None:
        self.sampled: list[AttemptStacksRequest] = []
        self.pages_asked: list[SparkPageRequest] = []

    async def request_attempt_log(self, request: AttemptLogRequest, /) -> AttemptLogResponse:
        """One stream has the text, the others nothing."""
        data = self.text if request.stream is self.stream else b""
        start = request.offset if request.offset >= 0 else max(0, len(data) + request.offset)
        piece = data[start : start + request.limit]
        return AttemptLogResponse(piece, start + len(piece), len(data), False)

    async def request_attempt_logs(self, request: AttemptLogsRequest, /) -> AttemptLogsResponse:
        """The same for many, without a bound."""
        pieces = [AttemptLogPiece(n, await self.request_attempt_log(one)) for n, one in enumerate(request.reads)]
        return AttemptLogsResponse(tuple(pieces))

    async def request_attempt_spark(self, request: AttemptSparkRequest, /) -> AttemptSparkResponse:
        """What the test has put there."""
        return AttemptSparkResponse(tuple(one for one in self.spark if one.attempt_id in request.attempts))

    async def request_attempt_stacks(self, request: AttemptStacksRequest, /) -> AttemptStacksResponse:
        """The same."""
        self.sampled.append(request)
        if not self.stacks:
            raise NotFoundError(f"attempt {request.attempt_id} does not run here")
        return AttemptStacksResponse(1_000_000, self.stacks)

    async def request_spark_page(self, request: SparkPageRequest, /) -> SparkPageResponse:
        """The page that the test has put there, of any environment."""
        self.pages_asked.append(request)
        if self.page is None:
            raise NotFoundError(f"Spark environment {request.environment!r} is not here")
        return self.page

    async def request_savepoint(self, request: SavepointRequest, /) -> SavepointFound:
        """REST itself asks for none."""
        raise AssertionError(request)

    async def dispose_savepoint(self, request: DisposeSavepointRequest, /) -> SavepointDisposed:
        """REST itself deletes none."""
        raise AssertionError(request)

    async def request_census(self, request: CensusRequest, /) -> CensusAccepted:
        """REST asks for none."""
        raise AssertionError(request)


class FakeProcess:
    """Implements `ProcessGateway` from one text. `asked`: what it was asked for."""

    def __init__(self) -> None:
        self.text = b"a line of the log\n"
        self.asked: list[object] = []
        self.error: Exception | None = None

    def _note(self, request: object) -> None:
        self.asked.append(request)
        if self.error is not None:
            raise self.error

    async def request_log_files(self, request: LogFilesRequest, /) -> LogFilesResponse:
        """One file."""
        self._note(request)
        return LogFilesResponse((LogFileInfo("flinklike.log", len(self.text), 1_700_000_000_000),))

    async def request_log_file(self, request: LogFileRequest, /) -> LogFileResponse:
        """The text, whatever file it is of; a name with `absent` is unknown."""
        self._note(request)
        if "absent" in request.name:
            raise NotFoundError(f"this process has no log file {request.name!r}")
        size, offset = len(self.text), request.offset
        begin = max(0, size + offset) if offset < 0 else 0 if offset > size else offset
        data = self.text[begin : begin + request.limit]
        return LogFileResponse(data, begin + len(data), size, offset > size)

    async def request_figures(self, request: ProcessFiguresRequest, /) -> ProcessFiguresResponse:
        """Two slots and a JVM."""
        self._note(request)
        slots = (SlotFigures(0, f"{JOB}_{1:032x}_0_7_0", 300 << 20, 1 << 30), SlotFigures(1, "", 0, 1 << 30))
        conf = (ConfValue("spark.master", "local[2]"), ConfValue("spark.my.password", "******"))
        jvms = (SparkJvmFigures("", 600 << 20, 200 << 20, 400 << 20, 768 << 20, 120 << 20, 80, 12, 340, conf),)
        return ProcessFiguresResponse(12_500, 80 << 20, 9, 40, slots, jvms)

    async def request_thread_dump(self, request: ThreadDumpRequest, /) -> ThreadDumpResponse:
        """One thread."""
        self._note(request)
        return ThreadDumpResponse((ThreadStack("MainThread", "\tat module.function(file.py:1)\n"),))

    async def set_log_level(self, request: LogLevelRequest, /) -> LogLevelChanged:
        """One logger is unknown."""
        self._note(request)
        if "absent" in request.logger:
            raise NotFoundError(f"this process has no logger {request.logger}")
        return LogLevelChanged("DEFAULT")

    async def stop_process(self, request: StopProcessRequest, /) -> ProcessStopping:
        """It only notes the order."""
        self._note(request)
        return ProcessStopping()

    async def request_environment(self, request: ProcessEnvironmentRequest, /) -> ProcessEnvironmentResponse:
        """A Python."""
        self._note(request)
        return ProcessEnvironmentResponse("Python 3.11.0", "x86_64", ("python", "-m", "x"), ("/lib",))


class RestFakes:
    """Everything behind one application."""

    def __init__(self) -> None:
        self.disposals = FakeDisposals()
        self.dispatcher = FakeDispatcher()
        self.resource_manager = FakeResourceManager()
        self.blobs = FakeBlobs()
        self.jars = memory_jars()
        self.is_leading = True
        self.other_leader = Watch("")
        self.own_process = FakeProcess()
        self.processes = {"127.0.0.1:1": FakeProcess(), "127.0.0.1:2": FakeProcess()}
        self.metrics: MetricsView | None = None
        self.events: ClusterEvents = NO_EVENTS
        self.stand_bys = ["jm-2:8081"]
        self.store = FakeStore()
        self.audit: Audit = NoAudit()
        self.task_executor: TaskExecutorGateway = FakeTaskExecutor()
        self.queues = QueuePolicy()

    def context(self) -> RestContext:
        """The context of an application over these fakes."""
        return RestContext(
            leader=self._leader,
            other_leader=self.other_leader,
            task_executor=self._task_executor,
            process=self._process,
            own_process=self.own_process,
            clock=SystemClock(),
            configuration=[("rest.port", "8081")],
            long_poll_max=5.0,
            refresh_interval_millis=3000,
            metrics=self.metrics,
            stand_bys=lambda: self.stand_bys,
            store=self.store,
            audit=self.audit,
            queues=self.queues,
        )

    def _leader(self) -> LeaderComponents | None:
        return (
            LeaderComponents(
                self.dispatcher,
                self.resource_manager,
                self.blobs,
                self.jars,
                "jm-1:8081",
                self.events,
                self.disposals,
            )
            if self.is_leading
            else None
        )

    def _process(self, address: str) -> ProcessGateway:
        _ = asyncio.get_running_loop()  # as the transport needs it
        return self.processes[address]

    def _task_executor(self, address: str) -> TaskExecutorGateway:
        del address
        return self.task_executor
