"""The slots a job holds: what runs in each, what waits there, and how far ahead of it to deploy.

Invariants: a slot holds attempts of one vertex at a time, at most one that runs plus AHEAD_MAX that wait; a slot serves
one slot sharing group, from its first attempt on; an attempt is in at most one slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, VertexId
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import SlotOffer
from runtime.gateways.task import ResourceProfile

AHEAD_MAX = 8
"""How many attempts may wait in an ACTIVE slot (semantics.md, Slots and scheduling)."""

AHEAD_SECONDS = 0.02
"""Seconds of work that may wait in a slot: enough to hide the round trip of short tasks, and no more."""


@dataclass(frozen=True, slots=True)
class SlotKind:
    """The profile and sharing group that a vertex needs. Slots of one kind are interchangeable."""

    profile: ResourceProfile
    group: str


class ActiveSlot:
    """One accepted slot."""

    __slots__ = (
        "allocation_id",
        "attempts",
        "busy_since",
        "index",
        "is_closed",
        "kind",
        "location",
        "profile",
        "vertex_id",
    )

    def __init__(self, offer: SlotOffer, location: TaskManagerLocation) -> None:
        self.allocation_id = offer.allocation_id
        self.index = offer.slot_index
        self.profile = offer.profile
        self.location = location
        self.kind: SlotKind | None = None
        self.vertex_id: VertexId | None = None
        self.attempts: dict[ExecutionAttemptId, None] = {}
        self.busy_since = 0.0
        self.is_closed = False
        """True once nothing more may be deployed here."""

    @property
    def is_idle(self) -> bool:
        """True when nothing runs or waits here."""
        return not self.attempts

    def fits(self, kind: SlotKind) -> bool:
        """True if attempts of that kind may run here: with the profile that the slot was asked for with (D-141)."""
        return self.profile == kind.profile and (self.kind is None or self.kind == kind)


class SlotPool:
    """All slots of one job."""

    __slots__ = ("_ahead", "_idle", "_slot_of", "_slots")

    def __init__(self) -> None:
        self._slots: dict[AllocationId, ActiveSlot] = {}
        self._idle: dict[AllocationId, ActiveSlot] = {}
        self._slot_of: dict[ExecutionAttemptId, ActiveSlot] = {}
        self._ahead: dict[VertexId, int] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, allocation_id: AllocationId) -> bool:
        return allocation_id in self._slots

    @property
    def busy(self) -> int:
        """How many slots hold attempts."""
        return len(self._slots) - len(self._idle)

    def idle(self) -> list[ActiveSlot]:
        """Slots that hold nothing and may be used, in the order in which they became idle."""
        return [slot for slot in self._idle.values() if not slot.is_closed]

    def spent(self) -> list[ActiveSlot]:
        """Slots that hold nothing and take nothing more."""
        return [slot for slot in self._idle.values() if slot.is_closed]

    def close(self, allocations: Iterable[AllocationId]) -> None:
        """These slots take nothing more. Slots that the job does not hold are ignored."""
        for slot in filter(None, map(self._slots.get, allocations)):
            slot.is_closed = True

    def allocations(self) -> Iterable[ActiveSlot]:
        """All slots that the job holds."""
        return self._slots.values()

    def accept(self, offer: SlotOffer, location: TaskManagerLocation) -> ActiveSlot:
        """Take an offered slot into the pool."""
        assert offer.allocation_id not in self._slots, offer.allocation_id
        slot = ActiveSlot(offer, location)
        self._slots[offer.allocation_id] = self._idle[offer.allocation_id] = slot
        return slot

    def room(self, slot: ActiveSlot) -> int:
        """How many more attempts of the slot's vertex may be deployed into it now."""
        if slot.is_closed:
            return 0
        if slot.vertex_id is None:
            return 1
        return 1 + self._ahead.get(slot.vertex_id, 0) - len(slot.attempts)

    def assign(self, slot: ActiveSlot, attempt_id: ExecutionAttemptId, kind: SlotKind, now: float) -> None:
        """An attempt is deployed into a slot."""
        assert slot.fits(kind), (slot.allocation_id, slot.kind, kind)
        assert slot.is_idle or slot.vertex_id == attempt_id.vertex_id, (slot.allocation_id, attempt_id)
        if slot.is_idle:
            slot.busy_since = now
            self._idle.pop(slot.allocation_id)
        slot.kind = kind
        slot.vertex_id = attempt_id.vertex_id
        slot.attempts[attempt_id] = None
        self._slot_of[attempt_id] = slot

    def ended(self, attempt_id: ExecutionAttemptId, now: float, *, is_endless: bool = False) -> ActiveSlot | None:
        """An attempt is terminal. Returns the slot it leaves, and learns how long one takes.

        `is_endless`: of a streaming query. However soon one has failed, the next would wait behind another for ever.
        """
        slot = self._slot_of.pop(attempt_id, None)
        if slot is None:
            return None
        del slot.attempts[attempt_id]
        took = now - slot.busy_since
        slot.busy_since = now
        if not is_endless:
            self._ahead[attempt_id.vertex_id] = ahead_for(took)
        if slot.is_idle:
            slot.vertex_id = None
            self._idle[slot.allocation_id] = slot
        return slot

    def first_before(self, attempt_id: ExecutionAttemptId) -> ExecutionAttemptId | None:
        """The attempt that runs in the slot in which this one waits; None if it does not wait."""
        slot = self._slot_of.get(attempt_id)
        first = next(iter(slot.attempts)) if slot is not None else attempt_id
        return None if first == attempt_id else first

    def begun(self, attempt_id: ExecutionAttemptId) -> float | None:
        """Since when (monotonic seconds) an attempt could run in its slot; None while it waits there."""
        slot = self._slot_of.get(attempt_id)
        return None if slot is None or next(iter(slot.attempts)) != attempt_id else slot.busy_since

    def remove(self, allocation_id: AllocationId) -> tuple[ExecutionAttemptId, ...]:
        """A slot is freed or lost. Returns the attempts that were in it."""
        slot = self._slots.pop(allocation_id, None)
        if slot is None:
            return ()
        self._idle.pop(allocation_id, None)
        for attempt_id in slot.attempts:
            del self._slot_of[attempt_id]
        return tuple(slot.attempts)

    def of_task_manager(self, incarnation: Incarnation) -> list[AllocationId]:
        """The slots on one TaskManager."""
        return [slot.allocation_id for slot in self.slots_of(incarnation)]

    def slots_of(self, incarnation: Incarnation) -> list[ActiveSlot]:
        """The slots on one TaskManager, with the attempts in them."""
        return [slot for slot in self._slots.values() if slot.location.incarnation == incarnation]

    def check_invariants(self) -> None:
        """Raises AssertionError when the pool contradicts itself. Linear in the number of attempts in slots."""
        for allocation_id, slot in self._slots.items():
            assert len(slot.attempts) <= 1 + AHEAD_MAX, (allocation_id, len(slot.attempts))
            assert slot.is_idle == (allocation_id in self._idle), allocation_id
            assert {attempt_id.vertex_id for attempt_id in slot.attempts} <= {slot.vertex_id}, allocation_id
            assert all(self._slot_of[attempt_id] is slot for attempt_id in slot.attempts), allocation_id
        assert len(self._slot_of) == sum(len(slot.attempts) for slot in self._slots.values())
        assert self._idle.keys() <= self._slots.keys()


def ahead_for(seconds_per_attempt: float) -> int:
    """How many attempts may wait behind a running one, if one takes that long."""
    if seconds_per_attempt * AHEAD_MAX <= AHEAD_SECONDS:
        return AHEAD_MAX
    return min(AHEAD_MAX, int(AHEAD_SECONDS / seconds_per_attempt))
