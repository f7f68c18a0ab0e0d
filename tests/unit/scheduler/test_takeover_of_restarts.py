"""An owner changes while a job restarts, or while its time runs: nothing counts anew."""

from __future__ import annotations

import pytest

from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import DeployTasks
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.job_events import FailureHandled, JobStarted, PartitionsLost, SubtasksReset
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import EPOCH, JobMasterDriver, unreadable, user_failure

E = ExecutionState
J = JobStatus
PAUSE = 10.0


def once(*, is_full: bool = False) -> FailoverSettings:
    strategy = FixedDelayRestartStrategy(attempts=1, delay_seconds=PAUSE)
    return FailoverSettings(restart_strategy=strategy, user_failures="restart", is_full=is_full)


def pair(timeout: float | None = None) -> JobGraph:
    return graph(source("read", parallelism=2), execution_timeout_seconds=timeout)


def started(job_graph: JobGraph, *, is_full: bool = False) -> JobMasterDriver:
    job = JobMasterDriver(job_graph, failover=once(is_full=is_full))
    job.offer(1, tm=1)
    job.offer(2, tm=2)
    return job


def events_of(job: JobMasterDriver, kind: type) -> list[object]:
    return [event for batch in job.durable for event in batch if isinstance(event, kind)]


# --- the execution timeout ----------------------------------------------------------------------------------


def test_a_job_without_a_timeout_writes_nothing_at_its_start() -> None:
    job = started(pair())
    job.handle(ev.Ticked(job.at()))
    assert job.pending_events is None


def test_the_start_of_a_job_with_a_timeout_is_durable_with_the_next_batch() -> None:
    job = started(pair(60.0))
    assert job.pending_events is None, "nobody waits for it"
    assert job.core.wants_tick
    job.handle(ev.Ticked(job.at()))
    job.events_durable()
    assert events_of(job, JobStarted) == [JobStarted(job.at().millis)]
    assert job.deadlines == [60.0]


def test_the_timeout_runs_on_under_the_next_owners() -> None:
    job = started(pair(60.0))
    job.handle(ev.Ticked(job.at()))
    job.events_durable()
    for now in (25.0, 50.0):
        job.now = now
        job.change_owner([1, 2])
        assert job.deadlines == [60.0]
        assert job.pending_events is None, "the start is written once"
    job.now = 60.0
    job.handle(ev.DeadlineReached(job.at()))
    assert job.status() is J.FAILING


def test_a_timeout_that_is_over_meanwhile_ends_the_job_also_when_nothing_of_it_runs() -> None:
    job = started(pair(60.0))
    first, second = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.events_durable()
    job.lose_task_manager(1, is_reaped=True)
    job.report(second)
    job.now = 70.0
    job.lose_task_manager(2)
    job.change_owner([])
    assert job.deadlines == [60.0], "it is due at once"
    job.handle(ev.DeadlineReached(job.at()))
    assert job.status() is J.FAILING
    job.events_durable()
    assert job.has_result()


# --- failures that were counted -----------------------------------------------------------------------------


def test_a_failure_that_was_counted_is_not_counted_again_when_it_is_reported_again() -> None:
    job = started(pair())
    first, _ = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.events_durable()
    job.now = 4.0
    job.change_owner([1, 2])
    assert job.status() is J.RESTARTING
    assert job.restarts == [PAUSE], "the pause is not begun anew"
    assert job.pending_events is None, "it is durable already"
    job.restart_due()
    job.events_durable()
    assert job.status() is J.RUNNING
    assert len(events_of(job, FailureHandled)) == 1
    assert len(job.core.archived().exceptions) == 1
    job.finish_all()
    job.result_durable()
    assert job.status() is J.FINISHED


def test_a_second_failure_is_counted() -> None:
    job = started(pair())
    first, second = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.events_durable()
    job.change_owner([1, 2])
    job.report(second, E.FAILED, failure=user_failure())
    assert job.status() is J.FAILING, "one restart is allowed, and this is the second failure"


def test_a_failure_that_the_last_owner_had_not_made_durable_is_counted_by_the_next_one() -> None:
    job = started(pair())
    first, _ = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.change_owner([1, 2])
    job.events_durable()
    assert len(events_of(job, FailureHandled)) == 1


