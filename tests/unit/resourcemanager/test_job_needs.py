"""What a job lacks, per profile, and which TaskManagers are idle: what a resource driver asks."""

from __future__ import annotations

import pytest

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.gateways.resource_manager import ResourceProfile, ResourceRequirement
from runtime.resourcemanager.core.job_needs import JobNeeds
from runtime.resourcemanager.core.reach import Reach
from runtime.resourcemanager.core.slots import Allocation
from tests.kit.control_plane.slot_requests import T1, T2, Cluster, job, requests

SMALL, LARGE = ResourceProfile(), ResourceProfile(memory_bytes=1 << 30)
DECLARED = (ResourceRequirement(SMALL, 3), ResourceRequirement(LARGE, 2))


def needs(**held: int) -> JobNeeds:
    """A job that has declared 3 small and 2 large slots, and holds `small`, `large` and `unknown` ones."""
    made = JobNeeds(job(1), 5, Incarnation("c" * 32), "owner:1", DECLARED)
    for profile, name in ((SMALL, "small"), (LARGE, "large"), (None, "unknown")):
        made.held[profile] = held.get(name, 0)
    return made


@pytest.mark.parametrize(
    ("held", "unfulfilled"),
    [
        pytest.param({}, [(SMALL, 3), (LARGE, 2)], id="all"),
        pytest.param({"small": 1, "large": 2}, [(SMALL, 2)], id="one profile"),
        pytest.param({"small": 3, "large": 2}, [], id="nothing"),
        pytest.param({"small": 9}, [(LARGE, 2)], id="more of one profile is nothing of another"),
        pytest.param({"unknown": 4}, [(LARGE, 1)], id="unknown ones count for what is short first"),
        pytest.param({"unknown": 2, "large": 2}, [(SMALL, 1)], id="unknown ones count once"),
        pytest.param({"unknown": 9}, [], id="unknown ones are enough"),
    ],
)
def test_what_is_missing(held: dict[str, int], unfulfilled: list[tuple[ResourceProfile, int]]) -> None:
    made = needs(**held)
    assert [(need.profile, count) for need, count in made.unfulfilled()] == unfulfilled
    assert made.missing() == (unfulfilled[0][0] if unfulfilled else None)


def test_a_slot_that_the_owner_cannot_reach_fulfils_nothing() -> None:
    made = needs(small=2, large=2)
    made.reach = Reach(named=frozenset({T1}))
    for number, incarnation in enumerate((T1, T2)):
        made.hold(Allocation(AllocationId(f"{number:032x}"), incarnation, number, JobId("1" * 32), SMALL, None), 1)
    assert made.held[SMALL] == 3
    assert list(made.unfulfilled()) == []


def idle(cluster: Cluster) -> list[Incarnation]:
    return [peer.incarnation for peer in cluster.manager.task_managers() if peer.is_idle]


def test_a_task_manager_is_idle_while_no_slot_of_it_is_promised_or_in_use() -> None:
    cluster = Cluster()
    cluster.register(T1, 2)
    assert idle(cluster) == [T1]
    ((_, request),) = requests(cluster.declare(1, 1))
    assert idle(cluster) == []
    cluster.report(T1, [(request.allocation_id, request.job_id), None])
    assert idle(cluster) == []
    cluster.declare(1, 0)
    cluster.report(T1, [None, None])
    assert idle(cluster) == [T1]
