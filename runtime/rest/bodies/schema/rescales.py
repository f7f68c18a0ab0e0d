"""Flink's bodies of bounds and rescales. Times are milliseconds since 1970."""

from __future__ import annotations

from typing_extensions import TypeAliasType, TypedDict


class Bounds(TypedDict):
    """How many subtasks a vertex has at least, and at most."""

    lowerBound: int
    upperBound: int


class BoundsOfVertex(TypedDict):
    """What a vertex asks for."""

    parallelism: Bounds


BoundsByVertex = TypeAliasType("BoundsByVertex", dict[str, BoundsOfVertex])
"""Of all vertices of a job."""


class NoFields(TypedDict):
    """It is done."""


class RescaledVertex(TypedDict):
    """A vertex of a rescale. `desiredParallelism`: its upper bound then; `sufficientParallelism`: its lower one."""

    jobVertexId: str
    jobVertexName: str
    slotSharingGroupId: str
    slotSharingGroupName: str
    desiredParallelism: int
    sufficientParallelism: int
    preRescaleParallelism: int | None
    postRescaleParallelism: int | None


class RescaledSlots(TypedDict):
    """The slots of a slot sharing group. Queries of different vertices do not share slots: they are added up."""

    slotSharingGroupId: str
    slotSharingGroupName: str
    desiredSlots: int
    minimalRequiredSlots: int
    preRescaleSlots: int | None
    postRescaleSlots: int


class StateSpan(TypedDict):
    """How long the scheduler was in a state."""

    state: str
    enterTimestampInMillis: int
    leaveTimestampInMillis: int | None
    durationInMillis: int | None
    stringifiedException: str | None


class Rescale(TypedDict):
    """One rescale. `pauseInMillis`: how long queries of its vertices stood still; null while it goes on, and where it
    has not been told."""

    rescaleUuid: str
    resourceRequirementsUuid: str
    rescaleAttemptId: int
    vertices: dict[str, RescaledVertex]
    slots: dict[str, RescaledSlots]
    schedulerStates: list[StateSpan]
    startTimestampInMillis: int
    endTimestampInMillis: int | None
    terminalState: str | None
    triggerCause: str
    terminatedReason: str | None
    pauseInMillis: int | None


Rescales = TypeAliasType("Rescales", list[Rescale])
"""The newest first."""


class RescalesCounts(TypedDict):
    """How many rescales there were; none is ignored here."""

    ignored: int
    inProgress: int
    completed: int
    failed: int


class LatestRescales(TypedDict):
    """The latest of each kind."""

    completed: Rescale | None
    failed: Rescale | None
    ignored: Rescale | None


class RescalesOverview(TypedDict):
    """Counts and the latest."""

    rescalesCounts: RescalesCounts
    latest: LatestRescales


class RescaleStats(TypedDict):
    """Of milliseconds. Quantiles of nothing are "NaN"."""

    min: int
    max: int
    avg: int
    p50: float | str
    p90: float | str
    p95: float | str
    p99: float | str
    p999: float | str


class RescalesSummary(TypedDict):
    """Of the rescales that are kept. `pauseStatsInMillis`: how long queries stood still."""

    rescalesCounts: RescalesCounts
    rescalesDurationStatsInMillis: RescaleStats
    completedRescalesDurationStatsInMillis: RescaleStats
    ignoredRescalesDurationStatsInMillis: RescaleStats
    failedRescalesDurationStatsInMillis: RescaleStats
    pauseStatsInMillis: RescaleStats


class RescaleConfiguration(TypedDict):
    """The options. A rescale waits for no checkpoint, as queries end between two batches: what Flink shows of that is
    null."""

    rescaleHistoryMax: int
    schedulerExecutionMode: str | None
    submissionResourceWaitTimeoutInMillis: int
    submissionResourceStabilizationTimeoutInMillis: int
    slotIdleTimeoutInMillis: int | None
    executingCooldownTimeoutInMillis: int
    executingResourceStabilizationTimeoutInMillis: int
    maximumDelayForTriggeringRescaleInMillis: int | None
    rescaleOnFailedCheckpointCount: int | None
