"""Requests of several slots of one TaskManager: all at once, counted as many, and not starved by small ones (D-141)."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.common.ids import AllocationId, Incarnation
from runtime.common.shares import JobShare, QueueSettings
from runtime.gateways.resource_manager import (
    JobRequirements,
    RequestSlot,
    ResourceProfile,
    ResourceRequirement,
    SlotReport,
    SlotsFreed,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from tests.kit.control_plane.slot_requests import OWNER, T1, T2, Cluster, job, reasons, refusal, requests

GIB = 1 << 30
SLOT = ResourceProfile(1.0, GIB)
TWO, THREE = ResourceProfile(memory_bytes=2 * GIB), ResourceProfile(cpu_cores=3.0)


def cluster_of(
    *slots: int, queues: dict[str, QueueSettings] | None = None, preemption_timeout: float | None = None
) -> Cluster:
    made = Cluster(queues, preemption_timeout)
    for peer, count in zip((T1, T2), slots, strict=False):
        made.register(peer, count, SLOT)
    return made


def asked(effects: list[Any]) -> list[tuple[Incarnation, tuple[int, ...]]]:
    return [(peer, (one.slot_index, *one.more_slots)) for peer, one in requests(effects)]


def the(effects: list[Any]) -> RequestSlot:
    ((_, request),) = requests(effects)
    return request


def freed(cluster: Cluster, peer: Incarnation, request: RequestSlot) -> list[Any]:
    return cluster.handle(ev.AllocationsFreed(peer, SlotsFreed((request.allocation_id,))))


def test_all_slots_of_one_task_manager_are_asked_for_at_once() -> None:
    cluster = cluster_of(2, 4)
    assert asked(cluster.declare(1, 2, TWO)) == [(T1, (0, 1)), (T2, (0, 1))]
    assert cluster.manager.slot_counts() == (6, 2)
    assert asked(cluster.declare(2, 1, THREE)) == []
    assert asked(cluster.declare(3, 2)) == [], "what is left is kept for the larger request"


def test_they_are_free_again_together() -> None:
    cluster = cluster_of(2)
    request = the(cluster.declare(1, 1, TWO))
    freed(cluster, T1, request)
    assert cluster.manager.slot_counts() == (2, 2)
    assert len(requests(cluster.declare(2, 2))) == 2


def test_where_two_task_managers_have_one_each_the_request_waits() -> None:
    cluster = cluster_of(2, 2)
    small = [one for _, one in requests(cluster.declare(1, 2))]
    effects = cluster.declare(2, 1, TWO)
    assert requests(effects) == []
    (reason,) = reasons(effects).values()
    assert reason.startswith("no TaskManager has 2 free slots at once, which a task with 2048 MiB memory takes: 1 of 4")
    assert reason.endswith("are kept for it")
    assert asked(cluster.declare(3, 2)) in ([(T1, (1,))], [(T2, (1,))]), "the other TaskManager is for all"
    effects = [one for held in small for peer in (T1, T2) for one in freed(cluster, peer, held)]
    assert [len(slots) for _, slots in asked(effects)].count(2) == 1


def test_a_flow_of_small_requests_does_not_starve_it() -> None:
    cluster = cluster_of(2)
    running = [one for _, one in requests(cluster.declare(1, 2))]
    cluster.declare(2, 1, TWO)
    cluster.declare(3, 100)
    assert requests(freed(cluster, T1, running[0])) == []
    effects = freed(cluster, T1, running[1])
    assert [(one.job_id, len(one.more_slots)) for _, one in requests(effects)] == [(job(2), 1)]


def test_two_that_lack_slots_do_not_hold_up_each_other() -> None:
    cluster = cluster_of(3)
    small = [one for _, one in requests(cluster.declare(1, 3))]
    cluster.declare(2, 1, TWO)
    cluster.declare(3, 1, TWO)
    done = [request for held in small for _, request in requests(freed(cluster, T1, held))]
    assert len(done) == 1
    (other,) = [request for _, request in requests(freed(cluster, T1, done[0]))]
    assert {done[0].job_id, other.job_id} == {job(2), job(3)}


def test_what_runs_for_ever_is_outlasted_elsewhere() -> None:
    cluster = cluster_of(2, 2)
    held = [one for _, one in requests(cluster.declare(1, 4))]
    cluster.declare(2, 1, TWO)
    cluster.declare(3, 100)
    places = {one.allocation_id: peer for one, peer in zip(held, (T1, T2, T1, T2), strict=True)}
    first, second = [one for one in held if places[one.allocation_id] == T2]
    freed(cluster, T1, held[0])  # T1 is kept, and what else runs there does not end
    for _ in range(100):
        cluster.tick(1.0)
    freed(cluster, T2, first)
    effects = freed(cluster, T2, second)
    assert [(one.job_id, len(one.more_slots)) for _, one in requests(effects) if one.more_slots] == [(job(2), 1)]


@pytest.mark.parametrize("event", ["lost", "disconnected", "not wanted"])
def test_nothing_is_kept_where_it_is_of_no_use(event: str) -> None:
    cluster = cluster_of(2, 1)
    request, *_ = [one for _, one in requests(cluster.declare(1, 3))]
    cluster.declare(2, 1, TWO)
    freed(cluster, T1, request)
    cluster.declare(3, 5)
    if event == "not wanted":
        assert len(requests(cluster.declare(2, 0))) == 1
        return
    cluster.handle(ev.TaskManagerLost(T1) if event == "lost" else ev.TaskManagerDisconnected(T1))
    assert cluster.manager._matching.kept() == []


def test_a_new_leader_learns_which_slots_belong_together() -> None:
    cluster = cluster_of(4)
    one = AllocationId("9" * 32)
    cluster.report(T1, [None, (one, job(1)), None, (one, job(1))])
    assert cluster.manager.slot_counts() == (4, 2)
    queue = next(iter(cluster.manager.queues()))
    assert queue.held == 2
    cluster.declare(1, 1, TWO)
    assert cluster.manager.job(job(1)).missing() is None  # type: ignore[union-attr]
    cluster.declare(1, 0)
    cluster.handle(ev.AllocationsFreed(T1, SlotsFreed((one,))))
    assert cluster.manager.slot_counts() == (4, 4)


def test_a_report_that_crosses_the_request_changes_nothing_and_a_later_one_confirms_it() -> None:
    cluster = cluster_of(2)
    request = the(cluster.declare(1, 1, TWO))
    cluster.report(T1, [None, None])
    assert cluster.manager.slot_counts() == (2, 0)
    held = (request.allocation_id, request.job_id)
    cluster.report(T1, [held, held])
    assert cluster.manager.slot_counts() == (2, 0)
    effects = cluster.report(T1, [None, None])
    assert the(effects).allocation_id != request.allocation_id, "it has ended, and the job asks anew"


def test_a_refused_request_gives_all_its_slots_back() -> None:
    cluster = cluster_of(2)
    request = the(cluster.declare(1, 1, TWO))
    effects = cluster.handle(refusal(T1, request, is_slot_free=True))
    assert requests(effects) == []
    assert cluster.manager.slot_counts() == (2, 2)
    assert len(requests(cluster.declare(2, 1, TWO))) == 1


def test_with_its_task_manager_all_its_slots_are_gone() -> None:
    cluster = cluster_of(2)
    the(cluster.declare(1, 1, TWO))
    cluster.handle(ev.TaskManagerLost(T1))
    assert cluster.manager.slot_counts() == (0, 0)
    assert [one.held for one in cluster.manager.queues()] == [0]
    assert cluster.manager.job(job(1)).held == {TWO: 0}  # type: ignore[union-attr]


def test_it_counts_as_many_slots_for_the_maximum_of_its_queue_which_small_ones_do_not_fill() -> None:
    queues = {"etl": QueueSettings(max_slots=3)}
    cluster = cluster_of(8, queues=queues)
    cluster.shares = {job(number): JobShare("etl") for number in range(1, 9)}
    small = [one for _, one in requests(cluster.declare(1, 2))]
    assert requests(cluster.declare(2, 1, TWO)) == []
    assert requests(cluster.declare(3, 5)) == [], "the queue keeps what is left of its maximum"
    assert len(requests(cluster.declare(9, 1))) == 1, "which others do not feel"
    assert [one.job_id for _, one in requests(freed(cluster, T1, small[0]))] == [job(2)]
    assert requests(cluster.declare(4, 1, ResourceProfile(memory_bytes=4 * GIB))) == []


def test_what_none_can_ever_hold_says_so_with_figures() -> None:
    cluster = cluster_of(2, 4)
    (reason,) = reasons(cluster.declare(1, 1, ResourceProfile(memory_bytes=5 * GIB))).values()
    assert reason == (
        "none of 2 TaskManagers can hold a task with 5120 MiB memory: "
        "the largest has 4 slots with 1024 MiB memory and 1 cpu cores each"
    )


def test_slots_are_taken_back_where_they_are_kept_for_it() -> None:
    cluster = cluster_of(2, 2, queues={"a": QueueSettings(), "b": QueueSettings()}, preemption_timeout=5.0)
    cluster.shares = {job(1): JobShare("a"), job(2): JobShare("b")}
    held = {one.allocation_id: peer for peer, one in requests(cluster.declare(1, 4))}
    cluster.declare(2, 1, TWO)
    first = next(iter(held))
    effects = freed(cluster, held[first], RequestSlot(first, 0, job(1), 5, T1, "", TWO)) + cluster.tick(1.0)
    effects += cluster.tick(6.0) + cluster.tick(6.0)
    orders = [one for one in effects if isinstance(one, ev.SendPreemptSlots)]
    assert {one.incarnation for one in orders} == {held[first]}


def test_a_new_leader_does_not_take_a_small_allocation_for_a_large_one() -> None:
    cluster = cluster_of(4)
    held = SlotStatus(0, AllocationId("9" * 32), job(1), ResourceProfile())
    report = SlotReport((held, *(SlotStatus(index, None, None) for index in (1, 2, 3))), True, 0)
    cluster.handle(ev.SlotsReported(T1, report))
    needs = (ResourceRequirement(TWO, 1), ResourceRequirement(ResourceProfile(), 1))
    effects = cluster.handle(ev.RequirementsDeclared(JobRequirements(job(1), 5, needs, ()), OWNER, "owner:1"))
    assert asked(effects) == [(T1, (1, 2))]
