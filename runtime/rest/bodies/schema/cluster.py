"""Bodies of /, /overview, /config, /jobmanager/config, /taskmanagers and /jobmasters. Times are milliseconds."""

from __future__ import annotations

from typing_extensions import TypeAliasType, TypedDict

Start = TypedDict(
    "Start",
    {
        "flinklike-version": str,
        "page": str,
        "overview": str,
        "jobs": str,
        "taskmanagers": str,
        "jobmasters": str,
        "openapi": str,
    },
)

DelegationTokens = TypedDict(
    "DelegationTokens",
    {"provider": str, "valid-until": int, "failures": int, "failure": str, "obtained": bool},
)

StoreFigures = TypedDict(
    "StoreFigures",
    {"version": str, "size-bytes": int, "used-bytes": int, "quota-bytes": int, "looked-at": int},
)
"""As the store has said it last; it is asked every ten seconds. `looked-at`: when it has answered last."""

StoreMember = TypedDict(
    "StoreMember",
    {"endpoint": str, "problem": str, "version": str, "leader": bool, "size-bytes": int, "answer-millis": float},
)
"""An endpoint of etcd, asked now. `problem`: why it does not answer."""


class Store(TypedDict):
    """The store of the cluster. `figures`: None before its first answer; `members`: none without etcd."""

    kind: str
    figures: StoreFigures | None
    members: list[StoreMember]


ClusterOverview = TypedDict(
    "ClusterOverview",
    {
        "taskmanagers": int,
        "slots-total": int,
        "slots-available": int,
        "jobs-running": int,
        "jobs-finished": int,
        "jobs-cancelled": int,
        "jobs-failed": int,
        "flink-version": str,
        "flink-commit": str,
        "jobmasters": int,
        "taskmanagers-pending": int,
        "jobmasters-pending": int,
        "leader": str,
        "stand-bys": list[str],
        "high-availability": str,
        "delegation-tokens": list[DelegationTokens],
        "store": StoreFigures | None,
    },
)

OverviewHistory = TypedDict(
    "OverviewHistory",
    {
        "interval-seconds": int,
        "jobs-per-second": list[float],
        "tasks-per-second": list[float],
        "slots-used": list[int],
        "jobs-unfinished": list[int],
    },
)


class Changes(TypedDict):
    """The revision of all that is shown."""

    revision: str


DashboardFeatures = TypedDict(
    "DashboardFeatures",
    {"web-submit": bool, "web-cancel": bool, "web-rescale": bool, "web-history": bool},
)

DashboardConfiguration = TypedDict(
    "DashboardConfiguration",
    {
        "refresh-interval": int,
        "timezone-name": str,
        "timezone-offset": int,
        "flink-version": str,
        "flink-revision": str,
        "features": DashboardFeatures,
        "high-availability": str,
    },
)


class ConfigurationEntry(TypedDict):
    """An option that is set; the value of a secret is masked."""

    key: str
    value: str


Configuration = TypeAliasType("Configuration", list[ConfigurationEntry])


class Resources(TypedDict):
    """Flink's ResourceProfileInfo. Memory is in MiB."""

    cpuCores: float
    taskHeapMemory: int
    taskOffHeapMemory: int
    managedMemory: int
    networkMemory: int
    extendedResources: dict[str, float]


class Hardware(TypedDict):
    """Of the host. Memory is in bytes."""

    cpuCores: int
    physicalMemory: int
    freeMemory: int
    managedMemory: int


class MemoryConfiguration(TypedDict):
    """Flink's memory model, in bytes."""

    frameworkHeap: int
    taskHeap: int
    frameworkOffHeap: int
    taskOffHeap: int
    networkMemory: int
    managedMemory: int
    jvmMetaspace: int
    jvmOverhead: int
    totalFlinkMemory: int
    totalProcessMemory: int


SparkEnvironment = TypedDict("SparkEnvironment", {"key": str, "memory-bytes": int, "users": int})
"""A Spark environment beside the default one. `users`: attempts that have it now."""

TaskManager = TypedDict(
    "TaskManager",
    {
        "id": str,
        "path": str,
        "dataPort": int,
        "jmxPort": int,
        "timeSinceLastHeartbeat": int,
        "slotsNumber": int,
        "freeSlots": int,
        "assignedTasks": int,
        "totalResource": Resources,
        "freeResource": Resources,
        "hardware": Hardware,
        "memoryConfiguration": MemoryConfiguration,
        "incarnation": str,
        "version": str,
        "spark": bool,
        "spark-profile": str,
        "labels": list[str],
        "profile": str,
        "spark-master": str,
        "spark-version": str,
        "warm": bool,
        "spark-environments": list[SparkEnvironment],
        "not-enforced": list[str],
        "tenancy": str,
        "tenant": str,
        "state": str,
        "problem": str,
    },
)


class TaskManagers(TypedDict):
    """All registered TaskManagers."""

    taskmanagers: list[TaskManager]


class GarbageCollector(TypedDict):
    """Flink's GarbageCollectorInfo."""

    name: str
    count: int
    time: int


class TaskManagerMetrics(TypedDict):
    """Flink's metrics of the TaskManager's JVM."""

    heapUsed: int
    heapCommitted: int
    heapMax: int
    nonHeapUsed: int
    nonHeapCommitted: int
    nonHeapMax: int
    directCount: int
    directUsed: int
    directMax: int
    mappedCount: int
    mappedUsed: int
    mappedMax: int
    nettyShuffleMemorySegmentsAvailable: int
    nettyShuffleMemorySegmentsUsed: int
    nettyShuffleMemorySegmentsTotal: int
    nettyShuffleMemoryAvailable: int
    nettyShuffleMemoryUsed: int
    nettyShuffleMemoryTotal: int
    garbageCollectors: list[GarbageCollector]


class AllocatedSlot(TypedDict):
    """`jobId` is "" for a job that the caller may not see."""

    index: int
    jobId: str | None
    allocationId: str
    resource: Resources
    assignedTasks: int


class TaskManagerDetails(TaskManager):
    """One TaskManager with its allocated slots."""

    metrics: TaskManagerMetrics
    allocatedSlots: list[AllocatedSlot]  # noqa: N815 - Flink's name


JobMasterProcess = TypedDict(
    "JobMasterProcess",
    {
        "id": str,
        "address": str,
        "state": str,
        "version": str,
        "capacity": int,
        "jobs-running": int,
        "jobs-assigned": int,
        "cpu-fraction": float,
        "memory-bytes": int,
        "last-heartbeat": int,
    },
)


class JobMasterProcesses(TypedDict):
    """All registered JobMaster processes."""

    jobmasters: list[JobMasterProcess]


class JobOfJobMaster(TypedDict):
    """A job that a JobMaster process runs."""

    jid: str
    name: str
    state: str


class JobMasterProcessDetails(JobMasterProcess):
    """One JobMaster process with those of its jobs that the caller may see."""

    jobs: list[JobOfJobMaster]
