"""REST on the simulated network, and the clients of the cluster: what an Airflow worker does, over every fault.

The front-end uses what the real one uses (`RestContext`, the readers of requests), and no HTTP. A client chooses the
job's id once, retries until it has an answer, at every address, and looks at the job until it has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope, ServiceScope
from runtime.common.errors import (
    ConflictError,
    FlinklikeError,
    NotFoundError,
    RetryableError,
    StaleTokenError,
    StorageExhaustedError,
)
from runtime.common.ids import Incarnation, JobId, VertexId
from runtime.common.shares import JobShare
from runtime.common.states import JobStatus
from runtime.config.job_configuration import asks_for_speculation
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobRequest, JobSummary
from runtime.gateways.operations import (
    OperationKind,
    OperationState,
    SavepointDisposal,
    StreamOperation,
    TriggerOperation,
)
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.savepoints import ClaimMode, SavepointRestoreSettings
from runtime.rest.access.sign_in import SignIn
from runtime.rest.context import RestContext
from runtime.rest.routes.jobs import archived_graph, known_summary, wait_for_end
from runtime.rest.routes.submission import read_submission
from runtime.rest.server import RestSettings
from runtime.rpc.status import is_bug
from runtime.security.principals import ANYBODY
from tests.kit.simulation.history import (
    Acknowledged,
    Answered,
    Cancelling,
    Happening,
    History,
    OperationAccepted,
    OperationShown,
    Refused,
    RestoreRefused,
    Restoring,
    Returned,
    Shown,
    Submitting,
    SubmitUnreadable,
    Whose,
    place_of,
    whose,
)
from tests.kit.simulation.network import ConnectionLostError, Listener, Network, RefusedError, Reply
from tests.kit.simulation.processes import EPOCH_MILLIS, current_process
from tests.kit.simulation.user_code import UserCode
from tests.kit.simulation.values import expected

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT = 10.0

DONE = "done"
"""The answer to what has no other one."""


@dataclass(frozen=True)
class Submit:
    """POST /jobs, by whom."""

    body: bytes
    whose: Whose
    is_repeatable = True


@dataclass(frozen=True)
class Status:
    """GET /jobs/:id/status."""

    job_id: JobId
    wait: float
    is_repeatable = True


@dataclass(frozen=True)
class Outcome:
    """GET /jobs/:id/execution-result."""

    job_id: JobId
    is_repeatable = True


@dataclass(frozen=True)
class Cancel:
    """PATCH /jobs/:id."""

    job_id: JobId
    is_repeatable = True


@dataclass(frozen=True)
class Heartbeat:
    """PATCH /jobs/:id/clientHeartbeat."""

    job_id: JobId
    expires_millis: int
    is_repeatable = True


@dataclass(frozen=True)
class JobMasters:
    """GET /jobmasters, and their jobs."""

    is_repeatable = True


@dataclass(frozen=True)
class Drain:
    """POST /jobmasters/:id/drain and /undrain."""

    incarnation: Incarnation
    is_draining: bool
    is_repeatable = True


@dataclass(frozen=True)
class Move:
    """POST /jobs/:id/move."""

    job_id: JobId
    target: Incarnation
    is_repeatable = True


@dataclass(frozen=True)
class TaskManagers:
    """GET /taskmanagers."""

    is_repeatable = True


@dataclass(frozen=True)
class DrainSlots:
    """POST /taskmanagers/:id/drain and /undrain."""

    incarnation: Incarnation
    is_draining: bool
    is_repeatable = True


@dataclass(frozen=True)
class Trigger:
    """POST /jobs/:id/checkpoints, /savepoints and /stop."""

    wanted: TriggerOperation
    is_repeatable = True


@dataclass(frozen=True)
class Operation:
    """GET /jobs/:id/savepoints/:id."""

    job_id: JobId
    trigger_id: str
    is_repeatable = True


@dataclass(frozen=True)
class Dispose:
    """POST /savepoint-disposal."""

    wish: SavepointDisposal
    is_repeatable = True


@dataclass(frozen=True)
class Disposal:
    """GET /savepoint-disposal/:id."""

    trigger_id: str
    is_repeatable = True


OfOperators = JobMasters | Drain | Move | TaskManagers | DrainSlots
OfOperations = Trigger | Operation | Dispose | Disposal
Request = Submit | Status | Outcome | Cancel | Heartbeat | OfOperators | OfOperations


class SimulatedRest:
    """RestFrontend of one JobManager process."""

    def __init__(
        self,
        network: Network,
        history: History,
        context: RestContext,
        settings: RestSettings,
        sign_in: SignIn | None = None,
    ) -> None:
        assert sign_in is None, "the simulation has no tokens"
        self._network = network
        self._history = history
        self._context = context
        self._settings = settings
        self._process = current_process()
        self._scope = ServiceScope("rest")
        self._address = ""

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._settings.port

    def bind(self) -> None:
        """Listen."""
        listener = Listener(self._process, self._on_request)
        self._address = self._network.listen(self._process.name, self._settings.port, listener)

    async def start(self, scope: Scope) -> None:
        """Serve."""
        await self._scope.open()
        scope.spawn_eternal("rest", self._scope.wait_failed())

    def stop(self) -> None:
        """Refuse new requests."""
        self._network.close(self._address)

    def _on_request(self, request: Request, reply: Reply) -> None:
        if self._scope.is_open:
            self._scope.spawn("request", self._serve(request, reply))
        else:
            reply(RefusedError(self._address))

    async def _serve(self, request: Request, reply: Reply) -> None:
        asked_at = self._network.loop.time()
        try:
            answer = await self._answer(request)
            self._history.add(self._network.loop.time(), self._process.name, Answered(asked_at))
            reply(answer)
        except Exception as error:
            # The boundary of REST: a client sees a status code.
            if is_bug(error):
                logger.exception("request %s failed", type(request).__name__)
            reply(error)

    async def _answer(self, request: Request) -> object:
        context = self._context
        match request:
            case Submit(body, (submitter, namespace)):
                offered = context.components.resource_manager.spark_offers()
                verified = await read_submission(body, offered)
                asked = replace(verified.request, submitter=submitter, namespace=namespace)
                if context.queues.queues:
                    place = place_of(asked.job_id)
                    asked = replace(asked, queue=place.queue, priority=place.priority)
                return await context.dispatcher.submit_verified(asked, verified.graph)
            case Status(job_id, wait):
                looks = wait_for_end(context, job_id, wait=wait, of=ANYBODY) if wait else known_summary(context, job_id)
                return await looks
            case Outcome(job_id):
                return await archived_graph(context, job_id)
            case Cancel(job_id):
                return await context.dispatcher.cancel_job(JobRequest(job_id))
            case Heartbeat(job_id, expires_millis):
                await context.dispatcher.client_heartbeat(job_id, expires_millis=expires_millis)
                return DONE
            case _:
                return await _operate(context, request)


async def _operation(context: RestContext, request: OfOperations) -> StreamOperation | SavepointDisposal:
    if isinstance(request, Dispose | Disposal):
        return await _disposal(context, request)
    if isinstance(request, Trigger):
        await known_summary(context, request.wanted.job_id)
        return await context.dispatcher.request_operation(request.wanted)
    found = await context.dispatcher.find_operation(request.job_id, request.trigger_id)
    if found is None:
        await known_summary(context, request.job_id)
        message = f"no operation {request.trigger_id}"
        raise NotFoundError(message)
    return found


async def _disposal(context: RestContext, request: Dispose | Disposal) -> SavepointDisposal:
    disposals = context.components.disposals
    assert disposals is not None
    if isinstance(request, Dispose):
        return await disposals.request(request.wish)
    found = await disposals.find(request.trigger_id)
    if found is None:
        message = f"no disposal {request.trigger_id}"
        raise NotFoundError(message)
    return found


async def _operate(context: RestContext, request: OfOperators | OfOperations) -> object:
    """What only operators ask, and what few jobs have."""
    match request:
        case Trigger() | Operation() | Dispose() | Disposal():
            return await _operation(context, request)
        case JobMasters():
            found = context.dispatcher.job_masters()
            return [(one, [job.job_id for job in context.dispatcher.jobs_of(one.incarnation)]) for one in found]
        case Drain(incarnation, is_draining):
            await context.dispatcher.drain_job_master(incarnation, is_draining=is_draining)
            return DONE
        case Move(job_id, target):
            await context.dispatcher.move_job(job_id, target)
            return DONE
        case TaskManagers():
            return context.components.resource_manager.task_managers()
        case DrainSlots(incarnation, is_draining):
            await context.components.resource_manager.drain_task_manager(incarnation, is_draining=is_draining)
            return DONE


@dataclass(eq=False)
class Upgrade:
    """How a job is ended by its client: after a while by stops, until one has worked; perhaps with a savepoint before.

    `successor_of_stop`: the job that follows is started from the stop, else from the savepoint, if that has worked.
    `directory`: that savepoint; `made`: all of them. `is_over`: its job has ended. `is_read`: a job starts from it.
    """

    target: str
    savepoint_after: float | None
    stop_after: float
    drains: bool
    claim_mode: ClaimMode
    successor_of_stop: bool
    directory: str = ""
    is_over: bool = False
    is_read: bool = False
    made: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PlannedJob:
    """One job of the world: what it is, when it comes, and whether somebody cancels it.

    `leaves_after`: when its client promises to be back soon, and is not. Nothing else ends a job whose code is endless.
    """

    job_id: JobId
    graph: JobGraph
    programs: dict[VertexId, UserCode]
    submit_at: float
    cancel_after: float | None = None
    leaves_after: float | None = None
    upgrade: Upgrade | None = None
    restored_from: Upgrade | None = None

    @property
    def expected(self) -> JobStatus:
        """How it ends when nobody cancels it and nothing of the cluster fails it."""
        return JobStatus.FAILED if any(code.fails for code in self.programs.values()) else JobStatus.FINISHED

    @property
    def value(self) -> object:
        """What it returns if it finishes."""
        return expected(self.job_id, self.graph)


class Client:
    """One user with one job."""

    def __init__(
        self, network: Network, history: History, addresses: Sequence[str], job: PlannedJob, entropy: SeededEntropy
    ) -> None:
        self._network = network
        self._history = history
        self._addresses = list(addresses)
        self._entropy = entropy
        self._process = current_process()
        self.job = job
        self.has_queues = False
        self.ended: JobStatus | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_acknowledged = False
        self.operations: list[tuple[str, OperationKind]] = []
        """All that it has asked for, oldest first."""

    def _record(self, what: Happening) -> None:
        self._history.add(self._network.loop.time(), self._process.name, what)

    async def run(self) -> None:
        """Submit, perhaps cancel, and watch to the end."""
        await asyncio.sleep(self.job.submit_at)
        if self.job.restored_from is not None and not await self._is_restored(self.job.restored_from):
            self.ended = JobStatus.CANCELED  # there is nothing that it could be started from
            if self.job.upgrade is not None:
                self.job.upgrade.is_over = True
            return
        job = self.job
        document = {"job_id": job.job_id, "job_graph": json.loads(job.graph.canonical_json())}
        body = json.dumps(document).encode()
        speculates = asks_for_speculation(job.graph.configuration)
        self._record(Submitting(job.job_id, job.expected, job.value, speculates))
        if not await self._is_submitted(Submit(body, whose(job.job_id))):
            self.ended = JobStatus.CANCELED
            if job.upgrade is not None:
                job.upgrade.is_over = True
            return
        self.is_acknowledged = True
        self._record(Acknowledged(job.job_id, "submit"))
        async with Scope("client") as scope:
            if job.cancel_after is not None:
                scope.spawn("cancel", self._cancel(job.cancel_after))
            if job.leaves_after is not None:
                scope.spawn("leave", self._leave(job.leaves_after))
            if job.upgrade is not None:
                scope.spawn("upgrade", self._upgrade(job.upgrade))
            await self._watch()
            scope.cancel_all()
        if job.upgrade is not None:
            await self._conclude(job.upgrade)
        await asyncio.sleep(self._entropy.uniform(0.0, 60.0))
        await self._look()  # it is known also when nothing but its end is kept of it

    async def _is_submitted(self, request: Submit) -> bool:
        """Wait until it is accepted: another job may have the name of its checkpoints for a while (R59).

        False when the savepoint that it starts from is being deleted (R62), or when the store has lost the graph before
        the answer was there: whose job that was, nobody knows (R48).
        """
        while True:
            try:
                await self._insist(request, self.job)
            except ConflictError as error:
                if "cannot be read" in str(error):
                    self._record(SubmitUnreadable(self.job.job_id))
                    return False
                if (start := self.job.graph.savepoint) is not None:
                    self._record(RestoreRefused(self.job.job_id, start.path))
                    return False
                if not self.job.graph.checkpoint_name:
                    raise
                await asyncio.sleep(self._entropy.uniform(0.5, 3.0))
            else:
                return True

    async def _cancel(self, after: float) -> None:
        await asyncio.sleep(after)
        self._record(Cancelling(self.job.job_id))
        try:
            await self._insist(Cancel(self.job.job_id))
        except FlinklikeError as error:
            logger.info("the job cannot be cancelled: %s", error)
        else:
            self._record(Acknowledged(self.job.job_id, "cancel"))

    async def _leave(self, after: float) -> None:
        """Whoever watches is somebody else."""
        await asyncio.sleep(after)
        self._record(Cancelling(self.job.job_id))
        seconds = self._network.loop.time() + self._entropy.uniform(0.5, 8.0)
        try:
            await self._insist(Heartbeat(self.job.job_id, EPOCH_MILLIS + round(1000 * seconds)))
        except FlinklikeError as error:
            logger.info("the client cannot promise to be back: %s", error)

    # --- savepoints and stops -------------------------------------------------------------------------------

    async def _is_restored(self, before: Upgrade) -> bool:
        """Wait for the savepoint of the job before. False when there is none."""
        while not before.is_over and (before.successor_of_stop or not before.directory):
            await asyncio.sleep(1.0)
        if not before.directory:
            return False
        settings = SavepointRestoreSettings(path=before.directory, claim_mode=before.claim_mode)
        self.job = replace(self.job, graph=self.job.graph.model_copy(update={"savepoint": settings}))
        queries = sum(vertex.parallelism for vertex in self.job.graph.vertices)
        self._record(Restoring(self.job.job_id, before.directory, queries))
        before.is_read = True
        return True

    async def _upgrade(self, upgrade: Upgrade) -> None:
        """Ask for what is planned, and for stops until one has worked."""
        if upgrade.savepoint_after is not None:
            await asyncio.sleep(upgrade.savepoint_after)
            await self._operation(upgrade, OperationKind.SAVEPOINT)
        await asyncio.sleep(upgrade.stop_after)
        while await self._operation(upgrade, OperationKind.STOP) is not OperationState.COMPLETED:
            await asyncio.sleep(self._entropy.uniform(1.0, 6.0))
        await asyncio.Event().wait()

    async def _operation(self, upgrade: Upgrade, kind: OperationKind) -> OperationState | None:
        """One operation to its end, by an id that is the client's. None: it is refused."""
        job_id, trigger_id = self.job.job_id, self._entropy.hex_id()
        wanted = TriggerOperation(
            job_id, trigger_id, kind, upgrade.target, kind is OperationKind.STOP and upgrade.drains
        )
        self.operations.append((trigger_id, kind))
        try:
            await self._insist(Trigger(wanted))
        except FlinklikeError as error:
            logger.info("operation %s is refused: %s", trigger_id, error)
            return None
        self._record(OperationAccepted(job_id, trigger_id))
        while (found := await self._seen_operation(upgrade, trigger_id, kind)) is OperationState.IN_PROGRESS:
            await asyncio.sleep(self._entropy.uniform(0.1, 2.0))
        return found

    async def _seen_operation(self, upgrade: Upgrade, trigger_id: str, kind: OperationKind) -> OperationState | None:
        try:
            found = await self._insist(Operation(self.job.job_id, trigger_id))
        except NotFoundError:
            self._record(OperationShown(self.job.job_id, trigger_id, None))
            return None
        assert isinstance(found, StreamOperation), found
        self._record(OperationShown(self.job.job_id, trigger_id, found.state))
        is_wanted = (kind is OperationKind.STOP) is upgrade.successor_of_stop
        if found.state is OperationState.COMPLETED and found.directory not in upgrade.made:
            upgrade.made.append(found.directory)
        if found.state is OperationState.COMPLETED and is_wanted:
            upgrade.directory = found.directory
        return found.state

    async def _conclude(self, upgrade: Upgrade) -> None:
        """Its job has ended: what has become of all that was asked?"""
        for trigger_id, kind in self.operations:
            await self._seen_operation(upgrade, trigger_id, kind)
        upgrade.is_over = True

    # --- the end --------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while self.ended is None:
            status = await self._look(wait=5.0 if self._entropy.uniform(0, 1) < 0.5 else 0.0)
            if status is JobStatus.FINISHED:
                self._record(Returned(self.job.job_id, await self._value()))
            if status is not None and status.is_globally_terminal:
                self.ended = status
            await asyncio.sleep(self._entropy.uniform(0.2, 3.0))

    async def _look(self, wait: float = 0.0) -> JobStatus | None:
        """The job's state, None when nobody knows the job."""
        try:
            found = await self._insist(Status(self.job.job_id, wait))
        except NotFoundError:
            self._record(Shown(self.job.job_id, None))
            return None
        assert isinstance(found, JobSummary), found
        place = JobShare(found.queue, found.priority) if self.has_queues else None
        self._record(Shown(self.job.job_id, found.status, (found.submitter, found.namespace), place))
        return found.status

    async def _value(self) -> object:
        """What the job has returned; None when that is not there any more."""
        try:
            graph = await self._insist(Outcome(self.job.job_id))
        except NotFoundError:
            return None
        assert isinstance(graph, ArchivedExecutionGraph), graph
        return json.loads(graph.result) if graph.result else None

    async def _insist(self, request: Request, submitted: PlannedJob | None = None) -> object:
        """An answer that settles it: retries what may be retried, at the next address."""
        are_all_answered = True
        while True:
            try:
                address = self._addresses[0]
                answer = await self._network.request(self._process, address, request, timeout=REQUEST_TIMEOUT)
            except (TimeoutError, RefusedError, ConnectionLostError):
                answer = None
            if answer is not None and not _is_worth_a_retry(answer):
                break
            are_all_answered = are_all_answered and answer is not None
            is_refused = submitted is not None and are_all_answered and isinstance(answer, StorageExhaustedError)
            if submitted is not None and is_refused:
                self._record(Refused(submitted.job_id))
            self._addresses.append(self._addresses.pop(0))
            await asyncio.sleep(self._entropy.uniform(0.05, 0.5))
            if submitted is not None and is_refused:
                self._record(Submitting(submitted.job_id, submitted.expected, submitted.value))
        if isinstance(answer, Exception):
            raise answer
        return answer


def _is_worth_a_retry(answer: object) -> bool:
    """What REST answers 503, 429 or 507, the last as a user who waits for space."""
    return isinstance(answer, RetryableError | StaleTokenError)
