"""One execution attempt: its state, when it entered each state, where it runs, and what it brought.

Invariants: the state changes only along Flink's table; an attempt has a place from DEPLOYING on and keeps it; what it
brought (partitions, outputs, value) is set once, with FINISHED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.common.fsm import StateMachine
from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation
from runtime.common.states import EXECUTION_TRANSITIONS, ExecutionState
from runtime.gateways.task import FailureInfo, OutputDirectory, PartitionDescriptor, TaskMetrics, TaskProgress

NO_METRICS = TaskMetrics()


@dataclass(frozen=True, slots=True)
class TaskManagerLocation:
    """One TaskManager process: which, where, and the name people know it by."""

    incarnation: Incarnation
    task_manager_id: str
    address: str


class Execution:
    """One attempt. Its state is changed by the execution graph, which keeps the counts."""

    __slots__ = (
        "allocation_id",
        "attempt_id",
        "failure",
        "is_accepted",
        "is_first_to_begin",
        "location",
        "machine",
        "may_have_begun",
        "metrics",
        "ordinal",
        "outputs",
        "partitions",
        "progress",
        "timestamps",
        "value",
    )

    def __init__(
        self, attempt_id: ExecutionAttemptId, ordinal: int, at_millis: int, *, is_first_to_begin: bool = False
    ) -> None:
        self.attempt_id = attempt_id
        self.ordinal = ordinal
        self.machine = StateMachine(str(attempt_id), EXECUTION_TRANSITIONS, ExecutionState.CREATED)
        self.timestamps: dict[ExecutionState, int] = {ExecutionState.CREATED: at_millis}
        self.location: TaskManagerLocation | None = None
        self.allocation_id: AllocationId | None = None
        self.failure: FailureInfo | None = None
        self.metrics = NO_METRICS
        self.progress: TaskProgress | None = None
        self.value = b""
        self.partitions: tuple[PartitionDescriptor, ...] = ()
        self.outputs: tuple[OutputDirectory, ...] = ()
        self.is_accepted = False
        self.is_first_to_begin = is_first_to_begin
        """No earlier attempt of the subtask has begun (D-067)."""
        self.may_have_begun = False

    @classmethod
    def finished(
        cls,
        attempt_id: ExecutionAttemptId,
        ordinal: int,
        timestamps: Mapping[ExecutionState, int],
        location: TaskManagerLocation,
    ) -> Execution:
        """An attempt as an earlier owner made its end durable."""
        execution = cls(attempt_id, ordinal, 0)
        execution.machine = StateMachine(str(attempt_id), EXECUTION_TRANSITIONS, ExecutionState.FINISHED)
        execution.timestamps = dict(timestamps)
        execution.location = location
        execution.may_have_begun = True
        return execution

    @property
    def state(self) -> ExecutionState:
        """Where the attempt is in its life."""
        return self.machine.state

    def enter(self, target: ExecutionState, at_millis: int, reason: str = "") -> None:
        """Take one arc. Raises IllegalTransitionError."""
        self.machine.to(target, reason)
        self.timestamps[target] = at_millis

    def forget_results(self) -> None:
        """The attempt is history: what it brought is nobody's any more."""
        self.value = b""
        self.partitions = ()
        self.outputs = ()
        self.progress = None

    def place(self, location: TaskManagerLocation, allocation_id: AllocationId) -> None:
        """Say where the attempt is deployed to. Once."""
        assert self.location is None, self.attempt_id
        self.location = location
        self.allocation_id = allocation_id
        self.may_have_begun = True

    @property
    def lets_next_begin_first(self) -> bool:
        """Would the next attempt of the subtask be the first one that begins?"""
        return self.is_first_to_begin and not self.may_have_begun
