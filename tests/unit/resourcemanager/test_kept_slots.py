"""What is kept for a request of several slots is kept from others no longer than it may serve the request (D-141)."""

from __future__ import annotations

import pytest

from runtime.common.ids import AllocationId
from runtime.common.shares import JobShare, QueueSettings
from runtime.gateways.resource_manager import JobRequirements, ResourceProfile, ResourceRequirement
from runtime.resourcemanager.core import events as ev
from tests.kit.control_plane.slot_requests import OWNER, T1, T2, Cluster, job, kinds, reasons, requests
from tests.unit.resourcemanager.test_fitting import LOCAL, environment, static
from tests.unit.resourcemanager.test_large_requests import GIB, SLOT, TWO, asked, cluster_of, freed


def test_others_have_at_least_half_of_the_time_where_something_runs_for_ever() -> None:
    cluster = cluster_of(2)
    held = [one for _, one in requests(cluster.declare(1, 2))]
    cluster.declare(2, 1, TWO)
    freed(cluster, T1, held[0])
    cluster.declare(1, 1)
    cluster.declare(3, 10_000)
    taken = 0
    for _ in range(3600):
        running = requests(cluster.tick(1.0))
        taken += bool(running)
        while running:
            ((peer, request),) = running
            cluster.at += 1.0
            taken += 1
            running = requests(freed(cluster, peer, request))
            assert all(one.job_id == job(3) for _, one in running)
    assert taken > 1800


@pytest.mark.parametrize("most", [1, 2])
def test_nothing_is_kept_for_a_job_whose_queue_may_not_have_so_many(most: int) -> None:
    cluster = cluster_of(2, 2, queues={"small": QueueSettings(max_slots=most)})
    cluster.shares = {job(number): JobShare("small") for number in (2, 9)}
    if most > 1:
        cluster.declare(9, 1)
    others = requests(cluster.declare(1, 4))
    effects = cluster.declare(2, 1, TWO)
    assert "at most, and a task takes 2" in reasons(effects)[job(2)]
    assert kinds(effects)[job(2)] == "queue"
    for peer, request in others:
        freed(cluster, peer, request)
    cluster.declare(1, 0)
    assert len(requests(cluster.declare(3, 4))) == 5 - most


def test_what_is_kept_ends_when_the_queue_has_no_more_room() -> None:
    cluster = cluster_of(2, queues={"small": QueueSettings(max_slots=2)})
    cluster.shares[job(2)] = JobShare("small")
    held = [one for _, one in requests(cluster.declare(1, 2))]
    cluster.declare(2, 1, TWO)
    freed(cluster, T1, held[0])
    assert cluster.manager._matching.kept()
    cluster.register(T2, 1)
    cluster.shares[job(4)] = JobShare("small", 9)
    assert requests(cluster.declare(4, 1))
    cluster.declare(5, 1)
    assert not cluster.manager._matching.kept()


def test_no_slot_is_taken_from_others_for_a_task_larger_than_the_share_of_its_queue() -> None:
    cluster = cluster_of(2, preemption_timeout=1.0)
    cluster.shares[job(2)] = JobShare("b")
    cluster.declare(1, 5)
    cluster.declare(2, 1, TWO)
    effects = [one for _ in range(100) for one in cluster.tick(1.0)]
    assert not [one for one in effects if isinstance(one, ev.SendPreemptSlots)]


def test_a_started_environment_with_too_few_free_slots_does_not_hold_up_the_job() -> None:
    cluster = Cluster()
    for peer in (T1, T2):
        cluster.register(peer, 2, SLOT, spark_conf=LOCAL, environment_bytes=8 * GIB, environment_accounts=4)
    cluster.report(T2, [(AllocationId("9" * 32), job(9)), None], environment("3g"))
    assert asked(cluster.declare(1, 1, TWO, static_conf=static("3g"))) == [(T1, (0, 1))]


def test_a_shunned_task_manager_is_taken_when_no_other_has_so_many() -> None:
    cluster = cluster_of(2, 2)
    ((busy, _),) = requests(cluster.declare(1, 1))
    other = T2 if busy == T1 else T1
    assert asked(cluster.declare(2, 1, TWO, shunned=(other,))) == [(other, (0, 1))]


def test_an_owner_is_not_cut_off_for_too_few_slots_where_it_does_not_reach() -> None:
    cluster = cluster_of(2, 2)
    places = [peer for peer, _ in requests(cluster.declare(1, 3))]
    with_one = next(peer for peer in (T1, T2) if places.count(peer) == 1)
    cluster.declare(2, 1, TWO, unreachable=(with_one,))
    effects = [one for _ in range(20) for one in cluster.tick(3.0)]
    assert not [one for one in effects if isinstance(one, ev.OwnerCutOff)]


@pytest.mark.parametrize("is_own", [False, True])
def test_small_requests_get_what_is_free_elsewhere_and_nothing_of_what_is_kept(*, is_own: bool) -> None:
    cluster = cluster_of(2, 2)
    held = requests(cluster.declare(1, 4))
    small = ResourceRequirement(ResourceProfile(), 5)
    needs = (ResourceRequirement(TWO, 1), small) if is_own else (ResourceRequirement(TWO, 1),)
    cluster.handle(ev.RequirementsDeclared(JobRequirements(job(2), 5, (needs[0],), ()), OWNER, "owner:1"))
    first, second = ([one for peer, one in held if peer == where] for where in (T1, T2))
    freed(cluster, T1, first[0])
    (kept,) = cluster.manager._matching.kept()
    assert kept.incarnation == T1
    declared = JobRequirements(job(2 if is_own else 3), 5, needs if is_own else (small,), ())
    assert asked(cluster.handle(ev.RequirementsDeclared(declared, OWNER, "owner:1"))) == []
    assert [peer for peer, _ in asked(freed(cluster, T2, second[0]))] == [T2]
