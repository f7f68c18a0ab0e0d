"""The SlotManager against a small world of TaskManagers that do what they are asked, refuse, restart and vanish."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.gateways.resource_manager import (
    JobRequirements,
    RegisterTaskManager,
    RequestSlot,
    ResourceProfile,
    ResourceRequirement,
    SlotReport,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager

PEERS = [Incarnation(f"{n:032x}") for n in range(3)]
JOBS = [JobId(f"{n:032x}") for n in range(4)]
SLOTS = 3


class SlotManagerMachine(RuleBasedStateMachine):
    """`real` is what the TaskManagers have, `inbox` what is on its way to them."""

    def __init__(self) -> None:
        super().__init__()
        ids = itertools.count(1)
        self.manager = SlotManager(lambda: AllocationId(f"{next(ids):032x}"), request_timeout=10.0)
        self.at = 0.0
        self.real: dict[Incarnation, list[RequestSlot | None]] = {}
        self.inbox: dict[Incarnation, list[RequestSlot]] = {}
        self.wanted: dict[JobId, int] = {}
        self.seen: set[AllocationId] = set()

    def handle(self, event: ev.SlotManagerEvent) -> None:
        for effect in self.manager.handle(event, self.at):
            if isinstance(effect, ev.SendRequestSlot):
                assert effect.message.allocation_id not in self.seen
                self.seen.add(effect.message.allocation_id)
                self.inbox[effect.incarnation].append(effect.message)

    def report(self, peer: Incarnation) -> None:
        statuses = tuple(
            SlotStatus(index, held.allocation_id if held else None, held.job_id if held else None)
            for index, held in enumerate(self.real[peer])
        )
        self.handle(ev.SlotsReported(peer, SlotReport(statuses, True, 0)))

    @rule(peer=st.sampled_from(PEERS))
    def register(self, peer: Incarnation) -> None:
        registration = RegisterTaskManager(
            peer, "tm", "h:1", "h:2", "boot", "v", 1, SLOTS, ResourceProfile(), False, b"{}", 2, 0
        )
        self.inbox[peer] = []
        self.real.setdefault(peer, [None] * SLOTS)
        self.handle(ev.TaskManagerRegistered(registration))
        self.report(peer)

    @rule(peer=st.sampled_from(PEERS), is_willing=st.booleans())
    def deliver(self, peer: Incarnation, is_willing: bool) -> None:
        if not self.inbox.get(peer):
            return
        request = self.inbox[peer].pop(0)
        if is_willing and self.real[peer][request.slot_index] is None:
            self.real[peer][request.slot_index] = request
        else:
            self.handle(ev.AllocationRefused(peer, request.allocation_id, request.slot_index))

    @rule(peer=st.sampled_from(PEERS), slot=st.integers(0, SLOTS - 1))
    def free(self, peer: Incarnation, slot: int) -> None:
        held = self.real.get(peer, [None] * SLOTS)[slot]
        if held is not None:
            self.real[peer][slot] = None
            self.handle(ev.AllocationsFreed(peer, (held.allocation_id,)))

    @rule(peer=st.sampled_from(PEERS))
    def report_again(self, peer: Incarnation) -> None:
        if peer in self.real:
            self.report(peer)

    @rule(peer=st.sampled_from(PEERS))
    def lose(self, peer: Incarnation) -> None:
        if self.real.pop(peer, None) is not None:
            self.inbox[peer] = []
            self.handle(ev.TaskManagerDisconnected(peer))
            self.handle(ev.TaskManagerLost(peer))

    @rule(job_id=st.sampled_from(JOBS), count=st.integers(0, 5))
    def declare(self, job_id: JobId, count: int) -> None:
        self.wanted[job_id] = count
        needs = (ResourceRequirement(ResourceProfile(), count),)
        self.handle(ev.RequirementsDeclared(JobRequirements(job_id, 1, needs, ()), PEERS[0], "owner:1"))

    @rule(job_id=st.sampled_from(JOBS))
    def finish(self, job_id: JobId) -> None:
        self.wanted[job_id] = 0
        self.handle(ev.JobsFinished((job_id,)))

    @rule()
    def tick(self) -> None:
        self.at += 1.0
        self.handle(ev.Ticked())

    @invariant()
    def slots_are_counted_once(self) -> None:
        for peer in self.manager.task_managers():
            groups = [set(peer.free), set(peer.blocked), set(peer.allocated)]
            assert sum(map(len, groups)) == len(set().union(*groups)) == SLOTS
            for index, allocation in peer.allocated.items():
                assert self.manager._allocations[allocation.allocation_id] is allocation
                assert allocation.slot_index == index
        held = sum(len(peer.allocated) for peer in self.manager.task_managers())
        assert held == len(self.manager._allocations)

    @invariant()
    def counts_of_jobs_agree_with_allocations(self) -> None:
        for job_id in JOBS:
            needs = self.manager.job(job_id)
            if needs is not None:
                actual = [a for a in self.manager._allocations.values() if a.job_id == job_id]
                assert sum(needs.held.values()) == len(actual)
                assert all(count >= 0 for count in needs.held.values())

    @invariant()
    def nobody_waits_beside_a_free_slot(self) -> None:
        free = any(peer.free for peer in self.manager.task_managers())
        assert not (free and self.manager._rotation)
        for job_id, count in self.wanted.items():
            needs = self.manager.job(job_id)
            held = sum(needs.held.values()) if needs is not None else 0
            assert (job_id in self.manager._rotation) == (held < count)


TestSlotManagerModel = SlotManagerMachine.TestCase
TestSlotManagerModel.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
