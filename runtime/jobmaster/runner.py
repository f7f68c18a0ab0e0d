"""The life of one JobMaster under one epoch: from its assignment over its graph to a durable result.

Invariants: a graph is used only when its digest is the assignment's; storage that is away is asked again without limit
and with a visible reason, a graph that is wrong or authoritatively missing is looked for twice, 10 s apart, and then
fails this job and nothing else (R20), as are its events; an assignment under which something may still be running
decides nothing before it has read the events and taken a census of all TaskManagers (R6).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from functools import partial
from typing import Protocol

from runtime.aio.retry import retry
from runtime.aio.scope import Scope
from runtime.checkpoint.checkpoint_record import checkpoint_of
from runtime.checkpoint.core.checkpoints import CompletedCheckpoint
from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError, PermanentError, RetryableError, StaleTokenError
from runtime.common.ids import JobId
from runtime.common.waiting import Waiting
from runtime.executiongraph.core.failures import system_failure
from runtime.executiongraph.core.job_spans import job_spans
from runtime.gateways.dispatcher import AssignJob, JobSummary
from runtime.gateways.job_manager_runner import JobManagerRunnerResult, JobMasterListener
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.overview import Takeover
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.highavailability.jobs.job_store import OwnerJobStore
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.parsing import parse_job_graph
from runtime.jobgraph.streams import names_streams
from runtime.jobmaster.census_taker import CensusTaker
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.jobmaster.endpoint import JobMaster, JobMasterSettings
from runtime.jobmaster.fence_keeper import FenceKeeper
from runtime.jobmaster.job_master_metrics import NO_JOB_MASTER_METRICS, JobMasterMetrics
from runtime.logs.traces import note_trace
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.job_events import JobEvent, decode_events
from runtime.scheduler.core.outputs.kept_outputs import Kept, what_is_kept
from runtime.traces.reporter import NO_SPANS, SpanReporter
from runtime.traces.span import TraceContext

logger = logging.getLogger(__name__)


class GraphSource(Protocol):
    """Where graphs come from that did not travel inline: the BLOB service of the process."""

    async def __call__(self, key: str, sha256: str, /) -> bytes:
        """The object's bytes. RetryableError while storage is away; NotFoundError when it says there is none."""


class JobGraphCorruptError(PermanentError):
    """The bytes of a graph do not have the digest that the assignment names."""


NO_CENSUS = (
    "it had an owner before, and without high-availability.type: etcd it is not known which TaskManagers may still run "
    "something of it: it is not started a second time"
)


class NotAdoptableError(PermanentError):
    """Attempts of an earlier owner may run, and no census can be taken (R6)."""


