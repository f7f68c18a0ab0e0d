"""The SlotManager against a small world of TaskManagers that do what they are asked, refuse, restart and vanish."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass

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
    SlotRequestRefused,
    SlotsFreed,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import SlotManager
from runtime.resourcemanager.core.slots import Allocation

JOBS = [JobId(f"{n:032x}") for n in range(4)]
SLOTS = 3
SMALL, LARGE = ResourceProfile(), ResourceProfile(memory_bytes=1 << 30)
DOUBLE = ResourceProfile(memory_bytes=2 << 30)
"""Two slots of one TaskManager (D-141)."""


@dataclass(frozen=True)
class Kind:
    """A TaskManager: what its slots hold, and the conf of its Spark (None: it has none)."""

    profile: ResourceProfile
    conf: dict[str, str] | None


@dataclass(frozen=True)
class Wish:
    """What a job asks of each slot."""

    profile: ResourceProfile = SMALL
    conf: tuple[tuple[str, str], ...] = ()
    needs_spark: bool = False
    unreachable: frozenset[Incarnation] = frozenset()


KINDS = [Kind(SMALL, None), Kind(LARGE, {"spark.executor.memory": "1g"}), Kind(SMALL, {})]
PEERS = {Incarnation(f"{n:032x}"): kind for n, kind in enumerate(KINDS)}
IDS = list(PEERS)
MEMORY = (("spark.executor.memory", "1024m"),)
WISHES = [
    Wish(),
    Wish(),
    Wish(LARGE),
    Wish(DOUBLE),
    Wish(needs_spark=True),
    Wish(conf=MEMORY, needs_spark=True),
    Wish(unreachable=frozenset(IDS[:1])),
]


class SlotManagerMachine(RuleBasedStateMachine):
    """`real` is what the TaskManagers have, `inbox` what is on its way to them, `wanted` what jobs have declared."""

    def __init__(self) -> None:
        super().__init__()
        ids = itertools.count(1)
        self.manager = SlotManager(
            lambda: AllocationId(f"{next(ids):032x}"), lambda *_: True, request_timeout=10.0, round_seconds=2.0
        )
        self.at = 0.0
        self.real: dict[Incarnation, list[RequestSlot | None]] = {}
        self.connected: set[Incarnation] = set()
        self.inbox: dict[Incarnation, list[RequestSlot]] = {}
        self.wanted: dict[JobId, tuple[Wish, int]] = {}
        self.epochs: dict[JobId, int] = {}
        self.seen: set[AllocationId] = set()
        self.deaf: dict[tuple[JobId, int, Incarnation], float] = {}

    def handle(self, event: ev.SlotManagerEvent) -> None:
        waiting = set(self.manager._queues)
        granted: Counter[JobId] = Counter()
        for effect in self.manager.handle(event, self.at):
            if isinstance(effect, ev.SendRequestSlot):
                message = effect.message
                assert message.allocation_id not in self.seen
                assert message.epoch == self.epochs[message.job_id], "the owner's epoch (R7)"
                assert self.serves(effect.incarnation, self.wanted[message.job_id][0])
                assert 1 + len(message.more_slots) == self.shares(self.wanted[message.job_id][0])
                assert (message.job_id, message.epoch, effect.incarnation) not in self.deaf, "R7"
                self.seen.add(message.allocation_id)
                self.inbox[effect.incarnation].append(message)
                granted[message.job_id] += 1
            elif isinstance(effect, ev.OwnerCutOff):
                assert effect.epoch == self.epochs[effect.job_id]
                assert effect.job_id in waiting, "it lacks something (R7)"
        self.deaf = {key: until for key, until in self.deaf.items() if self.manager.job(key[0]) is not None}
        self.check_fairness(waiting & set(self.manager._queues), granted)

    def check_fairness(self, waiting: set[JobId], granted: Counter[JobId]) -> None:
        """Of jobs with the same wish that waited before and still wait, none got two slots more than another.

        Those that some TaskManager is skipped for have less to wait for.
        """
        groups: dict[Wish, list[int]] = {}
        for job_id in waiting - {job_id for job_id, _, _ in self.deaf}:
            groups.setdefault(self.wanted[job_id][0], []).append(granted[job_id])
        for counts in groups.values():
            assert max(counts) - min(counts) <= 1, counts

    def serves(self, peer: Incarnation, wish: Wish) -> bool:
        kind = PEERS[peer]
        if peer not in self.connected or peer in wish.unreachable:
            return False
        if SLOTS * kind.profile.memory_bytes < wish.profile.memory_bytes:
            return False
        if wish.conf:
            return bool(kind.conf)
        has_spark = any(PEERS[one].conf is not None for one in self.real)
        return kind.conf is not None or not (wish.needs_spark and has_spark)

    def shares(self, wish: Wish) -> int:
        return 2 if wish.profile == DOUBLE else 1

    def slots_of(self, request: RequestSlot) -> tuple[int, ...]:
        return (request.slot_index, *request.more_slots)

    def is_free(self, peer: Incarnation, request: RequestSlot) -> bool:
        return all(self.real[peer][index] is None for index in self.slots_of(request))

    def report(self, peer: Incarnation) -> None:
        statuses = tuple(
            SlotStatus(index, held.allocation_id if held else None, held.job_id if held else None)
            for index, held in enumerate(self.real[peer])
        )
        self.handle(ev.SlotsReported(peer, SlotReport(statuses, True, 0)))

    @rule(peer=st.sampled_from(IDS))
    def register(self, peer: Incarnation) -> None:
        kind = PEERS[peer]
        conf = json.dumps(kind.conf or {}).encode()
        registration = RegisterTaskManager(
            peer, "tm", "h:1", "h:2", "boot", "v", 1, SLOTS, kind.profile, kind.conf is not None, conf, 2, 0
        )
        self.inbox[peer] = []
        self.real.setdefault(peer, [None] * SLOTS)
        self.connected.add(peer)
        self.handle(ev.TaskManagerRegistered(registration))
        self.report(peer)

    @rule(peer=st.sampled_from(IDS), answer=st.sampled_from(["yes", "no", "not for this job"]))
    def deliver(self, peer: Incarnation, answer: str) -> None:
        if not self.inbox.get(peer):
            return
        request = self.inbox[peer].pop(0)
        is_free = self.is_free(peer, request)
        if answer == "yes" and is_free:
            for index in self.slots_of(request):
                self.real[peer][index] = request
            return
        is_slot_free = is_free and answer == "not for this job"
        refusal = SlotRequestRefused(request.allocation_id, request.slot_index, "", is_slot_free=is_slot_free)
        self.handle(ev.AllocationRefused(peer, refusal))

    @rule(peer=st.sampled_from(IDS))
    def deliver_in_vain(self, peer: Incarnation) -> None:
        """The slot is allocated, its job's owner cannot be reached, and it is given up (R7)."""
        if not self.inbox.get(peer) or not self.is_free(peer, self.inbox[peer][0]):
            return
        request = self.inbox[peer].pop(0)
        job_id, allocation_id = request.job_id, request.allocation_id
        if self.manager.job(job_id) is not None and allocation_id in self.manager._allocations:
            self.deaf[job_id, self.epochs[job_id], peer] = self.at + 10.0
        index = request.slot_index
        refusal = SlotRequestRefused(allocation_id, index, "", is_slot_free=True, is_owner_unreachable=True)
        self.handle(ev.AllocationRefused(peer, refusal))
        self.handle(ev.AllocationsFreed(peer, SlotsFreed((allocation_id,))))

    @rule(peer=st.sampled_from(IDS), slot=st.integers(0, SLOTS - 1))
    def free(self, peer: Incarnation, slot: int) -> None:
        held = self.real.get(peer, [None] * SLOTS)[slot]
        if held is not None and peer in self.connected:
            self.real[peer] = [None if one is held else one for one in self.real[peer]]
            self.handle(ev.AllocationsFreed(peer, SlotsFreed((held.allocation_id,))))

    @rule(peer=st.sampled_from(IDS))
    def report_again(self, peer: Incarnation) -> None:
        if peer in self.connected:
            self.report(peer)

    @rule(peer=st.sampled_from(IDS), is_lost=st.booleans())
    def disconnect(self, peer: Incarnation, is_lost: bool) -> None:
        if peer in self.real:
            self.inbox[peer] = []
            self.connected.discard(peer)
            self.handle(ev.TaskManagerDisconnected(peer))
            if is_lost:
                del self.real[peer]
                self.handle(ev.TaskManagerLost(peer))

    @rule(job_id=st.sampled_from(JOBS), count=st.integers(0, 5), wish=st.sampled_from(WISHES), step=st.integers(0, 1))
    def declare(self, job_id: JobId, count: int, wish: Wish, step: int) -> None:
        """By the same owner, or by its successor."""
        self.wanted[job_id] = (wish, count)
        self.epochs[job_id] = self.epochs.get(job_id, 1) + step
        self.send(job_id, self.epochs[job_id], wish, count)

    @rule(job_id=st.sampled_from(JOBS), wish=st.sampled_from(WISHES))
    def declare_late(self, job_id: JobId, wish: Wish) -> None:
        """By an owner that has been replaced (R1)."""
        if self.manager.job(job_id) is not None:
            self.send(job_id, self.epochs[job_id] - 1, wish, 5)

    def send(self, job_id: JobId, epoch: int, wish: Wish, count: int) -> None:
        needs = (ResourceRequirement(wish.profile, count),)
        conf = json.dumps(dict(wish.conf)).encode() if wish.conf else b""
        declared = JobRequirements(job_id, epoch, needs, tuple(wish.unreachable), conf, wish.needs_spark)
        self.handle(ev.RequirementsDeclared(declared, IDS[0], "owner:1"))

    @rule(job_id=st.sampled_from(JOBS))
    def finish(self, job_id: JobId) -> None:
        self.wanted.pop(job_id, None)
        self.handle(ev.JobsFinished((job_id,)))

    @rule()
    def tick(self) -> None:
        self.at += 1.0
        self.deaf = {key: until for key, until in self.deaf.items() if until > self.at}
        self.handle(ev.Ticked())

    def reachable(self, job_id: JobId, unreachable: frozenset[Incarnation]) -> list[Allocation]:
        """What a job holds that is of use to it (R7)."""
        held = [one for one in self.manager._allocations.values() if one.job_id == job_id]
        return [one for one in held if one.incarnation not in unreachable]

    @invariant()
    def slots_are_counted_once(self) -> None:
        for peer in self.manager.task_managers():
            groups = [set(peer.free), set(peer.blocked), set(peer.allocated)]
            assert sum(map(len, groups)) == len(set().union(*groups)) == SLOTS
            for index, allocation in peer.allocated.items():
                assert self.manager._allocations[allocation.allocation_id] is allocation
                assert index in allocation.slots
                assert allocation.incarnation == peer.incarnation
        held = sum(len(peer.allocated) for peer in self.manager.task_managers())
        assert held == sum(one.shares for one in self.manager._allocations.values())
        assert held == sum(queue.held for queue in self.manager._queues.all())

    @invariant()
    def counts_of_jobs_agree_with_allocations(self) -> None:
        for job_id in JOBS:
            needs = self.manager.job(job_id)
            if needs is not None:
                assert sum(needs.held.values()) == len(self.reachable(job_id, needs.reach.named))
                assert all(count >= 0 for count in needs.held.values())

    @invariant()
    def a_job_waits_exactly_while_it_is_short(self) -> None:
        for job_id, (wish, count) in self.wanted.items():
            held = [a.profile for a in self.reachable(job_id, wish.unreachable)]
            is_short = count > held.count(wish.profile) + held.count(None)
            if job_id in self.manager._paused:
                assert job_id not in self.manager._queues
            else:
                assert (job_id in self.manager._queues) == is_short

    @invariant()
    def few_slots_are_kept_and_for_one_job(self) -> None:
        kept = self.manager._matching.kept()
        assert len({one.queue for one in kept}) == len({one.incarnation for one in kept}) == len(kept)
        for one in kept:
            assert one.job_id in self.manager._queues
            peer = self.manager.task_manager(one.incarnation)
            assert peer is not None
            assert len(peer.free) < 2

    @invariant()
    def nobody_waits_beside_a_free_slot(self) -> None:
        kept = {one.incarnation for one in self.manager._matching.kept()}
        for job_id in self.manager._queues:
            for peer in self.manager.task_managers():
                is_deaf = (job_id, self.epochs[job_id], peer.incarnation) in self.deaf
                wish = self.wanted[job_id][0]
                is_enough = len(peer.free) >= self.shares(wish) and peer.incarnation not in kept
                assert is_deaf or not (is_enough and self.serves(peer.incarnation, wish))


TestSlotManagerModel = SlotManagerMachine.TestCase
TestSlotManagerModel.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
