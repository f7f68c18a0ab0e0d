"""The streams between this process and TaskManagers, shared by all its JobMasters.

Invariants: one stream per TaskManager is current, the newest (R11); a message reaches a job only under the epoch of its
owner here (R1); every job that has used a stream is told of its end, and, once, that the TaskManager is lost: when its
census for the job is not complete within heartbeat.timeout (R18); one wheel per process serves all jobs, so that no job
has a timer of its own. The HeartbeatService of the process keeps the streams alive and ends silent ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, assert_never

from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.errors import BackpressureError, FlinklikeError, UnavailableError
from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import (
    AnswerSlotOffers,
    CheckpointAnswered,
    CommitProgress,
    Heartbeat,
    JobCensus,
    JobMasterToTaskManager,
    JobMessage,
    OfferSlots,
    OutputsCommitted,
    SavepointAnswered,
    SavepointFinished,
    SlotsDraining,
    SlotsLost,
    SplitsRequested,
    TaskManagerToJobMaster,
    TaskProgresses,
    TaskReports,
)
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.jobmaster.core.absences import Absence, Absences
from runtime.rpc.service import MessageStream

logger = logging.getLogger(__name__)

AskCensus = Callable[[JobId, int, str], Awaitable[None]]
"""Ask the TaskManager at an address for a census of a job at an epoch: it answers over its stream."""


class ConnectedJob(Protocol):
    """A JobMaster, as the streams see it. Calls never block."""

    @property
    def job_id(self) -> JobId:
        """The job."""

    @property
    def epoch(self) -> int:
        """The epoch it acts under."""

    def receive(self, location: TaskManagerLocation, message: JobMessage) -> None:
        """A message for this job, under its epoch."""

    def task_manager_disconnected(self, incarnation: Incarnation, reason: str) -> None:
        """The stream to a TaskManager that this job has used has ended. Its next one begins with a JobCensus."""

    def task_manager_lost(self, incarnation: Incarnation, reason: str) -> None:
        """A TaskManager that this job has used counts as lost (R18)."""

    def task_manager_died(self, incarnation: Incarnation, reason: str) -> None:
        """A TaskManager that this job may have used is dead (R13)."""

    def tick(self) -> None:
        """The wheel has turned."""


class _Connection:
    """The current stream to one TaskManager."""

    __slots__ = ("_location", "jobs", "stream")

    def __init__(self, stream: MessageStream) -> None:
        self.stream = stream
        self.jobs: dict[JobId, None] = {}
        self._location = TaskManagerLocation(stream.hello.dialer, stream.hello.dialer, stream.hello.dialer_address)

    def location(self, task_manager_id: str) -> TaskManagerLocation:
        """The TaskManager: one object for all slots and attempts of all jobs. Offers and censuses tell its name."""
        if task_manager_id and task_manager_id != self._location.task_manager_id:
            self._location = replace(self._location, task_manager_id=task_manager_id)
        return self._location


class TaskManagerConnections:
    """The streams of one process. `serve` is the handler of StreamKind.TASK_MANAGER_TO_JOB_MASTER, `run` the wheel.

    The caller runs both this and the HeartbeatService.
    """

    def __init__(self, heartbeats: HeartbeatService, timing: HeartbeatTiming, clock: Clock) -> None:
        self._heartbeats = heartbeats
        self._timing = timing
        self._clock = clock
        self._connections: dict[Incarnation, _Connection] = {}
        self._jobs: dict[JobId, ConnectedJob] = {}
        self._absences = Absences(timing)
        self._addresses: dict[Incarnation, str] = {}
        self._asked: set[Incarnation] = set()
        self._turn_due = clock.monotonic()
        self.ask_census: AskCensus | None = None
        """For TaskManagers that are back and say nothing. Set once, before `run`."""

    @property
    def connected(self) -> Sequence[Incarnation]:
        """The TaskManagers with a stream to this process."""
        return tuple(self._connections)

    @property
    def jobs(self) -> int:
        """How many jobs are registered."""
        return len(self._jobs)

    def register(self, job: ConnectedJob) -> None:
        """Messages for this job's epoch go to it from now on. A newer epoch takes the place of an older one."""
        before = self._jobs.get(job.job_id)
        assert before is None or before.epoch <= job.epoch, (job.job_id, job.epoch)
        self._jobs[job.job_id] = job

    def expect(self, job_id: JobId, addresses: Mapping[Incarnation, str]) -> None:
        """A census of the job was asked of these TaskManagers: one that does not answer in time is lost (R18)."""
        now = self._clock.monotonic()
        for incarnation, address in addresses.items():
            reason = f"the TaskManager at {address} does not answer the job's new owner"
            self._absences.begin(incarnation, address, reason, (job_id,), now)

    def unregister(self, job: ConnectedJob) -> None:
        """The job has ended here. Idempotent; a newer epoch of it is not touched."""
        if self._jobs.get(job.job_id) is not job:
            return
        del self._jobs[job.job_id]
        self._absences.forget_job(job.job_id)
        for connection in self._connections.values():
            connection.jobs.pop(job.job_id, None)

    # --- streams ------------------------------------------------------------------------------------------------

    async def serve(self, stream: MessageStream) -> None:
        """Take messages from one TaskManager until its stream ends."""
        hello = stream.hello
        current = self._connections.get(hello.dialer)
        if current is not None and current.stream.hello.number > hello.number:
            stream.abort("a newer stream of this TaskManager is open")
            return
        if current is not None:
            self._disconnected(current, "it has opened a new stream")
            current.stream.abort("a newer stream of this TaskManager has opened")
        connection = self._connections[hello.dialer] = _Connection(stream)
        self._absences.heard(hello.dialer, self._clock.monotonic())
        logger.info("task manager %s at %s connected (stream %d)", hello.dialer, hello.dialer_address, hello.number)
        reason = "the stream was closed"
        try:
            with self._heartbeats.keep_alive(stream, self._timing):
                while True:
                    for message in await stream.receive():
                        self._route(connection, message)
        except UnavailableError as error:
            reason = str(error)
        finally:
            self._disconnected(connection, reason)

    def _disconnected(self, connection: _Connection, reason: str) -> None:
        hello = connection.stream.hello
        if self._connections.get(hello.dialer) is not connection:
            return
        del self._connections[hello.dialer]
        logger.info("task manager %s at %s disconnected: %s", hello.dialer, hello.dialer_address, reason)
        text = f"lost the connection to the TaskManager at {hello.dialer_address}: {reason}"
        jobs = [job_id for job_id in connection.jobs if job_id in self._jobs]
        self._absences.begin(hello.dialer, hello.dialer_address, text, jobs, connection.stream.last_heard)
        for job_id in jobs:
            self._jobs[job_id].task_manager_disconnected(hello.dialer, text)
        self._judge()

    def _judge(self) -> None:
        now = self._clock.monotonic()
        if now - self._turn_due > self._timing.interval or not self._heartbeats.may_judge:  # R4
            self._absences.rearm(now)
        for absence, jobs in self._absences.overdue(now):
            logger.warning("task manager %s counts as lost: %s", absence.incarnation, absence.reason)
            for job_id in jobs:
                if job_id in self._jobs:
                    self._jobs[job_id].task_manager_lost(absence.incarnation, absence.reason)

    def task_manager_found(self, incarnation: Incarnation, address: str) -> None:
        """Note the address in a TaskManager's registration, which may have been unreadable until now (R31)."""
        self._addresses[incarnation] = address

    def task_manager_died(self, incarnation: Incarnation, reason: str) -> None:
        """A TaskManager is dead (R13). Every job is told: some have used a stream that ended long ago."""
        self._addresses.pop(incarnation, None)
        connection = self._connections.get(incarnation)
        if connection is not None:
            connection.stream.abort(reason)
        self._absences.forget(incarnation)
        for job in list(self._jobs.values()):
            job.task_manager_died(incarnation, reason)

    def _route(self, connection: _Connection, message: TaskManagerToJobMaster) -> None:
        match message:
            case Heartbeat():
                return
            case JobCensus() | OfferSlots():
                self._route_to_job(connection, message, message.task_manager_id)
            case (
                TaskReports()
                | TaskProgresses()
                | SlotsLost()
                | SlotsDraining()
                | OutputsCommitted()
                | CommitProgress()
                | CheckpointAnswered()
                | SavepointAnswered()
                | SavepointFinished()
                | SplitsRequested()
            ):
                self._route_to_job(connection, message, "")
            case _:
                assert_never(message)

    def _route_to_job(self, connection: _Connection, message: JobMessage, task_manager_id: str) -> None:
        job = self._jobs.get(message.job_id)
        if job is not None and job.epoch == message.epoch:
            connection.jobs[message.job_id] = None
            if isinstance(message, JobCensus) and message.is_complete:
                self._absences.counted(connection.stream.hello.dialer, message.job_id)
            job.receive(connection.location(task_manager_id), message)
            return
        logger.debug("%s for job %s at epoch %d: not here", type(message).__name__, message.job_id, message.epoch)
        if isinstance(message, OfferSlots) and (job is None or job.epoch > message.epoch):
            # The job has ended, or moved on, while its slot was being allocated: no job takes the slot.
            rejected: tuple[AllocationId, ...] = tuple(offer.allocation_id for offer in message.offers)
            answer = AnswerSlotOffers(message.job_id, message.epoch, (), rejected)
            self.send(connection.stream.hello.dialer, answer)

    def send(self, incarnation: Incarnation, message: JobMasterToTaskManager) -> None:
        """Queue a message. A TaskManager without a stream gets nothing: its next stream begins with a census (R11).

        Raises MessageTooLargeError.
        """
        connection = self._connections.get(incarnation)
        if connection is None:
            return
        try:
            connection.stream.send(message)
        except UnavailableError:
            logger.debug("stream to task manager %s ends with a %s unsent", incarnation, type(message).__name__)
        except BackpressureError as error:
            logger.warning("task manager %s does not take its messages, disconnecting it: %s", incarnation, error)
            connection.stream.abort(str(error))

    async def close(self) -> None:
        """End all streams, with what is queued sent first."""
        for connection in list(self._connections.values()):
            await connection.stream.close()

    # --- the wheel ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Turn the wheel every heartbeat interval, until cancelled. Eternal: spawn it with `spawn_eternal`."""
        async with Scope("task manager connections") as scope:
            while True:
                self._turn_due = self._clock.monotonic() + self._timing.interval
                await asyncio.sleep(self._timing.interval)
                self.turn()
                for absence in self._absences.unanswered(self._clock.monotonic()):
                    self._ask(scope, absence)

    def turn(self) -> None:
        """Let every job do what it has left for later, and say which TaskManagers are lost."""
        self._judge()
        for job in list(self._jobs.values()):
            job.tick()

    def _ask(self, scope: Scope, absence: Absence) -> None:
        """Ask TaskManagers again: one that has nothing of a job does not open a stream for it by itself."""
        address = absence.address or self._addresses.get(absence.incarnation, "")
        if self.ask_census is not None and address and absence.incarnation not in self._asked:
            self._asked.add(absence.incarnation)
            scope.spawn(f"ask {absence.incarnation}", self._ask_all(self.ask_census, absence, address))

    async def _ask_all(self, ask: AskCensus, absence: Absence, address: str) -> None:
        try:
            for job_id in (*absence.jobs, *absence.lost):
                job = self._jobs.get(job_id)
                if job is not None and (job_id in absence.jobs or job_id in absence.lost):
                    # Where a question gets lost there is time for another one before the TaskManager counts as lost.
                    async with asyncio.timeout(self._timing.interval):
                        await ask(job_id, job.epoch, address)
        except (FlinklikeError, TimeoutError) as error:
            # Asked again in the next round. A job that has another owner learns it from the store.
            logger.info("task manager at %s does not take a census: %s", address, error)
        finally:
            self._asked.discard(absence.incarnation)
