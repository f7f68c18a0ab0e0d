"""What a failure of user code means of which its owner hears when the attempt has ended for it already (R36)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.restart_strategies import UserFailures
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.task import FailureInfo, Fault
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.scheduler.core.failover.settings import FailoverSettings
from tests.kit.control_plane.job_graphs import graph, lone, source
from tests.kit.control_plane.job_master_driver import UNCONFIRMED_WAIT, JobMasterDriver, location, user_failure

E = ExecutionState
J = JobStatus

SETTINGS = FailoverSettings(
    FixedDelayRestartStrategy(attempts=9, delay_seconds=0.0),
    user_failures="final-when-exclusive",
    unconfirmed_wait=UNCONFIRMED_WAIT,
)


def unheard(job: JobMasterDriver, failure: FailureInfo | None = None) -> None:
    """Its task has failed on a TaskManager that nobody hears, and counts as lost."""
    job.offer(1, tm=1)
    (attempt_id,) = job.running()
    job.cut_off(1)
    job.report(attempt_id, E.FAILED, failure=failure or user_failure())
    job.go_silent(1)


def fenced_off(job: JobMasterDriver) -> None:
    job.write_fences()
    job.obey_fence(location(1).incarnation)


def reset(job: JobMasterDriver) -> None:
    """The next attempt waits for a slot."""
    for _ in range(2):
        job.events_durable()
        job.restart_due()
    assert job.status() is J.RUNNING


def assert_it_failed_for_good(job: JobMasterDriver) -> None:
    job.events_durable()  # a reset was under way
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED
    assert "a failure of user code is final here" in job.pending_result.archived.exceptions[0].failure.stack_trace


@pytest.mark.parametrize("is_reset", [False, True])
def test_what_had_failed_before_its_fence_does_not_begin_again(*, is_reset: bool) -> None:
    job = JobMasterDriver(lone(), failover=SETTINGS)
    unheard(job)
    fenced_off(job)
    if is_reset:
        reset(job)
    assert job.status() in {J.RUNNING, J.RESTARTING}
    job.reconnect(1)
    assert_it_failed_for_good(job)
    assert len(job.deployed) == 1


def test_the_next_owner_hears_of_it_too() -> None:
    job = JobMasterDriver(lone(), failover=SETTINGS)
    unheard(job)
    fenced_off(job)
    reset(job)
    job.change_owner([1])
    assert_it_failed_for_good(job)
    assert len(job.deployed) == 1


def test_it_is_too_late_when_another_attempt_has_begun() -> None:
    job = JobMasterDriver(lone(), failover=SETTINGS)
    unheard(job)
    fenced_off(job)
    reset(job)
    job.offer(2, tm=2)
    (second,) = job.running()
    job.reconnect(1)
    assert job.running() == [second]
    job.report(second)
    job.events_durable()
    assert job.pending_result is not None
    assert job.pending_result.status is J.FINISHED


@pytest.mark.parametrize(
    ("user_failures", "failure", "expected"),
    [
        ("final", user_failure(), J.FAILING),
        ("final-when-exclusive", user_failure(), J.RESTARTING),
        ("restart", user_failure(), J.RESTARTING),
        ("restart", replace(user_failure(), is_restart_vain=True), J.FAILING),
        ("final", replace(user_failure(), fault=Fault.SYSTEM), J.RESTARTING),
    ],
)
def test_of_what_may_run_twice_it_counts_as_far_as_it_would_have_counted_in_time(
    user_failures: UserFailures, failure: FailureInfo, expected: JobStatus
) -> None:
    settings = replace(SETTINGS, user_failures=user_failures)
    job = JobMasterDriver(graph(source("read", exclusive=False)), failover=settings)
    unheard(job, failure)
    assert job.status() is J.RESTARTING
    job.reconnect(1)
    assert job.status() is expected


@pytest.mark.parametrize(("fault", "expected"), [(Fault.USER, J.FAILING), (Fault.SYSTEM, J.RESTARTING)])
def test_what_fails_before_it_hears_that_it_is_stopped_does_not_begin_again(fault: Fault, expected: JobStatus) -> None:
    job_graph = graph(source("once", parallelism=2, exclusive=True))
    job = JobMasterDriver(job_graph, failover=replace(SETTINGS, is_full=True))
    job.offer(1, 2)
    first, second = job.running()
    job.report(first, E.FAILED, failure=replace(user_failure(), fault=Fault.SYSTEM))
    assert job.cancelled == [second]
    job.report(second, E.FAILED, failure=replace(user_failure(), fault=fault))
    assert job.status() is expected
