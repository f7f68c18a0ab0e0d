"""The slots of one TaskManager: the job that holds each, what runs in it, and what waits there.

Invariants: an allocation names at most one slot, and never a second one after it was freed; a slot that is FREE holds
nothing; at most one attempt runs in a slot; attempts wait only in ACTIVE slots, at most `queue_max` each; a slot that
another one has as a further share is FREE, holds nothing of its own, and is given to nobody (D-141).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from enum import Enum

from runtime.common.fsm import StateMachine, TransitionTable
from runtime.common.ids import AllocationId, ExecutionAttemptId, JobId
from runtime.gateways.resource_manager import SlotStatus
from runtime.gateways.task import DEFAULT_PROFILE, ResourceProfile, TaskDeploymentDescriptor

FREED_ALLOCATIONS_REMEMBERED_MAX = 4096


class SlotState(Enum):
    """Flink's slot states. FREE: no job holds it. RELEASING: to be freed as soon as what runs in it has ended."""

    FREE = "FREE"
    ALLOCATED = "ALLOCATED"
    ACTIVE = "ACTIVE"
    RELEASING = "RELEASING"


SLOT_TRANSITIONS = TransitionTable(
    {
        SlotState.FREE: frozenset({SlotState.ALLOCATED}),
        SlotState.ALLOCATED: frozenset({SlotState.ACTIVE, SlotState.FREE}),
        SlotState.ACTIVE: frozenset({SlotState.RELEASING}),
        SlotState.RELEASING: frozenset({SlotState.FREE}),
    }
)


