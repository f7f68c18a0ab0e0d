"""TaskManagers that serve one namespace at a time: which jobs get their slots, and which wait (R50)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.waiting import WaitingKind
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
from runtime.resourcemanager.core.slot_manager import REFUSED_PAUSE_SECONDS, SlotManager

T1, T2 = Incarnation("a" * 32), Incarnation("b" * 32)
OWNER = Incarnation("c" * 32)
PROFILE = ResourceProfile()
SLOTS = 2


def job(number: int) -> JobId:
    return JobId(f"{number:032x}")


class Cluster:
    """A SlotManager. Jobs with numbers below 10 belong to team-a, the others to team-b."""

    def __init__(self, *task_managers: Incarnation, has_tenants: bool = True, slots: int = SLOTS) -> None:
        ids = itertools.count(1)
        self.slots = slots
        self.at = 100.0
        self.manager = SlotManager(
            lambda: AllocationId(f"{next(ids):032x}"),
            lambda *_: True,
            lambda job_id: "team-a" if int(job_id, 16) < 10 else "team-b",
            request_timeout=10.0,
            round_seconds=2.0,
        )
        for peer in task_managers:
            self.register(peer, has_tenants=has_tenants)
            self.report(peer)

    def register(self, peer: Incarnation, *, has_tenants: bool = True) -> None:
        registration = RegisterTaskManager(
            peer, "tm", "h:1", "h:2", "boot", "v", 1, self.slots, PROFILE, False, b"{}", 2, 0
        )
        self.handle(ev.TaskManagerRegistered(replace(registration, has_tenants=has_tenants)))

    def handle(self, event: ev.SlotManagerEvent) -> list[Any]:
        return list(self.manager.handle(event, self.at))

    def report(self, peer: Incarnation, tenant: str = "", slots: int | None = None, **held: RequestSlot) -> list[Any]:
        by_slot = {request.slot_index: request for request in held.values()}
        statuses = tuple(
            SlotStatus(index, by_slot[index].allocation_id, by_slot[index].job_id)
            if index in by_slot
            else SlotStatus(index, None, None)
            for index in range(self.slots if slots is None else slots)
        )
        return self.handle(ev.SlotsReported(peer, SlotReport(statuses, True, 0, tenant=tenant)))

    def declare(self, number: int, count: int = 1) -> list[Any]:
        needs = (ResourceRequirement(PROFILE, count),) if count else ()
        return self.handle(ev.RequirementsDeclared(JobRequirements(job(number), 5, needs, ()), OWNER, "owner:1"))

    def freed(self, request: RequestSlot, peer: Incarnation = T1) -> list[Any]:
        return self.handle(ev.AllocationsFreed(peer, SlotsFreed((request.allocation_id,))))

    def refused(self, request: RequestSlot, peer: Incarnation = T1) -> list[Any]:
        refusal = SlotRequestRefused(request.allocation_id, request.slot_index, "")
        return self.handle(ev.AllocationRefused(peer, refusal))

    def tick(self) -> list[Any]:
        self.at += REFUSED_PAUSE_SECONDS
        return self.handle(ev.Ticked())


def requests(effects: list[Any]) -> list[RequestSlot]:
    return [effect.message for effect in effects if isinstance(effect, ev.SendRequestSlot)]


def reason(effects: list[Any], number: int) -> str:
    return next(one.waiting.reason for one in effects if isinstance(one, ev.NotifyJob) and one.job_id == job(number))


def test_a_request_says_whose_job_it_is() -> None:
    cluster = Cluster(T1, has_tenants=False)
    assert [one.namespace for one in requests(cluster.declare(1)) + requests(cluster.declare(11))] == [
        "team-a",
        "team-b",
    ]


def test_two_namespaces_never_share_one() -> None:
    cluster = Cluster(T1, T2)
    first = cluster.declare(1)
    assert [one.incarnation for one in first if isinstance(one, ev.SendRequestSlot)] == [T1]
    other = cluster.declare(11, 3)
    assert {one.incarnation for one in other if isinstance(one, ev.SendRequestSlot)} == {T2}
    assert len(requests(other)) == SLOTS


def test_who_waits_is_told_why_and_not_for_whom() -> None:
    cluster = Cluster(T1)
    cluster.declare(1)
    effects = cluster.declare(11)
    told = reason(effects, 11)
    assert [one.waiting.kind for one in effects if isinstance(one, ev.NotifyJob)] == [WaitingKind.TENANCY]
    assert "serve another namespace (taskmanager.tenancy: namespace)" in told
    assert "team-a" not in told
    assert "Spark" not in told, "it may have none"


def test_one_that_is_empty_is_asked_and_made_anew() -> None:
    cluster = Cluster(T1)
    (mine,) = requests(cluster.declare(1))
    assert requests(cluster.declare(11)) == []
    cluster.declare(1, 0)
    (asked,) = requests(cluster.freed(mine))
    assert asked.namespace == "team-b"
    assert requests(cluster.refused(asked)) == []
    cluster.report(T1, "team-b", slots=0)
    assert [one.job_id for one in requests(cluster.report(T1, "team-b"))] == [job(11)]


def test_jobs_that_come_later_do_not_keep_it_from_who_waits() -> None:
    cluster = Cluster(T1)
    (mine,) = requests(cluster.declare(1))
    cluster.declare(11)
    assert requests(cluster.declare(2)) == []
    cluster.declare(1, 0)
    assert [one.job_id for one in requests(cluster.freed(mine))] == [job(11)]


def passed_over(cluster: Cluster) -> None:
    """Job 11 waits, then job 2 of the present tenant too; the TaskManager is made anew for job 11, which was first."""
    (mine,) = requests(cluster.declare(1))
    cluster.declare(11)
    cluster.declare(2)
    cluster.declare(1, 0)
    (asked,) = requests(cluster.freed(mine))
    assert asked.job_id == job(11)
    cluster.refused(asked)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("ticks", [0, 1, 2])
def test_one_that_is_made_anew_serves_whom_it_was_made_anew_for(slots: int, ticks: int) -> None:
    """The namespace that has waited longest has it, however long Spark takes to start."""
    cluster = Cluster(T1, slots=slots)
    passed_over(cluster)
    for _ in range(ticks):
        assert requests(cluster.report(T1, "team-b", slots=0)) == []
        assert requests(cluster.tick()) == []
    assert [one.job_id for one in requests(cluster.report(T1, "team-b"))] == [job(11)]


def test_the_next_leader_keeps_it_for_whom_it_is_made_anew() -> None:
    cluster = Cluster(slots=1)
    cluster.declare(2)
    cluster.declare(11)
    cluster.register(T1)
    cluster.report(T1, "team-b", slots=0)
    cluster.tick()
    assert [one.job_id for one in requests(cluster.report(T1, "team-b"))] == [job(11)]


def test_one_that_is_made_anew_for_nobody_serves_the_next() -> None:
    cluster = Cluster(T1)
    passed_over(cluster)
    cluster.report(T1, "team-b", slots=0)
    cluster.declare(11, 0)
    cluster.tick()
    assert [one.job_id for one in requests(cluster.report(T1, "team-b"))] == [job(2)]


def test_it_is_not_kept_for_a_job_that_cannot_run_there() -> None:
    cluster = Cluster(T1)
    passed_over(cluster)
    cluster.report(T1, "team-b", slots=0)
    cluster.declare(11, 0)
    needs = (ResourceRequirement(ResourceProfile(cpu_cores=64.0), 1),)
    cluster.handle(ev.RequirementsDeclared(JobRequirements(job(12), 5, needs, ()), OWNER, "owner:1"))
    cluster.tick()
    assert [one.job_id for one in requests(cluster.report(T1, "team-b"))] == [job(2)]


def test_a_job_that_is_there_gets_its_further_slots() -> None:
    """The other jobs wait for the end of this one."""
    cluster = Cluster(T1)
    cluster.declare(1)
    cluster.declare(11)
    assert [one.job_id for one in requests(cluster.declare(1, 2))] == [job(1)]


def test_a_job_that_is_there_without_a_slot_goes_on() -> None:
    """A new leader does not know of the job, the TaskManager does: it refuses, and no two jobs wait for each other."""
    cluster = Cluster(T1)
    cluster.report(T1, "team-a")
    (asked,) = requests(cluster.declare(11))
    cluster.declare(1, 2)
    cluster.refused(asked)
    served = requests(cluster.tick())
    assert {one.job_id for one in served} <= {job(1)}
    assert cluster.manager.job(job(1)) is not None
    assert sum(one.job_id == job(1) for one in next(cluster.manager.task_managers()).allocated.values()) == SLOTS


def test_a_claim_ends_with_the_need() -> None:
    cluster = Cluster(T1)
    cluster.declare(1)
    cluster.declare(11)
    cluster.declare(11, 0)
    cluster.tick()
    assert [one.job_id for one in requests(cluster.declare(2))] == [job(2)]


def test_a_report_that_crosses_the_first_request_does_not_free_it() -> None:
    cluster = Cluster(T1)
    cluster.declare(1)
    cluster.report(T1)
    assert requests(cluster.declare(11)) == []
