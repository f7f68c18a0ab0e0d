"""A slot that a TaskManager keeps for the last owner of a job does not count for an owner that cannot reach it (R7)."""

from __future__ import annotations

import pytest

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.gateways.resource_manager import (
    JobRequirements,
    RegisterTaskManager,
    ResourceProfile,
    ResourceRequirement,
    SlotReport,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager

FENCED, OTHER, OWNER = (Incarnation(letter * 32) for letter in "abc")
JOB = JobId("1" * 32)
KEPT = SlotStatus(0, AllocationId("e" * 32), JOB)
ANY = ResourceProfile()


class Resources:
    """A SlotManager with one slot on each of two TaskManagers."""

    def __init__(self) -> None:
        self.manager = SlotManager(
            lambda: AllocationId("f" * 32), lambda *_: True, request_timeout=10.0, round_seconds=2.0
        )
        for incarnation in (FENCED, OTHER):
            registration = RegisterTaskManager(
                incarnation, "tm", "h:1", "h:2", "boot", "v", 1, 1, ANY, False, b"{}", 2, 0
            )
            self.handle(ev.TaskManagerRegistered(registration))
        self.report(OTHER, SlotStatus(0, None, None))

    def handle(self, event: ev.SlotManagerEvent) -> list[Incarnation]:
        """The TaskManagers that are asked for a slot."""
        effects = self.manager.handle(event, 100.0)
        return [effect.incarnation for effect in effects if isinstance(effect, ev.SendRequestSlot)]

    def report(self, incarnation: Incarnation, *slots: SlotStatus) -> list[Incarnation]:
        return self.handle(ev.SlotsReported(incarnation, SlotReport(slots, is_warm=True, assigned_tasks=0)))

    def declare(self, *unreachable: Incarnation) -> list[Incarnation]:
        needs = (ResourceRequirement(ANY, 1),)
        declared = JobRequirements(JOB, 6, needs, unreachable, static_conf=b"", needs_spark=False)
        return self.handle(ev.RequirementsDeclared(declared, OWNER, "owner:1"))


@pytest.mark.parametrize("is_reported_first", [True, False])
def test_another_slot_is_asked_for(*, is_reported_first: bool) -> None:
    resources = Resources()
    asked = resources.report(FENCED, KEPT) if is_reported_first else []
    asked += resources.declare(FENCED)
    asked += resources.report(FENCED, KEPT)
    assert asked == [OTHER]


def test_it_counts_for_an_owner_that_has_heard_of_it() -> None:
    resources = Resources()
    resources.report(FENCED, KEPT)
    assert resources.declare() == []
    assert resources.report(FENCED, SlotStatus(0, None, None)) != [], "until it is freed"
