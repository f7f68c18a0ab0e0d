"""The ResourceManager of one term: carries the SlotManager's decisions to TaskManagers and JobMasters.

Invariants: requirements count, and slots are allocated, only for the (incarnation, E) that owns the job at that moment,
by this leader's own writing and while its lease is valid, so that nobody else can have written since (R7); what follows
from a message is sent in the same loop turn; a silent TaskManager loses its slots here and nothing else (R18). A dead
one loses its key too (R13), and whoever owns jobs acts on that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import BackpressureError, NotFoundError, StaleTokenError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.version import PROTOCOL_VERSION, VERSION, speaks
from runtime.gateways.delegation_tokens import DelegationToken, DelegationTokenStatus, NewDelegationTokens
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.resource_manager import (
    DrainTaskManager,
    JobRequirements,
    JobsEnded,
    RegisterTaskManager,
    RegistrationRefused,
    SlotReport,
    SlotRequestRefused,
    SlotsFreed,
    TaskManagerInfo,
    TaskManagerRegistered,
)
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.liveness import GuardedProcess
from runtime.resourcemanager.core.slot_manager import SlotManager
from runtime.resourcemanager.core.slots import TaskManagerSlots
from runtime.resourcemanager.deaths import Guards, StoredTaskManagers, TaskManagerDeaths
from runtime.rpc.service import MessageStream, RpcServer, StreamKind
from runtime.rpc.stream import receive_introduction
from runtime.security.delegation_tokens import DelegationTokenManager

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResourceManagerSettings:
    """Times in seconds. News that nothing waits for go out every `tick_period`: ended jobs (R16), reasons."""

    heartbeat_interval: float
    heartbeat_timeout: float
    tick_period: float = 1.0
    task_managers_max: int = 10_000


class JobOwnerView(Protocol):
    """Who runs a job."""

    @property
    def incarnation(self) -> Incarnation:
        """The process."""

    @property
    def address(self) -> str:
        """Where TaskManagers dial it."""

    @property
    def epoch(self) -> int:
        """E."""


class JobDirectory(Protocol):
    """The Dispatcher of the same term, as the ResourceManager uses it."""

    def owner_of(self, job_id: JobId, /) -> JobOwnerView | None:
        """Who runs the job by the leader's own writing."""

    def is_owned_by(self, job_id: JobId, incarnation: Incarnation, epoch: int, /) -> bool:
        """Is that the owner key, as surely as this leader can know it?"""

    def is_unfinished(self, job_id: JobId, /) -> bool:
        """True if the job is known and has no result."""

    def namespace_of(self, job_id: JobId, /) -> str:
        """To whom the job belongs (R48)."""

    def keeps_outputs(self, job_id: JobId, /) -> bool:
        """Of a job that is over: may what it wrote still be committed by hand (R28)?"""

    def notify_resources(self, job_id: JobId, reason: str, /) -> None:
        """Tell the owner why requirements are not fulfilled, "" when they are."""

    def owner_cut_off(self, job_id: JobId, epoch: int, /) -> None:
        """The owner under that epoch cannot reach TaskManagers that the job needs (R7)."""


