"""The interface of a scheduler to its JobMaster (Flink's SchedulerNG): one job, from its graph to its last task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from runtime.common.ids import Incarnation
from runtime.common.states import JobStatus, SchedulerType
from runtime.common.waiting import Waiting
from runtime.executiongraph.archived_checkpoints import ArchivedCheckpoints
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.rescales import UpdateRequirements
from runtime.gateways.resource_manager import ResourceRequirement
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.events import SendFailed, TaskManagerSpoke
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.speculation.speculative_execution import SpeculationCounts
from runtime.scheduler.core.takeover.inheritance import Inheritance


@dataclass(frozen=True, slots=True)
class JobEnd:
    """Nothing of the job runs any more, and this is how it ends. `keeps_outputs`: TaskManagers delete none (R28)."""

    status: JobStatus
    keeps_outputs: bool = False


@dataclass(frozen=True, slots=True)
class SlotNeeds:
    """The slots that the job needs now.

    `held`: the number of slots that the job has. `unreachable`: TaskManagers whose slots the owner cannot use (R7).
    `shunned`: TaskManagers whose slots it wants only while it has none like them elsewhere (R67).
    """

    requirements: tuple[ResourceRequirement, ...]
    held: int
    unreachable: tuple[Incarnation, ...]
    shunned: tuple[Incarnation, ...] = ()


class Scheduler(Protocol):
    """Decides about the tasks of one job under one owner.

    A method handles one event: it changes the execution graph, writes letters to TaskManagers, and appends effects. The
    JobMaster calls `advance` after each event; effects and letters leave together when the turn is over.
    """

    @classmethod
    def started(cls, context: JobContext, job_graph: JobGraph) -> Self:
        """A scheduler for a job of which nothing has run."""

    @classmethod
    def restored(cls, context: JobContext, found: Inheritance) -> Self:
        """A scheduler for a job that had an owner before: it adopts running attempts, then handles kept messages (R6,
        R9).
        """

    @property
    def scheduler_type(self) -> SchedulerType:
        """Which one it is."""

    @property
    def is_decided(self) -> bool:
        """True once the job can only finish, or fail with everything kept that a repeat needs (R26)."""

    @property
    def wants_tick(self) -> bool:
        """True when something was left for the wheel of the process."""

    # --- events -------------------------------------------------------------------------------------------

    def message(self, event: TaskManagerSpoke) -> None:
        """A TaskManager has sent a message about slots, attempts or outputs."""

    def send_failed(self, event: SendFailed) -> None:
        """A message to a TaskManager cannot be sent."""

    def task_manager_disconnected(self, incarnation: Incarnation) -> None:
        """The stream to a TaskManager has ended."""

    def task_manager_lost(self, incarnation: Incarnation, reason: str) -> None:
        """A TaskManager was silent for too long (R18)."""

    def task_manager_died(self, incarnation: Incarnation, reason: str) -> None:
        """A TaskManager is proved dead (R13)."""

    def task_manager_stopped(self, incarnation: Incarnation, how: str) -> None:
        """The fence on a TaskManager says that nothing runs there any more (R14)."""

    def events_written(self, number: int) -> None:
        """Batch `number` of events is durable (R10)."""

    def checkpoint_written(self, checkpoint_id: int) -> None:
        """The record of a checkpoint is durable."""

    def operation_wanted(self, wanted: TriggerOperation) -> None:
        """A client wants a checkpoint, a savepoint, or a stop with one."""

    def operation_written(self, operation: StreamOperation, dropped: Sequence[str]) -> None:
        """The record of an operation is durable."""

    def requirements_wanted(self, wanted: UpdateRequirements) -> None:
        """A client wants other bounds of the parallelism of vertices."""

    def deadline_reached(self) -> None:
        """The execution timeout of the job is over."""

    def ticked(self) -> None:
        """The wheel of the process has turned."""

    def cancel(self, reason: str) -> None:
        """End the job, unless it is ending."""

    def advance(self) -> JobEnd | None:
        """Act on the event. Returns the end of the job once no attempt of it runs any more."""

    def ended(self, *, keeps_outputs: bool) -> None:
        """The result is durable: slots go back, TaskManagers forget the job."""

    # --- what others are told -----------------------------------------------------------------------------

    def slot_needs(self) -> SlotNeeds:
        """Slots that the job needs while it is not ending."""

    def waiting(self, resources: Waiting) -> Waiting:
        """What the job waits for, if it does. `resources`: the ResourceManager's word, if any."""

    def checkpoints(self) -> ArchivedCheckpoints | None:
        """What is shown of the job's checkpoints; None for a job without streaming queries."""

    @property
    def failed_checkpoints(self) -> int:
        """How many checkpoints have failed under this owner."""

    @property
    def preempted_attempts(self) -> int:
        """How many attempts have ended under this owner because their slots went to other queues (R64)."""

    @property
    def speculation(self) -> SpeculationCounts:
        """Slow tasks under this owner, and what became of them."""

    def check_invariants(self) -> None:
        """Raises AssertionError when the scheduler contradicts itself."""
