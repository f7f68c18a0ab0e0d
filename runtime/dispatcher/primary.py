"""JobMasterPrimaryDispatcher: JobMasters run in processes of their own (`jobmanager.jobmaster.single.enable: true`).

Serves JOB_MASTER_TO_DISPATCHER. A process whose stream ends keeps its jobs; it is lost when its registration in the
store is gone (its lease ended), and only then do its jobs get other owners. The lease of a process is revoked when it
is found dead at its address (a short cut: were that wrong, its epochs are refused everywhere), and when it is silent
here although its lease lives (R8).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from runtime.aio.retry import RetryPolicy
from runtime.common.errors import (
    BackpressureError,
    MessageTooLargeError,
    PermanentError,
    RetryableError,
    StaleTokenError,
    UnavailableError,
)
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation, JobId
from runtime.common.version import PROTOCOL_VERSION, VERSION, speaks
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.endpoint import Dispatcher
from runtime.dispatcher.services import DispatcherServices, ResourceRequests
from runtime.dispatcher.settings import DispatcherSettings
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
    JobMasterRegistered,
    JobRequest,
    JobsNotTaken,
    JobSummaries,
    NotifyResources,
    RegisterJobMaster,
)
from runtime.gateways.resource_manager import RegistrationRefused
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream, RpcService, StreamKind
from runtime.rpc.stream import receive_introduction

logger = logging.getLogger(__name__)

DIAL_POLICY = RetryPolicy(delay_initial=0.1, delay_max=2.0)
"""How often a process without a stream is dialled: at once, while it may be about to die, then now and then."""

DIAL_PATIENCE = 0.5
"""Seconds that a process which this leader has never heard of has for opening its stream."""

STORAGE_PROOF_TRIES = 3
"""A process that has not answered in storage at so many registrations sees another one."""


class JobMasterRegistrations(Protocol):
    """The registered JobMaster processes, as the store tells of them."""

    async def follow(
        self, known: Sequence[Incarnation], on_change: Callable[[ev.ProcessKnown | ev.ProcessLost], None], /
    ) -> None:
        """Tell every change, beginning with what differs from `known`. Eternal."""

    async def revoke(self, incarnation: Incarnation, /) -> None:
        """End the lease of a process (R8)."""


class ProcessDeaths(Protocol):
    """`runtime.heartbeat.proof_of_death.ProcessDialler`."""

    async def prove_death(self, address: str, incarnation: Incarnation, /) -> bool:
        """True when the process is gone; False when it lives, or nobody can tell."""


class StorageChallenges(Protocol):
    """R20, the leader's half: `runtime.blob.storage_probe.StorageProbe`."""

    async def challenge(self, incarnation: Incarnation, term: int, nonce: str, /) -> None:
        """Put a nonce into storage for a process. Idempotent."""

    async def check(self, incarnation: Incarnation, term: int, nonce: str, /) -> None:
        """Read what the process has answered. Raises PermanentError when that is not there."""


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
        self._heartbeats = heartbeats
        self._timing = HeartbeatTiming(settings.heartbeat_interval, settings.heartbeat_timeout)
        self._registrations = registrations
        self._storage = storage
        self._deaths = deaths
        self._nonces: dict[Incarnation, str] = {}
        self._challenged: set[Incarnation] = set()
        self._proven: set[Incarnation] = set()
        self._proof_failures: dict[Incarnation, int] = {}
        self._blob_address = blob_address
        self._streams: dict[Incarnation, MessageStream] = {}
        self._silent_since: dict[Incarnation, float] = {}
        self._dialled: set[Incarnation] = set()
        self._readers: dict[type[Any], Callable[[Incarnation, Any], None]] = {
            JobMasterHeartbeat: self._on_heartbeat,
            JobSummaries: lambda _peer, message: self._post(ev.SummariesReceived(message.summaries)),
            DeclareRequirements: self._on_requirements,
            JobAssignmentRefused: self._on_refused,
        }

    async def _begin(self) -> None:
        self._rpc.server.add_stream_handler(StreamKind.JOB_MASTER_TO_DISPATCHER, self.serve, check=self._check)
        known = [process.incarnation for process in self._registry.processes]
        for incarnation in known:
            self._is_silent(incarnation, self._services.clock.monotonic(), DIAL_PATIENCE)
            self._scope.spawn("challenge", self._challenge(incarnation))
        self._scope.spawn_eternal("registrations", self._registrations.follow(known, self._on_registration))
        self._scope.spawn_eternal("reaper", self._reap())

    def _end(self) -> None:
        self._rpc.server.remove_stream_handler(StreamKind.JOB_MASTER_TO_DISPATCHER)

    def _check(self, target: FencingToken | None, _sender: FencingToken | None) -> None:
        token = self._services.token
        if target is not None and target != token:  # R1: None is a registration
            message = f"meant for leader term {target.revision} of {target.cluster}, this is {token.revision}"
            raise StaleTokenError(message)

    # --- registrations in the store -----------------------------------------------------------------------

    def _on_registration(self, event: ev.ProcessKnown | ev.ProcessLost) -> None:
        if isinstance(event, ev.ProcessLost):
            logger.warning("JobMaster process %s is lost: its registration is gone", event.incarnation)
            self._silent_since.pop(event.incarnation, None)
            stream = self._streams.pop(event.incarnation, None)
            if stream is not None:
                stream.abort("its lease has ended")
        elif event.incarnation not in self._streams and event.incarnation not in self._silent_since:
            self._is_silent(event.incarnation, self._services.clock.monotonic(), DIAL_PATIENCE)
        is_new = isinstance(event, ev.ProcessKnown) and event.incarnation not in self._registry.processes
        # Who has lost its lease and comes back has the storage that it had, and does not prove it again in this term.
        if is_new and event.incarnation not in self._proven:
            self._scope.spawn("challenge", self._challenge(event.incarnation))
        self._post(event)

    # --- R20: is its storage ours? ------------------------------------------------------------------------

    async def _challenge(self, incarnation: Incarnation) -> None:
        # Chosen before it is written: a write that fails may have been done, and another one may be under way.
        if incarnation not in self._nonces:
            self._nonces[incarnation] = self._services.entropy.hex_id()
        try:
            await self._storage.challenge(incarnation, self._services.token.revision, self._nonces[incarnation])
            self._challenged.add(incarnation)
        except RetryableError as error:
            logger.warning("JobMaster process %s is not challenged yet: %s", incarnation, error)

    async def _storage_problem(self, incarnation: Incarnation) -> str:
        """Why the process may not register, "" if it may. Storage that is away proves nothing: UnavailableError.

        Neither does one missing answer: storage that is slow looks like storage that is not shared.
        """
        if incarnation in self._proven:
            return ""
        if incarnation not in self._challenged:
            await self._challenge(incarnation)
            message = f"JobMaster process {incarnation} has not answered a challenge in storage yet"
            raise UnavailableError(message)
        try:
            await self._storage.check(incarnation, self._services.token.revision, self._nonces[incarnation])
        except PermanentError as error:
            failures = self._proof_failures[incarnation] = self._proof_failures.get(incarnation, 0) + 1
            if failures >= STORAGE_PROOF_TRIES:
                return str(error)
            raise UnavailableError(str(error)) from error
        self._proven.add(incarnation)
        return ""

    # --- streams ------------------------------------------------------------------------------------------

    async def serve(self, stream: MessageStream) -> None:
        """One process's stream, from its registration to its end."""
        messages = await receive_introduction(stream, within=self._settings.heartbeat_timeout)
        registration = messages.pop(0)
        if not isinstance(registration, RegisterJobMaster):
            stream.abort("the first message was not RegisterJobMaster")
            return
        if registration.incarnation in self._silent_since:
            # It speaks; that its storage is slow to prove itself is no silence.
            self._silent_since[registration.incarnation] = self._services.clock.monotonic()
        refusal = self._refusal(registration, stream.hello.dialer)
        if not refusal and registration.incarnation in self._registry.processes:
            refusal = await self._storage_problem(registration.incarnation)
        if refusal:
            logger.warning("JobMaster process at %s refused: %s", registration.address, refusal)
            stream.send(RegistrationRefused(refusal))
            return
        peer = registration.incarnation
        if peer not in self._registry.processes:
            stream.abort("it has no registration in the store (any more): register there first")
            return
        token, settings = self._services.token, self._settings
        stream.send(
            JobMasterRegistered(
                token.cluster,
                token.revision,
                self._blob_address,
                settings.heartbeat_interval,
                settings.heartbeat_timeout,
            )
        )
        # A stream that ended while storage was asked cannot be sent to: it takes the place of none that lives (R11).
        self._streams[peer] = stream
        self._silent_since.pop(peer, None)
        logger.info("JobMaster process %s registered from %s", peer, registration.address)
        self._post(
            ev.ProcessRegistered(
                peer, registration.address, registration.capacity, registration.version, registration.is_draining
            )
        )
        try:
            with self._heartbeats.keep_alive(stream, self._timing):
                while True:
                    for message in messages:
                        self._readers[type(message)](peer, message)
                    messages = list(await stream.receive())
        finally:
            if self._streams.get(peer) is stream:
                del self._streams[peer]
                if self._is_open:
                    self._is_silent(peer, stream.last_heard, 0.0)
                    self._post(ev.ProcessDisconnected(peer))

    def _refusal(self, registration: RegisterJobMaster, dialer: Incarnation) -> str:
        if registration.incarnation != dialer:
            return f"the stream belongs to process {dialer}, the registration names {registration.incarnation}"
        if not speaks(registration.protocol_version):
            return (
                f"the JobManager is version {VERSION} (protocol {PROTOCOL_VERSION}), this JobMaster process is"
                f" {registration.version} (protocol {registration.protocol_version}): install the same version"
            )
        if registration.capacity < 1:
            return f"a capacity of {registration.capacity} jobs is too small"
        return ""

    def _on_heartbeat(self, peer: Incarnation, message: JobMasterHeartbeat) -> None:
        self._post(
            ev.InventoryReceived(
                peer,
                message.inventory,
                message.assignment,
                message.cpu_fraction,
                message.memory_bytes,
                message.is_draining,
            )
        )

    def _on_requirements(self, peer: Incarnation, message: DeclareRequirements) -> None:
        for requirements in message.jobs:
            owner = self.owner_of(requirements.job_id)
            if owner is not None and owner.incarnation == peer:  # R7
                self._resources.declare_requirements(requirements)

    def _on_refused(self, peer: Incarnation, message: JobAssignmentRefused) -> None:
        logger.info("JobMaster process %s does not run job %s: %s", peer, message.job_id, message.reason)
        self._post(ev.AssignmentRefused(peer, message.job_id, message.epoch, message.reason, message.is_permanent))

    # --- to owners ----------------------------------------------------------------------------------------

    def _send(self, peer: Incarnation, message: object) -> None:
        stream = self._streams.get(peer)
        if stream is None:
            return
        try:
            stream.send(message)
        except UnavailableError:
            logger.debug("the stream to JobMaster process %s has ended", peer)
        except BackpressureError as error:
            # A peer that reads nothing; a new stream starts from its inventory (R5).
            stream.abort(f"too much waits to be sent: {error}")

    def _send_assign(self, incarnation: Incarnation, message: AssignJob) -> None:
        self._send(incarnation, message)

    def _send_cancel(self, incarnation: Incarnation, job_id: JobId, reason: str) -> None:
        self._send(incarnation, CancelJobs((job_id,), reason))

    def _send_drop(self, incarnation: Incarnation, entries: tuple[JobInventoryEntry, ...]) -> None:
        self._send(incarnation, DropJobs(entries))

    def _send_drain(self, incarnation: Incarnation, *, is_draining: bool) -> None:
        self._send(incarnation, DrainJobMaster(is_draining))

    def _send_not_taken(self, incarnation: Incarnation, reason: str) -> None:
        self._send(incarnation, JobsNotTaken(reason))

    def notify_resources(self, job_id: JobId, reason: str) -> None:
        """Why a job's requirements are not fulfilled."""
        owner = self.owner_of(job_id)
        if owner is not None:
            self._send(owner.incarnation, NotifyResources(job_id, reason))

    async def _request_owner(self, owner: ev.JobOwner, request: JobRequest) -> bytes:
        timeout = self._settings.rpc_timeout
        token = self._services.token
        client = self._rpc.connect(DispatcherGateway, owner.address, target=None, sender=token, timeout=timeout)
        try:
            return (await client.request_job(request)).archived_graph
        except MessageTooLargeError:
            chunks = self._rpc.fetch_chunks(owner.address, JOB_DETAILS_SOURCE, request.job_id, timeout=timeout)
            return b"".join([chunk async for chunk in chunks])

    # --- deaths -------------------------------------------------------------------------------------------

    def _is_silent(self, peer: Incarnation, since: float, patience: float) -> None:
        """A process has no stream: look for it at its address, until it has one again or is gone."""
        self._silent_since[peer] = since
        if peer not in self._dialled:
            self._dialled.add(peer)
            self._scope.spawn("proof of death", self._prove_death(peer, patience))

    async def _prove_death(self, peer: Incarnation, patience: float) -> None:
        attempt = 0
        await asyncio.sleep(patience)
        while peer in self._silent_since:
            process = self._registry.processes.get(peer)
            is_dead = process is not None and await self._deaths.prove_death(process.address, peer)
            if is_dead and peer in self._silent_since:
                await self._revoke(peer, "is dead: its address refuses connections, or another process answers there")
            await asyncio.sleep(DIAL_POLICY.delay(attempt, self._services.entropy))
            attempt += 1
        self._dialled.discard(peer)

    # --- time ---------------------------------------------------------------------------------------------

    async def _reap(self) -> None:
        """Revoke the lease of processes that stay without a stream (R8). R4: after a late turn nobody is judged."""
        settings, clock = self._settings, self._services.clock
        while True:
            before = clock.monotonic()
            await asyncio.sleep(settings.heartbeat_interval)
            now = clock.monotonic()
            if now - before > 2 * settings.heartbeat_interval:
                self._silent_since = dict.fromkeys(self._silent_since, now)
            for peer, since in list(self._silent_since.items()):
                if now - since >= settings.heartbeat_timeout:
                    await self._revoke(peer, f"is silent for {now - since:.1f} s")

    async def _revoke(self, peer: Incarnation, reason: str) -> None:
        logger.warning("JobMaster process %s %s: its lease is revoked", peer, reason)
        self._silent_since.pop(peer, None)
        try:
            await self._registrations.revoke(peer)
        except RetryableError as error:
            # The store is not to be reached either: nobody is judged (R8), and asked again after a timeout.
            logger.warning("the lease of JobMaster process %s could not be revoked: %s", peer, error)
            self._silent_since[peer] = self._services.clock.monotonic()

    def _last_heard_millis(self, incarnation: Incarnation) -> int:
        clock = self._services.clock
        stream = self._streams.get(incarnation)
        heard = self._silent_since.get(incarnation) if stream is None else stream.last_heard
        return 0 if heard is None else clock.epoch_millis() - int((clock.monotonic() - heard) * 1000)