class ResourceManager:
    """Serves TASK_MANAGER_TO_RESOURCE_MANAGER. Implements ResourceManagerView and the Dispatcher's ResourceRequests."""

    def __init__(
        self,
        settings: ResourceManagerSettings,
        *,
        token: FencingToken,
        server: RpcServer,
        heartbeats: HeartbeatService,
        guards: Guards,
        stored: StoredTaskManagers,
        task_manager_gone: Callable[[Incarnation, str], None],
        blob_address: str,
        tokens: DelegationTokenManager,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._token = token
        self._server = server
        self._heartbeats = heartbeats
        self._timing = HeartbeatTiming(settings.heartbeat_interval, settings.heartbeat_timeout)
        self._blob_address = blob_address
        self._clock = clock
        self._jobs: JobDirectory | None = None
        self._slots = SlotManager(
            lambda: AllocationId(entropy.hex_id()),
            self._is_owner,
            self._namespace_of,
            request_timeout=settings.heartbeat_timeout,
            round_seconds=settings.heartbeat_interval,
        )
        self._streams: dict[Incarnation, MessageStream] = {}
        self._silent_since: dict[Incarnation, float] = {}
        self._task_manager_gone = task_manager_gone
        self._deaths = TaskManagerDeaths(
            guards,
            stored,
            is_heard=self._is_heard,
            usable=self._usable,
            gone=self._gone,
            timeout=settings.heartbeat_timeout,
            entropy=entropy,
        )
        self._held: dict[Incarnation, list[Any]] = {}
        self._reports: Watch[int] = Watch(0)
        self._ended: dict[JobId, bool] = {}
        self._reasons: dict[JobId, str] = {}
        self._reasons_told: dict[JobId, str] = {}
        self._is_open = False
        self._readers: dict[type[Any], Callable[[Incarnation, Any], None]] = {
            SlotReport: self._on_report,
            SlotsFreed: self._on_freed,
            SlotRequestRefused: self._on_refused,
            Heartbeat: lambda _peer, _message: None,
        }

    async def run(self, jobs: JobDirectory) -> None:
        """Serve until cancelled."""
        self._jobs = jobs
        self._is_open = True
        kind = StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER
        self._server.add_stream_handler(kind, self.serve, check=self._check)
        try:
            async with Scope("resource-manager") as scope:
                scope.spawn_eternal("reaper", self._reap())
                scope.spawn_eternal("ticker", self._tick())
                scope.spawn_eternal("deaths", self._deaths.run())
                scope.spawn_eternal("delegation tokens", self._tokens.run(self._distribute))
                await asyncio.get_running_loop().create_future()
        finally:
            self._is_open = False
            self._server.remove_stream_handler(kind)

    def _check(self, target: FencingToken | None, _sender: FencingToken | None) -> None:
        if target is not None and target != self._token:  # R1: None is a registration
            message = f"meant for leader term {target.revision} of {target.cluster}, this is {self._token.revision}"
            raise StaleTokenError(message)

    # --- streams ------------------------------------------------------------------------------------------

    async def serve(self, stream: MessageStream) -> None:
        """One TaskManager's stream, from its registration to its end."""
        messages = await receive_introduction(stream, within=self._settings.heartbeat_timeout)
        registration = messages.pop(0)
        if not isinstance(registration, RegisterTaskManager):
            stream.abort("the first message was not RegisterTaskManager")
            return
        # R51: what runs there begins with all tokens. Half of the time for which the TaskManager waits.
        await self._tokens.wait_asked(self._settings.heartbeat_timeout / 2)
        refusal = self._refusal(registration, stream.hello.dialer)
        if refusal:
            logger.warning("TaskManager %s at %s refused: %s", registration.incarnation, registration.address, refusal)
            stream.send(RegistrationRefused(refusal))
            return
        peer = registration.incarnation
        settings = self._settings
        stream.send(
            TaskManagerRegistered(
                self._token.cluster,
                self._token.revision,
                self._blob_address,
                settings.heartbeat_interval,
                settings.heartbeat_timeout,
                self._tokens.current(),
            )
        )
        # A stream that has ended already cannot be sent to: it takes the place of none that lives (R11).
        self._streams[peer] = stream
        self._silent_since.pop(peer, None)
        logger.info("TaskManager %s registered from %s", registration.task_manager_id, registration.address)
        self._handle(ev.TaskManagerRegistered(registration))
        self._deaths.registered(_guarded(registration))
        try:
            with self._heartbeats.keep_alive(stream, self._timing):
                self._held[peer] = []
                while True:
                    self._take(peer, messages)
                    messages = list(await stream.receive())
        finally:
            if self._streams.get(peer) is stream:
                del self._streams[peer]
                self._held.pop(peer, None)
                self._silent_since[peer] = stream.last_heard
                self._handle(ev.TaskManagerDisconnected(peer))
                if self._is_open:
                    self._deaths.look_at(peer)

    def _take(self, peer: Incarnation, messages: Sequence[Any]) -> None:
        """What it says counts once it may be used: nothing of it is given to anybody before (R13)."""
        held = self._held.setdefault(peer, [])
        held += messages
        if self._deaths.is_usable(peer):
            self._held[peer] = []
            for message in held:
                self._readers[type(message)](peer, message)

    def _usable(self, peer: Incarnation) -> None:
        if self._held.get(peer):
            self._take(peer, ())

    def _refusal(self, registration: RegisterTaskManager, dialer: Incarnation) -> str:
        if registration.incarnation != dialer:
            return f"the stream belongs to process {dialer}, the registration names {registration.incarnation}"
        if not speaks(registration.protocol_version):
            return (
                f"the JobManager is version {VERSION} (protocol {PROTOCOL_VERSION}), this TaskManager is"
                f" {registration.version} (protocol {registration.protocol_version}): install the same version"
            )
        known = self._slots.task_manager(registration.incarnation)
        if known is not None and known.registration.address != registration.address:
            return f"incarnation {registration.incarnation} is registered from {known.registration.address} already"
        if known is None and len(self._streams) + len(self._silent_since) >= self._settings.task_managers_max:
            return f"{self._settings.task_managers_max} TaskManagers are registered already"
        return self._exchange_problem(registration)

    def _exchange_problem(self, registration: RegisterTaskManager) -> str:
        """R20 for partitions: what one TaskManager writes must be there for all others."""
        if not registration.exchange_id:
            return ""
        for peer in self._slots.task_managers():
            other = peer.registration
            is_shared = other.exchange_id in {"", registration.exchange_id}
            if peer.is_connected and other.incarnation != registration.incarnation and not is_shared:
                return (
                    f"the exchange directory of TaskManager {registration.task_manager_id} is not that of"
                    f" {other.task_manager_id}: exchange.dir must be shared by all hosts"
                )
        return ""

    def _on_report(self, peer: Incarnation, report: SlotReport) -> None:
        self._handle(ev.SlotsReported(peer, report))
        self._reports.set(self._reports.value + 1)
        # R16: what a TaskManager still holds of a job that is over, it lets go of.
        assert self._jobs is not None
        held = {status.job_id for status in report.slots if status.job_id is not None}
        over = tuple(sorted(job_id for job_id in held if not self._jobs.is_unfinished(job_id)))
        if over:
            self._send(peer, JobsEnded(over, tuple(filter(self._jobs.keeps_outputs, over))))

    def _on_freed(self, peer: Incarnation, message: SlotsFreed) -> None:
        self._handle(ev.AllocationsFreed(peer, message.allocations))

    def _on_refused(self, peer: Incarnation, message: SlotRequestRefused) -> None:
        logger.info("TaskManager %s refused slot %d: %s", peer, message.slot_index, message.reason)
        self._handle(
            ev.AllocationRefused(
                peer,
                message.allocation_id,
                message.slot_index,
                is_slot_free=message.is_slot_free,
                is_owner_unreachable=message.is_owner_unreachable,
            )
        )

    def _send(self, peer: Incarnation, message: object) -> None:
        stream = self._streams.get(peer)
        if stream is None:
            return
        try:
            stream.send(message)
        except UnavailableError:
            logger.debug("the stream to TaskManager %s has ended", peer)
        except BackpressureError as error:
            # A peer that reads nothing; a new stream starts from its report.
            stream.abort(f"too much waits to be sent: {error}")

    def _distribute(self, tokens: Sequence[DelegationToken]) -> None:
        """R51. Who registers later is told in the answer."""
        for peer in list(self._streams):
            self._send(peer, NewDelegationTokens(tuple(tokens)))

    # --- decisions ----------------------------------------------------------------------------------------

    def _handle(self, event: ev.SlotManagerEvent) -> None:
        assert self._jobs is not None
        logger.debug("event %s", event)
        for effect in self._slots.handle(event, self._clock.monotonic()):
            logger.debug("effect %s", effect)
            match effect:
                case ev.SendRequestSlot(incarnation=peer, message=request):
                    self._send(peer, request)
                case ev.NotifyJob(job_id=job_id, reason=reason):
                    self._reasons[job_id] = reason
                case ev.OwnerCutOff(job_id=job_id, epoch=epoch):
                    logger.warning("job %s: its owner does not reach TaskManagers that it needs", job_id)
                    self._jobs.owner_cut_off(job_id, epoch)

    def _is_owner(self, job_id: JobId, incarnation: Incarnation, epoch: int) -> bool:
        """Only leaders write owner keys: while this one's lease is valid, what it wrote is what is there (R4)."""
        assert self._jobs is not None
        return self._heartbeats.may_judge and self._jobs.is_owned_by(job_id, incarnation, epoch)

    def _namespace_of(self, job_id: JobId) -> str:
        assert self._jobs is not None
        return self._jobs.namespace_of(job_id)

    def declare_requirements(self, requirements: JobRequirements, /) -> None:
        """The complete requirement set of a job. Ignored unless it comes from the job's owner (R7)."""
        if not self._is_open or self._jobs is None:
            return
        owner = self._jobs.owner_of(requirements.job_id)
        if owner is None or owner.epoch != requirements.epoch:
            logger.info("requirements of job %s at epoch %d ignored", requirements.job_id, requirements.epoch)
            return
        self._handle(ev.RequirementsDeclared(requirements, owner.incarnation, owner.address))
        needs = self._slots.job(requirements.job_id)
        if needs is not None:
            # An owner that comes on a new stream, or to a new leader, may hold another reason than the present one.
            self._reasons[requirements.job_id] = needs.reason
            self._reasons_told.pop(requirements.job_id, None)

    def end_jobs(self, jobs: Mapping[JobId, bool], /) -> None:
        """These jobs have a stored result (R16), and whether their outputs are kept (R28)."""
        if self._is_open:
            self._handle(ev.JobsFinished(tuple(jobs)))
            self._ended.update(jobs)
            for job_id in jobs:
                self._reasons.pop(job_id, None)
                self._reasons_told.pop(job_id, None)

    # --- time ---------------------------------------------------------------------------------------------

    async def _reap(self) -> None:
        """Give up TaskManagers that stay without a stream. R4: after a late turn of this loop nobody is judged."""
        settings = self._settings
        while True:
            before = self._clock.monotonic()
            await asyncio.sleep(settings.heartbeat_interval)
            now = self._clock.monotonic()
            if now - before > 2 * settings.heartbeat_interval:
                self._silent_since = dict.fromkeys(self._silent_since, now)
            for peer, since in list(self._silent_since.items()):
                if now - since >= settings.heartbeat_timeout:
                    logger.warning("TaskManager %s is lost: silent for %.1f s", peer, now - since)
                    del self._silent_since[peer]
                    self._deaths.given_up(peer)
                    self._handle(ev.TaskManagerLost(peer))
            for peer in self._streams:
                self._deaths.look_at(peer)

    def _is_heard(self, peer: Incarnation) -> bool:
        """It has a stream, and its last sign of life is not late."""
        stream = self._streams.get(peer)
        return (
            stream is not None and self._clock.monotonic() - stream.last_heard < 2 * self._settings.heartbeat_interval
        )

    def _gone(self, peer: Incarnation, reason: str) -> None:
        """A TaskManager has ended, and nothing of it runs any more (R13)."""
        self._silent_since.pop(peer, None)
        self._held.pop(peer, None)
        stream = self._streams.pop(peer, None)
        if stream is not None:
            stream.abort(reason)
        self._handle(ev.TaskManagerLost(peer))
        self._task_manager_gone(peer, reason)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tick_period)
            self._handle(ev.Ticked())
            self._tell_ended()
            self._tell_reasons()

    def _tell_ended(self) -> None:
        """R16. The owner has told those TaskManagers that it used; this is for what it could not know of."""
        ended, self._ended = self._ended, {}
        if ended:
            message = JobsEnded(tuple(ended), tuple(job_id for job_id, keeps_outputs in ended.items() if keeps_outputs))
            for peer in list(self._streams):
                self._send(peer, message)

    def _tell_reasons(self) -> None:
        """A reason that came and went between two ticks is nobody's business."""
        assert self._jobs is not None
        changed, self._reasons = self._reasons, {}
        for job_id, reason in changed.items():
            if reason != self._reasons_told.get(job_id):
                self._jobs.notify_resources(job_id, reason)
                self._reasons_told[job_id] = reason

    # --- ResourceManagerView ------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._is_open:
            message = "this resource manager does not lead"
            raise UnavailableError(message)

    def task_managers(self) -> Sequence[TaskManagerInfo]:
        """All registered TaskManagers."""
        self._check_open()
        return [self._info(peer) for peer in self._slots.task_managers()]

    def _info(self, peer: TaskManagerSlots) -> TaskManagerInfo:
        stream = self._streams.get(peer.incarnation)
        heard = self._silent_since.get(peer.incarnation, 0.0) if stream is None else stream.last_heard
        silent = self._clock.monotonic() - heard
        return TaskManagerInfo(
            registration=peer.registration,
            free_slots=len(peer.free),
            is_warm=peer.is_warm,
            assigned_tasks=peer.assigned_tasks,
            last_heard_millis=self._clock.epoch_millis() - int(silent * 1000),
            allocated=tuple(peer.statuses()),
            is_draining=peer.is_draining,
            problem=peer.problem,
            tenant=peer.tenant,
        )

    async def drain_task_manager(self, task_manager_id: str, /, *, is_draining: bool) -> None:
        """Empty a TaskManager, or use it again. Returns when it says so itself."""
        self._check_open()
        latest = reversed(list(self._slots.task_managers()))  # one that has just died may have had the same name
        names = ((one.registration.task_manager_id, one.incarnation) for one in latest)
        found = next((incarnation for name in names for incarnation in name[1:] if task_manager_id in name), None)
        if found is None:
            message = f"TaskManager {task_manager_id[:120]} not found"
            raise NotFoundError(message)
        if found not in self._streams:
            message = f"TaskManager {task_manager_id} is not connected now"
            raise UnavailableError(message)
        self._send(found, DrainTaskManager(is_draining))

        def is_told(_: int) -> bool:
            peer = self._slots.task_manager(found)
            return peer is not None and peer.is_draining == is_draining

        try:
            async with asyncio.timeout(self._settings.heartbeat_timeout):
                await self._reports.wait_until(is_told)
        except TimeoutError:
            wish = "drains" if is_draining else "is used again"
            message = f"TaskManager {task_manager_id} does not say that it {wish}: it cannot be reached, or is stopping"
            raise UnavailableError(message) from None

    def slot_counts(self) -> tuple[int, int]:
        """(slots in all, free ones)."""
        self._check_open()
        return self._slots.slot_counts()

    def delegation_tokens(self) -> Sequence[DelegationTokenStatus]:
        """Each provider of delegation tokens."""
        self._check_open()
        return self._tokens.statuses()

    def offered_spark_conf(self) -> Sequence[bytes]:
        """Static Spark conf of each registered TaskManager that has Spark."""
        self._check_open()
        return [peer.registration.spark_conf for peer in self._slots.task_managers() if peer.registration.has_spark]


def _guarded(registration: RegisterTaskManager) -> GuardedProcess:
    return GuardedProcess(
        registration.incarnation,
        registration.task_manager_id,
        registration.address,
        registration.guard_address,
        registration.boot_id,
    )
