"""The stream between one TaskManager and the ResourceManager, and the slot requirements of jobs.

The TaskManager dials the leader. Its first message is RegisterTaskManager, answered by
TaskManagerRegistered; then a complete SlotReport; then news as it happens, with a heartbeat when silent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from runtime.common.ids import AllocationId, ClusterUuid, Incarnation, JobId
from runtime.common.spark_environments import SparkOffer
from runtime.gateways.delegation_tokens import DelegationToken, NewDelegationTokens
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.task import ResourceProfile as ResourceProfile  # noqa: PLC0414 - part of this module too


@dataclass(frozen=True, slots=True)
class RegisterTaskManager:
    """The first message of a TaskManager on its stream. `spark_conf` is the static Spark conf that it offers, as JSON.

    `exchange_id` is equal for TaskManagers that see one exchange directory; "" is unknown. `spark_version` is that of
    PySpark, "" without Spark. `has_tenants`: the TaskManager serves one namespace at a time. `not_enforced`: the limits
    between slots that it does not enforce, of users, memory, cpu and pids (R50). `environment_bytes`: memory for Spark
    environments that it starts when jobs ask for them, all together; 0: it starts none. `environment_accounts`: the
    users that these can have, where slots are users of their own; 0: elsewhere. `metrics_address`: where it serves its
    metrics (D-110), "" where it does not. `worker_id`: the label of one that a driver has started, "" for others.
    """

    incarnation: Incarnation
    task_manager_id: str
    address: str
    guard_address: str
    boot_id: str
    version: str
    protocol_version: int
    slots: int
    slot_profile: ResourceProfile
    has_spark: bool
    spark_conf: bytes = field(repr=False)
    cpu_cores: int
    memory_bytes: int
    exchange_id: str = ""
    spark_version: str = ""
    has_tenants: bool = False
    not_enforced: tuple[str, ...] = ()
    environment_bytes: int = 0
    environment_accounts: int = 0
    metrics_address: str = ""
    worker_id: str = ""


def spark_offer(registration: RegisterTaskManager) -> SparkOffer:
    """What Spark of a TaskManager can be for a job."""
    if not registration.has_spark:
        return SparkOffer()
    conf = {str(key): str(value) for key, value in json.loads(registration.spark_conf).items()}
    return SparkOffer(conf, registration.environment_bytes, registration.environment_accounts)


@dataclass(frozen=True, slots=True)
class TaskManagerRegistered:
    """The leader accepts. `epoch` is its term, which every later message carries as target.

    `tokens`: the leader's delegation tokens (R51); the TaskManager keeps its tokens of other providers.
    """

    cluster: ClusterUuid
    epoch: int
    blob_address: str
    heartbeat_interval: float
    heartbeat_timeout: float
    tokens: tuple[DelegationToken, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistrationRefused:
    """The leader refuses this peer, with the reason. A refused peer exits with this sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """One slot: free when `allocation_id` is None. Slots with the same allocation belong together (D-141).

    `profile`: what the allocation was requested for; None from older TaskManagers.
    """

    slot_index: int
    allocation_id: AllocationId | None
    job_id: JobId | None
    profile: ResourceProfile | None = None


@dataclass(frozen=True, slots=True)
class SparkEnvironmentStatus:
    """A Spark environment that a TaskManager has started on demand. `users`: attempts that have it now."""

    key: str
    memory_bytes: int
    users: int


