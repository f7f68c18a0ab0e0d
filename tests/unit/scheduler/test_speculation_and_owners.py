"""R67 across owners: what a next owner waits for, and numbers that are given once."""

from __future__ import annotations

import pytest

from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.job_events import AttemptFinished, SubtasksReset
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings
from tests.kit.control_plane.job_master_driver import JobMasterDriver, user_failure
from tests.unit.scheduler.test_speculative_jobs import SETTINGS, read_and_write, settle, speculated, subtask

LATE = FailoverSettings(
    restart_strategy=FixedDelayRestartStrategy(attempts=3, delay_seconds=10.0), user_failures="restart"
)


@pytest.mark.parametrize("is_durable", [True, False])
def test_the_next_owner_waits_for_the_slower_one_too(*, is_durable: bool) -> None:
    job, first, second = speculated()
    job.report(second)
    if is_durable:
        settle(job)
    job.change_owner([1, 2])
    settle(job)
    for _ in range(10):
        for attempt_id in [one for one in job.running() if one not in {first, second}]:
            job.report(attempt_id)
        settle(job)
        job.offer(100 + len(job.places), tm=3)
    assert first in job.running()
    assert not job.has_result(), "the slower attempt still runs"


def third_attempt(job: JobMasterDriver, first: ExecutionAttemptId, second: ExecutionAttemptId) -> ExecutionAttemptId:
    job.offer(50, 51, 52, 53, tm=3)
    of_subtask = [one for one in job.running() if one.subtask_index == first.subtask_index]
    (third,) = [one for one in of_subtask if one not in {first, second}]
    return third


def both_fail(*, is_first_last: bool) -> tuple[JobMasterDriver, ExecutionAttemptId, ExecutionAttemptId]:
    """Both attempts fail, and their restart is due later."""
    job = JobMasterDriver(read_and_write(), failover=LATE, adaptive=AdaptiveSettings(speculation=SETTINGS))
    job.offer(1, 2, tm=1)
    job.offer(3, 4, tm=2)
    for attempt_id in job.running():
        job.report(attempt_id, ExecutionState.RUNNING)
    job, first, second = speculated(job)
    for attempt_id in (second, first) if is_first_last else (first, second):
        job.report(attempt_id, ExecutionState.FAILED, failure=user_failure())
    job.handle(ev.Ticked(job.at()))
    settle(job)
    return job, first, second


@pytest.mark.parametrize(
    ("is_first_last", "takes_over"),
    [(False, False), (True, False), (False, True), (True, True)],
)
def test_after_both_have_failed_the_number_is_new(*, is_first_last: bool, takes_over: bool) -> None:
    job, first, second = both_fail(is_first_last=is_first_last)
    if takes_over:
        job.change_owner([1, 2])
    job.now += 20.0
    job.restart_due()
    settle(job)
    assert job.deployed[third_attempt(job, first, second)].ordinal == 2


def test_a_second_attempt_under_the_next_owner_has_a_number_of_its_own() -> None:
    """Readers of logs know an attempt by its number, and have read attempt 1 to its end."""
    job, first, second = speculated()
    job.report(second, ExecutionState.FAILED, failure=user_failure())
    settle(job)
    job.change_owner([1, 2])
    job.now += 10.0
    job.restart_due()
    settle(job)
    assert job.deployed[third_attempt(job, first, second)].ordinal == 2


def test_the_next_owner_goes_on_with_both() -> None:
    job, first, second = speculated()
    job.change_owner([1, 2])
    assert not set(job.cancelled) & {first, second}
    found = subtask(job, first.subtask_index)
    assert (found.current.attempt, [one.attempt for one in found.concurrent]) == (0, [1])
    job.report(second)
    assert first in job.cancelled
    job.finish_all()
    job.report(first, ExecutionState.CANCELED)
    job.finish_all()
    assert job.has_result()


def test_the_next_owner_has_the_one_that_finished_and_stops_the_other() -> None:
    job, first, second = speculated()
    job.report(second)
    job.cancelled.clear()
    job.change_owner([1, 2])
    settle(job)
    assert first in job.cancelled
    accepted = [event.attempt_id for batch in job.durable for event in batch if isinstance(event, AttemptFinished)]
    assert second in accepted


def test_the_next_owner_knows_who_was_accepted() -> None:
    job, first, second = speculated()
    job.report(second)
    settle(job)
    job.change_owner([1, 2])
    assert subtask(job, first.subtask_index).current.attempt_id == str(second)
    assert first in job.cancelled
    job.report(first)
    job.finish_all()
    assert job.has_result()


def test_a_restart_under_the_next_owner_has_a_new_number() -> None:
    job, first, second = speculated()
    job.change_owner([1, 2])
    for attempt_id in (first, second):
        job.report(attempt_id, ExecutionState.FAILED, failure=user_failure())
    job.restart_due()
    settle(job)
    (reset,) = [event for batch in job.durable for event in batch if isinstance(event, SubtasksReset)]
    assert reset.ordinals == (2,)
