"""Slots of a TaskManager that drains: what runs there goes on, nothing more is put there, and each is given back."""

from __future__ import annotations

from runtime.common.ids import AllocationId
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import FreeSlots
from runtime.gateways.task import FailureInfo
from runtime.jobgraph.restart_strategy import NoRestartStrategy
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.job_events import FailureHandled
from tests.kit.control_plane.job_graphs import graph, source
from tests.kit.control_plane.job_master_driver import JobMasterDriver, allocation, location

E = ExecutionState
DRAINED = FailureInfo("TaskManagerDrained", "it drains", "", "SYSTEM", True, 0, is_isolation=True)


def wide(parallelism: int) -> JobMasterDriver:
    job = JobMasterDriver(
        graph(source("read", parallelism=parallelism)), failover=FailoverSettings(restart_strategy=NoRestartStrategy())
    )
    job.offer(1, 2, tm=1)
    return job


def close(job: JobMasterDriver, *numbers: int) -> None:
    job.drains(1, *map(allocation, numbers))


def freed(job: JobMasterDriver) -> list[AllocationId]:
    return [one for message in job.messages(FreeSlots) for one in message.allocations]


def test_what_runs_goes_on_and_the_next_tasks_wait_for_other_slots() -> None:
    job = wide(4)
    first, second = job.running()
    close(job, 1, 2)
    assert freed(job) == []
    job.report(first)
    assert freed(job) == [allocation(1)]
    assert job.running() == [second], "nothing is deployed into a closed slot"
    assert job.requirements[-1].requirements[0].count == 3
    job.report(second)
    assert freed(job) == [allocation(1), allocation(2)]
    job.offer(3, tm=2)
    assert [job.places[slot] for slot, held in job.in_slot.items() if held] == [location(2)]
    job.finish_all()
    job.result_durable()
    assert job.status() is JobStatus.FINISHED


def test_what_is_released_runs_elsewhere_and_counts_for_nothing() -> None:
    job = wide(2)
    first, second = job.running()
    close(job, 1, 2)
    job.report(first, E.FAILED, failure=DRAINED)
    job.report(second)
    job.events_durable()
    job.events_durable()
    assert job.status() is JobStatus.RUNNING, "although its strategy allows no restart at all"
    handled = [event for batch in job.durable for event in batch if isinstance(event, FailureHandled)]
    assert [event.backoff_seconds for event in handled] == [None]
    job.offer(3, tm=2)
    job.finish_all()
    job.result_durable()
    assert job.status() is JobStatus.FINISHED


def test_a_slot_that_is_idle_or_not_ours_is_simply_given_back() -> None:
    job = wide(2)
    for attempt in job.running():
        job.report(attempt, E.RUNNING)
    close(job, 9)
    assert freed(job) == []


def test_an_heir_is_told_before_it_deploys() -> None:
    job = wide(3)
    first, _ = job.running()
    job.begin_next_owner()
    assert job.graph is not None
    job.handle(ev.TaskManagersRegistered(frozenset({location(1).incarnation}), job.at()))
    close(job, 1, 2)
    job.handle(job.census_of(location(1)))
    job.handle(ev.JobRead(job.graph, (), job.at()))
    job.report(first)
    assert freed(job) == [allocation(1)]


def test_what_only_waited_is_told_to_be_the_first_that_begins() -> None:  # D-067
    job = wide(2)
    waited, ran = job.running()
    assert all(job.deployed[one].is_first_to_begin for one in (waited, ran))
    job.report(ran, E.RUNNING)
    close(job, 1, 2)
    job.report(waited, E.FAILED, failure=DRAINED, has_not_begun=True)
    job.report(ran, E.FAILED, failure=DRAINED)
    while job.pending_events is not None:
        job.events_durable()
    job.offer(3, 4, tm=2)
    begun = {one.subtask_index: job.deployed[one] for one in job.running()}
    assert [begun[one.subtask_index].is_first_to_begin for one in (waited, ran)] == [True, False]
    assert {task.ordinal for task in begun.values()} == {1}


def test_what_never_began_is_known_to_later_owners() -> None:
    job = wide(2)
    waited, ran = job.running()
    close(job, 1, 2)
    job.report(waited, E.FAILED, failure=DRAINED, has_not_begun=True)
    job.report(ran, E.FAILED, failure=DRAINED)
    while job.pending_events is not None:
        job.events_durable()
    job.change_owner([1])
    job.offer(3, 4, tm=2)
    begun = {one.subtask_index: job.deployed[one] for one in job.running()}
    assert [begun[one.subtask_index].is_first_to_begin for one in (waited, ran)] == [True, False]


def test_a_report_that_it_never_began_counts_for_the_owner_that_hears_it() -> None:
    job = wide(1)
    (waited,) = job.running()
    job.cut_off(1)
    job.report(waited, E.FAILED, failure=DRAINED, has_not_begun=True)
    job.change_owner([1])
    while job.pending_events is not None:
        job.events_durable()
    job.offer(3, tm=2)
    (begun,) = job.running()
    assert (job.deployed[begun].ordinal, job.deployed[begun].is_first_to_begin) == (1, True)
