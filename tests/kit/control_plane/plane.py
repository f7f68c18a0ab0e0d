"""A control plane in one process: leaders, JobMaster processes and TaskManagers over the local transport.

Everything is real but three things: the store is the memory one, elections and registrations are done by the test,
and TaskManagers hold slots without running code.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from jobmaster_process.container_runner import ContainerSettings, JobMasterContainerRunner, LeaderAddress
from jobmaster_process.secondary_dispatcher import JobMasterSecondaryDispatcher, ProcessLoad
from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.common.errors import UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid, Incarnation, JobId
from runtime.common.version import PROTOCOL_VERSION, VERSION
from runtime.dispatcher.cluster_events import ClusterEventLog
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.dispatcher.dispatcher_metrics import DispatcherMetrics
from runtime.dispatcher.endpoint import Dispatcher
from runtime.dispatcher.leader_process import DispatcherLeaderProcess, TermComponents
from runtime.dispatcher.primary import JobMasterPrimaryDispatcher
from runtime.dispatcher.services import DispatcherServices
from runtime.dispatcher.settings import DispatcherSettings
from runtime.dispatcher.standalone import StandaloneDispatcher
from runtime.entrypoint.component_factories import TaskManagerKeys
from runtime.entrypoint.process_gateway import OwnProcess
from runtime.gateways.delegation_tokens import DelegationToken, NewDelegationTokens
from runtime.gateways.dispatcher import SubmitJobRequest
from runtime.gateways.job_manager_runner import JobManagerRunnerFactory
from runtime.gateways.resource_manager import (
    DrainTaskManager,
    JobsEnded,
    RegisterTaskManager,
    RegistrationRefused,
    RequestSlot,
    ResourceProfile,
    SlotReport,
    SlotsFreed,
    SlotStatus,
    TaskManagerRegistered,
)
from runtime.heartbeat.core.death import Answered, ConnectionRefused, Dialled, NoAnswer
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.proof_of_death import GuardDialler, ProcessDialler
from runtime.heartbeat.service import HeartbeatService
from runtime.highavailability.cluster_events import ClusterEventStore
from runtime.highavailability.disposals import DisposalStore
from runtime.highavailability.jobs.fences import OwnerFences
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvLeaderJobStore, KvOwnerJobStore
from runtime.highavailability.jobs.leader_fences import LeaderFences
from runtime.highavailability.jobs.payloads import Payloads
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.registration import TaskManagerRegistry, follow_guards
from runtime.highavailability.records import Payload, TaskManagerRecord
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.jobmaster.endpoint import JobMasterSettings
from runtime.jobmaster.runner import DefaultJobManagerRunnerFactory
from runtime.metrics.counted import CountedMetrics
from runtime.resourcemanager.endpoint import ResourceManager
from runtime.resourcemanager.settings import ResourceManagerSettings
from runtime.rpc.local import LocalNetwork, LocalRpcService
from runtime.rpc.service import MessageStream, StreamHello, StreamKind
from runtime.rpc.settings import RpcSettings
from runtime.scheduler.core.failover.settings import NO_FAILOVER
from runtime.security.core.token_renewal import RenewalSettings
from runtime.security.delegation_tokens import DelegationTokenManager, ProviderCalls
from tests.kit.control_plane.memory_objects import MemoryObjectStore, MemoryPacks, SharedStorage
from tests.kit.control_plane.process_events import process_known
from tests.kit.control_plane.scripted_runners import ScriptedRunners

GRAPH = b'{"name":"job"}'


async def eventually(condition: Callable[[], bool], what: str = "the condition", timeout: float = 100.0) -> None:
    """Let the loop run until `condition` holds."""
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(0.001)
    except TimeoutError:
        message = f"{what} did not come about within {timeout} s"
        raise AssertionError(message) from None


class Registrations:
    """JobMasterRegistrations, done by the test."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def follow(
        self, known: Sequence[Incarnation], on_change: Callable[[ev.ProcessKnown | ev.ProcessLost], None], /
    ) -> None:
        assert set(known) == set(self._plane.registered)
        self._plane.followers.append(on_change)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._plane.followers.remove(on_change)

    async def revoke(self, incarnation: Incarnation, /) -> None:
        self._plane.lose_process(incarnation)


class NoLoad:
    """LoadProbe."""

    def sample(self) -> ProcessLoad:
        return ProcessLoad(0.25, 1 << 20)

    async def watch(self) -> None:
        await asyncio.get_running_loop().create_future()


