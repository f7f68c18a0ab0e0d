"""One execution attempt: its state, the time of each state, its TaskManager, and its results.

Invariants: the state changes only along Flink's table; an attempt has a place from DEPLOYING on and keeps it; its
results (partitions, outputs, value) are set once, with FINISHED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.common.accumulators import UserAccumulator
from runtime.common.fsm import StateMachine
from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation
from runtime.common.states import EXECUTION_TRANSITIONS, ExecutionState
from runtime.gateways.spark_work import SparkWork
from runtime.gateways.task import FailureInfo, OutputDirectory, PartitionDescriptor, TaskMetrics, TaskProgress

NO_METRICS = TaskMetrics()


NO_SLOT = -1
"""Of an attempt without one, and of one that an earlier owner has seen end."""


@dataclass(frozen=True, slots=True)
class TaskManagerLocation:
    """One TaskManager process: incarnation, address, and resource id."""

    incarnation: Incarnation
    task_manager_id: str
    address: str


class Execution:
    """One attempt. Its state is changed by the execution graph, which keeps the counts."""

    __slots__ = (
        "accumulators",
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
        "slot_index",
        "spark_work",
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
        self.slot_index = NO_SLOT
        self.failure: FailureInfo | None = None
        self.metrics = NO_METRICS
        self.accumulators: tuple[UserAccumulator, ...] = ()
        self.spark_work: SparkWork | None = None
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
        """A finished attempt, from the event that an earlier owner made durable."""
        execution = cls(attempt_id, ordinal, 0)
        execution.machine = StateMachine(str(attempt_id), EXECUTION_TRANSITIONS, ExecutionState.FINISHED)
        execution.timestamps = dict(timestamps)
        execution.location = location
        execution.may_have_begun = True
        return execution

    @property
    def state(self) -> ExecutionState:
        """The state of the attempt."""
        return self.machine.state

    def enter(self, target: ExecutionState, at_millis: int, reason: str = "") -> None:
        """Change the state along one arc of the table. Raises IllegalTransitionError."""
        self.machine.to(target, reason)
        self.timestamps[target] = at_millis

    def forget_results(self) -> None:
        """Drop partitions, outputs, value and accumulators: the attempt was replaced."""
        self.value = b""
        self.accumulators = ()
        self.partitions = ()
        self.outputs = ()
        self.progress = None

    def place(self, location: TaskManagerLocation, allocation_id: AllocationId, slot_index: int = NO_SLOT) -> None:
        """Set the slot and TaskManager of the attempt, once."""
        assert self.location is None, self.attempt_id
        self.location = location
        self.allocation_id = allocation_id
        self.slot_index = slot_index
        self.may_have_begun = True

    @property
    def lets_next_begin_first(self) -> bool:
        """True if the next attempt of the subtask would be the first one that begins."""
        return self.is_first_to_begin and not self.may_have_begun
