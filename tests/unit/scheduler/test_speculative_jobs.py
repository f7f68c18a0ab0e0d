"""R67: a slow task gets a second attempt elsewhere, and one of them counts, under one owner and under the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import ExecutionAttemptId, PartitionId
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.resource_manager import JobRequirements
from runtime.gateways.task import OutputDirectory
from runtime.jobgraph.graph import JobGraph, OperatorKind
from runtime.scheduler.core.job_events import AttemptFinished, FailureHandled, SubtasksReset
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings
from runtime.scheduler.core.speculation.settings import SpeculativeSettings
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import (
    THREE_RESTARTS,
    JobMasterDriver,
    location,
    unreadable,
    user_failure,
)

SETTINGS = SpeculativeSettings(is_enabled=True, baseline_ratio=0.5, baseline_lower_bound=0.0)


def read_and_write(**fields: Any) -> JobGraph:
    return graph(
        source("read", parallelism=4, **fields),
        vertex("write", OperatorKind.SINK),
        edges=(edge("read", "write", ExchangeMode.GATHER),),
    )


def begun(made: JobGraph | None = None, **settings: Any) -> JobMasterDriver:
    """Four readers, two on each of two TaskManagers, all RUNNING."""
    speculation = replace(SETTINGS, **settings)
    adaptive = AdaptiveSettings(speculation=speculation)
    job = JobMasterDriver(made or read_and_write(), failover=THREE_RESTARTS, adaptive=adaptive)
    job.offer(1, 2, tm=1)
    job.offer(3, 4, tm=2)
    for attempt_id in job.running():
        job.report(attempt_id, ExecutionState.RUNNING)
    return job


def settle(job: JobMasterDriver) -> None:
    while job.pending_events is not None:
        job.events_durable()


def finish_first(job: JobMasterDriver, tm: int = 1) -> None:
    """The two readers of one TaskManager take one second."""
    job.now += 1.0
    for attempt_id in [one for one in job.running() if job.whereabouts(one) == location(tm)]:
        job.report(attempt_id)
    settle(job)


def slow(job: JobMasterDriver) -> list[ExecutionAttemptId]:
    """What runs on the second TaskManager becomes slow. Returns those attempts."""
    job.now += 1.0
    job.restart_due()
    settle(job)
    return [one for one in job.running() if job.whereabouts(one) == location(2)]


def speculated(job: JobMasterDriver | None = None) -> tuple[JobMasterDriver, ExecutionAttemptId, ExecutionAttemptId]:
    """A slow attempt, and its second one on the first TaskManager."""
    job = job or begun()
    finish_first(job)
    first, _ = slow(job)
    job.offer(5, 6, tm=1)
    (second,) = [one for one in job.running() if one.subtask_index == first.subtask_index and one != first]
    job.report(second, ExecutionState.RUNNING)
    return job, first, second


def subtask(job: JobMasterDriver, index: int) -> Any:
    return job.core.archived().vertices[0].subtasks[index]


def declared(job: JobMasterDriver) -> JobRequirements:
    return job.requirements[-1]


def test_nothing_is_slow_before_enough_have_finished() -> None:
    job = begun()
    job.now += 100.0
    job.restart_due()
    assert len(job.running()) == 4
    assert not declared(job).shunned


def test_what_is_slow_gets_a_second_attempt_on_another_task_manager() -> None:
    job, first, second = speculated()
    assert job.whereabouts(first) == location(2)
    assert job.whereabouts(second) == location(1)
    assert (second.epoch, second.counter) == (first.epoch, first.counter + 1)
    found = subtask(job, first.subtask_index)
    assert (found.current.attempt, [one.attempt for one in found.concurrent]) == (0, [1])
    assert job.core.speculation.slow == 2


def test_the_first_that_finishes_counts_and_the_other_is_cancelled() -> None:
    job, first, second = speculated()
    job.report(second)
    assert first in job.cancelled
    settle(job)
    accepted = [event.attempt_id for batch in job.durable for event in batch if isinstance(event, AttemptFinished)]
    assert second in accepted
    assert first not in accepted
    assert (job.core.speculation.effective, job.core.speculation.wasted) == (1, 1)
    job.report(first, ExecutionState.FINISHED)  # too late
    job.finish_all()
    assert first not in {one.attempt_id for batch in job.durable for one in batch if isinstance(one, AttemptFinished)}
    assert first not in job.unacknowledged
    assert job.pending_result is not None
    assert job.pending_result.status is JobStatus.FINISHED
    prior = subtask(job, first.subtask_index).prior
    assert [(one.attempt, one.state) for one in prior] == [(0, ExecutionState.CANCELED)]


def test_a_second_attempt_is_no_restart() -> None:
    job, first, second = speculated()
    job.report(second)
    settle(job)
    assert [one.restarts for one in job.core.archived().vertices] == [0, 0]
    job.change_owner([1, 2])
    assert [one.restarts for one in job.core.archived().vertices] == [0, 0]
    for _ in range(2):
        for other in [one for one in job.running() if one.subtask_index != first.subtask_index]:
            job.report(other, ExecutionState.FAILED, failure=user_failure())
        job.restart_due()
        settle(job)
        job.offer(11 + len(job.durable), tm=4)
    assert [one.restarts for one in job.core.archived().vertices] == [2, 0]
    job.report(first, ExecutionState.CANCELED)
    job.change_owner([1, 2, 4])
    assert [one.restarts for one in job.core.archived().vertices] == [2, 0]


def test_the_slow_one_may_be_first_after_all() -> None:
    job, first, second = speculated()
    job.report(first)
    assert second in job.cancelled
    assert (job.core.speculation.effective, job.core.speculation.wasted) == (0, 1)
    job.report(second, ExecutionState.CANCELED)
    job.finish_all()
    assert job.has_result()


def test_two_that_finish_in_one_message_count_once() -> None:
    job, first, second = speculated()
    job.reports(job.make_report(first), job.make_report(second))
    job.finish_all()
    accepted = [event for batch in job.durable for event in batch if isinstance(event, AttemptFinished)]
    assert [one.attempt_id.subtask_index for one in accepted if one.attempt_id in {first, second}] == [
        first.subtask_index
    ]
    assert job.has_result()


def test_consumers_do_not_wait_for_the_slow_one_and_the_end_of_the_job_does() -> None:
    job, first, second = speculated()
    for attempt_id in [one for one in job.running() if one != first]:
        if attempt_id.subtask_index != first.subtask_index and job.whereabouts(attempt_id) == location(2):
            job.report(attempt_id)
    for attempt_id in [one for one in job.running() if one != first]:
        job.report(attempt_id)
    settle(job)
    job.offer(7, tm=1)
    (write,) = [one for one in job.running() if one != first]
    assert job.deployed[write].task.vertex_name == "write"
    assert job.deployed[write].inputs[0].partitions[first.subtask_index].partition_id.producer == second
    job.report(write)
    settle(job)
    assert not job.has_result()
    assert "1 slower attempts of finished tasks to stop" in job.core.summary().pending_reason
    job.report(first, ExecutionState.CANCELED)
    assert job.has_result()


@pytest.mark.parametrize(
    "fields",
    [{"exclusive": True}, {"parallelism": 1}],
)
def test_exclusive_vertices_and_lone_subtasks_have_one_attempt(fields: dict[str, Any]) -> None:
    made = graph(
        source("read", **{"parallelism": 4, **fields}),
        vertex("write", OperatorKind.SINK),
        edges=(edge("read", "write", ExchangeMode.GATHER),),
    )
    job = begun(made)
    finish_first(job)
    slow(job)
    job.offer(5, 6, tm=1)
    assert len({one.subtask_index for one in job.running()}) == len(job.running())


def test_without_the_option_nothing_happens() -> None:
    job = begun(is_enabled=False)
    finish_first(job)
    slow(job)
    job.offer(5, 6, tm=1)
    assert len(job.running()) == 2
    assert not declared(job).shunned
    assert not job.restarts


@pytest.mark.parametrize("at_most", [2, 3])
def test_at_most_so_many_attempts_of_a_subtask(at_most: int) -> None:
    job, first, _ = speculated(begun(concurrent_max=at_most))
    job.now += 100.0
    job.restart_due()
    settle(job)
    job.offer(7, 8, tm=3)
    attempts = [one for one in job.running() if one.subtask_index == first.subtask_index]
    assert len(attempts) == at_most
    assert len({job.whereabouts(one) for one in attempts}) == at_most
    assert len({job.deployed[one].ordinal for one in attempts}) == at_most


def test_a_second_attempt_that_is_not_slow_itself_suffices() -> None:
    job, first, _ = speculated(begun(concurrent_max=3))
    job.now += 1.0  # less than the second attempt may take
    job.restart_due()
    job.offer(7, 8, tm=3)
    assert len([one for one in job.running() if one.subtask_index == first.subtask_index]) == 2


def test_its_own_task_manager_is_no_other() -> None:
    job = begun(block_seconds=0.0)
    finish_first(job)
    slow(job)
    assert [(one.count, one.without) for one in declared(job).requirements] == [
        (2, ()),
        (2, (location(2).incarnation,)),
    ]
    job.offer(7, 8, tm=2)
    assert len(job.running()) == 2
    assert job.slots.isdisjoint(number for number, where in job.places.items() if str(number)[-1] in "78")


def test_a_slot_that_is_free_beside_it_is_on_no_other() -> None:
    job = begun(block_seconds=0.0)
    finish_first(job)
    first, second = slow(job)
    job.report(second)
    settle(job)
    assert job.core.speculation.wasted == 0, "its second attempt never began"
    assert [one for one in job.running() if one.subtask_index == first.subtask_index] == [first]


def test_a_blocked_task_manager_is_used_only_while_there_is_no_other() -> None:
    job = begun()
    finish_first(job)
    slow(job)
    assert declared(job).shunned == (location(2).incarnation,)
    job.now += 59.0
    job.restart_due()
    assert declared(job).shunned == (location(2).incarnation,)


def test_a_block_is_lifted_when_nothing_was_slow_for_its_time() -> None:
    job, _, _ = speculated()
    for attempt_id in job.running():
        job.report(attempt_id)
    settle(job)
    for attempt_id in job.cancelled:
        job.report(attempt_id, ExecutionState.CANCELED)
    assert location(2).incarnation in job.core._scheduler._placement.blocked  # type: ignore[union-attr]
    job.now += 61.0
    job.restart_due()
    assert not job.core._scheduler._placement.blocked  # type: ignore[union-attr]


def test_a_job_whose_only_task_manager_is_blocked_goes_on_there() -> None:
    adaptive = AdaptiveSettings(speculation=SETTINGS)
    made = read_and_write()
    job = JobMasterDriver(made, failover=THREE_RESTARTS, adaptive=adaptive)
    job.offer(1, 2, tm=1)
    first, second = job.running()
    for attempt_id in (first, second):
        job.report(attempt_id, ExecutionState.RUNNING)
    job.now += 1.0
    job.report(first)
    settle(job)
    third = next(one for one in job.running() if one != second)
    job.report(third, ExecutionState.RUNNING)
    job.now += 1.0
    job.report(third)
    settle(job)
    job.now += 2.0
    job.restart_due()
    assert declared(job).shunned == (location(1).incarnation,)
    job.finish_all()
    job.offer(3, tm=1)
    job.finish_all()
    assert job.has_result()


# --- failures -------------------------------------------------------------------------------------------------


def test_a_failure_beside_another_attempt_restarts_nothing() -> None:
    job, first, second = speculated()
    job.report(second, ExecutionState.FAILED, failure=user_failure())
    assert job.status() is JobStatus.RUNNING
    assert first not in job.cancelled
    assert [one.failure.message for one in job.core.archived().exceptions] == ["boom"]
    job.now += 100.0
    job.restart_due()
    settle(job)
    job.offer(7, 8, tm=3)
    assert [one for one in job.running() if one.subtask_index == first.subtask_index] == [first]
    job.finish_all()
    resets = [event for batch in job.durable for event in batch if isinstance(event, SubtasksReset)]
    handled = [event for batch in job.durable for event in batch if isinstance(event, FailureHandled)]
    assert (len(resets), [one.backoff_seconds for one in handled]) == (0, [None])
    assert job.has_result()


def test_when_the_slow_one_fails_the_other_is_the_task() -> None:
    job, first, second = speculated()
    job.report(first, ExecutionState.FAILED, failure=user_failure())
    assert job.status() is JobStatus.RUNNING
    found = subtask(job, first.subtask_index)
    assert (found.current.attempt, found.concurrent) == (1, ())
    job.report(second)
    job.finish_all()
    assert job.has_result()


def test_when_both_fail_the_task_restarts_once_with_a_number_of_its_own() -> None:
    job, first, second = speculated()
    job.report(second, ExecutionState.FAILED, failure=user_failure())
    job.report(first, ExecutionState.FAILED, failure=user_failure())
    assert job.status() is JobStatus.RESTARTING
    job.restart_due()
    settle(job)
    (reset,) = [event for batch in job.durable for event in batch if isinstance(event, SubtasksReset)]
    assert reset.ordinals == (2,)
    job.offer(7, 8, tm=3)
    (third,) = [one for one in job.running() if one.subtask_index == first.subtask_index]
    assert job.deployed[third].ordinal == 2
    assert third.counter == 2
    job.finish_all()
    assert job.has_result()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_final_failure_of_one_ends_the_job(*, is_first: bool) -> None:
    job, first, second = speculated()
    failure = replace(user_failure(), is_recoverable=False)
    job.report(first if is_first else second, ExecutionState.FAILED, failure=failure)
    assert job.status() is JobStatus.FAILING
    other = second if is_first else first
    assert other in job.cancelled
    assert not job.has_result()
    for attempt_id in job.running():
        job.report(attempt_id, ExecutionState.CANCELED)
    settle(job)
    assert job.has_result()


def with_readers() -> JobGraph:
    return graph(
        source("seed"),
        vertex("read", parallelism=4),
        vertex("write", OperatorKind.SINK),
        edges=(edge("seed", "read", ExchangeMode.BROADCAST), edge("read", "write", ExchangeMode.GATHER)),
    )


def test_a_lost_partition_restarts_its_producer_and_ends_both_attempts() -> None:
    job = JobMasterDriver(with_readers(), failover=THREE_RESTARTS, adaptive=AdaptiveSettings(speculation=SETTINGS))
    job.offer(1, tm=1)
    (seed,) = job.running()
    job.report(seed)
    settle(job)
    job.offer(2, tm=1)
    job.offer(3, 4, tm=2)
    for attempt_id in job.running():
        job.report(attempt_id, ExecutionState.RUNNING)
    _, first, second = speculated(job)
    job.report(second, ExecutionState.FAILED, failure=unreadable(PartitionId(seed, 0)))
    assert first in job.cancelled
    for attempt_id in job.running():
        job.report(attempt_id, ExecutionState.CANCELED)
    job.restart_due()
    settle(job)
    job.offer(11, 12, tm=4)
    assert [job.deployed[one].task.vertex_name for one in job.running()] == ["seed"]
    job.finish_all()
    job.offer(13, 14, 15, tm=4)
    job.finish_all()
    job.offer(16, tm=4)
    job.finish_all()
    assert job.has_result()


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_task_manager_takes_one_of_them(lost: int) -> None:
    job, first, second = speculated()
    job.lose_task_manager(lost)
    left = first if lost == 1 else second
    assert subtask(job, first.subtask_index).current.attempt_id == str(left)
    assert not subtask(job, first.subtask_index).concurrent
    job.report(left)
    assert left not in job.cancelled


def test_a_cancel_stops_both_and_waits_for_both() -> None:
    job, first, second = speculated()
    job.core._scheduler.cancel("")  # type: ignore[union-attr]
    job.restart_due()
    assert {first, second} <= set(job.cancelled)
    for attempt_id in job.running():
        if attempt_id != second:
            job.report(attempt_id, ExecutionState.CANCELED)
    settle(job)
    assert not job.has_result()
    job.report(second, ExecutionState.CANCELED)
    settle(job)
    assert job.has_result()


def test_outputs_are_those_of_the_one_that_counts() -> None:
    job, first, second = speculated()
    written = OutputDirectory("/out", f"/out/.attempt-{second}", "append")
    job.report(second, outputs=(written,))
    job.report(first, outputs=(OutputDirectory("/out", f"/out/.attempt-{first}", "append"),))
    job.finish_all()
    job.offer(9, tm=1)
    job.finish_all()
    ((_, order),) = job.commits
    assert order.outputs == (written,)


# --- what waits behind what is slow ---------------------------------------------------------------------------


def test_what_waits_behind_a_slow_task_gets_a_second_attempt_too() -> None:
    made = read_and_write()
    job = JobMasterDriver(made, failover=THREE_RESTARTS, adaptive=AdaptiveSettings(speculation=SETTINGS))
    job.offer(1, tm=1)
    job.report(job.running()[0])  # short: others wait behind the next one
    settle(job)
    assert len(job.running()) == 3
    job.report(job.running()[0])
    settle(job)
    head, waiting = job.running()
    job.now += 1.0
    job.restart_due()
    settle(job)
    job.offer(5, 6, tm=2)
    assert {one.subtask_index for one in job.running() if job.whereabouts(one) == location(2)} == {
        head.subtask_index,
        waiting.subtask_index,
    }