class TaskSlot:
    """One slot. Changed by its table only."""

    __slots__ = (
        "allocation_id",
        "asked_back",
        "index",
        "job_id",
        "lent_to",
        "machine",
        "more",
        "profile",
        "running",
        "runs_exclusive",
        "waiting",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.machine = StateMachine(f"slot {index}", SLOT_TRANSITIONS, SlotState.FREE)
        self.allocation_id: AllocationId | None = None
        self.job_id: JobId | None = None
        self.profile = DEFAULT_PROFILE
        self.running: ExecutionAttemptId | None = None
        self.runs_exclusive = False
        self.waiting: deque[TaskDeploymentDescriptor] = deque()
        self.asked_back = ""
        """Why its job gets nothing more begun here and is to free it, "" when all is as usual."""
        self.more: tuple[TaskSlot, ...] = ()
        """Further slots that its allocation takes."""
        self.lent_to: TaskSlot | None = None
        """The slot whose allocation has this one too."""

    @property
    def shares(self) -> int:
        """How many slots' parts of the TaskManager what runs here may use."""
        return 1 + len(self.more)

    @property
    def is_open(self) -> bool:
        """True if it may be given to a job."""
        return self.state is SlotState.FREE and self.lent_to is None

    @property
    def state(self) -> SlotState:
        """Where the slot is in its life."""
        return self.machine.state


class TaskSlotTable:
    """All slots, by index and by allocation."""

    def __init__(self, slots: int, *, queue_max: int) -> None:
        assert slots > 0, slots
        self._slots = tuple(TaskSlot(index) for index in range(slots))
        self._queue_max = queue_max
        self._by_allocation: dict[AllocationId, TaskSlot] = {}
        self._freed: OrderedDict[AllocationId, None] = OrderedDict()

    def slot(self, index: int) -> TaskSlot | None:
        """The slot with that number, None if there is none."""
        return self._slots[index] if 0 <= index < len(self._slots) else None

    def held(self, job_id: JobId, allocation_id: AllocationId) -> TaskSlot | None:
        """The slot that `job_id` holds by `allocation_id`, None if it does not (any more)."""
        slot = self._by_allocation.get(allocation_id)
        return slot if slot is not None and slot.job_id == job_id else None

    def holder(self, allocation_id: AllocationId) -> TaskSlot | None:
        """The slot that this allocation names, whosever it is."""
        return self._by_allocation.get(allocation_id)

    def was_freed(self, allocation_id: AllocationId) -> bool:
        """True for an allocation that has ended here: it never comes back."""
        return allocation_id in self._freed

    def of_job(self, job_id: JobId) -> list[TaskSlot]:
        """The slots of a job, in order of their numbers."""
        return [slot for slot in self._slots if slot.job_id == job_id]

    def running_in(self, attempt_id: ExecutionAttemptId) -> TaskSlot | None:
        """The slot in which an attempt runs."""
        return next((slot for slot in self._slots if slot.running == attempt_id), None)

    def __iter__(self) -> Iterator[TaskSlot]:
        return iter(self._slots)

    def statuses(self) -> tuple[SlotStatus, ...]:
        """What a slot report says of every slot."""
        return tuple(_status(slot.index, slot.lent_to or slot) for slot in self._slots)

    def allocate(
        self,
        slot: TaskSlot,
        allocation_id: AllocationId,
        job_id: JobId,
        profile: ResourceProfile,
        more: Sequence[TaskSlot] = (),
    ) -> None:
        """FREE -> ALLOCATED, with further slots."""
        assert all(one.is_open for one in (slot, *more)), (slot.index, allocation_id)
        assert allocation_id not in self._by_allocation, allocation_id
        assert allocation_id not in self._freed, allocation_id
        slot.machine.to(SlotState.ALLOCATED, allocation_id)
        slot.allocation_id, slot.job_id, slot.profile = allocation_id, job_id, profile
        self._by_allocation[allocation_id] = slot
        slot.more = tuple(more)
        for one in more:
            one.lent_to = slot

    def activate(self, slot: TaskSlot) -> None:
        """ALLOCATED -> ACTIVE: its job has taken it."""
        slot.machine.to(SlotState.ACTIVE)

    def release(self, slot: TaskSlot) -> list[TaskDeploymentDescriptor]:
        """Begin to free a slot: returns what had waited in it. Call `free` when nothing runs in it."""
        dropped = list(slot.waiting)
        slot.waiting.clear()
        if slot.state is SlotState.ACTIVE:
            slot.machine.to(SlotState.RELEASING)
        return dropped

    def free(self, slot: TaskSlot) -> AllocationId:
        """ALLOCATED or RELEASING -> FREE. Returns the allocation that has ended."""
        assert slot.running is None, slot.running
        assert not slot.waiting, slot.waiting
        allocation_id = slot.allocation_id
        slot.machine.to(SlotState.FREE, str(allocation_id))
        assert allocation_id is not None, slot.index
        del self._by_allocation[allocation_id]
        self._freed[allocation_id] = None
        if len(self._freed) > FREED_ALLOCATIONS_REMEMBERED_MAX:
            self._freed.popitem(last=False)
        slot.allocation_id = slot.job_id = None
        slot.asked_back = ""
        for one in slot.more:
            one.lent_to = None
        slot.more = ()
        return allocation_id

    def enqueue(self, slot: TaskSlot, task: TaskDeploymentDescriptor) -> bool:
        """Let an attempt wait in an ACTIVE slot. False when its queue is full."""
        assert slot.state is SlotState.ACTIVE, slot.state
        if len(slot.waiting) >= self._queue_max:
            return False
        slot.waiting.append(task)
        return True

    def start_next(self, slot: TaskSlot) -> TaskDeploymentDescriptor | None:
        """The attempt that runs from now on, if the slot is idle and one waits."""
        if slot.running is not None or not slot.waiting:
            return None
        task = slot.waiting.popleft()
        slot.running, slot.runs_exclusive = task.attempt_id, task.task.is_exclusive
        return task

    def end_running(self, slot: TaskSlot, attempt_id: ExecutionAttemptId) -> None:
        """The attempt has left the slot: its process is reaped or idle again (R15)."""
        assert slot.running == attempt_id, (slot.index, slot.running, attempt_id)
        slot.running, slot.runs_exclusive = None, False

    def withdraw(self, attempt_id: ExecutionAttemptId) -> bool:
        """Take a waiting attempt out of its queue. False when it does not wait anywhere."""
        for slot in self._slots:
            for task in slot.waiting:
                if task.attempt_id == attempt_id:
                    slot.waiting.remove(task)
                    return True
        return False

    def check_invariants(self) -> None:
        """Raises AssertionError when the table contradicts itself."""
        for slot in self._slots:
            is_free = slot.state is SlotState.FREE
            assert is_free == (slot.allocation_id is None) == (slot.job_id is None), slot.index
            assert slot.running is None or slot.state in {SlotState.ACTIVE, SlotState.RELEASING}, slot.index
            assert not slot.waiting or slot.state is SlotState.ACTIVE, slot.index
            assert len(slot.waiting) <= self._queue_max, slot.index
            assert slot.lent_to is None or (is_free and slot in slot.lent_to.more), slot.index
            assert not (is_free and slot.more), slot.index
            assert all(one.lent_to is slot for one in slot.more), slot.index
        held = [slot.allocation_id for slot in self._slots if slot.allocation_id is not None]
        assert len(held) == len(set(held)) == len(self._by_allocation), held
        assert not any(allocation_id in self._freed for allocation_id in held), held


def _status(index: int, holder: TaskSlot) -> SlotStatus:
    profile = None if holder.allocation_id is None else holder.profile
    return SlotStatus(index, holder.allocation_id, holder.job_id, profile)
