"""Slots that are asked back for queues that wait with less than their share (R64, D-130)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.common.ids import AllocationId
from runtime.common.shares import JobShare, QueueSettings
from runtime.gateways.resource_manager import PreemptionRefused, ResourceProfile, SlotsFreed
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.fair_shares import fair_shares
from runtime.resourcemanager.core.preemption import ASK_AGAIN_SECONDS, ASK_KEPT_AGAIN_SECONDS
from tests.kit.control_plane.slot_requests import T1, job
from tests.unit.resourcemanager.test_queues import Queues

TIMEOUT = 10.0


class Preempting(Queues):
    """Jobs that have lost a slot want another one."""

    preemption_timeout: float | None = TIMEOUT

    def tick(self, seconds: float) -> list[AllocationId]:
        """The slots that are asked back."""
        return self.asked_back(self.cluster.tick(seconds))

    def asked_back(self, effects: list[Any]) -> list[AllocationId]:
        self.took(effects)
        return [
            allocation
            for effect in effects
            if isinstance(effect, ev.SendPreemptSlots)
            for allocation in effect.message.allocations
        ]

    def queues_of(self, allocations: list[AllocationId]) -> list[str]:
        return [self.cluster.shares[self.running[one]].queue for one in allocations]

    def give(self, allocation: AllocationId) -> list[str]:
        """The queues that get the slot. Its job declares anew what it needs, since the slot that it had is gone."""
        self.cluster.at += 2.0
        job_id = self.running.pop(allocation)
        self.cluster.declare(int(job_id, 16), 1)
        freed = ev.AllocationsFreed(self.peers[allocation], SlotsFreed((allocation,)))
        return self.took(self.cluster.handle(freed))

    def refuse(self, *allocations: AllocationId) -> list[AllocationId]:
        kept = ev.SlotsKept(self.peers[allocations[0]], PreemptionRefused(allocations))
        return self.asked_back(self.cluster.handle(kept))


def test_a_queue_that_waits_with_less_than_its_share_gets_a_slot_after_the_timeout() -> None:
    queues = Preempting()
    queues.slots(4)
    queues.submit("a", 20)
    queues.submit("b", 20)
    assert queues.tick(1.0) == []
    assert queues.tick(TIMEOUT - 0.1) == []
    asked = queues.tick(0.2)
    assert queues.queues_of(asked) == ["a", "a"]
    assert asked == [*queues.running][::-1][:2], "those that began last"
    assert [queues.give(one) for one in asked] == [["b"], ["b"]]
    assert queues.held() == {"a": 2, "b": 2}
    assert queues.tick(2 * TIMEOUT) == []
    assert queues.tick(2 * ASK_AGAIN_SECONDS) == []


def test_the_reason_names_the_queue_and_the_option() -> None:
    queues = Preempting()
    queues.slots(2)
    queues.submit("a", 20)
    queues.submit("b")
    queues.tick(1.0)
    (order,) = [one for one in queues.cluster.tick(TIMEOUT) if isinstance(one, ev.SendPreemptSlots)]
    assert order.message.reason == (
        "its slot goes to queue b, which holds 0 of its share of 1 slot and has waited for more than 10 s "
        "(slotmanager.preemption.timeout)"
    )


def test_without_the_option_nothing_is_asked_back() -> None:
    queues = Queues()
    queues.slots(2)
    queues.submit("a", 20)
    queues.submit("b", 20)
    queues.cluster.tick(1.0)
    assert not any(isinstance(one, ev.SendPreemptSlots) for one in queues.cluster.tick(1000.0))


def test_a_queue_gets_no_more_than_it_has_jobs_for() -> None:
    queues = Preempting()
    queues.slots(6)
    queues.submit("a", 20)
    queues.submit("b")
    queues.tick(1.0)
    assert len(queues.tick(TIMEOUT)) == 1


def test_of_one_slot_for_two_queues_nothing_is_taken() -> None:
    """It would go to and fro: they take turns when tasks end."""
    queues = Preempting()
    queues.slots(1)
    queues.submit("a", 20)
    queues.submit("b", 20)
    queues.tick(1.0)
    assert queues.tick(TIMEOUT) == []


def test_a_minimum_comes_before_weights_and_no_minimum_is_taken() -> None:
    queues = Preempting(a=QueueSettings(min_slots=2), b=QueueSettings(min_slots=1), c=QueueSettings(weight=10))
    queues.slots(3)
    queues.submit("c", 20)
    queues.submit("b", 20)
    queues.submit("a", 20)
    queues.tick(1.0)
    asked = queues.tick(TIMEOUT)
    assert queues.queues_of(asked) == ["c", "c", "c"]
    for one in asked:
        queues.give(one)
    assert queues.held() == {"a": 2, "b": 1}
    assert queues.tick(2 * ASK_AGAIN_SECONDS) == []
    assert queues.tick(TIMEOUT) == []


def test_a_queue_at_a_limit_is_given_nothing() -> None:
    queues = Preempting(b=QueueSettings(max_running_jobs=1))
    queues.slots(4)
    queues.submit("a", 20)
    queues.submit("b", 20)
    queues.tick(1.0)
    assert len(queues.tick(TIMEOUT)) == 1


def test_what_is_on_its_way_is_not_asked_for_again() -> None:
    queues = Preempting()
    queues.slots(4)
    queues.submit("a", 20)
    queues.submit("b", 20)
    queues.tick(1.0)
    asked = queues.tick(TIMEOUT)
    assert len(asked) == 2
    assert queues.tick(1.0) == []
    assert sorted(queues.tick(ASK_AGAIN_SECONDS)) == sorted(asked), "it did not come, and the order may be lost"


def test_of_what_is_kept_another_one_is_asked_for_at_once() -> None:
    queues = Preempting()
    queues.slots(4)
    queues.submit("a", 20)
    queues.submit("b")
    queues.tick(1.0)
    (last,) = queues.tick(TIMEOUT)
    (other,) = queues.refuse(last)
    assert other != last
    assert queues.queues_of([other]) == ["a"]
    third, fourth = queues.refuse(other), []
    while third:
        fourth, third = third, queues.refuse(*third)
    assert queues.tick(1.0) == [], "a keeps all of them"
    assert fourth


def test_a_refusal_that_is_late_or_of_another_one_changes_nothing() -> None:
    queues = Preempting()
    queues.slots(2)
    queues.submit("a", 20)
    assert (
        queues.asked_back(queues.cluster.handle(ev.SlotsKept(T1, PreemptionRefused((AllocationId("f" * 32),))))) == []
    )


def test_a_slot_that_does_not_fit_is_left() -> None:
    queues = Preempting()
    queues.slots(2)
    queues.submit("a", 20)
    queues.jobs += 1
    queues.cluster.shares[job(queues.jobs)] = JobShare("b")
    queues.took(queues.cluster.declare(queues.jobs, 1, ResourceProfile(memory_bytes=1 << 40)))
    queues.tick(1.0)
    assert queues.tick(TIMEOUT) == []


def test_of_queues_that_hold_equally_much_the_one_loses_that_has_got_its_slot_last() -> None:
    queues = Preempting(m=QueueSettings(min_slots=3))
    queues.slots(4)
    for name in "abcd":
        queues.submit(name)
        queues.cluster.at += 1.0
    queues.submit("m", 3)
    queues.tick(1.0)
    assert queues.queues_of(queues.tick(TIMEOUT)) == ["d", "c", "b"]


def test_who_was_preempted_is_not_the_last_to_have_the_next_slot() -> None:
    queues = Preempting(m=QueueSettings(min_slots=1))
    queues.slots(2)
    queues.submit("a")
    queues.cluster.at += 1.0
    queues.submit("b", 2)
    queues.submit("c")
    queues.submit("m")
    queues.tick(1.0)
    (asked,) = queues.tick(TIMEOUT)
    assert queues.queues_of([asked]) == ["b"]
    assert queues.give(asked) == ["m"]
    assert queues.end("m") == ["b"], "it has not had its turn"


def test_what_was_kept_is_asked_for_again_soon() -> None:
    """What runs there is another task by then, perhaps."""
    queues = Preempting()
    queues.slots(2)
    queues.submit("a", 20)
    queues.submit("b")
    queues.tick(1.0)
    (last,) = queues.tick(TIMEOUT)
    (other,) = queues.refuse(last)
    assert queues.refuse(other) == []
    assert queues.tick(1.0) == []
    assert queues.tick(ASK_KEPT_AGAIN_SECONDS) == [last]


def test_what_was_asked_of_a_lost_connection_is_asked_for_again() -> None:
    queues = Preempting()
    queues.slots(2)
    queues.submit("a", 20)
    queues.submit("b")
    queues.tick(1.0)
    (asked,) = queues.tick(TIMEOUT)
    queues.cluster.handle(ev.TaskManagerDisconnected(T1))
    assert queues.tick(1.0) == [], "nobody is there"
    peer = queues.cluster.manager.task_manager(T1)
    assert peer is not None
    queues.cluster.handle(ev.TaskManagerRegistered(peer.registration))
    queues.cluster.report(T1, [(one, queues.running[one]) for one in queues.running])
    assert queues.tick(1.0) == [asked]


def test_jobs_that_fit_nowhere_hold_up_no_job_behind_them() -> None:
    queues = Preempting()
    queues.slots(2)
    queues.submit("a", 20)
    for _ in range(30):
        queues.jobs += 1
        queues.cluster.shares[job(queues.jobs)] = JobShare("b")
        queues.took(queues.cluster.declare(queues.jobs, 1, ResourceProfile(memory_bytes=1 << 40)))
    queues.submit("b")
    queues.tick(1.0)
    assert len(queues.tick(TIMEOUT)) == 1


def test_while_more_slots_come_none_is_taken() -> None:
    queues = Preempting()
    queues.slots(2)
    queues.submit("a", 20)
    queues.submit("b")
    for _ in range(3):
        queues.cluster.at += TIMEOUT
        assert queues.asked_back(queues.cluster.handle(ev.Ticked(is_more_coming=True))) == []
    queues.tick(1.0)
    assert len(queues.tick(TIMEOUT)) == 1


LIMITS = st.builds(
    QueueSettings, weight=st.sampled_from([0.5, 1.0, 3.0]), min_slots=st.integers(0, 3), max_slots=st.none()
)


@settings(max_examples=150, deadline=None)
@given(
    limits=st.dictionaries(st.sampled_from("abc"), LIMITS),
    jobs=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 12)), min_size=1, max_size=8),
    slots=st.integers(1, 9),
)
def test_slots_come_to_rest_and_each_queue_has_what_can_be_taken_for_it(
    limits: dict[str, QueueSettings], jobs: list[tuple[str, int]], slots: int
) -> None:
    queues = Preempting(**limits)
    queues.slots(slots)
    wanted = Counter[str]()
    for name, count in jobs:
        queues.submit(name, count)
        wanted[name] += count
    moved = 0
    for _ in range(200):
        asked = queues.tick(TIMEOUT + 1.0) or queues.tick(TIMEOUT + 1.0)
        before = queues.held()
        for name, count in Counter(queues.queues_of(asked)).items():
            assert before[name] - count >= limits.get(name, QueueSettings()).min_slots, "no minimum is taken"
        for one in asked:
            queues.give(one)
        moved += len(asked)
        if not asked:
            break
    else:
        pytest.fail("slots go to and fro")
    assert moved <= slots
    held, of = queues.held(), {name: limits.get(name, QueueSettings()) for name in wanted}
    shares = fair_shares(of, slots)
    for name in wanted:
        if held[name] < wanted[name] and held[name] + 1 <= shares[name]:
            for other in wanted.keys() - {name}:
                may_lose = held[other] > max(of[other].min_slots, shares[other])
                is_fair = (held[other] - 1) / of[other].weight >= (held[name] + 1) / of[name].weight
                assert not (may_lose and (is_fair or held[name] < of[name].min_slots)), (name, other, held, shares)