@dataclass
class Leader:
    """A JobManager process that leads."""

    rpc: LocalRpcService
    token: FencingToken
    components: TermComponents
    resource_manager: ResourceManager
    task: asyncio.Task[None]
    key: str

    @property
    def dispatcher(self) -> Dispatcher:
        return self.components.dispatcher


@dataclass
class Process:
    """A JobMaster process."""

    incarnation: Incarnation
    rpc: LocalRpcService
    container: JobMasterContainerRunner
    task: asyncio.Task[None]

    @property
    def dispatcher(self) -> JobMasterSecondaryDispatcher:
        return self.container.dispatcher


class HollowTaskManager:
    """Slots without code: tells the runner of a requested slot, frees the slots of ended jobs."""

    def __init__(self, plane: ControlPlane, slots: int, version: int = PROTOCOL_VERSION, exchange_id: str = "") -> None:
        self._plane = plane
        self._version = version
        self._exchange_id = exchange_id
        self.incarnation = Incarnation(plane.entropy.hex_id())
        self.slots: list[RequestSlot | None] = [None] * slots
        self.requests: list[RequestSlot] = []
        self.ended: list[JobId] = []
        self.refusal = ""
        self.registered = asyncio.Event()
        self.stream: MessageStream | None = None
        self.is_automatic = False
        self.guard_address = plane.guard_of(self.incarnation)
        self.is_draining = False
        self.obeys = True
        self.registered_with: tuple[DelegationToken, ...] = ()
        self.tokens: list[DelegationToken] = []
        """All that it was sent, one after the other."""

    def report(self) -> SlotReport:
        return SlotReport(
            tuple(
                SlotStatus(index, held.allocation_id if held else None, held.job_id if held else None)
                for index, held in enumerate(self.slots)
                if held or not self.is_draining
            ),
            is_warm=True,
            assigned_tasks=0,
            is_draining=self.is_draining,
        )

    async def run(self, number: int = 1) -> None:
        rpc = await self._plane.new_rpc(self.incarnation)
        record = TaskManagerRecord(self.incarnation, "tm", rpc.server.address, self.guard_address, "boot", 1)
        if self._plane.have_task_managers_keys:
            await self._plane.registry.register(record)
        leader = self._plane.leader_watch.value
        assert leader is not None
        kind = StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER
        hello = StreamHello(kind, self.incarnation, rpc.server.address, number, leader.token, "")
        stream = self.stream = await rpc.open_stream(leader.address, hello, timeout=5.0)
        stream.send(
            RegisterTaskManager(
                self.incarnation, "tm", rpc.server.address, self.guard_address, "boot", VERSION, self._version,
                len(self.slots), ResourceProfile(), False, b"{}", 2, 1 << 30, self._exchange_id,
            )
        )  # fmt: skip
        try:
            while True:
                for message in await stream.receive():
                    self._handle(message, stream)
        except UnavailableError:
            return

    def _handle(self, message: object, stream: MessageStream) -> None:
        match message:
            case TaskManagerRegistered(tokens=tokens):
                self.registered_with = tokens
                self.tokens += tokens
                stream.send(self.report())
                self.registered.set()
            case RegistrationRefused(reason=reason):
                self.refusal = reason
                self.registered.set()
            case RequestSlot():
                self.requests.append(message)
                self.slots[message.slot_index] = message
                runner = self._plane.runners.by_job[message.job_id]
                runner.slot_arrived()
                if self.is_automatic:
                    runner.finish()
            case JobsEnded(jobs=jobs):
                self.ended += jobs
                freed = tuple(held.allocation_id for held in self.slots if held and held.job_id in jobs)
                self.slots = [None if held and held.job_id in jobs else held for held in self.slots]
                stream.send(SlotsFreed(freed))
            case DrainTaskManager(is_draining) if self.obeys:
                self.is_draining = is_draining
                stream.send(self.report())
            case NewDelegationTokens(tokens):
                self.tokens += tokens
            case _:
                pass


