"""The rescales of a job as data: what REST shows of them, and what later owners know (Flink's words)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.ids import VertexId
from runtime.gateways.rescales import VertexBounds

NOT_TOLD = -1
"""Of a time, or a number of subtasks, that is not known."""


class RescaleCause(Enum):
    """Why a job gets another parallelism."""

    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    UPDATE_REQUIREMENT = "UPDATE_REQUIREMENT"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"


class RescaleState(Enum):
    """How a rescale has ended."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class RescaleReason(Enum):
    """Why it has ended so."""

    SUCCEEDED = "SUCCEEDED"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELED = "JOB_CANCELED"
    JOB_FAILOVER_RESTARTING = "JOB_FAILOVER_RESTARTING"
    RESOURCE_REQUIREMENTS_UPDATED = "RESOURCE_REQUIREMENTS_UPDATED"


@dataclass(frozen=True, slots=True)
class RescaledVertex:
    """A vertex whose parallelism a rescale changes. `before` is NOT_TOLD where it had none."""

    vertex_id: VertexId
    name: str
    slot_sharing_group: str
    lower: int
    upper: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class StateSpan:
    """The scheduler was in a state; `leave_millis` is NOT_TOLD while it is."""

    state: str
    enter_millis: int
    leave_millis: int = NOT_TOLD


@dataclass(frozen=True, slots=True)
class Rescale:
    """One rescale. `number`: of the job, from 1. `pause_millis`: from the end of the first query that it ends until
    all queries of its vertices work again, NOT_TOLD before. Times are milliseconds since 1970.
    """

    rescale_id: str
    requirements_id: str
    number: int
    cause: RescaleCause
    start_millis: int
    vertices: tuple[RescaledVertex, ...]
    states: tuple[StateSpan, ...] = ()
    end_millis: int = NOT_TOLD
    state: RescaleState | None = None
    reason: RescaleReason | None = None
    pause_millis: int = NOT_TOLD


@dataclass(frozen=True, slots=True)
class RescaleSettings:
    """What REST shows of the options, in milliseconds; `resource_wait_millis` -1: without an end."""

    history_max: int
    is_reactive: bool
    resource_wait_millis: int
    submission_stabilization_millis: int
    cooldown_millis: int
    executing_stabilization_millis: int


@dataclass(frozen=True, slots=True)
class ArchivedRescales:
    """Those of a job that an AdaptiveScheduler has. `history`: the newest first, bounded. `bounds`: of each vertex."""

    settings: RescaleSettings
    state: str
    bounds: tuple[VertexBounds, ...]
    history: tuple[Rescale, ...] = ()
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
