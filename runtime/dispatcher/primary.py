"""JobMasterPrimaryDispatcher: JobMasters run in processes of their own (`jobmanager.jobmaster.single.enable: true`).

Serves JOB_MASTER_TO_DISPATCHER. A process whose stream ends keeps its jobs. Its jobs get other owners only when its
registration in the store has ended with its lease. The leader revokes the lease of a process that is found dead at its
address (a short cut: should the process live, its epochs are refused everywhere), and of one that is silent here
although its lease lives (R8).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, assert_never

from runtime.aio.retry import RetryPolicy
from runtime.aio.scope import ScopeClosedError
from runtime.common.errors import MessageTooLargeError, RetryableError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.waiting import Waiting
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.endpoint import Dispatcher
from runtime.dispatcher.services import DispatcherServices, ResourceRequests
from runtime.dispatcher.settings import DispatcherSettings
from runtime.dispatcher.storage_proofs import StorageChallenges, StorageProofs
from runtime.gateways.cluster_events import EventKind
from runtime.gateways.dispatcher import (
    JOB_DETAILS_SOURCE,
    AssignJob,
    CancelJobs,
    DeclareRequirements,
    DispatcherGateway,
    DrainJobMaster,
    DropJobs,
    JobAssignmentRefused,
    JobInventoryEntry,
    JobMasterHeartbeat,
    JobMasterMessage,
    JobMasterRegistered,
    JobRequest,
    JobsNotTaken,
    JobSummaries,
    NotifyResources,
    RegisterJobMaster,
)
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.gateways.resource_manager import JobRequirements
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.registered_peers import RegisteredPeers
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream, RpcService, StreamKind

logger = logging.getLogger(__name__)

DIAL_POLICY = RetryPolicy(delay_initial=0.1, delay_max=2.0)
"""Pauses between dials of a process without a stream: short ones while it may be dying, then longer ones."""

DIAL_PATIENCE = 0.5
"""Seconds that a process in the store has for its registration with this leader, before it is dialled."""


class JobMasterRegistrations(Protocol):
    """The registrations of JobMaster processes in the store."""

    async def follow(
        self, known: Sequence[Incarnation], on_change: Callable[[ev.ProcessKnown | ev.ProcessLost], None], /
    ) -> None:
        """Tell every change, beginning with the differences from `known`. Eternal."""

    async def revoke(self, incarnation: Incarnation, /) -> None:
        """End the lease of a process (R8)."""


class ProcessDeaths(Protocol):
    """`runtime.heartbeat.proof_of_death.ProcessDialler`."""

    async def prove_death(self, address: str, incarnation: Incarnation, /) -> bool:
        """True if the process is proved dead; False if it lives, or if nothing is proved."""


class JobMasterPrimaryDispatcher(Dispatcher):
    """Assigns jobs to JobMaster processes and forwards what concerns one job to its owner."""

    def __init__(
        self,
        settings: DispatcherSettings,
        services: DispatcherServices,
        resources: ResourceRequests,
        *,
        rpc: RpcService,
        heartbeats: HeartbeatService,
        registrations: JobMasterRegistrations,
        storage: StorageChallenges,
        deaths: ProcessDeaths,
        blob_address: str,
    ) -> None:
        super().__init__(settings, services, resources)
        self._rpc = rpc
        self._registrations = registrations
        self._proofs = StorageProofs(storage, services.token.revision, services.entropy)
        self._deaths = deaths
        self._blob_address = blob_address
        self._dialled: set[Incarnation] = set()
        self._peers = RegisteredPeers(
            "JobMaster process",
            RegisterJobMaster,
            self,
            token=services.token,
            timing=HeartbeatTiming(settings.heartbeat_interval, settings.heartbeat_timeout),
            heartbeats=heartbeats,
            clock=services.clock,
        )

    async def _begin(self) -> None:
        self._rpc.server.add_stream_handler(
            StreamKind.JOB_MASTER_TO_DISPATCHER, self._peers.serve, check=self._peers.check
        )
        known = [process.incarnation for process in self._registry.processes]
        for incarnation in known:
            self._expect(incarnation)
            self._scope.spawn("challenge", self._proofs.challenge(incarnation))
        self._scope.spawn_eternal("registrations", self._registrations.follow(known, self._on_registration))
        self._scope.spawn_eternal("reaper", self._reap())

    def _end(self) -> None:
        self._rpc.server.remove_stream_handler(StreamKind.JOB_MASTER_TO_DISPATCHER)

    # --- registrations in the store -----------------------------------------------------------------------

    def _on_registration(self, event: ev.ProcessKnown | ev.ProcessLost) -> None:
        match event:
            case ev.ProcessLost(incarnation):
                logger.warning("JobMaster process %s is lost: its registration has ended", incarnation)
                self._peers.forget(incarnation, "its lease has ended")
                self._tell_event(EventKind.JOBMASTER_LOST, incarnation, "has ended, or has lost its lease")
            case ev.ProcessKnown(record):
                incarnation = record.incarnation
                if incarnation not in self._peers:
                    self._expect(incarnation)
                # A process that has lost its lease and comes back has the storage that it had.
                if incarnation not in self._registry.processes and not self._proofs.has_proved(incarnation):
                    self._scope.spawn("challenge", self._proofs.challenge(incarnation))
            case _:
                assert_never(event)
        self._post(event)

    # --- streams (PeerHandler) ----------------------------------------------------------------------------

    async def admit(self, registration: RegisterJobMaster, stream: MessageStream, /) -> str:
        """Why the process is refused for good, "" if it is admitted. Raises UnavailableError: it is to try again."""
        peer = registration.incarnation
        if self._peers.is_silent(peer):
            self._peers.expect(peer)  # it speaks: that its storage is slow to prove itself is no silence
        if registration.capacity < 1:
            return f"a capacity of {registration.capacity} jobs is too small"
        if peer in self._registry.processes and (problem := await self._proofs.problem(peer)):
            return problem
        if peer not in self._registry.processes:
            message = "it has no registration in the store (any more): register there first"
            stream.abort(message)
            raise UnavailableError(message)
        return ""

    def welcome(self, _registration: RegisterJobMaster, /) -> JobMasterRegistered:
        """The answer to an admitted process."""
        token, settings = self._services.token, self._settings
        return JobMasterRegistered(
            token.cluster,
            token.revision,
            self._blob_address,
            settings.heartbeat_interval,
            settings.heartbeat_timeout,
        )

    def registered(self, registration: RegisterJobMaster, /) -> None:
        """A process has opened a stream to this leader (again)."""
        logger.info("JobMaster process %s registered from %s", registration.incarnation, registration.address)
        what = f"registered from {registration.address} for {registration.capacity} jobs"
        self._tell_event(EventKind.JOBMASTER_REGISTERED, registration.incarnation, what)
        self._tell_drain(registration.incarnation, is_draining=registration.is_draining)
        self._post(ev.ProcessRegistered(registration))

    def received(self, peer: Incarnation, messages: Sequence[JobMasterMessage], /) -> None:
        """What a process tells."""
        for message in messages:
            self._take(peer, message)

    def _take(self, peer: Incarnation, message: JobMasterMessage) -> None:
        match message:
            case JobMasterHeartbeat():
                self._tell_drain(peer, is_draining=message.is_draining)
                self._post(ev.InventoryReceived(peer, message))
            case JobSummaries(summaries):
                self._post(ev.SummariesReceived(summaries))
            case DeclareRequirements(jobs):
                self._declare(peer, jobs)
            case JobAssignmentRefused():
                logger.info("JobMaster process %s does not run job %s: %s", peer, message.job_id, message.reason)
                self._post(ev.AssignmentRefused(peer, message))
            case _:
                assert_never(message)

    def _tell_drain(self, peer: Incarnation, *, is_draining: bool) -> None:
        if is_draining:
            self._tell_event(EventKind.JOBMASTER_DRAINING, peer, "drains: its jobs go to others, and it takes no more")
        else:
            self._tell_event(EventKind.JOBMASTER_UNDRAINED, peer, "takes jobs again")

    def _tell_event(self, kind: EventKind, peer: Incarnation, what: str) -> None:
        self._services.events.tell(kind, f"JobMaster process {peer} {what}", subject=peer)

    def _declare(self, peer: Incarnation, jobs: Sequence[JobRequirements]) -> None:
        for requirements in jobs:
            owner = self.owner_of(requirements.job_id)
            if owner is not None and owner.incarnation == peer:  # R7
                self._resources.declare_requirements(requirements)

    def disconnected(self, peer: Incarnation, /) -> None:
        """The stream of a process has ended. It keeps its jobs."""
        if self._is_open:
            with suppress(ScopeClosedError):  # the term is ending
                self._dial(peer, 0.0)
            self._post(ev.ProcessDisconnected(peer))

    async def lost(self, peer: Incarnation, silence: float, /) -> None:
        """A process is silent although its lease lives (R8)."""
        await self._revoke(peer, f"is silent for {silence:.1f} s")

    # --- to owners ----------------------------------------------------------------------------------------

    def _send_assign(self, incarnation: Incarnation, message: AssignJob) -> None:
        self._peers.send(incarnation, message)

    def _send_cancel(self, incarnation: Incarnation, job_id: JobId, reason: str) -> None:
        self._peers.send(incarnation, CancelJobs((job_id,), reason))

    def _send_drop(self, incarnation: Incarnation, entries: tuple[JobInventoryEntry, ...]) -> None:
        self._peers.send(incarnation, DropJobs(entries))

    def _send_drain(self, incarnation: Incarnation, *, is_draining: bool) -> None:
        self._peers.send(incarnation, DrainJobMaster(is_draining))

    def _send_not_taken(self, incarnation: Incarnation, reason: str) -> None:
        self._peers.send(incarnation, JobsNotTaken(reason))

    def notify_resources(self, job_id: JobId, waiting: Waiting) -> None:
        """Tell the owner of a job why its requirements are not fulfilled, or that they are."""
        owner = self.owner_of(job_id)
        if owner is not None:
            self._peers.send(owner.incarnation, NotifyResources(job_id, waiting.reason, waiting.kind.value))

    async def _request_owner(self, owner: ev.JobOwner, request: JobRequest) -> bytes:
        timeout = self._settings.rpc_timeout
        token = self._services.token
        client = self._rpc.connect(DispatcherGateway, owner.address, target=None, sender=token, timeout=timeout)
        try:
            return (await client.request_job(request)).archived_graph
        except MessageTooLargeError:
            chunks = self._rpc.fetch_chunks(owner.address, JOB_DETAILS_SOURCE, request.job_id, timeout=timeout)
            return b"".join([chunk async for chunk in chunks])

    async def _update_at_owner(self, owner: ev.JobOwner, request: UpdateRequirements) -> RequirementsUpdated:
        timeout, token = self._settings.rpc_timeout, self._services.token
        client = self._rpc.connect(DispatcherGateway, owner.address, target=None, sender=token, timeout=timeout)
        return await client.set_requirements(request)

    async def _trigger_at_owner(self, owner: ev.JobOwner, request: TriggerOperation) -> StreamOperation:
        timeout, token = self._settings.rpc_timeout, self._services.token
        client = self._rpc.connect(DispatcherGateway, owner.address, target=None, sender=token, timeout=timeout)
        return await client.request_operation(request)

    # --- deaths -------------------------------------------------------------------------------------------

    def _expect(self, peer: Incarnation) -> None:
        """A process is registered in the store, and has no stream to this leader yet."""
        self._peers.expect(peer)
        self._dial(peer, DIAL_PATIENCE)

    def _dial(self, peer: Incarnation, patience: float) -> None:
        """Look for a process at its address after `patience` seconds, until it has a stream (again) or is dead."""
        if peer not in self._dialled:
            self._dialled.add(peer)
            self._scope.spawn("proof of death", self._prove_death(peer, patience))

    async def _prove_death(self, peer: Incarnation, patience: float) -> None:
        attempt = 0
        await asyncio.sleep(patience)
        while self._peers.is_silent(peer):
            process = self._registry.processes.get(peer)
            is_dead = process is not None and await self._deaths.prove_death(process.address, peer)
            if is_dead and self._peers.is_silent(peer):
                await self._revoke(peer, "is dead: its address refuses connections, or another process answers there")
            await asyncio.sleep(DIAL_POLICY.delay(attempt, self._services.entropy))
            attempt += 1
        self._dialled.discard(peer)

    async def _reap(self) -> None:
        while True:
            await self._peers.judge_silence()

    async def _revoke(self, peer: Incarnation, reason: str) -> None:
        logger.warning("JobMaster process %s %s: its lease is revoked", peer, reason)
        self._tell_event(EventKind.JOBMASTER_LOST, peer, f"{reason}. Its lease is revoked")
        self._peers.forget(peer, reason)
        try:
            await self._registrations.revoke(peer)
        except RetryableError as error:
            # The store cannot be reached either: the process is judged again after another timeout (R8).
            logger.warning("the lease of JobMaster process %s could not be revoked: %s", peer, error)
            self._peers.expect(peer)

    def _last_heard_millis(self, incarnation: Incarnation) -> int:
        return self._peers.last_heard_millis(incarnation)
