"""The life of one JobMaster under one epoch: from its assignment over its graph to a durable result.

Invariants: a graph is used only when its digest is the assignment's; storage that is away is asked again without limit
and with a visible reason, a graph that is wrong or authoritatively missing is looked for twice, 10 s apart, and then
fails this job and nothing else (R20); an assignment under which something may still be running is never started anew
(R6).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from typing import Protocol

from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError, PermanentError, RetryableError
from runtime.common.ids import JobId
from runtime.executiongraph.core.failures import system_failure
from runtime.gateways.dispatcher import AssignJob, JobSummary
from runtime.gateways.job_manager_runner import JobManagerRunnerResult, JobMasterListener
from runtime.highavailability.job_store import OwnerJobStore
from runtime.jobgraph.graph import JobGraph
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.jobmaster.endpoint import JobMaster, JobMasterSettings
from runtime.scheduler.core import events as ev

logger = logging.getLogger(__name__)


class GraphSource(Protocol):
    """Where graphs come from that did not travel inline: the BLOB service of the process."""

    async def __call__(self, key: str, sha256: str, /) -> bytes:
        """The object's bytes. RetryableError while storage is away; NotFoundError when it says there is none."""


class JobGraphCorruptError(PermanentError):
    """The bytes of a graph do not have the digest that the assignment names."""


class NotAdoptableError(PermanentError):
    """Something of the job may be running under an earlier owner."""


class DefaultJobManagerRunner:
    """Implements `JobManagerRunner`."""

    __slots__ = ("_assignment", "_clock", "_connections", "_entropy", "_graph_source", "_job_master", "_settings")

    def __init__(
        self,
        assignment: AssignJob,
        listener: JobMasterListener,
        *,
        store: OwnerJobStore,
        connections: TaskManagerConnections,
        graph_source: GraphSource,
        clock: Clock,
        entropy: Entropy,
        settings: JobMasterSettings,
    ) -> None:
        self._assignment: AssignJob | None = assignment
        self._connections = connections
        self._graph_source = graph_source
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._job_master = JobMaster(
            assignment,
            store=store,
            connections=connections,
            listener=listener,
            clock=clock,
            entropy=entropy,
            settings=settings,
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

    def cancel_job(self) -> None:
        """The job's `wanted` key says cancel. Idempotent."""
        self._job_master.post(ev.CancelWanted(self._job_master.moment()))

    def notify_resources(self, reason: str) -> None:
        """Why requirements are not fulfilled, "" when they are."""
        self._job_master.post(ev.ResourcesNotified(reason, self._job_master.moment()))

    async def run(self) -> JobManagerRunnerResult:
        """Run the job until its result is durable or it is somebody else's. Cancelling ends it here only."""
        assignment, self._assignment = self._assignment, None  # the graph's bytes are not kept
        assert assignment is not None, f"runner of job {self.job_id} runs twice"
        self._connections.register(self._job_master)
        try:
            if assignment.graph or not assignment.is_fresh:
                self._initialize(assignment, assignment.graph)
                del assignment
                summary = await self._job_master.run()
            else:
                summary = await self._run_with_fetch(assignment)
        finally:
            self._connections.unregister(self._job_master)
        return JobManagerRunnerResult(self.job_id, self.epoch, summary)

    async def _run_with_fetch(self, assignment: AssignJob) -> JobSummary | None:
        async with Scope(f"job {self.job_id}") as scope:
            fetching = scope.start("fetch-graph", self._fetch(assignment))
            summary = await self._job_master.run()
            fetching.cancel()
        return summary

    # --- the graph ------------------------------------------------------------------------------------------------

    async def _fetch(self, assignment: AssignJob) -> None:
        attempt = 0
        looked_once = False
        while True:
            try:
                data = await self._graph_source(assignment.graph_key, assignment.digest)
                _verify(data, assignment.digest)
            except RetryableError as error:
                delay = self._settings.graph_retry.delay(attempt, self._entropy)
                attempt += 1
                self._delayed(f"the job graph cannot be read, it is tried again: {error}")
            except PermanentError as error:
                if looked_once:
                    self._fail(error, b"")
                    return
                looked_once = True
                delay = self._settings.graph_second_look
                self._delayed(f"the job graph is looked for once more in {delay:g} s: {error}")
            else:
                self._initialize(assignment, data)
                return
            await asyncio.sleep(delay)

    def _delayed(self, reason: str) -> None:
        logger.warning("job %s: %s", self.job_id, reason)
        self._job_master.post(ev.InitializationDelayed(reason, self._job_master.moment()))

    def _initialize(self, assignment: AssignJob, data: bytes) -> None:
        try:
            _check_fresh(assignment)
            _verify(data, assignment.digest)
            # Which Python the code was pickled with is the slots' concern, not this process's.
            graph = JobGraph.parse(data, python=None)
        except FlinklikeError as error:
            self._fail(error, data)
            return
        self._job_master.post(ev.JobGraphLoaded(graph, self._job_master.moment()))

    def _fail(self, error: FlinklikeError, data: bytes) -> None:
        logger.error("job %s cannot be initialised: %s", self.job_id, error)
        at = self._job_master.moment()
        failure = system_failure("JobInitializationError", f"the job cannot be initialised: {error}", at.millis)
        self._job_master.post(ev.InitializationFailed(failure, _name_in(data), at))


class DefaultJobManagerRunnerFactory:
    """Implements `JobManagerRunnerFactory` for one process. `connections` must be served and run by the caller."""

    def __init__(
        self,
        *,
        store: OwnerJobStore,
        connections: TaskManagerConnections,
        graph_source: GraphSource,
        clock: Clock,
        entropy: Entropy,
        settings: JobMasterSettings,
    ) -> None:
        self._store = store
        self._connections = connections
        self._graph_source = graph_source
        self._clock = clock
        self._entropy = entropy
        self._settings = settings

    def create(self, assignment: AssignJob, listener: JobMasterListener) -> DefaultJobManagerRunner:
        """A runner for this assignment, not started."""
        return DefaultJobManagerRunner(
            assignment,
            listener,
            store=self._store,
            connections=self._connections,
            graph_source=self._graph_source,
            clock=self._clock,
            entropy=self._entropy,
            settings=self._settings,
        )


def _check_fresh(assignment: AssignJob) -> None:
    if assignment.is_fresh:
        return
    message = (
        f"job {assignment.job_id} had an owner before epoch {assignment.epoch}, and what that one started may still "
        "be running: it is not started a second time"
    )
    raise NotAdoptableError(message)


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