@dataclass(frozen=True, slots=True)
class SlotReport:
    """All ready slots of a TaskManager, whether its Spark is warm, and whether it drains.

    `problem`: why no slot is ready, in a sentence; "" when slots will be ready by themselves. `tenant`: the
    namespace that it serves, "" for any. `environments`: the Spark environments beside the default one.
    """

    slots: tuple[SlotStatus, ...]
    is_warm: bool
    assigned_tasks: int
    is_draining: bool = False
    problem: str = ""
    tenant: str = ""
    environments: tuple[SparkEnvironmentStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotsFreed:
    """Ended allocations; their slots are ready for the next job."""

    allocations: tuple[AllocationId, ...]


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """Order to allocate a slot for a job, and to offer it to the job's owner, whose epoch it carries (R7).

    `namespace`: the job's, as the leader has stored it (R48); "" from older leaders. `more_slots`: further slots that
    the allocation takes, whose memory, cores and Spark weight what runs in the first has too (D-141).
    """

    allocation_id: AllocationId
    slot_index: int
    job_id: JobId
    epoch: int
    job_master_incarnation: Incarnation
    job_master_address: str
    profile: ResourceProfile
    namespace: str = ""
    more_slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotRequestRefused:
    """The TaskManager refuses a slot request: the slot is taken or unknown, or the epoch is old.

    `is_slot_free`: the refusal is about the job, so another job may get the slot at once. `is_owner_unreachable`: the
    slot was allocated, and is freed now because the TaskManager cannot reach the job's owner (R7).
    """

    allocation_id: AllocationId
    slot_index: int
    reason: str
    is_slot_free: bool = False
    is_owner_unreachable: bool = False


@dataclass(frozen=True, slots=True)
class JobsEnded:
    """Jobs with a stored result (R16): the TaskManager ends their attempts and slots.

    `kept`: the jobs among them whose hidden outputs stay, since a commit by hand may need them (R28).
    """

    jobs: tuple[JobId, ...]
    kept: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class DrainTaskManager:
    """Order to drain: take no more slots, finish or release tasks, and stay; or to serve again. SlotReports confirm."""

    is_draining: bool


@dataclass(frozen=True, slots=True)
class PreemptSlots:
    """Order to end what runs in these slots, for no fault of its own, and to have their jobs free them (R64).

    Nothing follows for one that has ended.
    """

    allocations: tuple[AllocationId, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class PreemptionRefused:
    """The job keeps these slots: what runs in them is exclusive, or a job has not taken them yet."""

    allocations: tuple[AllocationId, ...]


TaskManagerMessage = SlotReport | SlotsFreed | SlotRequestRefused | PreemptionRefused | Heartbeat
"""What follows the registration."""

TaskManagerToResourceManager = RegisterTaskManager | TaskManagerMessage
ResourceManagerToTaskManager = (
    TaskManagerRegistered
    | RegistrationRefused
    | RequestSlot
    | JobsEnded
    | DrainTaskManager
    | PreemptSlots
    | NewDelegationTokens
    | Heartbeat
)


@dataclass(frozen=True, slots=True)
class ResourceRequirement:
    """`count` slots of one profile, on none of the TaskManagers in `without` (R67)."""

    profile: ResourceProfile
    count: int
    without: tuple[Incarnation, ...] = ()


@dataclass(frozen=True, slots=True)
class JobRequirements:
    """The complete requirement set of a job, which replaces the previous one; empty = the job needs no slots.

    `unreachable` names the TaskManagers that the owner cannot reach (R7). `static_conf` is the static part of the job's
    Spark conf as a JSON object, b"" for none; `script_conf`: what its script sets itself, likewise. `needs_spark`: some
    of its code expects a Spark session. `is_application`: it is a Java application, with a JVM of its own. `shunned`:
    TaskManagers whose slots it wants only while it has none like them elsewhere, because tasks of it are slow there
    (R67).
    """

    job_id: JobId
    epoch: int
    requirements: tuple[ResourceRequirement, ...]
    unreachable: tuple[Incarnation, ...]
    static_conf: bytes = field(default=b"", repr=False)
    needs_spark: bool = False
    script_conf: bytes = field(default=b"", repr=False)
    is_application: bool = False
    shunned: tuple[Incarnation, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskManagerInfo:
    """A TaskManager as REST and the CLI show it."""

    registration: RegisterTaskManager
    free_slots: int
    is_warm: bool
    assigned_tasks: int
    last_heard_millis: int
    allocated: tuple[SlotStatus, ...]
    is_draining: bool = False
    problem: str = ""
    tenant: str = ""
    environments: tuple[SparkEnvironmentStatus, ...] = ()
