"""The demand of which a driver is told: slots that jobs lack, and that more TaskManagers would give (R65)."""

from __future__ import annotations

import pytest

from runtime.common.shares import JobShare, QueueSettings
from runtime.gateways.resource_manager import ResourceProfile, SlotsFreed
from runtime.resourcemanager.core import events as ev
from tests.kit.control_plane.slot_requests import ANY_PROFILE, T1, Cluster, job, kinds, reasons, requests


def lacking(*, slots: int, jobs: tuple[int, ...], queues: dict[str, QueueSettings] | None = None) -> int:
    """`jobs`: slots that each job needs. Jobs are in the queue `etl`."""
    cluster = Cluster(queues, profiles=ANY_PROFILE)
    if slots:
        cluster.register(T1, slots)
    for number, count in enumerate(jobs, 1):
        cluster.shares[job(number)] = JobShare("etl")
        cluster.declare(number, count)
    return cluster.lacking_slots()


@pytest.mark.parametrize(
    ("slots", "jobs", "expected"),
    [(0, (), 0), (0, (1,), 1), (0, (3, 2), 5), (4, (3, 2), 1), (4, (2, 2), 0)],
)
def test_what_jobs_have_declared_and_do_not_hold(slots: int, jobs: tuple[int, ...], expected: int) -> None:
    assert lacking(slots=slots, jobs=jobs) == expected


@pytest.mark.parametrize(("most", "expected"), [(1, 0), (2, 0), (3, 1), (100, 18)])
def test_what_a_queue_may_not_have_is_not_lacking(most: int, expected: int) -> None:
    queues = {"etl": QueueSettings(max_slots=most)}
    assert lacking(slots=2, jobs=(1,) * 20, queues=queues) == expected


def test_jobs_above_the_number_that_may_run_at_once_lack_nothing() -> None:
    assert lacking(slots=2, jobs=(1,) * 20, queues={"etl": QueueSettings(max_running_jobs=2)}) == 0


@pytest.mark.parametrize(("jobs", "expected"), [((1,) * 20, 2), ((3, 1, 5), 4), ((3,), 3)])
def test_jobs_lack_slots_up_to_the_number_that_may_run_at_once(jobs: tuple[int, ...], expected: int) -> None:
    queues = {"etl": QueueSettings(max_running_jobs=2)}
    assert lacking(slots=0, jobs=jobs, queues=queues) == expected
    both = {"etl": QueueSettings(max_running_jobs=2, max_slots=3)}
    assert lacking(slots=0, jobs=jobs, queues=both) == min(3, expected)


def test_a_job_that_runs_lacks_the_rest_of_its_slots_whatever_the_number_of_jobs() -> None:
    assert lacking(slots=2, jobs=(5, 1, 1), queues={"etl": QueueSettings(max_running_jobs=1)}) == 3


@pytest.mark.parametrize("limit", [QueueSettings(max_running_jobs=1), QueueSettings(max_slots=1)])
def test_jobs_whose_limit_was_lifted_lack_slots_and_are_told(limit: QueueSettings) -> None:
    cluster = Cluster({"etl": limit}, profiles=ANY_PROFILE)
    cluster.shares = {job(number): JobShare("etl") for number in range(1, 500) if number != 2}
    cluster.register(T1, 1)
    (_, request), *_ = requests(cluster.declare(1, 1))
    for number in range(2, 400):
        cluster.declare(number, 1)
    assert cluster.lacking_slots() == 1, "the limit holds"
    cluster.declare(1, 0)
    cluster.at += 2.0
    freed = cluster.handle(ev.AllocationsFreed(T1, SlotsFreed((request.allocation_id,))))
    assert [one.job_id for _, one in requests(freed)] == [job(2)], "of another queue"
    assert list(reasons(freed)) == [job(2)]
    assert cluster.lacking_slots() == 1
    told = [cluster.tick(1.0) for _ in range(5)]
    assert [len(one) for one in told] == [100, 100, 100, 97, 0]
    assert set(kinds(told[0]).values()) == {"slots"}


def test_a_job_that_no_slot_fits_lacks_none() -> None:
    cluster = Cluster(profiles=ANY_PROFILE)
    cluster.register(T1, 2)
    cluster.declare(1, 1, profile=ResourceProfile(memory_bytes=1 << 40))
    assert cluster.lacking_slots() == 0


def test_who_waits_without_a_task_manager_is_told_what_the_driver_does() -> None:
    cluster = Cluster()
    cluster.declare(1, 1)
    effects = cluster.handle(ev.AdviceChanged("TaskManagers do not come up: no memory"))
    assert reasons(effects) == {job(1): "no TaskManager is registered: TaskManagers do not come up: no memory"}
    assert cluster.handle(ev.AdviceChanged("TaskManagers do not come up: no memory")) == []


def test_who_waits_for_slots_in_use_is_told_what_is_coming() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    cluster.declare(1, 1)
    told = reasons(cluster.declare(2, 1))
    assert told == {job(2): "no free slot: all 1 slots that fit are in use"}
    effects = cluster.handle(ev.AdviceChanged("2 TaskManagers are starting", "2 TaskManagers are starting"))
    assert reasons(effects) == {job(2): "no free slot: all 1 slots that fit are in use; 2 TaskManagers are starting"}
    assert reasons(cluster.handle(ev.AdviceChanged("the driver starts one"))) == told


def test_what_is_coming_is_no_comfort_for_who_lacks_another_kind_of_slot() -> None:
    cluster = Cluster()
    cluster.register(T1, 1)
    (reason,) = reasons(cluster.declare(1, 1, profile=ResourceProfile(memory_bytes=1 << 40))).values()
    assert reason.startswith("none of 1 TaskManagers can hold a task with 1048576 MiB memory: the largest has 1 slots")
    assert not reasons(cluster.handle(ev.AdviceChanged("2 TaskManagers are starting", "2 TaskManagers are starting")))
