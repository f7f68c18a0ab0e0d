"""Component factories: they build the components of a JobManager's leadership term, in either mode.

The switch `jobmanager.jobmaster.single.enable` chooses the factory and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from runtime.blob.storage_probe import StorageProbe
from runtime.blob.store import BlobStore
from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation, JobId
from runtime.dispatcher.archive_packs import BlobArchivePacks
from runtime.dispatcher.cluster_events import ClusterEventLog
from runtime.dispatcher.core.events import ProcessKnown, ProcessLost
from runtime.dispatcher.dispatcher_metrics import DispatcherMetrics
from runtime.dispatcher.dispatcher_traces import DispatcherTraces
from runtime.dispatcher.endpoint import Dispatcher
from runtime.dispatcher.leader_process import DispatcherLeaderProcess, TermComponents
from runtime.dispatcher.primary import JobMasterPrimaryDispatcher
from runtime.dispatcher.services import DispatcherServices, unsettled
from runtime.dispatcher.settings import DispatcherSettings
from runtime.dispatcher.standalone import StandaloneDispatcher
from runtime.gateways.cluster_events import ClusterEvents
from runtime.gateways.job_manager_runner import JobManagerRunnerFactory
from runtime.heartbeat.proof_of_death import GuardDialler, ProcessDialler
from runtime.heartbeat.service import HeartbeatService
from runtime.highavailability.jobs.leader_fences import LeaderFences
from runtime.highavailability.kv.compaction import Compactor
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.leadership.election import LeadershipEpoch
from runtime.highavailability.leadership.registration import GuardedTaskManager, TaskManagerRegistry
from runtime.highavailability.records import DRAINING, JobMasterRecord
from runtime.highavailability.services import HighAvailabilityServices
from runtime.highavailability.store_mark import StoreMark
from runtime.history.writer import HistoryWriter
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.metrics.registry import NO_METRICS, MetricRegistry
from runtime.resourcemanager.active_job_masters import ActiveJobMasters
from runtime.resourcemanager.core.job_master_workers import JobMasterWorkerSettings
from runtime.resourcemanager.driver import ResourceManagerDriver
from runtime.resourcemanager.endpoint import ResourceManager
from runtime.resourcemanager.settings import ResourceManagerSettings
from runtime.rpc.service import RpcService
from runtime.security.core.token_renewal import RenewalSettings
from runtime.security.delegation_tokens import DelegationTokenManager, ProviderCalls
from runtime.traces.reporter import NO_SPANS, SpanReporter


@dataclass(frozen=True, slots=True)
class JobManagerServices:
    """Services that live as long as the process. Every term uses them."""

    incarnation: Incarnation
    rpc: RpcService
    ha: HighAvailabilityServices
    blobs: BlobStore
    storage_probe: StorageProbe
    heartbeats: HeartbeatService
    guards: GuardDialler
    trusts_refusal: bool
    compactor: Compactor
    mark: StoreMark
    token_providers: Sequence[ProviderCalls]
    history: HistoryWriter
    clock: Clock
    entropy: Entropy
    driver: ResourceManagerDriver | None
    """What starts TaskManagers; None: people and scripts do."""
    job_master_driver: ResourceManagerDriver | None
    """The same of JobMaster processes."""
    tell_cancel: Callable[[JobId, str], None]
    """As in DispatcherServices."""
    metrics: MetricRegistry = NO_METRICS
    traces: SpanReporter = NO_SPANS


@dataclass(frozen=True, slots=True)
class JobManagerSettings:
    """Settings of the components of a term."""

    dispatcher: DispatcherSettings
    resource_manager: ResourceManagerSettings
    isolation_timeout: float
    token_renewal: RenewalSettings = field(default_factory=RenewalSettings)
    checkpointing: Callable[[bytes], CheckpointSettings | None] = unsettled
    job_masters: JobMasterWorkerSettings | None = None
    """Of JobMaster processes that a driver starts; None where it starts none."""


class DispatcherResourceManagerComponentFactory(ABC):
    """Builds the DispatcherLeaderProcess of each term won."""

    def __init__(self, services: JobManagerServices, settings: JobManagerSettings) -> None:
        self._services = services
        self._settings = settings

    def create(self, epoch: LeadershipEpoch) -> DispatcherLeaderProcess:
        """A term, not yet recovered."""
        services = self._services
        services.heartbeats.judge_while(lambda: epoch.is_valid)
        store = services.ha.cluster_event_store(epoch.term)
        events = ClusterEventLog(store, epoch.token.revision, services.clock, services.entropy)
        dispatcher_services = DispatcherServices(
            store=services.ha.leader_job_store(epoch.term, services.compactor),
            payloads=services.ha.payloads,
            archives=BlobArchivePacks(services.blobs),
            blobs=services.blobs,
            clock=services.clock,
            entropy=services.entropy,
            token=epoch.token,
            incarnation=services.incarnation,
            address=services.rpc.server.address,
            stops=self._task_stops(),
            tell_cancel=services.tell_cancel,
            history=services.history,
            metrics=DispatcherMetrics(services.metrics),
            events=events,
            checkpointing=self._settings.checkpointing,
            disposals=services.ha.disposal_store(epoch.term),
            traces=DispatcherTraces(services.traces, services.clock),
        )
        return DispatcherLeaderProcess(
            self._settings.dispatcher,
            dispatcher_services,
            known_processes=self._known_processes,
            construct=partial(self._construct, dispatcher_services, epoch.token, epoch.term),
            events=events,
        )

    def _task_stops(self) -> LeaderFences | None:
        ha, entropy = self._services.ha, self._services.entropy
        if not ha.is_durable:
            return None
        task_managers = ha.task_manager_registry().task_managers
        timeout = self._settings.isolation_timeout
        return LeaderFences(ha.owner_fences(), task_managers, entropy, isolation_timeout=timeout)

    def _construct(
        self, dispatcher_services: DispatcherServices, token: FencingToken, term: LeaderTerm
    ) -> TermComponents:
        services = self._services
        resource_manager = ResourceManager(
            self._settings.resource_manager,
            token=token,
            server=services.rpc.server,
            heartbeats=services.heartbeats,
            guards=services.guards,
            stored=TaskManagerKeys(services.ha.follow_guards, services.ha.task_manager_registry(), term),
            task_manager_died=self._task_manager_died,
            blob_address=services.rpc.server.address,
            tokens=DelegationTokenManager(services.token_providers, self._settings.token_renewal, services.clock),
            clock=services.clock,
            entropy=services.entropy,
            events=dispatcher_services.events,
            driver=services.driver,
            job_masters=self._active_job_masters(dispatcher_services.events),
        )
        return TermComponents(self._create_dispatcher(dispatcher_services, resource_manager), resource_manager)

    def _active_job_masters(self, events: ClusterEvents) -> ActiveJobMasters | None:
        services, settings = self._services, self._settings.job_masters
        if services.job_master_driver is None or settings is None:
            return None
        return ActiveJobMasters(
            settings,
            services.job_master_driver,
            lambda: services.heartbeats.may_judge,
            clock=services.clock,
            entropy=services.entropy,
            events=events,
        )

    @abstractmethod
    def _create_dispatcher(self, services: DispatcherServices, resources: ResourceManager) -> Dispatcher:
        """The Dispatcher of this mode."""

    @abstractmethod
    def _task_manager_died(self, incarnation: Incarnation, reason: str) -> None:
        """A TaskManager is dead: tell the owners in this process."""

    @abstractmethod
    async def _known_processes(self) -> Sequence[ProcessKnown]:
        """The JobMaster processes that are registered when a term begins."""


class StandaloneComponentFactory(DispatcherResourceManagerComponentFactory):
    """JobMasters run in this process."""

    def __init__(
        self,
        services: JobManagerServices,
        settings: JobManagerSettings,
        runner_factory: JobManagerRunnerFactory,
        connections: TaskManagerConnections,
    ) -> None:
        super().__init__(services, settings)
        self._runner_factory = runner_factory
        self._connections = connections

    def _create_dispatcher(self, services: DispatcherServices, resources: ResourceManager) -> Dispatcher:
        return StandaloneDispatcher(self._settings.dispatcher, services, resources, self._runner_factory)

    def _task_manager_died(self, incarnation: Incarnation, reason: str) -> None:
        self._connections.task_manager_died(incarnation, reason)

    async def _known_processes(self) -> Sequence[ProcessKnown]:
        return ()


class JobMasterPrimaryComponentFactory(DispatcherResourceManagerComponentFactory):
    """JobMasters run in JobMaster processes."""

    def _create_dispatcher(self, services: DispatcherServices, resources: ResourceManager) -> Dispatcher:
        own = self._services
        return JobMasterPrimaryDispatcher(
            self._settings.dispatcher,
            services,
            resources,
            rpc=own.rpc,
            heartbeats=own.heartbeats,
            registrations=StoredRegistrations(own.ha),
            storage=own.storage_probe,
            deaths=ProcessDialler(own.rpc.identify, own.trusts_refusal, own.guards.timeout),
            blob_address=own.rpc.server.address,
        )

    def _task_manager_died(self, incarnation: Incarnation, reason: str) -> None:
        """No effect: the owners are in other processes, which follow the TaskManagers' keys."""

    async def _known_processes(self) -> Sequence[ProcessKnown]:
        async for registered in self._services.ha.follow_job_masters():
            return [ProcessKnown(record) for record in registered.values()]
        return ()


