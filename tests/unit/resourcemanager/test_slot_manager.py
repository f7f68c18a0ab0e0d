"""The SlotManager: what each event leads to."""

from __future__ import annotations

from typing import Any

from runtime.common.ids import AllocationId, Incarnation
from runtime.gateways.resource_manager import (
    RegisterTaskManager,
    ResourceProfile,
    SlotReport,
    SlotsFreed,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core.slot_manager import REFUSED_PAUSE_SECONDS
from tests.kit.control_plane.slot_requests import (
    DEFAULT,
    OWNER,
    T1,
    T2,
    Cluster,
    job,
    kinds,
    reasons,
    refusal,
    requests,
)


def test_a_slot_is_requested_in_the_same_step() -> None:
    cluster = Cluster()
    cluster.register(T1, 2)
    effects = cluster.declare(1, 1)
    ((peer, request),) = requests(effects)
    assert peer == T1
    assert (request.job_id, request.epoch, request.job_master_incarnation, request.job_master_address) == (
        job(1),
        5,
        OWNER,
        "owner:1",
    )
    assert reasons(effects) == {}
    assert cluster.manager.slot_counts() == (2, 1)


def test_requirements_are_complete_sets() -> None:
    cluster = Cluster()
    cluster.register(T1, 4)
    assert len(requests(cluster.declare(1, 2))) == 2
    assert len(requests(cluster.declare(1, 2))) == 0
    assert len(requests(cluster.declare(1, 3))) == 1
    assert requests(cluster.declare(1, 1)) == []


def test_a_big_job_does_not_starve_a_small_one() -> None:
    cluster = Cluster()
    cluster.declare(1, 500)
    cluster.declare(2, 1)
    effects = cluster.register(T1, 4)
    assert [request.job_id for _, request in requests(effects)] == [job(1), job(2), job(1), job(1)]
    cluster.declare(3, 1)
    freed = [request.allocation_id for _, request in requests(effects)][:2]
    cluster.at += REFUSED_PAUSE_SECONDS
    effects = cluster.handle(ev.AllocationsFreed(T1, SlotsFreed(tuple(freed))))
    assert {request.job_id for _, request in requests(effects)} == {job(1), job(3)}


class TestASlotThatIsGivenBackAtOnce:
    """Its job needs less than it has declared last: it reaches the TaskManager, and does not reach us."""

    def given_back(self, cluster: Cluster, effects: list[Any]) -> list[Any]:
        ((_, request),) = requests(effects)
        cluster.at += 0.001
        return cluster.handle(ev.AllocationsFreed(T1, SlotsFreed((request.allocation_id,))))

    def test_is_offered_again_after_a_while(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 2)
        assert requests(self.given_back(cluster, cluster.declare(1, 1))) == []
        assert requests(cluster.tick(0.5)) == []
        assert [request.job_id for _, request in requests(cluster.tick(0.6))] == [job(1)]

    def test_is_offered_again_when_the_job_says_that_it_needs_it(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 2)
        assert requests(self.given_back(cluster, cluster.declare(1, 1))) == []
        assert [request.job_id for _, request in requests(cluster.declare(1, 1))] == [job(1)]

    def test_is_replaced_at_once_for_a_job_that_has_said_so_since(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 2)
        effects = cluster.declare(1, 1)
        cluster.at += 0.001
        cluster.declare(1, 1)
        assert [request.job_id for _, request in requests(self.given_back(cluster, effects))] == [job(1)]

    def test_goes_to_whoever_waits(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        effects = cluster.declare(1, 1)
        cluster.declare(2, 1)
        assert [request.job_id for _, request in requests(self.given_back(cluster, effects))] == [job(2)]


def test_slots_are_spread_over_task_managers() -> None:
    cluster = Cluster()
    cluster.register(T1, 2)
    cluster.register(T2, 2)
    assert [peer for peer, _ in requests(cluster.declare(1, 4))] == [T1, T2, T1, T2]


def test_a_freed_slot_goes_to_the_next_job_at_once() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    ((_, first),) = requests(cluster.declare(1, 1))
    effects = cluster.declare(2, 1)
    assert requests(effects) == []
    assert reasons(effects) == {job(2): "no free slot: all 1 slots that fit are in use"}
    assert kinds(effects) == {job(2): "slots"}
    cluster.declare(1, 0)
    effects = cluster.handle(ev.AllocationsFreed(T1, SlotsFreed((first.allocation_id,))))
    assert [request.job_id for _, request in requests(effects)] == [job(2)]
    assert reasons(effects) == {job(2): ""}
    assert cluster.manager.job(job(1)) is None, "what a job left behind is forgotten"


def test_reasons_say_what_to_do() -> None:
    cluster = Cluster()
    gpu = ResourceProfile(spark_profile="gpu")
    assert "bin/taskmanager.sh start" in reasons(cluster.declare(1, 1))[job(1)]
    assert "bin/taskmanager.sh start" in reasons(cluster.declare(2, 1, gpu))[job(2)]
    effects = cluster.register(T1, 1)
    assert reasons(effects) == {job(1): "", job(2): "none of 1 TaskManagers offers a slot with spark profile 'gpu'"}
    assert kinds(effects) == {job(1): "", job(2): "fitting_slots"}
    effects = cluster.register(T2, 1, gpu)
    assert [request.job_id for _, request in requests(effects)] == [job(2)]


def test_a_job_that_fits_nowhere_holds_up_nobody() -> None:
    cluster = Cluster()
    cluster.declare(1, 1, ResourceProfile(spark_profile="gpu"))
    cluster.declare(2, 1)
    effects = cluster.register(T1, 1)
    assert [request.job_id for _, request in requests(effects)] == [job(2)]
    effects = cluster.register(T2, 1, ResourceProfile(spark_profile="gpu"))
    assert [request.job_id for _, request in requests(effects)] == [job(1)]


def test_an_older_owner_has_nothing_to_say() -> None:  # R1
    cluster = Cluster()
    cluster.declare(1, 1, epoch=6)
    assert cluster.declare(1, 5, epoch=5) == []


class TestReports:
    """The TaskManager's report is the truth about its slots."""

    def test_a_report_that_crossed_a_request_takes_nothing_back(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        cluster.declare(1, 1)
        assert requests(cluster.report(T1, [None])) == []
        assert cluster.manager.slot_counts() == (1, 0)

    def test_an_overdue_request_is_given_up(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        cluster.declare(1, 1)
        cluster.at += 11
        assert len(requests(cluster.report(T1, [None]))) == 1

    def test_a_shown_allocation_that_is_shown_no_more_has_ended(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        ((_, request),) = requests(cluster.declare(1, 1))
        cluster.report(T1, [(request.allocation_id, job(1))])
        cluster.declare(1, 0)
        cluster.report(T1, [None])
        assert cluster.manager.slot_counts() == (1, 1)

    def test_the_first_report_of_a_stream_settles_what_an_older_one_left_open(self) -> None:  # R11
        cluster = Cluster()
        cluster.register(T1, 1)
        cluster.declare(1, 1)
        cluster.handle(ev.TaskManagerDisconnected(T1))
        assert len(requests(cluster.register(T1, 1))) == 1

    def test_allocations_of_an_older_leader_are_taken_over(self) -> None:
        cluster = Cluster()
        found = (AllocationId("f" * 32), job(1))
        cluster.register(T1, 2)
        cluster.report(T1, [found, None])
        assert requests(cluster.declare(1, 1)) == [], "it has what it wants"
        assert len(requests(cluster.declare(1, 2))) == 1

    def test_slots_that_are_not_ready_are_not_handed_out(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 2)
        cluster.report(T1, [None])
        assert len(requests(cluster.declare(1, 2))) == 1
        assert cluster.manager.slot_counts() == (1, 0)

    def test_no_slot_ready_yet_and_why_as_long_as_there_is_a_reason(self) -> None:
        cluster, told = Cluster(), "1 TaskManagers that fit are registered, none has a slot ready yet"
        cluster.register(T1, 0)
        assert reasons(cluster.declare(1, 1)) == {job(1): told}
        for problem, reason in (("no Java", f"{told}: no Java"), ("", told)):
            changed = cluster.handle(ev.SlotsReported(T1, SlotReport((), False, 0, problem=problem)))
            assert reasons(changed) == {job(1): reason}


def test_a_refused_slot_is_tried_elsewhere_and_later_again() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    ((_, request),) = requests(cluster.declare(1, 1))
    refused = refusal(T1, request)
    assert requests(cluster.handle(refused)) == [], "not in a tight loop"
    assert requests(cluster.handle(ev.Ticked())) == []
    cluster.at += 1.0
    assert len(requests(cluster.handle(ev.Ticked()))) == 1


def test_a_refused_slot_with_another_one_free() -> None:
    cluster = Cluster()
    cluster.register(T1, 2)
    ((_, request),) = requests(cluster.declare(1, 1))
    ((_, second),) = requests(cluster.handle(refusal(T1, request)))
    assert second.slot_index != request.slot_index


def test_a_job_that_is_refused_leaves_its_slot_to_others_at_once() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    ((_, request),) = requests(cluster.declare(1, 1))
    cluster.declare(2, 1)
    ((_, second),) = requests(cluster.handle(refusal(T1, request, is_slot_free=True)))
    assert (second.job_id, second.slot_index) == (job(2), 0)
    cluster.declare(2, 0)
    cluster.handle(ev.AllocationsFreed(T1, SlotsFreed((second.allocation_id,))))
    assert requests(cluster.handle(ev.Ticked())) == [], "the refused job is left alone for a while"
    cluster.at += 1.0
    ((_, third),) = requests(cluster.handle(ev.Ticked()))
    assert third.job_id == job(1)


def test_a_refused_job_is_served_as_soon_as_it_declares_again() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    ((_, request),) = requests(cluster.declare(1, 1))
    cluster.handle(refusal(T1, request, is_slot_free=True))
    assert len(requests(cluster.declare(1, 1))) == 1


class TestLoss:
    """A stream that ends is not yet a TaskManager that is lost."""

    def test_a_disconnected_one_keeps_its_allocations_and_gets_no_new_ones(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 2)
        cluster.declare(1, 1)
        cluster.handle(ev.TaskManagerDisconnected(T1))
        assert requests(cluster.declare(1, 1)) == []
        assert requests(cluster.declare(2, 1)) == []

    def test_a_lost_one_is_replaced(self) -> None:
        cluster = Cluster()
        cluster.register(T1, 1)
        cluster.declare(1, 1)
        assert "no TaskManager" in reasons(cluster.handle(ev.TaskManagerLost(T1)))[job(1)]
        assert [peer for peer, _ in requests(cluster.register(T2, 1))] == [T2]

    def test_news_of_an_unknown_one_change_nothing(self) -> None:
        cluster = Cluster()
        assert cluster.report(T1, [None]) == []
        assert cluster.handle(ev.AllocationsFreed(T1, SlotsFreed((AllocationId("f" * 32),)))) == []
        assert cluster.handle(ev.TaskManagerLost(T1)) == []


def test_ended_jobs_need_nothing_any_more() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    cluster.register(T2, 1)
    cluster.declare(1, 3)
    assert cluster.handle(ev.JobsFinished((job(1),))) == []
    assert requests(cluster.register(Incarnation("d" * 32), 1)) == []


def test_an_allocation_that_is_found_clears_the_reason() -> None:
    cluster = Cluster()
    assert reasons(cluster.declare(1, 1))[job(1)].startswith("no TaskManager")
    held = (AllocationId("e" * 32), job(1))
    registration = RegisterTaskManager(T1, "tm", "h:1", "h:2", "boot", "v", 1, 1, DEFAULT, False, b"{}", 2, 0)
    cluster.handle(ev.TaskManagerRegistered(registration))
    assert reasons(cluster.report(T1, [held])) == {job(1): ""}


def test_a_job_that_waits_learns_of_a_task_manager_without_slots_yet() -> None:
    cluster = Cluster()
    cluster.declare(1, 1)
    registration = RegisterTaskManager(T1, "tm", "h:1", "h:2", "boot", "v", 1, 1, DEFAULT, False, b"{}", 2, 0)
    told = reasons(cluster.handle(ev.TaskManagerRegistered(registration)))
    assert told == {job(1): "1 TaskManagers that fit are registered, none has a slot ready yet"}


def test_one_that_drains_gets_no_job_and_the_reason_says_so() -> None:
    cluster = Cluster()
    cluster.register(T1, 2)
    drained = SlotReport((SlotStatus(0, None, None), SlotStatus(1, None, None)), True, 0, is_draining=True)
    cluster.handle(ev.SlotsReported(T1, drained))
    effects = cluster.declare(1, 1)
    assert requests(effects) == []
    assert reasons(effects) == {job(1): "1 TaskManagers that fit are registered, all of them are draining"}
    assert kinds(effects) == {job(1): "taskmanagers"}
    ((peer, _),) = requests(cluster.register(T2, 1))
    assert peer == T2
    cluster.declare(2, 1)
    ((peer, _),) = requests(cluster.report(T1, [None, None]))
    assert peer == T1, "it is used again"


def test_who_has_lost_the_job_since_it_declared_gets_nothing() -> None:
    """R7: the epoch is compared when a slot is allocated, not only when it was asked for."""
    cluster = Cluster()
    cluster.declare(1, 1, epoch=5)
    cluster.owners[job(1)] = 6
    assert requests(cluster.register(T1, 1)) == []
    ((_, request),) = requests(cluster.declare(1, 1, epoch=6))
    assert request.epoch == 6


def test_who_turns_out_to_own_the_job_after_all_is_served() -> None:
    """While another owner is being written the job gets nothing; but that write may fail."""
    cluster = Cluster()
    cluster.declare(1, 1, epoch=5)
    cluster.owners[job(1)] = 0
    cluster.register(T1, 1)
    assert requests(cluster.tick(1)) == []
    cluster.owners[job(1)] = 5
    assert len(requests(cluster.tick(1))) == 1


def test_others_are_served_while_one_has_no_owner() -> None:
    cluster = Cluster()
    cluster.declare(1, 1)
    cluster.declare(2, 1)
    cluster.owners[job(1)] = 0
    ((_, request),) = requests(cluster.register(T1, 2))
    assert request.job_id == job(2)


def test_a_task_manager_that_was_lost_and_is_back_with_work_shows_that_it_was_used() -> None:
    """With as many allocations as before: between two looks at it nothing else would tell (R65)."""
    cluster = Cluster()
    cluster.declare(1, 1)
    ((_, request),) = requests(cluster.register(T1, 1))
    (before,) = [peer.uses for peer in cluster.manager.task_managers()]
    cluster.handle(ev.TaskManagerLost(T1))
    cluster.register(T1, 0)
    cluster.report(T1, [(request.allocation_id, job(1))])
    (after,) = [peer.uses for peer in cluster.manager.task_managers()]
    assert after > before > 0