def test_what_failed_and_is_nowhere_any_more_waits_for_its_restart_as_before() -> None:
    job = started(pair())
    first, _ = job.running()
    running = job.core.graph.execution(first)
    assert running is not None
    job.report(first, E.FAILED, failure=user_failure())
    job.events_durable()
    job.lose_task_manager(1)
    job.now = 4.0
    job.change_owner([2])
    assert (job.status(), job.restarts) == (J.RESTARTING, [PAUSE])
    failed = job.core.graph.execution(first)
    assert failed is not None
    assert failed is not running
    assert failed.timestamps[E.DEPLOYING] == running.timestamps[E.DEPLOYING]
    assert (failed.state, failed.failure) == (E.FAILED, user_failure())
    job.offer(3, tm=2)
    assert len(job.running()) == 1, "not before the pause is over"
    job.restart_due()
    job.events_durable()
    (reset,) = events_of(job, SubtasksReset)
    assert isinstance(reset, SubtasksReset)
    assert reset.ordinals == (1,), "people see that it is the second attempt"
    job.offer(4, tm=2)
    (fresh,) = [one for one in job.running() if one.epoch == EPOCH + 1]
    assert job.deployed[fresh].ordinal == 1


@pytest.mark.parametrize("losses", [3, 4])
def test_partitions_that_cannot_be_read_count_against_their_producer_once_under_all_owners(losses: int) -> None:
    two = graph(source("read"), vertex("sum"), edges=(edge("read", "sum"),))
    job = JobMasterDriver(two, failover=once())
    for number in range(losses):
        job.offer(2 * number + 1, tm=1)
        [reading] = job.running()
        job.report(reading)
        job.events_durable()
        if not job.running():
            job.offer(2 * number + 2, tm=1)
        [summing] = job.running()
        lost = [partition.partition_id for gate in job.deployed[summing].inputs for partition in gate.partitions]
        job.report(summing, E.FAILED, failure=unreadable(*lost))
        if job.status() is J.FAILING:
            break
        if job.pending_events is not None:
            job.events_applied()
        job.change_owner([1])
        job.events_durable()
        job.events_durable()
    assert (job.status() is J.FAILING) == (losses == 4)
    assert len(events_of(job, PartitionsLost)) == 3


# --- attempts that were being cancelled ---------------------------------------------------------------------


def test_what_was_being_cancelled_goes_on_being_cancelled_and_restarts_uncounted() -> None:
    job = started(pair(), is_full=True)
    first, second = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.events_durable()
    assert job.cancelled == [second]
    job.change_owner([1, 2])
    adopted = job.core.graph.execution(second)
    assert adopted is not None
    assert adopted.state is E.CANCELING
    job.report(second, E.CANCELED)
    job.restart_due()
    job.events_durable()
    (reset,) = events_of(job, SubtasksReset)
    assert isinstance(reset, SubtasksReset)
    assert reset.subtasks == (0, 1)
    assert len(events_of(job, FailureHandled)) == 1
    assert job.status() is J.RUNNING


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_cancelled_task_is_run_again_also_when_nobody_knows_why_it_was_cancelled(*, has_ended: bool) -> None:
    job = started(pair(), is_full=True)
    first, second = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.lose_task_manager(1)
    if has_ended:
        job.report(second, E.CANCELED)
    job.change_owner([2])
    if not has_ended:
        job.report(second, E.CANCELED)
    job.events_durable()
    assert job.status() is J.RUNNING
    assert events_of(job, FailureHandled) == []
    job.offer(3, 4, tm=2)
    assert len(job.messages(DeployTasks)[-1].tasks) >= 1
    job.finish_all()
    job.result_durable()
    assert job.status() is J.FINISHED


def test_a_job_that_is_cancelled_waits_for_what_was_being_cancelled() -> None:
    job = started(pair(), is_full=True)
    first, second = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.events_durable()
    job.change_owner([1, 2])
    job.handle(ev.CancelWanted(job.at()))
    assert not job.has_result()
    job.report(second, E.CANCELED)
    assert job.has_result()


def test_a_failure_that_only_the_dead_knew_is_a_loss() -> None:
    """Owner and TaskManager die at once: no report and no event is left of it, so it is one lost task of many."""
    job = JobMasterDriver(graph(source("read")))
    job.offer(1, tm=1)
    (first,) = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    assert job.status() is J.FAILING, "it is final, and not durable yet"
    job.begin_next_owner()
    job.pending_result = None
    job.lose_task_manager(1, is_reaped=True)
    job.handle(ev.TaskManagersRegistered(frozenset(), job.at()))
    assert job.graph is not None
    job.handle(ev.JobRead(job.graph, (), job.at()))
    job.offer(2, tm=2)
    (again,) = job.running()
    assert (again.subtask_index, job.deployed[again].ordinal) == (0, 0)
    job.finish_all()
    job.result_durable()
    assert job.status() is J.FINISHED
