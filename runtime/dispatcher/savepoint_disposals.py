"""Savepoints that clients want deleted: found and deleted by a TaskManager, as JobManagers do not reach them (R62).

A wish is stored before it is answered. Whose savepoint it is comes from a TaskManager; that it may go is stored before
anything is deleted, so the next leader goes on with what this one has begun, and takes "it is not there" for the end.
From then on no job is stored that starts from it, and those that came before are looked for once more.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from runtime.common.clock import Clock
from runtime.common.errors import (
    ConflictError,
    FlinklikeError,
    InvalidInputError,
    NotFoundError,
    RetryableError,
    StaleTokenError,
    UnavailableError,
)
from runtime.common.ids import JobId
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobDetailsResponse, JobRequest, JobSummary
from runtime.gateways.operations import OperationState, SavepointDisposal
from runtime.gateways.task_executor import (
    DisposeSavepointRequest,
    SavepointDisposed,
    SavepointFound,
    SavepointRequest,
    TaskExecutorGateway,
)
from runtime.highavailability.disposals import StoredDisposal

logger = logging.getLogger(__name__)

PERIOD = 10.0
"""Seconds between two looks at what is in progress."""
PATIENCE_MILLIS = 10 * 60 * 1000
"""How long TaskManagers may fail to answer before a disposal has failed."""
_ASKED_MAX = 5
_CAUSE_LENGTH_MAX = 1000

_Answer = TypeVar("_Answer", SavepointFound, SavepointDisposed)


class Store(Protocol):
    """`runtime.highavailability.disposals.DisposalStore`."""

    async def add(self, disposal: SavepointDisposal, /) -> SavepointDisposal:
        """Store a new one."""

    async def get(self, trigger_id: str, /) -> SavepointDisposal | None:
        """One of them."""

    async def all(self) -> Sequence[StoredDisposal]:
        """All of them."""

    async def replace(self, there: StoredDisposal, disposal: SavepointDisposal, /) -> StoredDisposal:
        """Write another form of one."""


class Jobs(Protocol):
    """The leading Dispatcher."""

    def started_from(self) -> Mapping[JobId, str]:
        """Jobs that have not ended, with the paths of the savepoints that they were started from."""

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        """One job, also an ended one whose id is remembered."""

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        """The execution graph of a job."""


@dataclass(frozen=True, slots=True)
class Term:
    """What leads now. `store`: writes under this term. `task_managers`: addresses of those that are registered."""

    jobs: Jobs
    store: Store
    task_managers: Sequence[str]


class SavepointDisposals:
    """Those of a cluster, in the process that leads. `term`: None while it does not lead."""

    def __init__(
        self, term: Callable[[], Term | None], connect: Callable[[str], TaskExecutorGateway], clock: Clock
    ) -> None:
        self._term = term
        self._connect = connect
        self._clock = clock
        self.wake: Callable[[], None] = lambda: None

    async def request(self, disposal: SavepointDisposal, /) -> SavepointDisposal:
        """Store a wish, idempotent by its trigger id. Raises ConflictError where too many are in progress."""
        stored = await self._leading().store.add(disposal)
        self.wake()
        return stored

    async def find(self, trigger_id: str, /) -> SavepointDisposal | None:
        """What has become of one, None for an unknown one."""
        return await self._leading().store.get(trigger_id)

    def _leading(self) -> Term:
        if (term := self._term()) is None:
            message = "this JobManager does not lead"
            raise UnavailableError(message)
        return term

    async def activate(self) -> None:
        """Go on with all that are in progress, the oldest first. Idempotent."""
        if (leading := self._term()) is None:
            return
        stored = [one for one in await leading.store.all() if one.disposal.state is OperationState.IN_PROGRESS]
        for one in sorted(stored, key=lambda one: one.disposal.trigger_millis):
            if (term := self._term()) is None:
                return
            try:
                await self._go_on(one, term)
            except (ConflictError, StaleTokenError) as error:
                logger.info("savepoint %s: %s", one.disposal.path, error)  # the leader has it

    async def _go_on(self, stored: StoredDisposal, term: Term) -> None:
        try:
            if not stored.disposal.job_id:
                stored = await self._found(stored, term)
            await self._disposed(stored.disposal, term)
        except RetryableError as error:
            waited = self._clock.epoch_millis() - stored.disposal.trigger_millis
            if waited < PATIENCE_MILLIS:
                logger.warning("savepoint %s is not deleted yet: %s", stored.disposal.path, error)
                return
            await _end(stored, OperationState.FAILED, term.store, self._clock, str(error))
        except (ConflictError, StaleTokenError):
            raise
        except FlinklikeError as error:
            await _end(stored, OperationState.FAILED, term.store, self._clock, str(error))
        else:
            await _end(stored, OperationState.COMPLETED, term.store, self._clock)

    async def _found(self, stored: StoredDisposal, term: Term) -> StoredDisposal:
        """The disposal with the job of the savepoint, once it is known that it may go."""
        wish = stored.disposal
        request = SavepointRequest(wish.path, wish.below)
        found = await self._ask(term, lambda gateway: gateway.request_savepoint(request))
        await _check_whose(wish, found.job_id, await term.jobs.find_job(found.job_id))
        await _check_unused(wish.path, term.jobs)
        return await term.store.replace(stored, replace(wish, job_id=found.job_id))

    async def _disposed(self, wish: SavepointDisposal, term: Term) -> None:
        """A job that came while this was stored has not seen it: then the savepoint stays."""
        try:
            await _check_unused(wish.path, term.jobs)
        except InvalidInputError:
            # The job may have lost its owner since an order: nobody knows then what runs, and the savepoint has gone.
            if await self._is_there(wish, term):
                raise
            return
        if self._term() is None:
            message = "this JobManager does not lead any more"
            raise UnavailableError(message)
        request = DisposeSavepointRequest(wish.path, wish.below, JobId(wish.job_id))
        try:
            await self._ask(term, lambda gateway: gateway.dispose_savepoint(request))
        except NotFoundError:
            logger.info("savepoint %s is gone: an earlier order has deleted it", wish.path)

    async def _is_there(self, wish: SavepointDisposal, term: Term) -> bool:
        try:
            await self._ask(term, lambda gateway: gateway.request_savepoint(SavepointRequest(wish.path, wish.below)))
        except NotFoundError:
            return False
        return True

    async def _ask(self, term: Term, call: Callable[[TaskExecutorGateway], Awaitable[_Answer]]) -> _Answer:
        """What the first TaskManager says that finds the savepoint. Raises NotFoundError when none of them does."""
        missed: NotFoundError | None = None
        failed: RetryableError = UnavailableError("no TaskManager is registered, and JobManagers reach no savepoints")
        for address in term.task_managers[:_ASKED_MAX]:
            try:
                return await call(self._connect(address))
            except NotFoundError as error:
                missed = error
            except RetryableError as error:
                failed = error
        raise failed if missed is None else missed


async def _end(stored: StoredDisposal, state: OperationState, store: Store, clock: Clock, cause: str = "") -> None:
    ended = replace(stored.disposal, state=state, ended_millis=clock.epoch_millis(), cause=cause[:_CAUSE_LENGTH_MAX])
    await store.replace(stored, ended)
    logger.info("savepoint %s: the disposal is %s %s", ended.path, state.value, ended.cause)


async def _check_whose(wish: SavepointDisposal, job_id: JobId, job: JobSummary | None) -> None:
    """Raises InvalidInputError for a savepoint that is not of whoever has asked."""
    if not wish.submitter and not wish.namespace:
        return
    if job is None:
        message = (
            f"savepoint {wish.path} is of job {job_id}, which the cluster does not know any more: deleting it takes "
            "the role operator of all namespaces, or flinklike savepoint dispose on a host that reaches it"
        )
        raise InvalidInputError(message)
    if wish.namespace and job.namespace != wish.namespace:
        message = f"savepoint {wish.path} is of a job of another namespace than {wish.namespace}"
        raise InvalidInputError(message)
    if wish.submitter and job.submitter != wish.submitter:
        message = f"savepoint {wish.path} is of job {job_id}, submitted by somebody else: this takes the role operator"
        raise InvalidInputError(message)


async def _check_unused(path: str, jobs: Jobs) -> None:
    """Raises InvalidInputError while a job may still read the savepoint."""
    for job_id, start in jobs.started_from().items():
        if is_same_savepoint(start, path) and not await _is_restored(job_id, jobs):
            message = (
                f"savepoint {path} is in use: job {job_id} was started from it, and not all of its queries run yet. "
                "Wait until they do, or cancel the job"
            )
            raise InvalidInputError(message)


def may_go(disposal: SavepointDisposal) -> bool:
    """True while it is stored that the savepoint may be deleted, and not whether it was."""
    return disposal.state is OperationState.IN_PROGRESS and bool(disposal.job_id)


def is_same_savepoint(one: str, other: str) -> bool:
    """Paths are compared by their last part, which no two savepoints share: a link may lead to one directory."""
    return _name(one) == _name(other)


def _name(path: str) -> str:
    text = unquote(urlsplit(path).path) if path.startswith("file:") else path
    return Path(text).name


async def _is_restored(job_id: JobId, jobs: Jobs) -> bool:
    """True when each query of the job runs, or has run: it was started on a directory of its own.

    False also for a job that is being stored, and for one without an owner, of which nobody knows what runs; and for a
    script that has not ended, which may start further queries.
    """
    try:
        details = await jobs.request_job(JobRequest(job_id))
    except NotFoundError:
        return job_id not in jobs.started_from()
    except RetryableError:
        return False
    graph = ArchivedExecutionGraph.from_json(details.archived_graph)
    subtasks = [subtask for vertex in graph.vertices if vertex.stream_uid for subtask in vertex.subtasks]
    return bool(subtasks) and all(subtask.current.streams for subtask in subtasks)
