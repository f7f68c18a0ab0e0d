"""The TaskManagers of one leader term: their registrations, their streams, and the proof of their deaths.

Invariants: a TaskManager registers with all delegation tokens (R51); what it says counts only when the leader may use
it, and waits until then (R13); one that is silent is lost and loses its slots here, nothing else (R18); one that is
dead is removed from the store before anything here acts on its death (R13).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation
from runtime.gateways.cluster_events import NO_EVENTS, ClusterEvents, EventKind
from runtime.gateways.resource_manager import (
    RegisterTaskManager,
    SlotReport,
    TaskManagerMessage,
    TaskManagerRegistered,
)
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.registered_peers import RegisteredPeers
from runtime.heartbeat.service import HeartbeatService
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager
from runtime.resourcemanager.deaths import Guards, StoredTaskManagers, TaskManagerDeaths
from runtime.resourcemanager.settings import ResourceManagerSettings
from runtime.rpc.service import MessageStream
from runtime.security.delegation_tokens import DelegationTokenManager

logger = logging.getLogger(__name__)


class TaskManagerListener(Protocol):
    """The ResourceManager, as its TaskManagers tell it what happens. Calls never block."""

    def post(self, event: ev.SlotManagerEvent, /) -> None:
        """A TaskManager has come, has lost its stream, or is lost."""

    def received(self, peer: Incarnation, message: TaskManagerMessage, /) -> None:
        """A message of a TaskManager that may be used."""

    def died(self, peer: Incarnation, reason: str, /) -> None:
        """A TaskManager has ended, and nothing of it runs any more (R13)."""


class TaskManagers:
    """Implements `PeerHandler` for TaskManagers. `peers` is the table of their streams."""

    def __init__(
        self,
        settings: ResourceManagerSettings,
        listener: TaskManagerListener,
        slots: SlotManager,
        *,
        token: FencingToken,
        heartbeats: HeartbeatService,
        guards: Guards,
        stored: StoredTaskManagers,
        blob_address: str,
        tokens: DelegationTokenManager,
        clock: Clock,
        entropy: Entropy,
        events: ClusterEvents = NO_EVENTS,
    ) -> None:
        self._settings = settings
        self._events = events
        self._listener = listener
        self._slots = slots
        self._token = token
        self._blob_address = blob_address
        self._tokens = tokens
        self._held: dict[Incarnation, list[TaskManagerMessage]] = {}
        self.peers = RegisteredPeers(
            "TaskManager",
            RegisterTaskManager,
            self,
            token=token,
            timing=HeartbeatTiming(settings.heartbeat_interval, settings.heartbeat_timeout),
            heartbeats=heartbeats,
            clock=clock,
            peers_max=settings.task_managers_max,
        )
        self._deaths = TaskManagerDeaths(
            guards,
            stored,
            is_heard=self.peers.is_heard,
            usable=self._usable,
            died=self._died,
            timeout=settings.heartbeat_timeout,
            entropy=entropy,
        )

    async def find_deaths(self) -> None:
        """Eternal. Raises StaleTokenError in an ExceptionGroup when the term turns out to be over."""
        await self._deaths.run()

    async def find_losses(self) -> None:
        """Give up TaskManagers that stay without a stream, and have late ones proved dead. Eternal."""
        while True:
            await self.peers.judge_silence()
            for peer in self.peers.connected:
                self._deaths.look_at(peer)

    # --- PeerHandler --------------------------------------------------------------------------------------

    async def admit(self, registration: RegisterTaskManager, _stream: MessageStream, /) -> str:
        """Why the TaskManager is refused, "" if it is admitted."""
        # R51: what runs there begins with all tokens. Half of the time for which the TaskManager waits.
        await self._tokens.wait_asked(self._settings.heartbeat_timeout / 2)
        known = self._slots.task_manager(registration.incarnation)
        if known is not None and known.registration.address != registration.address:
            return f"incarnation {registration.incarnation} is registered from {known.registration.address} already"
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

    def welcome(self, _registration: RegisterTaskManager, /) -> TaskManagerRegistered:
        """The answer to an admitted TaskManager."""
        return TaskManagerRegistered(
            self._token.cluster,
            self._token.revision,
            self._blob_address,
            self._settings.heartbeat_interval,
            self._settings.heartbeat_timeout,
            self._tokens.current(),
        )

    def registered(self, registration: RegisterTaskManager, /) -> None:
        """A TaskManager has opened a stream (again): its slots are unknown until its first report."""
        logger.info("TaskManager %s registered from %s", registration.task_manager_id, registration.address)
        what = f"registered from {registration.address} with {registration.slots} slots"
        self._tell_of(EventKind.TASKMANAGER_REGISTERED, registration, what)
        self._held[registration.incarnation] = []
        self._listener.post(ev.TaskManagerRegistered(registration))
        self._deaths.registered(registration)

    def received(self, peer: Incarnation, messages: Sequence[TaskManagerMessage], /) -> None:
        """Pass messages on, or hold them until the TaskManager may be used (R13)."""
        held = self._held.setdefault(peer, [])
        held += messages
        if self._deaths.is_usable(peer):
            self._held[peer] = []
            for message in held:
                self._listener.received(peer, message)

    def disconnected(self, peer: Incarnation, /) -> None:
        """The stream of a TaskManager has ended: perhaps the TaskManager has, too."""
        self._held.pop(peer, None)
        self._listener.post(ev.TaskManagerDisconnected(peer))
        self._deaths.look_at(peer)

    async def lost(self, peer: Incarnation, silence: float, /) -> None:
        """A TaskManager was silent for too long (R18)."""
        logger.warning("TaskManager %s is lost: silent for %.1f s", peer, silence)
        self._tell(EventKind.TASKMANAGER_LOST, peer, f"is lost: silent for {silence:.1f} s")
        self._deaths.given_up(peer)
        self._listener.post(ev.TaskManagerLost(peer))

    # --- deaths -------------------------------------------------------------------------------------------

    def _usable(self, peer: Incarnation) -> None:
        if self._held.get(peer):
            self.received(peer, ())

    def _died(self, peer: Incarnation, reason: str) -> None:
        self._held.pop(peer, None)
        self._events.tell(EventKind.TASKMANAGER_DEAD, reason, subject=peer)
        self.peers.forget(peer, reason)
        self._listener.post(ev.TaskManagerLost(peer))
        self._listener.died(peer, reason)

    # --- events -------------------------------------------------------------------------------------------

    def tell_state(self, peer: Incarnation, report: SlotReport) -> None:
        """What a report says of the TaskManager itself."""
        if report.is_draining:
            self._tell(EventKind.TASKMANAGER_DRAINING, peer, "drains: it takes no more slots")
        else:
            self._tell(EventKind.TASKMANAGER_UNDRAINED, peer, "is used again")
        if report.problem:
            self._tell(EventKind.TASKMANAGER_TROUBLED, peer, f"has a problem: {report.problem}")
        else:
            self._tell(EventKind.TASKMANAGER_RECOVERED, peer, "has no problem any more")

    def _tell(self, kind: EventKind, peer: Incarnation, what: str) -> None:
        known = self._slots.task_manager(peer)
        if known is not None:
            self._tell_of(kind, known.registration, what)

    def _tell_of(self, kind: EventKind, registration: RegisterTaskManager, what: str) -> None:
        message = f"TaskManager {registration.task_manager_id} {what}"
        self._events.tell(kind, message, subject=registration.incarnation)
