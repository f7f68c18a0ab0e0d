"""Shares of slots against a model: what holds of queues whatever jobs come, end, and are lost with their machines."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.shares import JobShare, QueueSettings
from runtime.gateways.resource_manager import (
    JobRequirements,
    RegisterTaskManager,
    ResourceProfile,
    ResourceRequirement,
    SlotReport,
    SlotsFreed,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager
from tests.kit.control_plane.rotation import Rotation

JOBS = [JobId(f"{n:032x}") for n in range(12)]
PEERS = [Incarnation(f"{n:032x}") for n in range(100, 103)]
NAMES = ("etl", "reports", "adhoc", "late")
SLOTS = 3
OWNER = Incarnation("c" * 32)
SETTINGS = st.builds(
    lambda weight, low, more, running: QueueSettings(weight, low, None if more is None else low + more, running),
    st.sampled_from([0.5, 1.0, 2.0, 5.0]),
    st.integers(0, 2),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 3),
)


class QueuesMachine(RuleBasedStateMachine):
    """`manager` has queues. Each job wants slots of one kind, so that only shares decide, or of one that nobody has."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self.ids = itertools.count(1)
        self.shares: dict[JobId, JobShare] = {}
        self.wanted: Counter[JobId] = Counter()
        self.unfit: set[JobId] = set()
        """Jobs that want slots larger than there are."""
        self.held: dict[Incarnation, list[tuple[AllocationId, JobId] | None]] = {}
        self.turns_missed: Counter[str] = Counter()

    @initialize(queues=st.dictionaries(st.sampled_from(NAMES[:3]), SETTINGS), priorities=st.lists(st.integers(-1, 1)))
    def begin(self, queues: dict[str, QueueSettings], priorities: list[int]) -> None:
        self.settings = queues
        given = itertools.cycle(priorities or [0])
        self.shares = {one: JobShare(NAMES[n % len(NAMES)], next(given)) for n, one in enumerate(JOBS)}
        self.manager = self.new_manager()

    def new_manager(self) -> SlotManager:
        return SlotManager(
            lambda: AllocationId(f"{next(self.ids):032x}"),
            lambda *_: True,
            share_of=self.shares.__getitem__,
            queues=self.settings,
            request_timeout=10.0,
            round_seconds=2.0,
        )

    # --- what the model knows -----------------------------------------------------------------------------

    def of(self, queue: str) -> QueueSettings:
        return self.settings.get(queue, QueueSettings())

    def slots_by_job(self) -> Counter[JobId]:
        return Counter(one[1] for slots in self.held.values() for one in slots if one is not None)

    def slots_by_queue(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for job_id, count in self.slots_by_job().items():
            found[self.shares[job_id].queue] += count
        return found

    def candidates(self) -> dict[str, list[JobId]]:
        """The jobs of each queue that may get a slot now."""
        by_job, by_queue = self.slots_by_job(), self.slots_by_queue()
        found: dict[str, list[JobId]] = {}
        for job_id, share in self.shares.items():
            queue, limits = share.queue, self.of(share.queue)
            running = sum(1 for one in by_job if self.shares[one].queue == queue)
            is_begun = by_job[job_id] > 0
            if self.wanted[job_id] <= by_job[job_id] or job_id in self.manager._paused or job_id in self.unfit:
                continue
            if limits.max_slots is not None and by_queue[queue] >= limits.max_slots:
                continue
            if limits.max_running_jobs is not None and running >= limits.max_running_jobs and not is_begun:
                continue
            found.setdefault(queue, []).append(job_id)
        return found

    def ratio(self, queue: str) -> tuple[bool, float]:
        limits, held = self.of(queue), self.slots_by_queue()[queue]
        if held < limits.min_slots:
            return False, held / limits.min_slots
        return True, held / limits.weight

    def handle(self, event: ev.SlotManagerEvent) -> None:
        for effect in self.manager.handle(event, self.at):
            if isinstance(effect, ev.SendRequestSlot):
                self.granted(effect)

    def granted(self, effect: ev.SendRequestSlot) -> None:
        """Each slot in its turn: the right queue, within it the right priority."""
        request, may_get = effect.message, self.candidates()
        chosen = self.shares[request.job_id]
        assert request.job_id in may_get.get(chosen.queue, []), "within its limits"
        best = min(map(self.ratio, may_get))
        assert self.ratio(chosen.queue) == best, "the queue with the least of its share"
        assert chosen.priority == max(self.shares[one].priority for one in may_get[chosen.queue])
        for queue in may_get:
            is_equal = queue != chosen.queue and self.ratio(queue) == best
            self.turns_missed[queue] = self.turns_missed[queue] + 1 if is_equal else 0
            weights = sum(self.of(other).weight for other in NAMES) / self.of(queue).weight
            assert self.turns_missed[queue] <= 2 * weights + len(NAMES), "no queue starves among its equals"
        assert self.held[effect.incarnation][request.slot_index] is None
        self.held[effect.incarnation][request.slot_index] = request.allocation_id, request.job_id

    # --- what happens -------------------------------------------------------------------------------------

    @rule(peer=st.sampled_from(PEERS))
    def register(self, peer: Incarnation) -> None:
        if peer in self.held:
            return
        self.held[peer] = [None] * SLOTS
        registration = RegisterTaskManager(
            peer, "tm", "h:1", "h:2", "boot", "v", 1, SLOTS, ResourceProfile(), False, b"{}", 2, 0
        )
        self.handle(ev.TaskManagerRegistered(registration))
        self.report(peer)

    def report(self, peer: Incarnation) -> None:
        statuses = tuple(
            SlotStatus(index, held[0] if held else None, held[1] if held else None)
            for index, held in enumerate(self.held[peer])
        )
        self.handle(ev.SlotsReported(peer, SlotReport(statuses, True, 0)))

    @rule(peer=st.sampled_from(PEERS))
    def lose(self, peer: Incarnation) -> None:
        if self.held.pop(peer, None) is not None:
            self.handle(ev.TaskManagerLost(peer))

    @rule(job_id=st.sampled_from(JOBS), count=st.integers(1, 6))
    def declare_what_fits_nowhere(self, job_id: JobId, count: int) -> None:
        if not self.slots_by_job()[job_id]:
            self.unfit.add(job_id)
            self.declare(job_id, count)

    @rule(job_id=st.sampled_from(JOBS), count=st.integers(0, 6))
    def declare_what_fits(self, job_id: JobId, count: int) -> None:
        self.unfit.discard(job_id)
        self.declare(job_id, count)

    @rule(number=st.integers(0, 8), times=st.integers(10, 40))
    def tasks_come_and_go(self, number: int, times: int) -> None:
        """A slot is freed again and again, while a job of each queue that has one wants more."""
        places = [(peer, slot) for peer, slots in self.held.items() for slot, one in enumerate(slots) if one]
        if not places:
            return
        peer, slot = places[number % len(places)]
        for _ in range(times):
            held = self.held[peer][slot]
            if held is None:
                return
            if self.wanted[held[1]]:
                self.wanted[held[1]] += 1
            self.end_task(peer, slot)

    def declare(self, job_id: JobId, count: int) -> None:
        self.wanted[job_id] = count
        profile = ResourceProfile(memory_bytes=1 << 40 if job_id in self.unfit else 0)
        needs = (ResourceRequirement(profile, count),) if count else ()
        self.handle(ev.RequirementsDeclared(JobRequirements(job_id, 5, needs, ()), OWNER, "owner:1"))

    @rule(peer=st.sampled_from(PEERS), slot=st.integers(0, SLOTS - 1))
    def end_task(self, peer: Incarnation, slot: int) -> None:
        """A task ends: its job wants one slot less, and gives this one back."""
        held = self.held.get(peer, [None] * SLOTS)[slot]
        if held is None:
            return
        self.at += 2.0
        if self.wanted[held[1]]:
            self.declare(held[1], self.wanted[held[1]] - 1)
        self.held[peer][slot] = None
        self.handle(ev.AllocationsFreed(peer, SlotsFreed((held[0],))))

    @rule()
    def next_leader(self) -> None:
        """Another leader knows what is stored, and what is reported and declared to it."""
        self.manager = self.new_manager()
        for peer in self.held:
            registration = RegisterTaskManager(
                peer, "tm", "h:1", "h:2", "boot", "v", 1, SLOTS, ResourceProfile(), False, b"{}", 2, 0
            )
            self.manager.handle(ev.TaskManagerRegistered(registration), self.at)
            self.report(peer)
        for job_id, count in list(self.wanted.items()):
            self.declare(job_id, count)

    # --- what holds ---------------------------------------------------------------------------------------

    @invariant()
    def nobody_waits_beside_a_free_slot(self) -> None:
        if any(slot is None for slots in self.held.values() for slot in slots):
            assert not self.candidates()

    @invariant()
    def queues_are_counted(self) -> None:
        by_job, by_queue = self.slots_by_job(), self.slots_by_queue()
        there = {one.name: one for one in self.manager.queues()}
        for name in NAMES:
            status, waiting = there.get(name), [one for one in self.manager._queues if self.shares[one].queue == name]
            running = [one for one in by_job if self.shares[one].queue == name]
            if status is None:
                assert not waiting
                assert not running
            else:
                assert (status.held, status.running_jobs) == (by_queue[name], len(running))
                assert status.waiting_jobs == len(waiting)

    @invariant()
    def a_job_that_waits_has_a_place(self) -> None:
        for job_id in self.manager._queues:
            assert self.manager.shown_waiting(job_id), job_id


class OneQueueMachine(RuleBasedStateMachine):
    """One queue without priorities and limits does exactly what round robin over all jobs did."""

    def __init__(self) -> None:
        super().__init__()
        self.managers = [self.new(), self.new()]
        self.managers[1]._queues = Rotation()  # type: ignore[assignment]
        self.held: dict[AllocationId, tuple[Incarnation, JobId]] = {}
        self.at = 0.0

    def new(self) -> SlotManager:
        ids = itertools.count(1)
        return SlotManager(
            lambda: AllocationId(f"{next(ids):032x}"), lambda *_: True, request_timeout=10.0, round_seconds=2.0
        )

    def handle(self, event: ev.SlotManagerEvent) -> None:
        effects: list[list[Any]] = [list(one.handle(event, self.at)) for one in self.managers]
        assert effects[0] == effects[1]
        for effect in effects[0]:
            if isinstance(effect, ev.SendRequestSlot):
                self.held[effect.message.allocation_id] = effect.incarnation, effect.message.job_id

    @rule(peer=st.sampled_from(PEERS), memory=st.sampled_from([0, 1 << 30]))
    def register(self, peer: Incarnation, memory: int) -> None:
        profile = ResourceProfile(memory_bytes=memory)
        registration = RegisterTaskManager(peer, "tm", "h:1", "h:2", "boot", "v", 1, SLOTS, profile, False, b"{}", 2, 0)
        self.held = {key: one for key, one in self.held.items() if one[0] != peer}
        self.handle(ev.TaskManagerLost(peer))
        self.handle(ev.TaskManagerRegistered(registration))
        report = SlotReport(tuple(SlotStatus(index, None, None) for index in range(SLOTS)), True, 0)
        self.handle(ev.SlotsReported(peer, report))

    @rule(job_id=st.sampled_from(JOBS), count=st.integers(0, 5), memory=st.sampled_from([0, 1 << 30]))
    def declare(self, job_id: JobId, count: int, memory: int) -> None:
        needs = (ResourceRequirement(ResourceProfile(memory_bytes=memory), count),)
        self.handle(ev.RequirementsDeclared(JobRequirements(job_id, 5, needs, ()), OWNER, "owner:1"))

    @rule(number=st.integers(0, 8), seconds=st.sampled_from([0.1, 2.0]))
    def free(self, number: int, seconds: float) -> None:
        if self.held:
            self.at += seconds
            allocation = list(self.held)[number % len(self.held)]
            peer, _ = self.held.pop(allocation)
            self.handle(ev.AllocationsFreed(peer, SlotsFreed((allocation,))))

    @rule(job_id=st.sampled_from(JOBS))
    def finish(self, job_id: JobId) -> None:
        self.handle(ev.JobsFinished((job_id,)))

    @rule()
    def tick(self) -> None:
        self.at += 1.0
        self.handle(ev.Ticked())


_SETTINGS = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestQueuesModel = QueuesMachine.TestCase
TestQueuesModel.settings = _SETTINGS
TestOneQueueModel = OneQueueMachine.TestCase
TestOneQueueModel.settings = _SETTINGS
