"""HighAvailabilityServices: everything durable that a process needs, behind one object.

`create` makes it from settings: etcd, or a memory store in this process (`high-availability.type: none`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.ids import ClusterUuid, Incarnation
from runtime.highavailability.cluster_events import ClusterEventStore
from runtime.highavailability.disposals import DisposalStore
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.jars import JarStore
from runtime.highavailability.jobs.fences import OwnerFences, TaskManagerFences
from runtime.highavailability.jobs.job_reader import JobReader
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvLeaderJobStore, KvOwnerJobStore
from runtime.highavailability.jobs.payloads import ObjectStore, Payloads
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.compaction import Compactor
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.counted_commit import CountedCommitStore
from runtime.highavailability.kv.group_commit import GroupCommitStore
from runtime.highavailability.kv.keeper import NO_KEEPER, Keeping, LeaseKeeper, SharedLease
from runtime.highavailability.kv.key_value_store import KeyValueStore, StoreMember
from runtime.highavailability.kv.lease import LeaseSettings
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.cluster import check_cluster, cluster_uuid, seal_cluster
from runtime.highavailability.leadership.election import LeaderElection, ProofOfDeath, no_proof
from runtime.highavailability.leadership.registration import (
    GuardedTaskManager,
    JobMasterRegistration,
    TaskManagerRegistry,
    follow_guards,
    follow_job_masters,
    follow_task_managers,
    revoke_lease_of,
)
from runtime.highavailability.leadership.retrieval import LeaderRetrieval
from runtime.highavailability.principals import PrincipalStore
from runtime.highavailability.record_seal import RecordSeal
from runtime.highavailability.records import JobMasterRecord, LeaderRecord, TaskManagerRecord
from runtime.highavailability.store_mark import MarkFile, StoreMark
from runtime.metrics.registry import NO_METRICS, MetricRegistry

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HighAvailabilitySettings:
    """`etcd` None: jobs live in this process's memory. `lease_ttl` in whole seconds, `timeout` of one request.

    `seal` seals records in etcd (R38); all processes of a cluster have the same key.
    """

    cluster_id: str
    lease_ttl: int
    timeout: float
    etcd: EtcdSettings | None = None
    is_etcd_embedded: bool = False
    seal: RecordSeal | None = None


class HighAvailabilityServices:
    """Made by `create`; usable between `start` and `close`."""

    def __init__(
        self,
        kv: KeyValueStore,
        settings: HighAvailabilitySettings,
        objects: ObjectStore,
        clock: Clock,
        boot_clock: Clock,
        entropy: Entropy,
        *,
        owns_store: bool,
        lease_keeper: LeaseKeeper = NO_KEEPER,
        metrics: MetricRegistry = NO_METRICS,
    ) -> None:
        self._below = kv
        self._owns_store = owns_store
        self._settings = settings
        self._clock = clock
        self._boot_clock = boot_clock
        self._entropy = entropy
        self._lease_settings = LeaseSettings(settings.lease_ttl, settings.timeout, lease_keeper)
        self._cluster: ClusterUuid | None = None
        self._group_commit = CountedCommitStore(kv, metrics) if metrics.is_on else GroupCommitStore(kv)
        self._is_committing = False
        self.keys = Keys.of_cluster(settings.cluster_id)
        self.payloads = Payloads(objects)

    async def start(self) -> None:
        """Connect, and read or make the cluster's uuid. May be called again when it has failed.

        Raises UnavailableError when the store cannot be reached, UnauthenticatedError, UnsafeEtcdVersionError.
        """
        if isinstance(self._below, EtcdKeyValueStore):
            await self._below.open(timeout=self._settings.timeout)
        if not self._is_committing:
            self._is_committing = True
            await self._group_commit.open()
        self._cluster = await cluster_uuid(self.kv, self.keys, self._entropy, timeout=self._settings.timeout)
        if self._settings.seal is not None and self._settings.seal.accepts_unsealed:
            logger.warning(
                "records in etcd are used without a seal too: any client that can write there may have written them"
            )
            await seal_cluster(self.kv, self.keys, self._entropy, timeout=self._settings.timeout)

    async def wait_failed(self) -> None:
        """Wait between `start` and `close`, and raise what has ended the sending of transactions."""
        await self._group_commit.wait_failed()

    async def close(self) -> None:
        """End all watches and connections. Idempotent. A store that was given to `create` stays open."""
        await self._group_commit.stop()
        if self._owns_store:
            await self._below.close()

    @property
    def is_durable(self) -> bool:
        """False when a restart of this process forgets every job."""
        return self._settings.etcd is not None

    @property
    def kv(self) -> KeyValueStore:
        """The store, with group commit in front."""
        return self._group_commit

    @property
    def cluster(self) -> ClusterUuid:
        """The cluster's uuid (R1)."""
        assert self._cluster is not None, "high availability services are not started"
        return self._cluster

    async def check_cluster(self) -> None:
        """Raises ClusterChangedError when the store is another cluster's than at `start` (R1)."""
        await check_cluster(self.kv, self.keys, self.cluster, timeout=self._settings.timeout)

    def store_mark(self, file: MarkFile) -> StoreMark:
        """R35: the mark of the store's last known revision."""
        return StoreMark(self.kv, self.keys, self.cluster, file, timeout=self._settings.timeout)

    def leader_election(self, record: LeaderRecord, proof_of_death: ProofOfDeath = no_proof) -> LeaderElection:
        """A candidacy for JobManager leadership."""
        return LeaderElection(
            self.kv,
            self.keys,
            self.cluster,
            record,
            self._lease_settings,
            self._boot_clock,
            self._entropy,
            proof_of_death=proof_of_death,
        )

    def leader_retrieval(self) -> LeaderRetrieval:
        """Follows the leading JobManager."""
        return LeaderRetrieval(self.kv, self.keys, self.cluster, self._entropy, timeout=self._settings.timeout)

    def leader_job_store(self, term: LeaderTerm, compactor: Compactor | None = None) -> KvLeaderJobStore:
        """The leading Dispatcher's store for one term; with its compactor, submit heeds the quota (R21)."""
        return KvLeaderJobStore(
            self.kv,
            self.keys,
            self.payloads,
            term,
            JobStoreSettings(self._settings.timeout),
            self._entropy,
            check_capacity=compactor.check_capacity if compactor else None,
        )

    def owner_job_store(self) -> KvOwnerJobStore:
        """The store of a process that owns jobs."""
        return KvOwnerJobStore(
            self.kv, self.keys, self.payloads, JobStoreSettings(self._settings.timeout), self._entropy
        )

    def job_reader(self) -> JobReader:
        """Reads of jobs, which need no term."""
        return JobReader(self.kv, self.keys, self.payloads, timeout=self._settings.timeout)

    def compactor(self) -> Compactor:
        """R21, for the leader."""
        settings = self._settings
        return Compactor(
            self.kv, self._clock, timeout=settings.timeout, defragments_when_idle=settings.is_etcd_embedded
        )

    def job_master_registration(self, record: JobMasterRecord) -> JobMasterRegistration:
        """This JobMaster process's key."""
        return JobMasterRegistration(self.kv, self.keys, record, self._lease_settings, self._boot_clock, self._entropy)

    def principal_store(self) -> PrincipalStore:
        """The principals (R48)."""
        return PrincipalStore(self.kv, self.keys, self._entropy, timeout=self._settings.timeout)

    def jar_store(self) -> JarStore:
        """The uploaded programs (R54)."""
        return JarStore(self.kv, self.keys, self._entropy, timeout=self._settings.timeout)

    def disposal_store(self, term: LeaderTerm) -> DisposalStore:
        """Savepoints that are to be deleted (R62), for one term."""
        return DisposalStore(self.kv, self.keys, term, self._entropy, timeout=self._settings.timeout)

    def cluster_event_store(self, term: LeaderTerm) -> ClusterEventStore:
        """The cluster's events (D-114), for one term."""
        return ClusterEventStore(self.kv, self.keys, term, self._entropy, timeout=self._settings.timeout)

    def task_manager_registry(self) -> TaskManagerRegistry:
        """The TaskManagers' keys."""
        return TaskManagerRegistry(self.kv, self.keys, self._entropy, timeout=self._settings.timeout)

    def owner_fences(self) -> OwnerFences:
        """R14, for a process that owns jobs."""
        return OwnerFences(self.kv, self.keys, self._entropy, timeout=self._settings.timeout)

    def task_manager_fences(self, incarnation: Incarnation) -> TaskManagerFences:
        """R14, for one TaskManager."""
        return TaskManagerFences(self.kv, self.keys, incarnation, self._entropy, timeout=self._settings.timeout)

    def follow_job_masters(self) -> AsyncIterator[Mapping[Incarnation, JobMasterRecord]]:
        """All registered JobMaster processes, now and after each change."""
        return follow_job_masters(self.kv, self.keys, timeout=self._settings.timeout, entropy=self._entropy)

    def follow_task_managers(self) -> AsyncIterator[Mapping[Incarnation, TaskManagerRecord]]:
        """All registered TaskManagers, now and after each change."""
        return follow_task_managers(self.kv, self.keys, timeout=self._settings.timeout, entropy=self._entropy)

    def follow_guards(self) -> AsyncIterator[Mapping[Incarnation, GuardedTaskManager]]:
        """All registered TaskManagers with the state of their guards, now and after each change."""
        return follow_guards(self.kv, self.keys, timeout=self._settings.timeout, entropy=self._entropy)

    async def store_members(self) -> tuple[StoreMember, ...]:
        """The endpoints of etcd, each with what it says of itself; none where jobs live in memory."""
        if not isinstance(self._below, EtcdKeyValueStore):
            return ()
        return await self._below.members(timeout=self._settings.timeout)

    async def revoke_job_master(self, incarnation: Incarnation) -> bool:
        """R8: end the lease of a JobMaster process that cannot be reached."""
        return await revoke_lease_of(self.kv, self.keys.job_master(incarnation), timeout=self._settings.timeout)