class DefaultJobManagerRunner:
    """Implements `JobManagerRunner`."""

    __slots__ = (
        "_assignment",
        "_census_taker",
        "_clock",
        "_connections",
        "_entropy",
        "_graph",
        "_graph_source",
        "_job_master",
        "_settings",
        "_store",
        "_traces",
    )

    def __init__(
        self,
        assignment: AssignJob,
        listener: JobMasterListener,
        graph: JobGraph | None,
        *,
        store: OwnerJobStore,
        connections: TaskManagerConnections,
        graph_source: GraphSource,
        census_taker: CensusTaker | None,
        clock: Clock,
        entropy: Entropy,
        settings: JobMasterSettings,
        fence_keeper: FenceKeeper | None,
        metrics: JobMasterMetrics = NO_JOB_MASTER_METRICS,
        traces: SpanReporter = NO_SPANS,
    ) -> None:
        self._traces = traces
        self._assignment: AssignJob | None = assignment
        self._graph = graph
        self._connections = connections
        self._graph_source = graph_source
        self._census_taker = census_taker
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._store = store
        self._job_master = JobMaster(
            assignment,
            store=store,
            connections=connections,
            listener=listener,
            clock=clock,
            entropy=entropy,
            settings=settings,
            fence_keeper=fence_keeper,
            metrics=metrics,
        )

    @property
    def job_id(self) -> JobId:
        """The job."""
        return self._job_master.job_id

    @property
    def epoch(self) -> int:
        """The owner epoch this runner acts under."""
        return self._job_master.epoch

    def summary(self) -> JobSummary:
        """What is known of the job now."""
        return self._job_master.summary()

    def archived_graph(self) -> bytes:
        """The execution graph as JSON."""
        return self._job_master.archived().to_json()

    def cancel_job(self, reason: str = "") -> None:
        """The job's `wanted` key says cancel, and why if no person wants it. Idempotent."""
        self._job_master.post(ev.CancelWanted(self._job_master.moment(), reason))

    async def trigger_operation(self, wanted: TriggerOperation) -> StreamOperation:
        """Returns when the operation is durable (R61). Raises ConflictError where it is refused, UnavailableError."""
        return await self._job_master.trigger(wanted)

    async def update_requirements(self, wanted: UpdateRequirements) -> RequirementsUpdated:
        """Returns when they are durable (R69). Raises ConflictError where they are refused, UnavailableError."""
        return await self._job_master.update_requirements(wanted)

    def notify_resources(self, waiting: Waiting) -> None:
        """Why requirements are not fulfilled, "" when they are."""
        self._job_master.post(ev.ResourcesNotified(waiting, self._job_master.moment()))

    async def run(self) -> JobManagerRunnerResult:
        """Run the job until its result is durable or another owner has it. Cancelling this call ends it here only."""
        assignment, self._assignment = self._assignment, None  # the graph's bytes are not kept
        assert assignment is not None, f"runner of job {self.job_id} runs twice"
        trace, namespace = assignment.trace, assignment.namespace
        if trace and (context := TraceContext.parse(trace)) is not None:
            note_trace(self.job_id, context.trace_id)
        self._connections.register(self._job_master)
        try:
            if self._is_here(assignment) and not self._has_queries(assignment):
                self._begin(assignment)
                del assignment
                summary = await self._job_master.run()
            else:
                summary = await self._run_and_read(assignment)
        finally:
            self._connections.unregister(self._job_master)
        if trace and summary is not None:
            self._tell_trace(trace, namespace)
        return JobManagerRunnerResult(self.job_id, self.epoch, summary)

    def _tell_trace(self, trace: str, namespace: str) -> None:
        """This owner has written the result: nobody else tells the spans of the job (R55)."""
        context = TraceContext.parse(trace)
        if context is not None and context.is_sampled:
            self._traces.tell(partial(job_spans, self._job_master.archived(), context, namespace))

    def _is_here(self, assignment: AssignJob) -> bool:
        """True for the graph of a job that has not run."""
        return assignment.is_fresh and (bool(assignment.graph) or self._graph is not None)

    def _has_queries(self, assignment: AssignJob) -> bool:
        if self._graph is not None:
            return any(vertex.runs_queries for vertex in self._graph.vertices)
        return names_streams(assignment.graph)

    async def _run_and_read(self, assignment: AssignJob) -> JobSummary | None:
        async with Scope(f"job {self.job_id}") as scope:
            reading = self._settle(assignment) if self._is_here(assignment) else self._read(assignment)
            tasks = [scope.start("read", reading)]
            if not assignment.is_fresh and self._census_taker is not None:
                tasks.append(scope.start("census", self._take_census(self._census_taker)))
            summary = await self._job_master.run()
            for task in tasks:
                task.cancel()
        return summary

    async def _take_census(self, taker: CensusTaker) -> None:
        """Take the census until the job is taken over (R6)."""
        try:
            async with Scope(f"census of job {self.job_id}") as scope:
                taking = scope.start(
                    "take", taker.take(self.job_id, self.epoch, self._job_master.task_managers_registered)
                )
                await self._job_master.initialized.wait()
                taking.cancel()
        except* StaleTokenError as stale:
            reason = str(stale.exceptions[0])
            self._job_master.superseded(reason)

    # --- what is stored of the job --------------------------------------------------------------------------------

    async def _read(self, assignment: AssignJob) -> None:
        attempt = 0
        looked_once = False
        while True:
            try:
                data = assignment.graph or await self._read_graph(assignment)
                _verify(data, assignment.digest)
                stored = () if assignment.is_fresh else await self._store.events(self.job_id)
                batches = tuple(map(decode_events, stored))
                takeovers = () if assignment.is_fresh else await self._store.takeovers(self.job_id)
                has_queries = names_streams(data)
                settled = await self._store.checkpointing(self.job_id) if has_queries else None
                is_later = has_queries and not assignment.is_fresh
                checkpoints = await self._store.checkpoints(self.job_id) if is_later else []
                operations = await self._store.operations(self.job_id) if is_later else []
            except RetryableError as error:
                delay = self._settings.graph_retry.delay(attempt, self._entropy)
                attempt += 1
                self._delayed(f"the job cannot be read, it is tried again: {error}")
            except PermanentError as error:
                if looked_once:
                    kept = Kept() if assignment.is_fresh else await self._what_is_kept()
                    self._fail(error, b"", kept, may_run=self._may_run(assignment))
                    return
                looked_once = True
                delay = self._settings.graph_second_look
                self._delayed(f"the job is looked for once more in {delay:g} s: {error}")
            else:
                known = tuple(map(checkpoint_of, checkpoints))
                self._initialize(assignment, data, batches, takeovers, known, settled, tuple(operations))
                return
            await asyncio.sleep(delay)

    async def _what_is_kept(self) -> Kept:
        """The outputs to keep of a job that cannot be read: its events are read alone, as soon as they can be (R28)."""

        async def read() -> Kept:
            try:
                batches = [decode_events(stored) for stored in await self._store.events(self.job_id)]
            except StaleTokenError:
                raise
            except PermanentError:
                return what_is_kept(self.job_id, None)
            return what_is_kept(self.job_id, batches)

        def on_retry(error: Exception, _: float) -> None:
            self._delayed(f"the job's events cannot be read, it is tried again: {error}")

        policy, clock, entropy = self._settings.graph_retry, self._clock, self._entropy
        return await retry(read, policy=policy, clock=clock, entropy=entropy, deadline=None, on_retry=on_retry)

    async def _read_graph(self, assignment: AssignJob) -> bytes:
        if assignment.graph_key:
            return await self._graph_source(assignment.graph_key, assignment.digest)
        # The leader found no graph in the record: say what is the matter with it.
        stored = await self._store.job(self.job_id)
        raise JobGraphCorruptError("nothing is stored of the job" if stored is None else stored.problem)

    def _delayed(self, reason: str) -> None:
        logger.warning("job %s: %s", self.job_id, reason)
        self._job_master.post(ev.InitializationDelayed(reason, self._job_master.moment()))

    async def _settle(self, assignment: AssignJob) -> None:
        """Initialize a streaming job that has not run, as its submission has settled it."""

        def on_retry(error: Exception, _: float) -> None:
            self._delayed(f"what holds for the job cannot be read, it is tried again: {error}")

        policy, clock, entropy = self._settings.graph_retry, self._clock, self._entropy
        read = partial(self._store.checkpointing, self.job_id)
        try:
            settled = await retry(read, policy=policy, clock=clock, entropy=entropy, deadline=None, on_retry=on_retry)
        except PermanentError as error:
            self._fail(error, assignment.graph, Kept(), may_run=False)
        else:
            self._begin(assignment, settled)

    def _begin(self, assignment: AssignJob, settled: CheckpointSettings | None = None) -> None:
        """Initialize a job of which nothing more has to be read."""
        graph, self._graph = self._graph, None
        if graph is not None:
            self._job_master.post(ev.JobGraphLoaded(graph, self._job_master.moment(), settled))
            return
        data = assignment.graph
        try:
            _verify(data, assignment.digest)
        except JobGraphCorruptError as error:
            self._fail(error, data, what_is_kept(self.job_id, ()), may_run=False)
        else:
            self._initialize(assignment, data, settled=settled)

    def _initialize(
        self,
        assignment: AssignJob,
        data: bytes,
        batches: tuple[tuple[JobEvent, ...], ...] = (),
        takeovers: tuple[Takeover, ...] = (),
        checkpoints: tuple[CompletedCheckpoint, ...] = (),
        settled: CheckpointSettings | None = None,
        operations: tuple[StreamOperation, ...] = (),
    ) -> None:
        """Parse the graph, whose digest is verified."""
        try:
            if not assignment.is_fresh and self._census_taker is None:
                raise NotAdoptableError(f"job {self.job_id}: {NO_CENSUS}")
            # Which Python the code was pickled with is the slots' concern, not this process's.
            graph = parse_job_graph(data, python=None)
        except FlinklikeError as error:
            self._fail(error, data, what_is_kept(self.job_id, batches), may_run=self._may_run(assignment))
            return
        at = self._job_master.moment()
        is_fresh = assignment.is_fresh
        self._job_master.post(
            ev.JobGraphLoaded(graph, at, settled)
            if is_fresh
            else ev.JobRead(graph, batches, at, takeovers, checkpoints, settled, operations)
        )

    def _may_run(self, assignment: AssignJob) -> bool:
        """True when attempts of the job may run, and TaskManagers can be asked for them (R6)."""
        return not assignment.is_fresh and self._census_taker is not None

    def _fail(self, error: FlinklikeError, data: bytes, kept: Kept, *, may_run: bool) -> None:
        logger.error("job %s cannot be initialised: %s", self.job_id, error)
        at = self._job_master.moment()
        reason = "; ".join(filter(None, (f"the job cannot be initialised: {error}", kept.text)))
        failure = system_failure("JobInitializationError", reason, at.millis)
        self._job_master.post(
            ev.InitializationFailed(
                failure,
                _name_in(data),
                at,
                may_run=may_run,
                keeps_outputs=bool(kept.text),
                is_decided=kept.is_decided,
            )
        )


