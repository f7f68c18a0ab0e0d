"""JobMasterSecondaryDispatcher: the jobs of one JobMaster process.

It is the Dispatcher of its jobs, and tells the leader what jobs it has. Invariants: what it tells at every registration
is complete (R5), so nothing that an older stream lost matters; an ended job stays in the inventory until the leader
drops it; orders come from the highest leader term only (R1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar, assert_never

from jobmaster_process.last_savepoints import stop_with_savepoints
from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.common.entropy import Entropy
from runtime.common.errors import BackpressureError, NotFoundError, PermanentError, StaleTokenError, UnavailableError
from runtime.common.fencing import FencingToken, HighestToken
from runtime.common.ids import JobId
from runtime.common.states import JobStatus, JobType
from runtime.common.waiting import Waiting, WaitingKind
from runtime.dispatcher.runner_registry import JobManagerRunnerRegistry, RunnerFailed
from runtime.gateways.dispatcher import (
    AssignJob,
    CancelJobs,
    DeclareRequirements,
    DispatcherOrder,
    DrainJobMaster,
    DropJobs,
    Empty,
    JobAssignmentRefused,
    JobDetailsResponse,
    JobInventoryEntry,
    JobMasterHeartbeat,
    JobRequest,
    JobsNotTaken,
    JobSummaries,
    JobSummary,
    NotifyResources,
    SubmitJobRequest,
    SubmitJobResponse,
)
from runtime.gateways.job_manager_runner import JobManagerRunnerFactory, JobManagerRunnerResult
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.gateways.resource_manager import JobRequirements
from runtime.rpc.service import MessageStream

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CHUNK_BYTES = 512 * 1024
_JOBS_PER_MESSAGE = 500

PUSH_DELAY = 0.05
"""Seconds that news of a running job may wait, so that several changes travel in one message."""


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """What the process uses now; `cpu_fraction` 1.0 is one core. `loop_lag`: how late its event loop is, in seconds."""

    cpu_fraction: float
    memory_bytes: int
    loop_lag: float = 0.0


class LoadProbe(Protocol):
    """Measures the process."""

    def sample(self) -> ProcessLoad:
        """The load since the last sample."""

    async def watch(self) -> None:
        """Measure what a sample alone cannot tell. Eternal."""


class JobMasterSecondaryDispatcher:
    """Implements DispatcherGateway for the jobs of this process, and JobMasterListener for their runners."""

    def __init__(
        self, *, capacity: int, scope: ServiceScope, runner_factory: JobManagerRunnerFactory, load: LoadProbe
    ) -> None:
        self._capacity = capacity
        self._load = load
        self._runners = JobManagerRunnerRegistry(scope, runner_factory, self, self._runner_ended)
        self._summaries: dict[JobId, JobSummary] = {}
        self._requirements: dict[JobId, JobRequirements] = {}
        self._ended: dict[JobId, JobInventoryEntry] = {}
        self._unsent_summaries: dict[JobId, JobSummary] = {}
        self._unsent_requirements: dict[JobId, JobRequirements] = {}
        self._is_flush_due = False
        self._lazy_flush: asyncio.TimerHandle | None = None
        self._stream: MessageStream | None = None
        self._highest: HighestToken | None = None
        self._assignment = 0
        self.is_draining: Watch[bool] = Watch(False)  # noqa: FBT003 - the first value
        """True while this process takes no jobs and wants others to take those that it has."""
        self.not_taken: Watch[str] = Watch("")
        """Why no process takes the jobs, as a leader has said last."""

    # --- the leader ---------------------------------------------------------------------------------------

    def attach(self, stream: MessageStream, token: FencingToken) -> None:
        """A leader has admitted this process on `stream`: tell it everything. StaleTokenError for an older leader."""
        self.check(None, token)
        self._stream = stream
        self._unsent_summaries = dict(self._summaries)
        self._unsent_requirements = dict(self._requirements)
        self._flush()
        self._send(self.heartbeat())

    def detach(self, stream: MessageStream) -> None:
        """The stream has ended; jobs go on without a leader."""
        if self._stream is stream:
            self._stream = None

    def check(self, _target: FencingToken | None, sender: FencingToken | None) -> None:
        """R1 for calls and streams: the sender is the leader with the highest term seen. Raises StaleTokenError.

        A process has no term that *target* could name.
        """
        if sender is None:
            message = "only a leader gives orders to a JobMaster process, and this call names none"
            raise StaleTokenError(message)
        if self._highest is None:
            self._highest = HighestToken("the JobManager", sender.cluster)
        self._highest.check(sender)

    def handle(self, order: DispatcherOrder) -> None:
        """An order of the leader that this process is attached to."""
        match order:
            case Heartbeat():
                pass
            case AssignJob():
                self._on_assign(order)
            case CancelJobs(jobs, reason):
                for job_id in jobs:
                    self._runners.cancel(job_id, reason)
            case DropJobs(entries):
                for entry in entries:
                    self._drop(entry)
            case NotifyResources(job_id, reason, kind):
                self._runners.notify_resources(job_id, Waiting(WaitingKind.of(kind), reason))
            case DrainJobMaster(is_draining):
                self.drain(is_draining=is_draining)
            case JobsNotTaken(reason):
                self.not_taken.set(reason)
            case _:
                assert_never(order)

    def heartbeat(self) -> JobMasterHeartbeat:
        """The complete inventory (R5), and the load."""
        load = self._load.sample()
        return JobMasterHeartbeat(
            self.inventory(),
            self._assignment,
            load.cpu_fraction,
            load.memory_bytes,
            self.is_draining.value,
            load.loop_lag,
        )

    async def watch_load(self) -> None:
        """Measure what heartbeats tell of the load. Eternal."""
        await self._load.watch()

    def inventory(self) -> tuple[JobInventoryEntry, ...]:
        """Every job that runs here, and those that ended and have not been dropped."""
        running = (
            JobInventoryEntry(runner.job_id, runner.epoch, runner.summary().status)
            for runner in self._runners
            if runner.job_id not in self._ended
        )
        return (*running, *self._ended.values())

    @property
    def jobs_running(self) -> int:
        """How many jobs run here."""
        return len(self._runners)

    def drain(self, *, is_draining: bool) -> None:
        """Begin or end to drain, and tell the leader."""
        if self.is_draining.value is not is_draining:
            logger.info("%s jobs", "this process gives away its" if is_draining else "this process takes")
            self.is_draining.set(is_draining)
        self._send(self.heartbeat())

    async def wait_empty(self) -> None:
        """Return when no job runs here."""
        _ = await self._runners.count.wait_until(lambda count: count == 0)

    def cancel_all(self) -> None:
        """Cancel every job that runs here."""
        for runner in self._runners:
            runner.cancel_job()

    async def save_all(self, target: str, timeout: float, entropy: Entropy) -> None:
        """Stop the streaming jobs that run here with savepoints below `target`, as far as that is done in time."""
        streaming = [one for one in self._runners if one.summary().job_type is JobType.STREAMING]
        await stop_with_savepoints(streaming, target, timeout, entropy)

    def _send(self, message: object) -> None:
        stream = self._stream
        if stream is None:
            return
        try:
            stream.send(message)
        except UnavailableError:
            logger.debug("the stream to the JobManager has ended")
        except BackpressureError as error:
            stream.abort(f"too much waits to be sent: {error}")

    # --- orders -------------------------------------------------------------------------------------------

    def _on_assign(self, order: AssignJob) -> None:
        self._assignment = max(self._assignment, order.epoch)
        ended = self._ended.get(order.job_id)
        runner = self._runners.get(order.job_id)
        if ended is not None and ended.epoch == order.epoch:
            self._publish(self._summaries[order.job_id])
        elif runner is None and self._runners.has_begun(order.job_id, order.epoch):
            self._refuse(order, "its JobMaster ended here under this epoch", is_permanent=True)
        elif runner is None and self.is_draining.value:
            self._refuse(order, "it is draining", is_permanent=False)
        elif runner is None and len(self._runners) >= self._capacity:
            self._refuse(order, f"all {self._capacity} places are taken", is_permanent=False)
        else:
            self._runners.start(order)

    def _refuse(self, order: AssignJob, reason: str, *, is_permanent: bool) -> None:
        self._send(JobAssignmentRefused(order.job_id, order.epoch, reason, is_permanent))

    def _drop(self, entry: JobInventoryEntry) -> None:
        ended = self._ended.get(entry.job_id)
        if ended is not None and ended.epoch == entry.epoch:
            del self._ended[entry.job_id]
            self._summaries.pop(entry.job_id, None)
        runner = self._runners.get(entry.job_id)
        if runner is not None and runner.epoch == entry.epoch and not entry.status.is_globally_terminal:
            self._forget(entry.job_id)
        self._runners.drop(entry)

    def _forget(self, job_id: JobId) -> None:
        self._summaries.pop(job_id, None)
        self._requirements.pop(job_id, None)

    # --- JobMasterListener --------------------------------------------------------------------------------

    def job_summary_changed(self, summary: JobSummary) -> None:
        """The summary of a job has changed. SUSPENDED means only that this owner lets go of the job: no news."""
        if summary.status is JobStatus.SUSPENDED:
            return
        self._summaries[summary.job_id] = summary
        if summary.status.is_globally_terminal:
            self._ended[summary.job_id] = JobInventoryEntry(summary.job_id, summary.epoch, summary.status)
            # An ended job needs nothing: the leader learns that with the end.
            self._requirements.pop(summary.job_id, None)
        self._publish(summary)

    def requirements_changed(self, requirements: JobRequirements) -> None:
        """The complete requirement set of a job has changed."""
        if requirements.job_id not in self._ended:
            self._requirements[requirements.job_id] = requirements
        self._unsent_requirements[requirements.job_id] = requirements
        self._flush_soon()

    def _publish(self, summary: JobSummary) -> None:
        """Send an end at once, and other news after a while: people read those, and a short job needs one message."""
        self._unsent_summaries[summary.job_id] = summary
        if summary.status.is_globally_terminal:
            self._flush_soon()
        elif self._lazy_flush is None:
            self._lazy_flush = asyncio.get_running_loop().call_later(PUSH_DELAY, self._flush)

    def _flush_soon(self) -> None:
        """Send in the next loop turn, so that what all jobs say in this one travels in one message."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._lazy_flush is not None:
            self._lazy_flush.cancel()
            self._lazy_flush = None
        summaries, self._unsent_summaries = self._unsent_summaries, {}
        requirements, self._unsent_requirements = self._unsent_requirements, {}
        for some in _batches(list(summaries.values())):
            self._send(JobSummaries(some))
        for needs in _batches(list(requirements.values())):
            self._send(DeclareRequirements(needs))

    def _runner_ended(self, outcome: JobManagerRunnerResult | RunnerFailed) -> None:
        """Forget what only a running job needs; what the leader has not heard yet stays."""
        self._requirements.pop(outcome.job_id, None)
        if isinstance(outcome, RunnerFailed):
            self._forget(outcome.job_id)
            self._send(JobAssignmentRefused(outcome.job_id, outcome.epoch, outcome.reason, is_permanent=True))
        elif outcome.summary is None:
            self._forget(outcome.job_id)
        elif outcome.job_id not in self._ended:
            self.job_summary_changed(outcome.summary)

    # --- DispatcherGateway --------------------------------------------------------------------------------

    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        """Jobs become durable in the JobManager only."""
        message = f"job {request.job_id} was submitted to a JobMaster process: submit it to the JobManager"
        raise PermanentError(message)

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """Cancel a job of this process; the caller (a leader) has made the wish durable."""
        if self._runners.get(request.job_id) is None:
            raise _unknown(request.job_id)
        self._runners.cancel(request.job_id)
        return Empty()

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        """The execution graph of a job that runs here."""
        return JobDetailsResponse(self._archived_graph(request.job_id))

    async def request_operation(self, request: TriggerOperation, /) -> StreamOperation:
        """A checkpoint, a savepoint or a stop of a job that runs here."""
        runner = self._runners.get(request.job_id)
        if runner is None:
            raise _unknown(request.job_id)
        return await runner.trigger_operation(request)

    async def set_requirements(self, request: UpdateRequirements, /) -> RequirementsUpdated:
        """Other bounds of the parallelism of a job that runs here."""
        runner = self._runners.get(request.job_id)
        if runner is None:
            raise _unknown(request.job_id)
        return await runner.update_requirements(request)

    async def job_details(self, key: str) -> AsyncIterator[bytes]:
        """The execution graph of a job as a chunk source, for a graph above the size of a message."""
        graph = self._archived_graph(JobId(key))
        for start in range(0, len(graph), _CHUNK_BYTES):
            yield graph[start : start + _CHUNK_BYTES]

    def _archived_graph(self, job_id: JobId) -> bytes:
        runner = self._runners.get(job_id)
        if runner is None:
            raise _unknown(job_id)
        return runner.archived_graph()


def _batches(items: list[T]) -> Iterator[tuple[T, ...]]:
    """Parts of `items`, each small enough for a message: a new leader hears of all jobs at once."""
    for start in range(0, len(items), _JOBS_PER_MESSAGE):
        yield tuple(items[start : start + _JOBS_PER_MESSAGE])


def _unknown(job_id: JobId) -> NotFoundError:
    return NotFoundError(f"job {job_id} does not run in this JobMaster process")