def create(
    settings: HighAvailabilitySettings,
    *,
    objects: ObjectStore,
    clock: Clock,
    boot_clock: Clock,
    entropy: Entropy,
    store: KeyValueStore | None = None,
    lease_keeper: LeaseKeeper = NO_KEEPER,
    metrics: MetricRegistry = NO_METRICS,
) -> HighAvailabilityServices:
    """Services over `store`, which the caller closes; without one over etcd, or over a memory store of their own.

    Leases are counted on `boot_clock`, which goes on while the host is suspended, as the store does (R4).
    `lease_keeper` renews the lease of this process (R40) by the same clock.
    """
    kv = store
    if kv is None:
        kv = MemoryKeyValueStore(clock) if settings.etcd is None else _etcd(settings, settings.etcd, clock, entropy)
    return HighAvailabilityServices(
        kv,
        settings,
        objects,
        clock,
        boot_clock,
        entropy,
        owns_store=store is None,
        lease_keeper=lease_keeper,
        metrics=metrics,
    )


async def lease_keeping(
    settings: HighAvailabilitySettings,
    shared: SharedLease,
    clock: Clock,
    boot_clock: Clock,
    entropy: Entropy,
    *,
    is_stopped: Callable[[], bool],
) -> Keeping:
    """The work of a lease keeper, over connections of its own (R40). Raises InvalidInputError."""
    assert settings.etcd is not None, "leases in memory need no keeper"
    kv = _etcd(settings, settings.etcd, clock, entropy)
    await kv.connect()
    return Keeping(shared, kv, boot_clock, ttl=settings.lease_ttl, timeout=settings.timeout, is_stopped=is_stopped)


def _etcd(settings: HighAvailabilitySettings, etcd: EtcdSettings, clock: Clock, entropy: Entropy) -> EtcdKeyValueStore:
    return EtcdKeyValueStore(etcd, clock, entropy, settings.seal)


@asynccontextmanager
async def opened_store(
    settings: HighAvailabilitySettings, clock: Clock, entropy: Entropy
) -> AsyncIterator[KeyValueStore]:
    """The store in etcd, for readers: no key is written, not even the uuid. Raises as `start` does."""
    assert settings.etcd is not None, "no etcd"
    kv = _etcd(settings, settings.etcd, clock, entropy)
    try:
        await kv.open(timeout=settings.timeout)
        yield kv
    finally:
        await kv.close()