class DefaultJobManagerRunnerFactory:
    """Implements `JobManagerRunnerFactory` for one process. `connections` must be served and run by the caller."""

    def __init__(
        self,
        *,
        store: OwnerJobStore,
        connections: TaskManagerConnections,
        graph_source: GraphSource,
        census_taker: CensusTaker | None,
        clock: Clock,
        entropy: Entropy,
        settings: JobMasterSettings,
        fence_keeper: FenceKeeper | None = None,
        metrics: JobMasterMetrics = NO_JOB_MASTER_METRICS,
        traces: SpanReporter = NO_SPANS,
    ) -> None:
        self._traces = traces
        self._fence_keeper = fence_keeper
        self._metrics = metrics
        self._store = store
        self._connections = connections
        self._graph_source = graph_source
        self._census_taker = census_taker
        self._clock = clock
        self._entropy = entropy
        self._settings = settings

    def create(
        self, assignment: AssignJob, listener: JobMasterListener, graph: JobGraph | None = None
    ) -> DefaultJobManagerRunner:
        """A runner for this assignment, not started. `graph`: the assignment's, where this process has verified it."""
        if not assignment.is_fresh:
            self._metrics.takeovers.inc()
        return DefaultJobManagerRunner(
            assignment,
            listener,
            graph,
            store=self._store,
            connections=self._connections,
            graph_source=self._graph_source,
            census_taker=self._census_taker,
            clock=self._clock,
            entropy=self._entropy,
            settings=self._settings,
            fence_keeper=self._fence_keeper,
            metrics=self._metrics,
            traces=self._traces,
        )


def _verify(data: bytes, digest: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        message = f"the stored job graph has digest {found}, the assignment names {digest}"
        raise JobGraphCorruptError(message)


def _name_in(data: bytes) -> str:
    """The name in a graph that cannot be used, as far as it can be read."""
    try:
        document = json.loads(data)
    except ValueError:
        return ""
    name = document.get("name") if isinstance(document, dict) else None
    return name[:256] if isinstance(name, str) else ""
