"""The ResourceManager of one term: carries the SlotManager's decisions to TaskManagers and JobMasters.

Invariants: requirements count, and slots are allocated, only for the (incarnation, E) that owns the job at that moment,
by this leader's own writing and while its lease is valid, so that no other leader can have written since (R7); what
follows from a message is sent in the same loop turn; a lost TaskManager loses its slots here and nothing else (R18). A
dead one loses its key too (R13), and the owners of its jobs act on that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from runtime.aio.scope import Scope
from runtime.aio.turns import Turns
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import NotFoundError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.shares import JobShare, QueueStatus
from runtime.common.spark_environments import SparkOffer
from runtime.common.waiting import Waiting
from runtime.gateways.cluster_events import NO_EVENTS, ClusterEvents
from runtime.gateways.delegation_tokens import DelegationToken, DelegationTokenStatus, NewDelegationTokens
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.overview import WorkersStatus
from runtime.gateways.resource_manager import (
    DrainTaskManager,
    JobRequirements,
    JobsEnded,
    PreemptionRefused,
    SlotReport,
    SlotRequestRefused,
    SlotsFreed,
    TaskManagerInfo,
    TaskManagerMessage,
)
from runtime.heartbeat.service import HeartbeatService
from runtime.resourcemanager.active import ActiveResourceManager
from runtime.resourcemanager.active_job_masters import ActiveJobMasters
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager
from runtime.resourcemanager.core.slots import TaskManagerSlots
from runtime.resourcemanager.deaths import Guards, StoredTaskManagers
from runtime.resourcemanager.driver import ResourceManagerDriver
from runtime.resourcemanager.job_directory import JobDirectory
from runtime.resourcemanager.settings import ResourceManagerSettings
from runtime.resourcemanager.task_managers import TaskManagers
from runtime.rpc.service import RpcServer, StreamKind
from runtime.security.delegation_tokens import DelegationTokenManager

logger = logging.getLogger(__name__)


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
        task_manager_died: Callable[[Incarnation, str], None],
        blob_address: str,
        tokens: DelegationTokenManager,
        clock: Clock,
        entropy: Entropy,
        events: ClusterEvents = NO_EVENTS,
        driver: ResourceManagerDriver | None = None,
        job_masters: ActiveJobMasters | None = None,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._server = server
        self._heartbeats = heartbeats
        self._clock = clock
        self._jobs: JobDirectory | None = None
        self._slots = SlotManager(
            lambda: AllocationId(entropy.hex_id()),
            self._is_owner,
            self._namespace_of,
            self._share_of,
            queues=settings.queues,
            request_timeout=settings.heartbeat_timeout,
            round_seconds=settings.heartbeat_interval,
            preemption_timeout=settings.preemption_timeout,
            profiles=settings.workers.all_profiles if driver is not None and settings.workers is not None else (),
        )
        self._turns = Turns(self._decide)
        self._task_managers = TaskManagers(
            settings,
            self,
            self._slots,
            token=token,
            heartbeats=heartbeats,
            guards=guards,
            stored=stored,
            blob_address=blob_address,
            tokens=tokens,
            clock=clock,
            entropy=entropy,
            events=events,
        )
        self._peers = self._task_managers.peers
        self._active = None
        if driver is not None and settings.workers is not None:
            self._active = ActiveResourceManager(
                settings.workers,
                driver,
                self._slots,
                self.post,
                lambda: heartbeats.may_judge,
                clock=clock,
                entropy=entropy,
                events=events,
            )
        self._job_masters = job_masters
        self._task_manager_died = task_manager_died
        self._reports: Watch[int] = Watch(0)
        self._ended: dict[JobId, bool] = {}
        self._reasons: dict[JobId, Waiting] = {}
        self._reasons_told: dict[JobId, Waiting] = {}
        self._is_open = False

    async def run(self, jobs: JobDirectory) -> None:
        """Serve until cancelled."""
        self._jobs = jobs
        self._is_open = True
        kind = StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER
        self._server.add_stream_handler(kind, self._peers.serve, check=self._peers.check)
        try:
            async with Scope("resource-manager") as scope:
                scope.spawn_eternal("losses", self._task_managers.find_losses())
                scope.spawn_eternal("ticker", self._tick())
                scope.spawn_eternal("deaths", self._task_managers.find_deaths())
                scope.spawn_eternal("delegation tokens", self._tokens.run(self._distribute))
                if self._active is not None:
                    scope.spawn_eternal("workers", self._active.run())
                if self._job_masters is not None:
                    scope.spawn_eternal("job-masters", self._job_masters.run(jobs))
                await asyncio.get_running_loop().create_future()
        finally:
            self._is_open = False
            self._server.remove_stream_handler(kind)

    def _distribute(self, tokens: Sequence[DelegationToken]) -> None:
        """R51. A TaskManager that registers later is told in the answer."""
        for peer in self._peers.connected:
            self._peers.send(peer, NewDelegationTokens(tuple(tokens)))

    # --- what TaskManagers say (TaskManagerListener) ------------------------------------------------------

    def received(self, peer: Incarnation, message: TaskManagerMessage, /) -> None:
        """A message of a TaskManager that may be used."""
        match message:
            case Heartbeat():
                pass
            case SlotReport():
                self._on_report(peer, message)
            case SlotsFreed():
                self.post(ev.AllocationsFreed(peer, message))
            case PreemptionRefused():
                self.post(ev.SlotsKept(peer, message))
            case SlotRequestRefused():
                logger.info("TaskManager %s refused slot %d: %s", peer, message.slot_index, message.reason)
                self.post(ev.AllocationRefused(peer, message))
            case _:
                assert_never(message)

    def _on_report(self, peer: Incarnation, report: SlotReport) -> None:
        self._task_managers.tell_state(peer, report)
        self.post(ev.SlotsReported(peer, report))
        self._reports.set(self._reports.value + 1)
        # R16: what a TaskManager still holds of a job that is over, it lets go of.
        jobs = self._directory
        held = {status.job_id for status in report.slots if status.job_id is not None}
        over = tuple(sorted(job_id for job_id in held if not jobs.is_unfinished(job_id)))
        if over:
            self._peers.send(peer, JobsEnded(over, tuple(filter(jobs.keeps_outputs, over))))

    def died(self, peer: Incarnation, reason: str, /) -> None:
        """A TaskManager has ended, and nothing of it runs any more (R13)."""
        self._task_manager_died(peer, reason)

    # --- decisions ----------------------------------------------------------------------------------------

    @property
    def _directory(self) -> JobDirectory:
        assert self._jobs is not None, "the ResourceManager does not run"
        return self._jobs

    def post(self, event: ev.SlotManagerEvent, /) -> None:
        """Decide on an event, and send what follows. Events that arise meanwhile come after it."""
        self._turns.post(event)

    def _decide(self, event: ev.SlotManagerEvent) -> None:
        logger.debug("event %s", event)
        for effect in self._slots.handle(event, self._clock.monotonic()):
            logger.debug("effect %s", effect)
            match effect:
                case ev.SendRequestSlot(incarnation=peer, message=request):
                    self._peers.send(peer, request)
                case ev.SendPreemptSlots(incarnation=peer, message=order):
                    logger.info("TaskManager %s gives %d slots back: %s", peer, len(order.allocations), order.reason)
                    self._peers.send(peer, order)
                case ev.NotifyJob(job_id=job_id, waiting=waiting):
                    self._reasons[job_id] = waiting
                case ev.OwnerCutOff(job_id=job_id, epoch=epoch):
                    logger.warning("job %s: its owner does not reach TaskManagers that it needs", job_id)
                    self._directory.owner_cut_off(job_id, epoch)
                case _:
                    assert_never(effect)
        if isinstance(event, ev.RequirementsDeclared):
            self._repeat_reason(event.requirements.job_id)
        if self._active is not None and not isinstance(event, ev.Ticked):
            self._active.signal()

    def _repeat_reason(self, job_id: JobId) -> None:
        """An owner that comes on a new stream, or to a new leader, may hold another reason than the present one."""
        needs = self._slots.job(job_id)
        if needs is not None:
            self._reasons[job_id] = needs.waiting
            self._reasons_told.pop(job_id, None)

    def _is_owner(self, job_id: JobId, incarnation: Incarnation, epoch: int) -> bool:
        """Only leaders write owner keys: while this one's lease is valid, what it wrote is what is there (R4)."""
        return self._heartbeats.may_judge and self._directory.is_owned_by(job_id, incarnation, epoch)

    def _namespace_of(self, job_id: JobId) -> str:
        return self._directory.namespace_of(job_id)

    def _share_of(self, job_id: JobId) -> JobShare:
        return self._directory.share_of(job_id)

    def declare_requirements(self, requirements: JobRequirements, /) -> None:
        """Take over the complete requirement set of a job. Ignored unless it comes from the job's owner (R7)."""
        if not self._is_open or self._jobs is None:
            return
        owner = self._jobs.owner_of(requirements.job_id)
        if owner is None or owner.epoch != requirements.epoch:
            logger.info("requirements of job %s at epoch %d ignored", requirements.job_id, requirements.epoch)
            return
        self.post(ev.RequirementsDeclared(requirements, owner.incarnation, owner.address))

    def end_jobs(self, jobs: Mapping[JobId, bool], /) -> None:
        """These jobs have a stored result (R16); the value tells whether their outputs are kept (R28)."""
        if self._is_open:
            self.post(ev.JobsFinished(tuple(jobs)))
            self._ended.update(jobs)
            for job_id in jobs:
                self._reasons.pop(job_id, None)
                self._reasons_told.pop(job_id, None)

    # --- time ---------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tick_period)
            self.post(ev.Ticked(is_more_coming=self._active is not None and self._active.is_more_coming))
            self._tell_ended()
            self._tell_reasons()

    def _tell_ended(self) -> None:
        """R16: tell all TaskManagers. The owner has told those that it used, and cannot know of all others."""
        ended, self._ended = self._ended, {}
        if ended:
            message = JobsEnded(tuple(ended), tuple(job_id for job_id, keeps_outputs in ended.items() if keeps_outputs))
            for peer in self._peers.connected:
                self._peers.send(peer, message)

    def _tell_reasons(self) -> None:
        """Tell owners what has changed. A reason that came and went between two ticks is not told."""
        changed, self._reasons = self._reasons, {}
        for job_id, waiting in changed.items():
            if waiting != self._reasons_told.get(job_id):
                self._directory.notify_resources(job_id, waiting)
                self._reasons_told[job_id] = waiting

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
        return TaskManagerInfo(
            registration=peer.registration,
            free_slots=len(peer.free),
            is_warm=peer.report.is_warm,
            assigned_tasks=peer.report.assigned_tasks,
            last_heard_millis=self._peers.last_heard_millis(peer.incarnation),
            allocated=tuple(peer.statuses()),
            is_draining=peer.report.is_draining,
            problem=peer.report.problem,
            tenant=peer.tenant,
            environments=peer.report.environments,
        )

    async def drain_task_manager(self, task_manager_id: str, /, *, is_draining: bool) -> None:
        """Drain a TaskManager, or use it again. Returns when the TaskManager has reported that it does.

        NotFoundError, UnavailableError.
        """
        self._check_open()
        latest = reversed(list(self._slots.task_managers()))  # one that died just now may have the same name
        names = ((one.incarnation, one.registration.task_manager_id) for one in latest)
        found = next((incarnation for incarnation, name in names if task_manager_id in {incarnation, name}), None)
        if found is None:
            message = f"TaskManager {task_manager_id[:120]} not found"
            raise NotFoundError(message)
        if not self._peers.is_connected(found):
            message = f"TaskManager {task_manager_id} is not connected now"
            raise UnavailableError(message)
        self._peers.send(found, DrainTaskManager(is_draining))

        def is_told(_: int) -> bool:
            peer = self._slots.task_manager(found)
            return peer is not None and peer.report.is_draining == is_draining

        try:
            async with asyncio.timeout(self._settings.heartbeat_timeout):
                await self._reports.wait_until(is_told)
        except TimeoutError:
            wish = "drains" if is_draining else "is used again"
            message = f"TaskManager {task_manager_id} does not say that it {wish}: it cannot be reached, or is stopping"
            raise UnavailableError(message) from None

    def slot_counts(self) -> tuple[int, int]:
        """The number of all slots, and of free ones."""
        self._check_open()
        return self._slots.slot_counts()

    def queues(self) -> Sequence[QueueStatus]:
        """All queues that have jobs or options, by name."""
        self._check_open()
        return self._slots.queues()

    def waiting_of(self, job_id: JobId, /) -> Waiting:
        """Why the job waits for slots at this moment, with its place in its queue; NOT_WAITING if it does not."""
        self._check_open()
        return self._slots.shown_waiting(job_id)

    def workers(self) -> Sequence[WorkersStatus]:
        """The processes that a driver has started, of each kind that it starts."""
        self._check_open()
        return [one.status() for one in (self._active, self._job_masters) if one is not None]

    def delegation_tokens(self) -> Sequence[DelegationTokenStatus]:
        """Each provider of delegation tokens."""
        self._check_open()
        return self._tokens.statuses()

    def spark_offers(self) -> Sequence[SparkOffer]:
        """What Spark of each registered TaskManager that has one can be for a job."""
        self._check_open()
        return [peer.offer for peer in self._slots.task_managers() if peer.registration.has_spark]
