"""R67: an attempt that waits for a slot elsewhere keeps nothing else waiting, and asks for nothing in vain."""

from __future__ import annotations

from typing import Any

from runtime.gateways.resource_manager import JobRequirements, ResourceProfile, ResourceRequirement
from runtime.resourcemanager.core import events as ev
from tests.kit.control_plane.slot_requests import DEFAULT, OWNER, T1, T2, Cluster, job, reasons, requests

GPU = ResourceProfile(0, 0, "", ("gpu=x",))


def declare(cluster: Cluster, needs: list[tuple[Any, ...]], **fields: Any) -> list[Any]:
    """`needs`: profile, count, and the TaskManagers where they must not be."""
    requirements = tuple(ResourceRequirement(*need) for need in needs)
    declared = JobRequirements(job(1), 5, requirements, (), b"", False, b"", **fields)
    return cluster.handle(ev.RequirementsDeclared(declared, OWNER, "o:1"))


def test_a_waiting_second_attempt_starves_no_other_profile_of_its_job() -> None:
    cluster = Cluster()
    cluster.register(T1, 4, GPU)
    cluster.register(T2, 4)
    assert [peer for peer, _ in requests(declare(cluster, [(GPU, 1), (DEFAULT, 1)]))] == [T1, T2]
    effects = declare(cluster, [(GPU, 1), (GPU, 1, (T1,)), (DEFAULT, 3)], shunned=(T1,))
    assert [peer for peer, _ in requests(effects)] == [T2, T2], reasons(effects)


def test_no_slot_is_requested_that_the_job_gives_back() -> None:
    """The only profile that T1 could serve is that of the second attempt, which is not wanted there."""
    cluster = Cluster()
    cluster.register(T1, 4)
    assert [peer for peer, _ in requests(declare(cluster, [(DEFAULT, 1)]))] == [T1]
    effects = declare(cluster, [(DEFAULT, 1), (DEFAULT, 1, (T1,)), (GPU, 1)], shunned=(T1,))
    assert requests(effects) == []


def test_two_slow_tasks_on_two_task_managers_get_second_attempts_crosswise() -> None:
    """Without blocks (block-slow-node-duration: 0 s): each may run on the TaskManager of the other."""
    cluster = Cluster()
    cluster.register(T1, 4)
    cluster.register(T2, 4)
    requests(declare(cluster, [(DEFAULT, 2)]))
    effects = declare(cluster, [(DEFAULT, 2), (DEFAULT, 1, (T1,)), (DEFAULT, 1, (T2,))])
    assert len(requests(effects)) == 2, reasons(effects)


def test_a_block_starves_no_task_that_can_run_only_there() -> None:
    cluster = Cluster()
    cluster.register(T1, 2, GPU)
    cluster.register(T2, 1)
    assert [peer for peer, _ in requests(declare(cluster, [(DEFAULT, 1)], shunned=(T1,)))] == [T2]
    effects = declare(cluster, [(DEFAULT, 1), (GPU, 1)], shunned=(T1,))
    assert [peer for peer, _ in requests(effects)] == [T1], reasons(effects)
