"""The slots of one TaskManager as the SlotManager sees them.

Invariant: a slot is in exactly one of free, blocked and allocated, or unknown (not reported ready).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.spark_environments import DEFAULT_ENVIRONMENT, EnvironmentSpec, SparkOffer
from runtime.gateways.resource_manager import (
    RegisterTaskManager,
    ResourceProfile,
    SlotReport,
    SlotStatus,
    spark_offer,
)
from runtime.resourcemanager.core.worker_profiles import shares_of

NO_REPORT = SlotReport((), is_warm=False, assigned_tasks=0)
"""Stands for the report of a TaskManager that has sent none yet."""


@dataclass(slots=True)
class Allocation:
    """A slot that is promised to a job, or in use by it. `requested_at` is None once a report has shown it.

    `profile` is None for an allocation that only the report of an older TaskManager tells of. `more_slots` are further
    ones of the TaskManager that a large request takes (D-141): nothing runs there, and they come and go with it.
    """

    allocation_id: AllocationId
    incarnation: Incarnation
    slot_index: int
    job_id: JobId
    profile: ResourceProfile | None
    requested_at: float | None
    environment: EnvironmentSpec = DEFAULT_ENVIRONMENT
    """The Spark environment that its tasks need."""
    queue: str = ""
    """The queue that it counts for, from its first counting on."""
    since: float = 0.0
    """When it was requested, or seen first."""
    preempted_for: str = ""
    """The queue for which its slot was asked back last, "" if the slot does not come."""
    ask_again_at: float = -math.inf
    """From then on its slot may be asked back."""
    more_slots: tuple[int, ...] = ()

    @property
    def slots(self) -> tuple[int, ...]:
        """All its slots."""
        return (self.slot_index, *self.more_slots)

    @property
    def shares(self) -> int:
        """How many slots it takes."""
        return 1 + len(self.more_slots)


@dataclass(slots=True)
class TaskManagerSlots:
    """The slots of one registered TaskManager. `free` begins with the slot that is idle longest.

    `allocated` has an allocation at each of its slots. `blocked` holds refused slots, each until a
    moment (monotonic seconds).
    """

    registration: RegisterTaskManager
    report: SlotReport = NO_REPORT
    """The last one."""
    is_first_report: bool = True
    is_connected: bool = True
    offer: SparkOffer = field(init=False)
    """What its Spark can be for a job."""
    tenant: str = ""
    """The namespace that it serves, "" if it may be any; of one that serves all at once always ""."""
    claim: str = ""
    """The namespace that waits for it: only jobs that have had slots here get any meanwhile."""
    is_kept: bool = False
    """It has just refused to serve another namespace: jobs of its tenant are still there."""
    is_promised: bool = False
    """R50: it was made anew for its tenant, and no job of that namespace has had a slot here since."""
    present: set[JobId] = field(default_factory=set)
    """Jobs that have had slots here and are not over."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Of allocations, of all TaskManagers together."""
    uses: int = 0
    """The number of the last allocation: one that has come and gone between two looks shows here."""
    free: dict[int, None] = field(default_factory=dict)
    blocked: dict[int, float] = field(default_factory=dict)
    allocated: dict[int, Allocation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.offer = spark_offer(self.registration)

    def registered_again(self, registration: RegisterTaskManager) -> None:
        """The TaskManager has a new stream. Its free slots are not known before the first report there."""
        self.registration = registration
        self.offer = spark_offer(registration)
        self.is_connected = True
        self.is_first_report = True
        self.free.clear()
        self.blocked.clear()

    @property
    def incarnation(self) -> Incarnation:
        """The process."""
        return self.registration.incarnation

    @property
    def slots_total(self) -> int:
        """Slots that were reported ready or are in use."""
        return len(self.free) + len(self.blocked) + len(self.allocated)

    @property
    def is_idle(self) -> bool:
        """True if no slot is promised or in use."""
        return not self.allocated

    @property
    def allocations(self) -> list[Allocation]:
        """Each once."""
        return [one for index, one in self.allocated.items() if index == one.slot_index]

    def shares_for(self, required: ResourceProfile) -> int:
        """How many of its slots a request takes; 0 for one that it can never hold."""
        return shares_of(self.registration.slot_profile, self.registration.slots, required)

    def has_room_in_slots(self, required: ResourceProfile) -> bool:
        """True if so many slots are free."""
        return bool(self.free) and len(self.free) >= self.shares_for(required) > 0

    def next_free(self, shares: int) -> tuple[int, ...]:
        """The free slots that are idle longest, by number. There must be so many."""
        return tuple(sorted(islice(self.free, shares)))

    @property
    def rank(self) -> tuple[float, bool, int]:
        """Where to allocate next, lowest first: spread by the share of slots in use, then warm ones."""
        return (len(self.allocated) / max(1, self.slots_total), not self.report.is_warm, self.report.assigned_tasks)

    def has_room_for(self, environment: EnvironmentSpec) -> bool:
        """True if a task with this environment would find it here, or room for it: unused ones give way."""
        if environment.is_default:
            return True
        used = {one.key: one.memory_bytes for one in self.report.environments if one.users}
        used |= {one.environment.key: one.environment.memory_bytes for one in self.allocated.values()}
        used.pop(DEFAULT_ENVIRONMENT.key, None)
        return environment.key in used or self.offer.has_room_beside(used.values(), environment.memory_bytes)

    def has_started(self, environment: EnvironmentSpec) -> bool:
        """True if the environment is there already."""
        return environment.is_default or any(one.key == environment.key for one in self.report.environments)

    def has_for(self, job_id: JobId, required: ResourceProfile) -> bool:
        """True if the slots of such a request are free, or some belong to the job already."""
        return self.has_room_in_slots(required) or any(one.job_id == job_id for one in self.allocated.values())

    def take(self, allocation: Allocation) -> None:
        """Put an allocation on its slot."""
        for index in allocation.slots:
            self.free.pop(index, None)
            self.blocked.pop(index, None)
            self.allocated[index] = allocation
        self.uses = next(self.numbers)
        self.is_promised = False
        if self.registration.has_tenants:
            self.present.add(allocation.job_id)

    def release(self, allocation: Allocation) -> None:
        """The allocation has ended, and its slot is free."""
        for index in self._let_go(allocation):
            self.free[index] = None

    def _let_go(self, allocation: Allocation) -> list[int]:
        """Its slots, which it has no more."""
        own = [index for index in allocation.slots if self.allocated.get(index) is allocation]
        for index in own:
            del self.allocated[index]
        return own

    def block(self, allocation: Allocation, until: float) -> None:
        """The TaskManager has refused the slot: allocate it to no job until a moment, or until a report shows it."""
        for index in self._let_go(allocation):
            self.blocked[index] = until

    def keep_tenant(self, refused: JobId) -> None:
        """R50: it does not serve this job, of another namespace: some job of its tenant has to go on before."""
        self.is_kept = True
        self.claim = ""
        self.present.discard(refused)

    def unblock(self, at: float) -> bool:
        """Free the refused slots whose time is over. True if there was one."""
        due = [index for index, until in self.blocked.items() if until <= at]
        for index in due:
            del self.blocked[index]
            self.free[index] = None
        return bool(due)

    def reconcile(
        self, report: SlotReport, *, overdue_before: float
    ) -> tuple[list[Allocation], list[Sequence[SlotStatus]]]:
        """Believe a report. Returns (allocations that have ended, those that were not known, with all their slots).

        A report may have crossed a request on the way, so a requested allocation that the report does not show stays,
        unless this is the first report of a stream (what was sent on an older stream is undelivered, R11) or the
        request was sent before `overdue_before`.
        """
        ended: list[Allocation] = []
        found: dict[AllocationId, list[SlotStatus]] = {}
        reported = {status.slot_index: status for status in report.slots}
        shown = Counter(status.allocation_id for status in report.slots)
        for allocation in self.allocations:
            statuses = [reported.get(index) for index in allocation.slots]
            names = {None if status is None else status.allocation_id for status in statuses}
            if names == {allocation.allocation_id} and shown[allocation.allocation_id] == allocation.shares:
                allocation.requested_at = None
            elif not all(self._may_have_crossed(allocation, status, overdue_before) for status in statuses):
                self._let_go(allocation)
                ended.append(allocation)
        for index in list(self.free) + list(self.blocked):
            if index not in reported:
                self.free.pop(index, None)
                self.blocked.pop(index, None)
        for index, status in reported.items():
            if index in self.allocated:
                continue
            if status.allocation_id is None:
                self.blocked.pop(index, None)
                self.free.setdefault(index)
            elif status.job_id is not None:
                found.setdefault(status.allocation_id, []).append(status)
        self.is_first_report = False
        self.report = report
        self._note_tenant(report.tenant, has_slots=bool(report.slots))
        return ended, list(found.values())

    def _note_tenant(self, tenant: str, *, has_slots: bool) -> None:
        """Believe the tenant of a report. A report without a tenant may have crossed the first request on the way."""
        before, self.tenant = self.tenant, tenant or (self.tenant if self.allocated else "")
        if self.tenant != before:
            self.is_promised = bool(self.tenant) and (bool(before) or not has_slots)
        if self.claim == self.tenant:
            self.claim = ""

    def _may_have_crossed(self, allocation: Allocation, status: SlotStatus | None, overdue_before: float) -> bool:
        if self.is_first_report or allocation.requested_at is None or allocation.requested_at < overdue_before:
            return False
        return status is not None and status.allocation_id is None

    def statuses(self) -> Iterator[SlotStatus]:
        """The allocated slots, by index."""
        for index, allocation in sorted(self.allocated.items()):
            yield SlotStatus(index, allocation.allocation_id, allocation.job_id, allocation.profile)


def can_hold(registration: RegisterTaskManager, required: ResourceProfile) -> bool:
    """True if a TaskManager with this registration can serve `required`."""
    return shares_of(registration.slot_profile, registration.slots, required) > 0