class ControlPlane:
    """The world of one test. `is_split`: JobMasters in processes of their own."""

    def __init__(self, *, is_split: bool, has_real_job_masters: bool = False) -> None:
        self.is_split = is_split
        self.has_real_job_masters = has_real_job_masters
        self.clock = LoopClock()
        self.entropy = SystemEntropy()
        self.network = LocalNetwork()
        self.kv = MemoryKeyValueStore(self.clock)
        self.keys = Keys.of_cluster("test")
        self.payloads = Payloads(MemoryObjectStore())
        self.archives = MemoryPacks()
        self.cluster = ClusterUuid(self.entropy.hex_id())
        self.registry = TaskManagerRegistry(self.kv, self.keys, self.entropy, timeout=5.0)
        self.owner_store = KvOwnerJobStore(self.kv, self.keys, self.payloads, JobStoreSettings(5.0), self.entropy)
        self.runners = ScriptedRunners(self)
        self.followers: list[Callable[[ev.ProcessKnown | ev.ProcessLost], None]] = []
        self.registered: dict[Incarnation, ev.ProcessKnown] = {}
        self.leader_watch: Watch[LeaderAddress | None] = Watch(None)
        self.rpcs: list[LocalRpcService] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.limits = JobRegistryLimits(jobs_max=1000, submits_in_flight_max=1000)
        self.terms = 0
        self.told_cancels: list[tuple[JobId, str]] = []
        self.metrics = CountedMetrics(100)
        """Of all terms."""
        """What leaders have told the audit log."""
        self.storage_files: dict[str, str] = {}
        self.clean_period = 0.02
        self.remembered = Retention(1000, 3_600_000)
        self.heartbeat_interval = 0.05
        self.heartbeat_timeout = 60.0
        self.isolation_timeout = 1000.0
        self.guards: dict[str, str] = {}
        self.guard_addresses: dict[str, Incarnation] = {}
        self.killed_guards: set[str] = set()
        self.dials: Counter[str] = Counter()
        """How many dials of a guard's address have ended."""
        self.are_guards_held_up = False
        self.have_task_managers_keys = True
        self.dead: list[tuple[Incarnation, str]] = []
        self.token_providers: list[ProviderCalls] = []

    # --- processes ----------------------------------------------------------------------------------------

    async def new_rpc(self, incarnation: Incarnation) -> LocalRpcService:
        rpc = LocalRpcService(self.network, RpcSettings(incarnation, None), self.clock)
        await rpc.start()
        self.rpcs.append(rpc)
        return rpc

    def new_heartbeats(self) -> HeartbeatService:
        heartbeats = HeartbeatService(self.clock)
        _ = self.spawn(heartbeats.run())
        return heartbeats

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.append(task)
        return task

    def runner_factory(self, rpc: LocalRpcService, heartbeats: HeartbeatService) -> JobManagerRunnerFactory:
        """Scripted runners, or real JobMasters on the streams of this process."""
        if not self.has_real_job_masters:
            return self.runners
        connections = TaskManagerConnections(heartbeats, HeartbeatTiming(0.5, 10.0), self.clock)
        rpc.server.add_stream_handler(
            StreamKind.TASK_MANAGER_TO_JOB_MASTER, connections.serve, check=lambda _target, _sender: None
        )
        _ = self.spawn(connections.run())

        async def stored_graph(key: str, sha256: str, /) -> bytes:
            return await self.payloads.load(Payload(sha256, b"", key))

        return DefaultJobManagerRunnerFactory(
            store=self.owner_store,
            connections=connections,
            graph_source=stored_graph,
            census_taker=None,
            clock=self.clock,
            entropy=self.entropy,
            settings=JobMasterSettings(failover=NO_FAILOVER, validate=True),
        )

    def dispatcher_settings(self) -> DispatcherSettings:
        """Settings with short times."""
        return DispatcherSettings(
            limits=self.limits,
            shown=Retention(1000, 3_600_000),
            remembered=self.remembered,
            heartbeat_interval=self.heartbeat_interval,
            heartbeat_timeout=self.heartbeat_timeout,
            rpc_timeout=5.0,
            tick_period=0.05,
            clean_period=self.clean_period,
            forget_period=0.05,
            client_grace=0.5,
        )

    async def dial_guard(self, address: str, timeout: float) -> Dialled:
        """A guard's socket; where one has listened the end is stated, unless all guards were killed there."""
        try:
            return await self._dial_guard(address, timeout)
        finally:
            self.dials[address] += 1

    async def _dial_guard(self, address: str, timeout: float) -> Dialled:
        until = self.clock.monotonic() + timeout
        while self.are_guards_held_up:
            if self.clock.monotonic() > until:
                return NoAnswer("held up")
            await asyncio.sleep(0.01)
        if address in self.killed_guards or address not in self.guard_addresses:
            return ConnectionRefused()
        return Answered(self.guards.get(address, f"{self.guard_addresses[address]} boot reaped\n"))

    def guard_of(self, task_manager: Incarnation) -> str:
        """A guard begins to listen; its address."""
        address = f"guard:{len(self.guard_addresses) + 1}"
        self.guards[address] = f"{task_manager} boot\n"
        self.guard_addresses[address] = task_manager
        return address

    def stored_task_managers(self, term: LeaderTerm) -> TaskManagerKeys:
        """The TaskManagers' keys, under a leader's term."""
        return TaskManagerKeys(
            lambda: follow_guards(self.kv, self.keys, timeout=5.0, entropy=self.entropy), self.registry, term
        )

    def leader_fences(self) -> LeaderFences:
        """As the leader has them (R16)."""
        fences = OwnerFences(self.kv, self.keys, self.entropy, timeout=5.0)
        task_managers = TaskManagerRegistry(self.kv, self.keys, self.entropy, timeout=5.0).task_managers
        return LeaderFences(fences, task_managers, self.entropy, isolation_timeout=self.isolation_timeout)

    async def known_processes(self) -> Sequence[ev.ProcessKnown]:
        """The JobMaster processes that are registered."""
        return list(self.registered.values())

    def new_events(self, term: LeaderTerm) -> ClusterEventLog:
        """The events of a term, which are stored (D-114)."""
        history = ClusterEventStore(self.kv, self.keys, term, self.entropy, timeout=5.0)
        return ClusterEventLog(history, term.epoch, self.clock, self.entropy)

    async def lead(self) -> Leader:
        """Start a JobManager process that wins the election."""
        incarnation = Incarnation(self.entropy.hex_id())
        rpc = await self.new_rpc(incarnation)
        self.terms += 1
        key = self.keys.leader(self.terms)
        won = await self.kv.txn(Txn((), (Put(key, incarnation.encode()),)), timeout=5.0)
        term = LeaderTerm(key, won.revision)
        token, events = FencingToken(self.cluster, won.revision), self.new_events(term)
        services = DispatcherServices(
            store=KvLeaderJobStore(self.kv, self.keys, self.payloads, term, JobStoreSettings(5.0), self.entropy),
            payloads=self.payloads,
            archives=self.archives,
            blobs=self.archives,
            clock=self.clock,
            entropy=self.entropy,
            token=token,
            incarnation=incarnation,
            address=rpc.server.address,
            stops=self.leader_fences(),
            tell_cancel=lambda job_id, reason: self.told_cancels.append((job_id, reason)),
            metrics=DispatcherMetrics(self.metrics),
            events=events,
            disposals=DisposalStore(self.kv, self.keys, term, self.entropy, timeout=5.0),
        )
        settings, heartbeats = self.dispatcher_settings(), self.new_heartbeats()
        managers: list[ResourceManager] = []
        runners = self.runners if self.is_split else self.runner_factory(rpc, heartbeats)

        def construct() -> TermComponents:
            manager = ResourceManager(
                ResourceManagerSettings(self.heartbeat_interval, self.heartbeat_timeout, tick_period=0.01),
                token=token,
                server=rpc.server,
                heartbeats=heartbeats,
                guards=GuardDialler(timeout=1.0, dial=self.dial_guard),
                stored=self.stored_task_managers(term),
                task_manager_died=lambda incarnation, reason: self.dead.append((incarnation, reason)),
                blob_address=rpc.server.address,
                tokens=DelegationTokenManager(self.token_providers, RenewalSettings(), self.clock),
                clock=self.clock,
                entropy=self.entropy,
                events=events,
            )
            managers.append(manager)
            if not self.is_split:
                return TermComponents(StandaloneDispatcher(settings, services, manager, runners), manager)
            dispatcher = JobMasterPrimaryDispatcher(
                settings,
                services,
                manager,
                rpc=rpc,
                heartbeats=heartbeats,
                registrations=Registrations(self),
                storage=SharedStorage(self.storage_files),
                deaths=ProcessDialler(rpc.identify, trusts_refusal=True, timeout=1.0),
                blob_address=rpc.server.address,
            )
            return TermComponents(dispatcher, manager)

        process = DispatcherLeaderProcess(
            settings, services, known_processes=self.known_processes, construct=construct, events=events
        )
        started: list[TermComponents] = []
        task = self.spawn(process.run(started.append))
        await eventually(lambda: bool(started) or task.done(), "the start of the term")
        if task.done():
            await task
        self.leader_watch.set(LeaderAddress(token, rpc.server.address))
        return Leader(rpc, token, started[0], managers[0], task, key)

    async def depose(self, leader: Leader) -> None:
        """The leader's process dies; its key is gone."""
        self.leader_watch.set(None)
        await self.supersede(leader)
        await self.end(leader.task)
        await leader.rpc.die()
        self.rpcs.remove(leader.rpc)

    async def supersede(self, leader: Leader) -> None:
        """The leader's key is gone, and it does not know yet."""
        await self.kv.txn(Txn((), (Delete(leader.key),)), timeout=5.0)

    async def start_job_master(self, capacity: int = 100, *, is_blind: bool = False) -> Process:
        """Start a JobMaster process and wait until it is ready."""
        incarnation = Incarnation(self.entropy.hex_id())
        rpc = await self.new_rpc(incarnation)
        known = process_known(incarnation, rpc.server.address, capacity)
        self.registered[incarnation] = known
        for follower in list(self.followers):
            follower(known)

        heartbeats = self.new_heartbeats()
        runners = self.runner_factory(rpc, heartbeats)

        def make(scope: ServiceScope) -> JobMasterSecondaryDispatcher:
            return JobMasterSecondaryDispatcher(capacity=capacity, scope=scope, runner_factory=runners, load=NoLoad())

        container = JobMasterContainerRunner(
            ContainerSettings(incarnation, capacity, 5.0, challenge_timeout=0.2),
            rpc=rpc,
            heartbeats=heartbeats,
            leader=self.leader_watch,
            storage=SharedStorage(self.storage_files, is_blind=is_blind),
            check_cluster=self.check_cluster,
            own_process=OwnProcess(None),
            make_dispatcher=make,
            clock=self.clock,
            entropy=self.entropy,
        )
        return Process(incarnation, rpc, container, self.spawn(container.run()))

    async def check_cluster(self) -> None:
        """R1: the store's word on whose it is; one cluster for ever."""

    def lose_process(self, incarnation: Incarnation) -> None:
        """The lease of a process ends."""
        if self.registered.pop(incarnation, None) is not None:
            for follower in list(self.followers):
                follower(ev.ProcessLost(incarnation))

    async def kill_job_master(self, process: Process) -> None:
        """The process dies, and its lease with it."""
        await process.rpc.die()
        self.rpcs.remove(process.rpc)
        await self.end(process.task)
        self.lose_process(process.incarnation)

    async def start_task_manager(
        self, slots: int, *, version: int = PROTOCOL_VERSION, exchange_id: str = ""
    ) -> HollowTaskManager:
        """Start a TaskManager and wait until it is registered or refused."""
        task_manager = HollowTaskManager(self, slots, version, exchange_id)
        _ = self.spawn(task_manager.run())
        await eventually(task_manager.registered.is_set)
        return task_manager

    async def kill_task_manager(self, task_manager: HollowTaskManager) -> None:
        """Its main process dies; its guard still listens."""
        rpc = next(rpc for rpc in self.rpcs if rpc.incarnation == task_manager.incarnation)
        await rpc.die()
        self.rpcs.remove(rpc)

    async def end(self, task: asyncio.Task[None]) -> None:
        """Cancel a task and wait for its end."""
        task.cancel()
        _ = await asyncio.wait({task})
        self.tasks.remove(task)
        if not task.cancelled() and task.exception() is not None:
            await task

    async def stop(self) -> None:
        """End everything; a component that had failed raises here."""
        for task in reversed(list(self.tasks)):
            if not task.done():
                task.cancel()
            _ = await asyncio.wait({task})
        for rpc in self.rpcs:
            await rpc.stop(grace=0.0)
        await self.kv.close()
        for task in self.tasks:
            if not task.cancelled() and task.exception() is not None:
                await task

    # --- jobs ---------------------------------------------------------------------------------------------

    def new_job(self, graph: bytes = GRAPH) -> SubmitJobRequest:
        """A submit with a fresh id."""
        return SubmitJobRequest(JobId(self.entropy.hex_id()), graph, hashlib.sha256(graph).hexdigest(), "tests")