class StoredRegistrations:
    """Implements `JobMasterRegistrations` on the keys of the JobMaster processes."""

    def __init__(self, ha: HighAvailabilityServices) -> None:
        self._ha = ha

    async def follow(
        self, known: Sequence[Incarnation], on_change: Callable[[ProcessKnown | ProcessLost], None], /
    ) -> None:
        """Tell every change, beginning with the differences from `known`. Eternal."""
        before: dict[Incarnation, object] = dict.fromkeys(known)
        async for registered in self._ha.follow_job_masters():
            for incarnation in before:
                if incarnation not in registered:
                    on_change(ProcessLost(incarnation))
            current = {incarnation: _facts(record) for incarnation, record in registered.items()}
            for incarnation, record in registered.items():
                if before.get(incarnation) != current[incarnation]:
                    on_change(ProcessKnown(record))
            before = dict(current)

    async def revoke(self, incarnation: Incarnation, /) -> None:
        """R8."""
        await self._ha.revoke_job_master(incarnation)


class TaskManagerKeys:
    """The TaskManagers' keys under one term, as the ResourceManager sees them (`StoredTaskManagers`)."""

    def __init__(
        self,
        follow: Callable[[], AsyncIterator[Mapping[Incarnation, GuardedTaskManager]]],
        registry: TaskManagerRegistry,
        term: LeaderTerm,
    ) -> None:
        self._follow = follow
        self._registry = registry
        self._term = term

    async def follow(self) -> AsyncIterator[Sequence[GuardedTaskManager]]:
        """All TaskManagers, now and after each change."""
        async for stored in self._follow():
            yield list(stored.values())

    async def note_guard(self, incarnation: Incarnation, /, *, is_reached: bool) -> None:
        """R13."""
        await self._registry.note_guard(self._term, incarnation, is_reached=is_reached)

    async def remove_unused(self, incarnation: Incarnation, /) -> None:
        """R13."""
        await self._registry.remove_unused(self._term, incarnation)

    async def remove_dead(self, incarnation: Incarnation, /) -> None:
        """R13."""
        await self._registry.remove_dead(self._term, incarnation)


def _facts(record: JobMasterRecord) -> object:
    """What the Dispatcher acts on. The load changes all the time, and heartbeats tell it."""
    return record.address, record.capacity, record.state == DRAINING
