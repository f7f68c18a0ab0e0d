"""The Dispatcher of one term: executes what the registry of jobs decides, and answers REST.

Invariants: the registry is changed by `_post` only, which never suspends; every transaction of a job runs in a task
of this term's scope and ends by posting its outcome; a term that is over answers nothing but UnavailableError.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from pydantic import BaseModel, ConfigDict, ValidationError

from runtime.aio.periodic import Reconciler
from runtime.aio.scope import Scope
from runtime.aio.turns import Turns
from runtime.common.errors import BackpressureError, ConflictError, InvalidInputError, NotFoundError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.shares import DEFAULT_QUEUE, JobShare
from runtime.common.states import JobStatus
from runtime.common.waiting import Waiting
from runtime.dispatcher.cleanup import JobCleaner
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.processes import JobMasterProcess
from runtime.dispatcher.core.retention import FinishedJob
from runtime.dispatcher.job_reads import JobReads
from runtime.dispatcher.services import DispatcherServices, ResourceRequests
from runtime.dispatcher.settings import DispatcherSettings
from runtime.dispatcher.transactions import JobTransactions
from runtime.dispatcher.waiters import JobWaiters
from runtime.dispatcher.waiting_calls import AnswerT, WaitingCalls
from runtime.gateways.cluster_events import ClusterEvents
from runtime.gateways.dispatcher import (
    AssignJob,
    Empty,
    JobDetailsResponse,
    JobInventoryEntry,
    JobRequest,
    JobSummary,
    SubmitJobRequest,
    SubmitJobResponse,
    SubmitOutcome,
)
from runtime.gateways.operations import OperationState, StreamOperation, TriggerOperation
from runtime.gateways.overview import JobActivity, JobMasterInfo, JobMasterLoad
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.highavailability.disposals import DisposalStore
from runtime.jobgraph.graph import JobGraph

logger = logging.getLogger(__name__)


class Dispatcher(ABC):
    """The base of both Dispatchers (`primary`, `standalone`). Implements `runtime.gateways.overview.DispatcherView`."""

    def __init__(self, settings: DispatcherSettings, services: DispatcherServices, resources: ResourceRequests) -> None:
        self._settings = settings
        self._services = services
        self._resources = resources
        self._registry = JobRegistry(settings.limits, settings.shown, settings.moves, settings.client_grace)
        self._scope = Scope("dispatcher")
        self._waiters = JobWaiters()
        self._calls = WaitingCalls()
        self._turns = Turns(self._handle)
        self._ended: dict[JobId, bool] = {}
        """The jobs that a turn ends, with whether their outputs are kept: the ResourceManager is told all together."""
        self._is_open = False
        self._transactions = JobTransactions(services, self._post, self.namespace_of)
        self._reads = JobReads(services)
        self.cleaner = JobCleaner(settings, services, self._registry, self._post)
        self._cleaning = Reconciler("dispatcher/cleaner", self.cleaner.clean, period=settings.clean_period)
        self._forgetting = Reconciler("dispatcher/retention", self.cleaner.forget, period=settings.forget_period)

    # --- the term -----------------------------------------------------------------------------------------

    async def run(
        self,
        stored: Sequence[ev.RecoveredJob],
        finished: Sequence[FinishedJob],
        processes: Sequence[ev.ProcessKnown],
        *,
        started: Callable[[], None],
    ) -> None:
        """Serve until cancelled. `stored`, `finished` (oldest first) and `processes` are all that a term finds.

        Raises StaleTokenError, in an ExceptionGroup, when a transaction finds the term over.
        """
        try:
            async with self._scope:
                self._is_open = True
                for job in stored:
                    self._services.traces.known(job.source)
                for process in processes:
                    self._post(process)
                self._execute_all(self._registry.recover(stored, finished))
                self._scope.spawn_eternal("cleaner", self._cleaning.run())
                self._scope.spawn_eternal("retention", self._forgetting.run())
                self._scope.spawn_eternal("ticker", self._tick())
                await self._begin()
                logger.info("dispatcher serves %d jobs, %d finished ones", len(stored), len(finished))
                started()
                await asyncio.get_running_loop().create_future()
        finally:
            self._close()

    def _close(self) -> None:
        self._is_open = False
        error = UnavailableError("the term of this dispatcher is over")
        self._waiters.fail(error)
        self._calls.fail(error)
        self._end()

    @abstractmethod
    async def _begin(self) -> None:
        """Start what this kind of Dispatcher has beyond the shared part."""

    @abstractmethod
    def _end(self) -> None:
        """Stop that part; it must not act from now on."""

    @abstractmethod
    def _send_assign(self, incarnation: Incarnation, message: AssignJob) -> None:
        """Have a process run a job. Delivery is not guaranteed: R5 repeats it."""

    @abstractmethod
    def _send_cancel(self, incarnation: Incarnation, job_id: JobId, reason: str) -> None:
        """Tell a process that a job is wanted cancelled."""

    @abstractmethod
    def _send_drop(self, incarnation: Incarnation, entries: tuple[JobInventoryEntry, ...]) -> None:
        """Tell a process to let go of jobs."""

    @abstractmethod
    def _send_drain(self, incarnation: Incarnation, *, is_draining: bool) -> None:
        """Tell a process to begin or end its draining."""

    @abstractmethod
    def _send_not_taken(self, incarnation: Incarnation, reason: str) -> None:
        """Tell a draining process that no other process has room for its jobs."""

    @abstractmethod
    def notify_resources(self, job_id: JobId, waiting: Waiting) -> None:
        """Tell a job's owner why its requirements are not fulfilled, or that they are."""

    @abstractmethod
    async def _request_owner(self, owner: ev.JobOwner, request: JobRequest) -> bytes:
        """The execution graph of a running job, from its owner."""

    @abstractmethod
    async def _update_at_owner(self, owner: ev.JobOwner, request: UpdateRequirements) -> RequirementsUpdated:
        """Have a running job's owner change the bounds of its parallelism."""

    @abstractmethod
    async def _trigger_at_owner(self, owner: ev.JobOwner, request: TriggerOperation) -> StreamOperation:
        """Have a running job's owner begin an operation."""

    # --- events and effects -------------------------------------------------------------------------------

    def _post(self, event: ev.DispatcherEvent) -> None:
        """Decide on an event and carry out what follows. Events that arise meanwhile come after it."""
        self._turns.post(event)

    def _handle(self, event: ev.DispatcherEvent) -> None:
        self._execute_all(self._registry.handle(event))

    def _execute_all(self, effects: Sequence[ef.DispatcherEffect]) -> None:
        for effect in effects:
            self._execute(effect)
        if self._ended:
            ended, self._ended = self._ended, {}
            self._resources.end_jobs(ended)
            if self._registry.dirty_count() >= self._settings.clean_jobs_min:
                self._cleaning.signal()

    def _execute(self, effect: ef.DispatcherEffect) -> None:
        match effect:
            case ef.PublishSummary(job_id):
                self._publish(job_id)
            case ef.EndJobEverywhere(job_id, keeps_outputs):
                self._ended[job_id] = keeps_outputs
                if (summary := self._registry.summary(job_id)) is not None:
                    self._services.metrics.ended(summary.status)
            case ef.ReplySubmitted() | ef.ReplyCancelled() | ef.ReplyDone() | ef.Refuse():
                self._reply(effect)
            case ef.SendAssign() | ef.SendCancel() | ef.SendDrop() | ef.SendDrain() | ef.SendNotTaken():
                self._tell(effect)
            case _:
                self._transactions.start(effect, self._scope)

    def _tell(self, effect: ef.Message) -> None:
        match effect:
            case ef.SendAssign(incarnation, message):
                self._send_assign(incarnation, message)
            case ef.SendCancel(incarnation, job_id, reason):
                self._send_cancel(incarnation, job_id, reason)
            case ef.SendDrop(incarnation, entries):
                self._send_drop(incarnation, entries)
            case ef.SendDrain(incarnation, is_draining):
                self._send_drain(incarnation, is_draining=is_draining)
            case ef.SendNotTaken(incarnation, reason):
                self._send_not_taken(incarnation, reason)
            case _:
                assert_never(effect)

    def _reply(self, effect: ef.Answer) -> None:
        match effect:
            case ef.ReplySubmitted(request, outcome, status):
                self._calls.answer(request, SubmitJobResponse(outcome, status))
            case ef.ReplyCancelled(request) | ef.ReplyDone(request):
                self._calls.answer(request, Empty())
            case ef.Refuse(request, error):
                if isinstance(error, BackpressureError):
                    self._cleaning.signal()
                self._calls.refuse(request, error)
            case _:
                assert_never(effect)

    def _publish(self, job_id: JobId) -> None:
        summary = self._registry.summary(job_id)
        self._waiters.wake(job_id)
        if summary is None:
            return
        if summary.status.is_globally_terminal:
            logger.info("job %s: %s", summary.job_id, summary.status.name)
        elif summary.pending_reason:
            logger.info("job %s: %s (%s)", summary.job_id, summary.status.name, summary.pending_reason)

    async def _ask(self, make_event: Callable[[int], ev.DispatcherEvent], answer_type: type[AnswerT]) -> AnswerT:
        """Post an event and await its answer. A caller that stops waiting stops nothing else."""
        try:
            return await self._calls.ask(lambda request: self._post(make_event(request)), answer_type)
        except NotFoundError:
            await self._services.store.check_term()  # R4
            raise

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tick_period)
            self._post(ev.Ticked(self._services.clock.epoch_millis(), self._services.clock.monotonic()))

    def _check_open(self) -> None:
        if not self._is_open:
            message = "this dispatcher does not lead"
            raise UnavailableError(message)

    # --- DispatcherGateway --------------------------------------------------------------------------------

    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        """Make a job durable and have it run, of which another process says that it is valid."""
        self._check_open()
        _check_digest(request)
        return await self._submit(request, _head(request))

    async def submit_verified(self, request: SubmitJobRequest, graph: JobGraph, /) -> SubmitJobResponse:
        """The same for a graph that this process has parsed and digested: neither is done again."""
        self._check_open()
        savepoint = None if graph.savepoint is None else _Start(path=graph.savepoint.path)
        head = _Head(name=graph.name, checkpoint_name=graph.checkpoint_name, savepoint=savepoint)
        return await self._submit(request, head)

    async def _submit(self, request: SubmitJobRequest, head: _Head) -> SubmitJobResponse:
        source = ev.JobSource(
            job_id=request.job_id,
            digest=request.digest,
            name=head.name,
            graph=request.graph,
            graph_key="",
            submit_millis=self._services.clock.epoch_millis(),
            client=request.client,
            submitter=request.submitter,
            namespace=request.namespace or DEFAULT_NAMESPACE,
            trace=request.trace,
            program_run=request.program_run,
            checkpoint_name=head.checkpoint_name,
            savepoint="" if head.savepoint is None else head.savepoint.path,
            queue=request.queue or DEFAULT_QUEUE,
            priority=request.priority,
        )
        clock, metrics = self._services.clock, self._services.metrics
        begin = clock.monotonic()
        try:
            answer = await self._ask(lambda number: ev.SubmitRequested(number, source), SubmitJobResponse)
        except BaseException as error:
            metrics.refused(error, clock.monotonic() - begin)
            raise
        metrics.submitted(answer, clock.monotonic() - begin)
        if source.trace and answer.outcome is SubmitOutcome.ACCEPTED:
            self._services.traces.known(source)
            self._services.traces.submitted(source)
        return answer

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """Make the wish to cancel durable, and forward it."""
        self._check_open()
        if self._registry.summary(request.job_id) is None and self._registry.entry(request.job_id) is None:
            await self._reads.check_cancel_of_cleaned(request.job_id)
            return Empty()
        return await self._ask(lambda number: ev.CancelRequested(number, request.job_id), Empty)

    async def client_heartbeat(self, job_id: JobId, /, *, expires_millis: int) -> None:
        """The job's client will be back by then. Returns when that is durable."""
        self._check_open()
        if self._registry.entry(job_id) is None and await self.find_job(job_id) is not None:
            return  # it has ended
        await self._ask(lambda number: ev.HeartbeatRequested(number, job_id, expires_millis), Empty)

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        """The execution graph of a job: from its owner, or without one from the store."""
        self._check_open()
        entry = self._registry.entry(request.job_id)
        owner = self._registry.owner(request.job_id)
        if entry is not None and owner is not None and entry.summary.epoch > 0:
            try:
                return JobDetailsResponse(await self._request_owner(owner, request))
            except NotFoundError:
                # That process does not run the job any more: the job has ended, or has another owner.
                entry = self._registry.entry(request.job_id)
        return JobDetailsResponse(await self._read_job(request.job_id, entry))

    async def request_operation(self, request: TriggerOperation, /) -> StreamOperation:
        """A checkpoint, a savepoint or a stop, which the job's owner makes durable first (R61)."""
        self._check_open()
        if (known := await self.find_operation(request.job_id, request.trigger_id)) is not None:
            if not known.is_answer_to(request):
                message = f"triggerId {request.trigger_id} is taken by another operation of the job"
                raise ConflictError(message)
            return known
        no_state = "it has no state any more that could be saved"
        if (owner := await self._living_owner(request.job_id, no_state)) is not None:
            with suppress(NotFoundError):  # that process does not run the job any more
                return await self._trigger_at_owner(owner, request)
        raise _waits(request.job_id)

    async def set_requirements(self, request: UpdateRequirements, /) -> RequirementsUpdated:
        """Other bounds of the parallelism of a running job, which its owner makes durable first (R69)."""
        self._check_open()
        if (owner := await self._living_owner(request.job_id, "it has no tasks any more")) is not None:
            with suppress(NotFoundError):
                return await self._update_at_owner(owner, request)
        raise _waits(request.job_id)

    async def _living_owner(self, job_id: JobId, why_not: str) -> ev.JobOwner | None:
        """Who has a job that has not ended, None for nobody. Raises ConflictError for one that has, NotFoundError."""
        entry, owner = self._registry.entry(job_id), self._registry.owner(job_id)
        if entry is None or entry.phase.state in {JobPhase.TERMINAL, JobPhase.DONE}:
            summary = await self.find_job(job_id)
            if summary is None:
                raise await self._reads.unknown(job_id)
            message = f"job {job_id} is {summary.status.name}: {why_not}"
            raise ConflictError(message)
        return owner if entry.summary.epoch > 0 else None

    async def find_operation(self, job_id: JobId, trigger_id: str, /) -> StreamOperation | None:
        """What is known of an operation, also after the job; None for an unknown one.

        One of a job that has ended and that is not completed will never be: no owner can write it any more.
        """
        self._check_open()
        summary = await self.find_job(job_id)
        found = await self._services.store.operation(job_id, trigger_id)
        if found is None or found.state is not OperationState.IN_PROGRESS:
            return found
        if summary is None or not summary.status.is_globally_terminal:
            return found
        cause = f"job {job_id} has ended before: it is {summary.status.name}"
        return replace(found, state=OperationState.FAILED, cause=cause, ended_millis=summary.end_millis)

    async def _read_job(self, job_id: JobId, entry: JobEntry | None) -> bytes:
        if entry is None:
            return await self._reads.cleaned(job_id)
        if entry.phase.state in {JobPhase.TERMINAL, JobPhase.DONE}:
            return await self._reads.ended(job_id, entry.summary)
        if entry.phase.state is JobPhase.SUBMITTING:
            raise await self._reads.unknown(job_id)
        return await self._reads.unowned(entry.source, entry.summary, can_have_begun=entry.can_have_begun)

    @property
    def events(self) -> ClusterEvents:
        """The events of this term."""
        return self._services.events

    @property
    def disposals(self) -> DisposalStore | None:
        """Savepoints that are to be deleted, as this term stores them."""
        return self._services.disposals

    @property
    def token(self) -> FencingToken:
        """The term."""
        return self._services.token

    # --- DispatcherView -----------------------------------------------------------------------------------

    def job_summaries(self) -> Sequence[JobSummary]:
        """Every job that is shown, newest first."""
        self._check_open()
        return self._registry.shown.newest_first()

    def job_counts(self) -> Mapping[JobStatus, int]:
        """How many jobs there are of each status."""
        self._check_open()
        return self._registry.shown.counts()

    def job_activity(self) -> JobActivity:
        """How much has changed in this term."""
        self._check_open()
        shown = self._registry.shown
        return JobActivity(self.token.revision, shown.changes, shown.jobs_ended, shown.tasks_ended)

    def job_summary(self, job_id: JobId, /) -> JobSummary | None:
        """What is shown of one job."""
        self._check_open()
        return self._registry.summary(job_id)

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        """What is known of one job, of one too that ended too long ago to be shown."""
        shown = self.job_summary(job_id)
        return shown if shown is not None else await self._reads.cleaned_summary(job_id)

    async def find_jobs(self, jobs: Collection[JobId], /) -> Mapping[JobId, JobSummary]:
        """What is known of many jobs; jobs that are not known are left out."""
        self._check_open()
        found = {job_id: one for job_id in jobs if (one := self._registry.summary(job_id)) is not None}
        forgotten = [job_id for job_id in jobs if job_id not in found]
        return {**found, **await self._reads.cleaned_summaries(forgotten)}

    def job_owner(self, job_id: JobId, /) -> JobMasterInfo | None:
        """The process that runs the job now."""
        self._check_open()
        owner = self._registry.owner(job_id)
        process = None if owner is None else self._registry.processes.get(owner.incarnation)
        return None if process is None else self._info(process)

    def job_masters(self) -> Sequence[JobMasterInfo]:
        """All JobMaster processes that are known."""
        self._check_open()
        return [self._info(process) for process in self._registry.processes]

    def jobs_of(self, incarnation: Incarnation, /) -> Sequence[JobSummary]:
        """The jobs that a process runs, by id. Raises NotFoundError."""
        self._check_open()
        process = self._registry.processes.get(incarnation)
        if process is None:
            message = f"JobMaster process {incarnation} is not known"
            raise NotFoundError(message)
        shown = (self._registry.summary(job_id) for job_id in sorted(process.jobs))
        return [summary for summary in shown if summary is not None]

    async def drain_job_master(self, incarnation: Incarnation, /, *, is_draining: bool) -> None:
        """Have a process give away its jobs and take none, or take jobs again. Returns when the process confirms."""
        self._check_open()
        try:
            async with asyncio.timeout(self._settings.rpc_timeout):
                await self._ask(lambda number: ev.DrainRequested(number, incarnation, is_draining), Empty)
        except TimeoutError:
            message = f"JobMaster process {incarnation} does not answer"
            raise UnavailableError(message) from None

    async def move_job(self, job_id: JobId, target: Incarnation, /) -> None:
        """Have another process run a job. Returns when the wish is durable."""
        self._check_open()
        await self._ask(lambda number: ev.MoveRequested(number, job_id, target), Empty)

    async def wait_for_jobs(
        self, known: Mapping[JobId, int], /, *, timeout: float, name: str = "", principal: str = ""
    ) -> frozenset[JobId]:
        """Those of `known` with news, as soon as there are any; none after `timeout` seconds."""
        self._check_open()
        self._waiters.end(name)
        news = frozenset(job_id for job_id, modified in known.items() if self._is_news(job_id, modified))
        if news or not known or timeout <= 0:
            return news
        return await self._waiters.wait(known.keys(), timeout, name, principal=principal)

    def _is_news(self, job_id: JobId, modified: int) -> bool:
        summary = self._registry.summary(job_id)
        return summary is None or summary.status.is_globally_terminal or summary.last_modification_millis != modified

    def _info(self, process: JobMasterProcess) -> JobMasterInfo:
        return JobMasterInfo(
            incarnation=process.incarnation,
            address=process.address,
            state=process.state,
            version=process.version,
            capacity=process.capacity,
            jobs_running=len(process.jobs),
            jobs_assigned=process.jobs_assigned,
            cpu_fraction=process.cpu_fraction,
            memory_bytes=process.memory_bytes,
            last_heard_millis=self._last_heard_millis(process.incarnation),
            metrics_address=process.metrics_address,
            worker_id=process.worker_id,
            loop_lag=process.loop_lag,
            is_draining=process.is_draining,
        )

    @abstractmethod
    def _last_heard_millis(self, incarnation: Incarnation) -> int:
        """When the process was last heard, as shown to people."""

    # --- what the ResourceManager of this term asks -------------------------------------------------------

    def owner_of(self, job_id: JobId) -> ev.JobOwner | None:
        """The process that runs the job by this leader's own writing (R7)."""
        return self._registry.owner(job_id)

    def is_owned_by(self, job_id: JobId, incarnation: Incarnation, epoch: int) -> bool:
        """True if the owner key names that process and epoch (R7). False while it is written: it may have changed."""
        entry = self._registry.entry(job_id)
        return entry is not None and entry.is_owned_by(incarnation, epoch)

    def owner_cut_off(self, job_id: JobId, epoch: int) -> None:
        """The owner under that epoch cannot reach TaskManagers that the job needs (R7)."""
        self._post(ev.OwnerCutOff(job_id, epoch))

    def job_master_load(self) -> JobMasterLoad | None:
        """The JobMaster processes, and what waits for one (R65); None while this Dispatcher does not serve."""
        return JobMasterLoad(self.job_masters(), self._registry.waiting_count) if self._is_open else None

    def advise_job_masters(self, advice: str) -> None:
        """What jobs are to say that wait for a JobMaster process."""
        self._post(ev.ProcessesAdvised(advice))

    def is_unfinished(self, job_id: JobId) -> bool:
        """True if the job is known and has no result."""
        entry = self._registry.entry(job_id)
        return entry is not None and entry.phase.state is not JobPhase.TERMINAL

    def is_cleaned(self, job_id: JobId, /) -> bool:
        """True if nothing is left to do for a job that has ended: its archive and its history are written."""
        self._check_open()
        entry = self._registry.entry(job_id)
        return entry is None or entry.phase.state is JobPhase.DONE

    def started_from(self) -> Mapping[JobId, str]:
        """Jobs that have not ended, with the paths of the savepoints that they were started from."""
        return self._registry.started_from()

    def namespace_of(self, job_id: JobId) -> str:
        """The namespace to which the job belongs, as this leader has stored it (R48)."""
        entry = self._registry.entry(job_id)
        return DEFAULT_NAMESPACE if entry is None else entry.source.namespace

    def share_of(self, job_id: JobId) -> JobShare:
        """Where the job waits for slots, as this leader has stored it (D-128)."""
        entry = self._registry.entry(job_id)
        return JobShare() if entry is None else JobShare(entry.source.queue, entry.source.priority)

    def keeps_outputs(self, job_id: JobId) -> bool:
        """True if what an ended job wrote may still be committed by hand (R28), as with a job that is not known."""
        summary = self._registry.summary(job_id)
        return summary is None or summary.keeps_outputs


def _check_digest(request: SubmitJobRequest) -> None:
    digest = hashlib.sha256(request.graph).hexdigest()
    if digest != request.digest:
        message = f"job {request.job_id}: the job graph has digest {digest}, the submit says {request.digest[:80]!r}"
        raise InvalidInputError(message)


class _Start(BaseModel):
    """The savepoint that a job is started from."""

    model_config = ConfigDict(extra="ignore", strict=True)
    path: str


class _Head(BaseModel):
    """Its names alone: REST has read the whole graph before."""

    model_config = ConfigDict(extra="ignore", strict=True)
    name: str
    checkpoint_name: str = ""
    savepoint: _Start | None = None


def _head(request: SubmitJobRequest) -> _Head:
    try:
        return _Head.model_validate_json(request.graph)
    except ValidationError as error:
        message = f"job {request.job_id}: the job graph is not a JSON object with a name"
        raise InvalidInputError(message) from error


def _waits(job_id: JobId) -> UnavailableError:
    return UnavailableError(f"job {job_id} waits for a JobMaster: ask again")
