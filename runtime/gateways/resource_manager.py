"""The stream between one TaskManager and the ResourceManager, and the slot requirements of jobs.

The TaskManager dials the leader. Its first message is RegisterTaskManager, answered by
TaskManagerRegistered; then a complete SlotReport; then news as it happens, with a heartbeat when silent.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import AllocationId, ClusterUuid, Incarnation, JobId
from runtime.gateways.delegation_tokens import DelegationToken, NewDelegationTokens
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.task import ResourceProfile as ResourceProfile  # noqa: PLC0414 - part of this module too


@dataclass(frozen=True, slots=True)
class RegisterTaskManager:
    """A TaskManager introduces itself. `spark_conf` is the static Spark conf that it offers, as JSON.

    `exchange_id` is equal for TaskManagers that see one exchange directory; "" where that cannot be told.
    `spark_version` is that of PySpark, "" without Spark. `has_tenants`: it serves one namespace at a time, and
    `not_enforced`: what keeps slots apart elsewhere, and not here: users, memory, cpu, pids (R50).
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
    spark_conf: bytes
    cpu_cores: int
    memory_bytes: int
    exchange_id: str = ""
    spark_version: str = ""
    has_tenants: bool = False
    not_enforced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskManagerRegistered:
    """The leader accepts. `epoch` is its term, to be sent with every later message as target.

    `tokens`: the delegation tokens that it has (R51); of other providers the TaskManager keeps those that it has.
    """

    cluster: ClusterUuid
    epoch: int
    blob_address: str
    heartbeat_interval: float
    heartbeat_timeout: float
    tokens: tuple[DelegationToken, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistrationRefused:
    """The leader does not accept this peer, and why. Refused peers exit with this sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """One slot: free when `allocation_id` is None."""

    slot_index: int
    allocation_id: AllocationId | None
    job_id: JobId | None


@dataclass(frozen=True, slots=True)
class SlotReport:
    """All slots of a TaskManager that are ready to be used, whether it is warm, and whether it takes no more slots.

    `problem`: why it has none that are ready, in a sentence; "" when that is only a matter of time. `tenant`: the
    namespace that it serves, "" if it may be any.
    """

    slots: tuple[SlotStatus, ...]
    is_warm: bool
    assigned_tasks: int
    is_draining: bool = False
    problem: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class SlotsFreed:
    """Allocations that ended; their slots are ready for the next job."""

    allocations: tuple[AllocationId, ...]


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """Allocate a slot for a job and offer it to the job's owner (R7: carries the owner's epoch).

    `namespace`: the job's, as the leader has stored it (R48); "" of older leaders.
    """

    allocation_id: AllocationId
    slot_index: int
    job_id: JobId
    epoch: int
    job_master_incarnation: Incarnation
    job_master_address: str
    profile: ResourceProfile
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class SlotRequestRefused:
    """The TaskManager could not do it: slot taken, unknown, or the epoch is old.

    `is_slot_free`: the slot may be given to another job at once, the refusal is about the job.
    `is_owner_unreachable`: the slot was allocated, and is freed now, because its job's owner cannot be reached (R7).
    """

    allocation_id: AllocationId
    slot_index: int
    reason: str
    is_slot_free: bool = False
    is_owner_unreachable: bool = False


@dataclass(frozen=True, slots=True)
class JobsEnded:
    """Jobs with a stored result (R16): the TaskManager ends what it still has of them.

    `kept`: those of them whose outputs somebody may have to commit by hand, or of which nobody knows (R28).
    """

    jobs: tuple[JobId, ...]
    kept: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class DrainTaskManager:
    """Take no more slots, finish or release what runs, and stay (`is_draining`); or serve again. SlotReports tell."""

    is_draining: bool


TaskManagerMessage = SlotReport | SlotsFreed | SlotRequestRefused | Heartbeat
"""What follows the registration."""

TaskManagerToResourceManager = RegisterTaskManager | TaskManagerMessage
ResourceManagerToTaskManager = (
    TaskManagerRegistered
    | RegistrationRefused
    | RequestSlot
    | JobsEnded
    | DrainTaskManager
    | NewDelegationTokens
    | Heartbeat
)


@dataclass(frozen=True, slots=True)
class ResourceRequirement:
    """`count` slots of one profile."""

    profile: ResourceProfile
    count: int


@dataclass(frozen=True, slots=True)
class JobRequirements:
    """The complete requirement set of a job: replaces the previous one; empty = the job needs nothing.

    `unreachable` names the TaskManagers that the owner cannot reach (R7). `static_conf` is the static part of the job's
    Spark conf as a JSON object, b"" for none; `needs_spark`: some of its code expects a Spark session.
    """

    job_id: JobId
    epoch: int
    requirements: tuple[ResourceRequirement, ...]
    unreachable: tuple[Incarnation, ...]
    static_conf: bytes = b""
    needs_spark: bool = False


@dataclass(frozen=True, slots=True)
class TaskManagerInfo:
    """What REST and the CLI show of a TaskManager."""

    registration: RegisterTaskManager
    free_slots: int
    is_warm: bool
    assigned_tasks: int
    last_heard_millis: int
    allocated: tuple[SlotStatus, ...]
    is_draining: bool = False
    problem: str = ""
    tenant: str = ""
