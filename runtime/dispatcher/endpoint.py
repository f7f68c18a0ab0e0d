"""The Dispatcher of one term: executes what the registry of jobs decides, and answers REST.

Invariants: the registry is changed by `_post` only, which never suspends; every transaction of a job runs in a task
of this term's scope and ends by posting its outcome; a term that is over answers nothing but UnavailableError.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from runtime.aio.periodic import Reconciler
from runtime.aio.scope import Scope
from runtime.common.errors import BackpressureError, FlinklikeError, InvalidInputError, NotFoundError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.states import JobStatus
from runtime.dispatcher.cleanup import JobCleaner
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
from runtime.gateways.dispatcher import (
    AssignJob,
    Empty,
    JobDetailsResponse,
    JobInventoryEntry,
    JobRequest,
    JobSummary,
    SubmitJobRequest,
    SubmitJobResponse,
)
from runtime.gateways.overview import JobMasterInfo
from runtime.jobgraph.graph import JobGraph

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class Dispatcher(ABC):
    """What both kinds of Dispatcher share. Implements `runtime.gateways.overview.DispatcherView`."""

    def __init__(self, settings: DispatcherSettings, services: DispatcherServices, resources: ResourceRequests) -> None:
        self._settings = settings
        self._services = services
        self._resources = resources
        self._registry = JobRegistry(settings.limits, settings.shown, settings.moves, settings.client_grace)
        self._scope = Scope("dispatcher")
        self._waiters = JobWaiters()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._requests = 0
        self._events: deque[ev.DispatcherEvent] = deque()
        self._is_handling = False
        self._ended: dict[JobId, bool] = {}
        """Told together, with whether their outputs are kept."""
        self._is_open = False
        self._transactions = JobTransactions(services, self._post)
        self._reads = JobReads(services)
        self.cleaner = JobCleaner(settings, services, self._registry, self._post)
        self._cleaning = Reconciler(
            "dispatcher/cleaner", self.cleaner.clean, period=settings.clean_period, clock=services.clock
        )
        self._forgetting = Reconciler(
            "dispatcher/retention", self.cleaner.forget, period=settings.forget_period, clock=services.clock
        )
        self._executors = self._make_executors()

    def _make_executors(self) -> dict[type[Any], Callable[[Any], None]]:
        return {
            ev.StoreJob: self._spawner("submit", self._transactions.submit),
            ev.StoreOwner: self._spawner("assign", self._transactions.assign),
            ev.StoreWanted: self._spawner("want", self._transactions.want),
            ev.StoreMoveWish: self._spawner("move", self._transactions.wish_move),
            ev.StorePromise: self._spawner("promise", self._transactions.promise),
            ev.StoreEnd: self._spawner("end", self._transactions.end_without_owner),
            ev.ReloadJob: self._spawner("reload", self._transactions.reload),
            ev.SeekResult: self._spawner("seek-result", self._transactions.seek_result),
            ev.SendAssign: lambda effect: self._send_assign(effect.incarnation, effect.message),
            ev.SendCancel: lambda effect: self._send_cancel(effect.incarnation, effect.job_id, effect.reason),
            ev.SendDrop: lambda effect: self._send_drop(effect.incarnation, effect.entries),
            ev.SendDrain: lambda effect: self._send_drain(effect.incarnation, is_draining=effect.is_draining),
            ev.SendNotTaken: lambda effect: self._send_not_taken(effect.incarnation, effect.reason),
            ev.PublishSummary: self._publish,
            ev.EndJobEverywhere: lambda effect: self._ended.update({effect.job_id: effect.keeps_outputs}),
            ev.ReplySubmitted: lambda effect: self._answer(
                effect.request, SubmitJobResponse(effect.outcome, effect.status)
            ),
            ev.ReplyCancelled: lambda effect: self._answer(effect.request, Empty()),
            ev.ReplyDone: lambda effect: self._answer(effect.request, Empty()),
            ev.Refuse: lambda effect: self._refuse(effect.request, effect.error),
        }

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
        for future in self._replies.values():
            if not future.done():
                future.set_exception(error)
        self._end()

    @abstractmethod
    async def _begin(self) -> None:
        """Start what this kind of Dispatcher has beyond the shared part."""

    @abstractmethod
    def _end(self) -> None:
        """Stop it; nothing of it may act from now on."""

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
        """Tell a draining process that nobody can take its jobs."""

    @abstractmethod
    def notify_resources(self, job_id: JobId, reason: str) -> None:
        """Tell a job's owner why its requirements are not fulfilled, "" when they are."""

    @abstractmethod
    async def _request_owner(self, owner: ev.JobOwner, request: JobRequest) -> bytes:
        """The execution graph of a running job, from its owner."""

    # --- events and effects -------------------------------------------------------------------------------

    def _post(self, event: ev.DispatcherEvent) -> None:
        """Decide on an event and carry out what follows. Events that arise meanwhile come after it."""
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._execute_all(self._registry.handle(self._events.popleft()))
        finally:
            self._is_handling = False

    def _execute_all(self, effects: Sequence[ev.DispatcherEffect]) -> None:
        for effect in effects:
            self._executors[type(effect)](effect)
        if self._ended:
            ended, self._ended = self._ended, {}
            self._resources.end_jobs(ended)
            if self._registry.dirty_count() >= self._settings.clean_jobs_min:
                self._cleaning.signal()

    def _spawner(self, what: str, work: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
        async def run(effect: object) -> None:
            await work(effect)

        return lambda effect: self._scope.spawn(what, run(effect))

    def _publish(self, effect: ev.PublishSummary) -> None:
        summary = self._registry.summary(effect.job_id)
        self._waiters.wake(effect.job_id)
        if summary is None:
            return
        if summary.status.is_globally_terminal:
            logger.info("job %s: %s", summary.job_id, summary.status.name)
        elif summary.pending_reason:
            logger.info("job %s: %s (%s)", summary.job_id, summary.status.name, summary.pending_reason)

    def _answer(self, request: int, answer: object) -> None:
        future = self._replies.get(request)
        if future is not None and not future.done():
            future.set_result(answer)

    def _refuse(self, request: int, error: FlinklikeError) -> None:
        if isinstance(error, BackpressureError):
            self._cleaning.signal()
        future = self._replies.get(request)
        if future is not None and not future.done():
            future.set_exception(error)

    async def _ask(self, make_event: Callable[[int], ev.DispatcherEvent], answer_type: type[AnswerT]) -> AnswerT:
        """Post an event and await its answer. Whoever stops waiting stops nothing else."""
        self._requests += 1
        request = self._requests
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._replies[request] = future
        try:
            self._post(make_event(request))
            answer = await future
        except NotFoundError:
            await self._services.store.check_term()  # R4
            raise
        finally:
            del self._replies[request]
        assert isinstance(answer, answer_type), answer
        return answer

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
        return await self._submit(request, _job_name(request))

    async def submit_verified(self, request: SubmitJobRequest, graph: JobGraph, /) -> SubmitJobResponse:
        """The same for a graph that this process has parsed and digested: neither is done again."""
        self._check_open()
        return await self._submit(request, graph.name)

    async def _submit(self, request: SubmitJobRequest, name: str) -> SubmitJobResponse:
        source = ev.JobSource(
            job_id=request.job_id,
            digest=request.digest,
            name=name,
            graph=request.graph,
            graph_key="",
            submit_millis=self._services.clock.epoch_millis(),
            client=request.client,
            submitter=request.submitter,
            namespace=request.namespace or DEFAULT_NAMESPACE,
        )
        return await self._ask(lambda number: ev.SubmitRequested(number, source), SubmitJobResponse)

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """Make the wish durable and forward it."""
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
        """The execution graph: from the owner while there is one, else from what is stored."""
        self._check_open()
        entry = self._registry.entry(request.job_id)
        owner = self._registry.owner(request.job_id)
        if entry is not None and owner is not None and entry.summary.epoch > 0:
            try:
                return JobDetailsResponse(await self._request_owner(owner, request))
            except NotFoundError:
                # The owner has let go of it: it ended, or has another owner.
                entry = self._registry.entry(request.job_id)
        return JobDetailsResponse(await self._read_job(request.job_id, entry))

    async def _read_job(self, job_id: JobId, entry: JobEntry | None) -> bytes:
        if entry is None:
            return await self._reads.cleaned(job_id)
        if entry.phase.state in {JobPhase.TERMINAL, JobPhase.DONE}:
            return await self._reads.ended(job_id, entry.summary)
        if entry.phase.state is JobPhase.SUBMITTING:
            raise await self._reads.unknown(job_id)
        return await self._reads.unowned(entry.source, entry.summary, can_have_begun=entry.can_have_begun)

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
        """How many of them there are of each status."""
        self._check_open()
        return self._registry.shown.counts()

    def job_summary(self, job_id: JobId, /) -> JobSummary | None:
        """One of them."""
        self._check_open()
        return self._registry.summary(job_id)

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        """One job, also one that ended too long ago to be shown."""
        shown = self.job_summary(job_id)
        return shown if shown is not None else await self._reads.cleaned_summary(job_id)

    async def find_jobs(self, jobs: Collection[JobId], /) -> Mapping[JobId, JobSummary]:
        """The same of many; those that are not known are left out."""
        self._check_open()
        found = {job_id: one for job_id in jobs if (one := self._registry.summary(job_id)) is not None}
        forgotten = [job_id for job_id in jobs if job_id not in found]
        return {**found, **await self._reads.cleaned_summaries(forgotten)}

    def job_owner(self, job_id: JobId, /) -> JobMasterInfo | None:
        """Who runs the job now."""
        self._check_open()
        owner = self._registry.owner(job_id)
        process = None if owner is None else self._registry.processes.get(owner.incarnation)
        return None if process is None else self._info(process)

    def job_masters(self) -> Sequence[JobMasterInfo]:
        """All JobMaster processes that are known."""
        self._check_open()
        return [self._info(process) for process in self._registry.processes]

    def jobs_of(self, incarnation: Incarnation, /) -> Sequence[JobSummary]:
        """What one of them runs, by id. NotFoundError."""
        self._check_open()
        process = self._registry.processes.get(incarnation)
        if process is None:
            message = f"JobMaster process {incarnation} is not known"
            raise NotFoundError(message)
        shown = (self._registry.summary(job_id) for job_id in sorted(process.jobs))
        return [summary for summary in shown if summary is not None]

    async def drain_job_master(self, incarnation: Incarnation, /, *, is_draining: bool) -> None:
        """Have a process give its jobs away and take none, or take some again. Returns when it says so itself."""
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
        )

    @abstractmethod
    def _last_heard_millis(self, incarnation: Incarnation) -> int:
        """When the process was last heard of, for people."""

    # --- what the ResourceManager of this term asks -------------------------------------------------------

    def owner_of(self, job_id: JobId) -> ev.JobOwner | None:
        """Who runs the job by this leader's own writing (R7)."""
        return self._registry.owner(job_id)

    def is_owned_by(self, job_id: JobId, incarnation: Incarnation, epoch: int) -> bool:
        """Is that the owner key (R7)? False while another one is being written: it may be there already."""
        entry = self._registry.entry(job_id)
        return entry is not None and entry.is_owned_by(incarnation, epoch)

    def owner_cut_off(self, job_id: JobId, epoch: int) -> None:
        """The owner under that epoch cannot reach TaskManagers that the job needs (R7)."""
        self._post(ev.OwnerCutOff(job_id, epoch))

    def is_unfinished(self, job_id: JobId) -> bool:
        """True if the job is known and has no result."""
        entry = self._registry.entry(job_id)
        return entry is not None and entry.phase.state is not JobPhase.TERMINAL

    def namespace_of(self, job_id: JobId) -> str:
        """To whom the job belongs, as this leader has stored it (R48)."""
        entry = self._registry.entry(job_id)
        return DEFAULT_NAMESPACE if entry is None else entry.source.namespace

    def keeps_outputs(self, job_id: JobId) -> bool:
        """Of a job that is over: may what it wrote still be committed by hand (R28)? Of one that nobody knows, too."""
        summary = self._registry.summary(job_id)
        return summary is None or summary.keeps_outputs


def _check_digest(request: SubmitJobRequest) -> None:
    digest = hashlib.sha256(request.graph).hexdigest()
    if digest != request.digest:
        message = f"job {request.job_id}: the job graph has digest {digest}, the submit says {request.digest[:80]!r}"
        raise InvalidInputError(message)


class _Named(BaseModel):
    """Reads nothing but the name: whoever made the request has read the whole graph."""

    model_config = ConfigDict(extra="ignore", strict=True)
    name: str


def _job_name(request: SubmitJobRequest) -> str:
    try:
        return _Named.model_validate_json(request.graph).name
    except ValidationError as error:
        message = f"job {request.job_id}: the job graph is not a JSON object with a name"
        raise InvalidInputError(message) from error
