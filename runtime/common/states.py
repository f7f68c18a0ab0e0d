"""JobStatus and ExecutionState with Flink's names and transition tables.

Their hash is that of `object`: `Enum.__hash__` is a Python function, and each look-up by state would call it.
"""

from __future__ import annotations

from enum import Enum

from runtime.common.fsm import TransitionTable


class JobType(Enum):
    """What kind of job a graph makes (Flink's JobType)."""

    BATCH = "BATCH"
    """Every task ends: a consumer starts when what it reads is complete."""
    STREAMING = "STREAMING"
    """It has a streaming query that does not end by itself."""


class SchedulerType(Enum):
    """Which scheduler runs a job (Flink's SchedulerType)."""

    DEFAULT = "Default"
    ADAPTIVE = "Adaptive"
    ADAPTIVE_BATCH = "AdaptiveBatch"


class JobStatus(Enum):
    """State of a job. Terminal: FINISHED, CANCELED, FAILED. SUSPENDED ends the part of one owner only."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    __hash__ = object.__hash__

    @property
    def is_globally_terminal(self) -> bool:
        """True for the three states that a job never leaves, wherever it runs."""
        return self in _GLOBALLY_TERMINAL


_GLOBALLY_TERMINAL = frozenset({JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED})

_J = JobStatus
JOB_TRANSITIONS = TransitionTable(
    {
        _J.INITIALIZING: frozenset({_J.CREATED, _J.FAILED, _J.CANCELED, _J.SUSPENDED}),
        _J.CREATED: frozenset({_J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
        _J.RUNNING: frozenset({_J.FINISHED, _J.RESTARTING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
        _J.FAILING: frozenset({_J.FAILED, _J.SUSPENDED}),
        _J.FAILED: frozenset(),
        _J.CANCELLING: frozenset({_J.CANCELED, _J.SUSPENDED}),
        _J.CANCELED: frozenset(),
        _J.FINISHED: frozenset(),
        _J.RESTARTING: frozenset({_J.RUNNING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        _J.SUSPENDED: frozenset(),
        _J.RECONCILING: frozenset(),
    }
)


class ExecutionState(Enum):
    """State of one execution attempt."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"

    __hash__ = object.__hash__

    @property
    def is_terminal(self) -> bool:
        """True for FINISHED, CANCELED and FAILED."""
        return self in _TERMINAL_EXECUTION


_TERMINAL_EXECUTION = frozenset({ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED})

_E = ExecutionState
EXECUTION_TRANSITIONS = TransitionTable(
    {
        _E.CREATED: frozenset({_E.SCHEDULED, _E.CANCELED, _E.FAILED}),
        _E.SCHEDULED: frozenset({_E.DEPLOYING, _E.CANCELED, _E.FAILED}),
        _E.DEPLOYING: frozenset({_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.INITIALIZING: frozenset({_E.RUNNING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.RUNNING: frozenset({_E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.FINISHED: frozenset(),
        _E.CANCELING: frozenset({_E.CANCELED, _E.FAILED}),
        _E.CANCELED: frozenset(),
        _E.FAILED: frozenset(),
        _E.RECONCILING: frozenset(),
    }
)
