"""R67: when slow tasks are looked for, and what second attempts are given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import ReleasePartitions
from runtime.gateways.task import PartitionFile
from runtime.jobgraph.graph import OperatorKind
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import (
    THREE_RESTARTS,
    JobMasterDriver,
    location,
    parquet,
    user_failure,
)
from tests.unit.scheduler.test_speculative_jobs import (
    SETTINGS,
    begun,
    declared,
    finish_first,
    read_and_write,
    settle,
    slow,
    speculated,
)


def test_the_owner_wakes_up_to_look_and_not_more_often_than_it_should() -> None:
    job = begun(check_seconds=5.0)
    job.restarts.clear()
    job.now += 6.0
    job.restart_due()
    assert job.restarts == [job.now + 5.0]
    finish_first(job)
    job.now += 1.0
    job.handle(ev.RestartDue(job.at()))
    settle(job)
    assert not declared(job).shunned, "five seconds are not over"
    job.now += 5.0
    job.handle(ev.RestartDue(job.at()))
    settle(job)
    assert declared(job).shunned


def test_run_time_counts_from_its_beginning_and_not_from_the_deployment() -> None:
    """Files and code come first, which is the TaskManager's time."""
    adaptive = AdaptiveSettings(speculation=replace(SETTINGS, baseline_lower_bound=10.0))
    job = JobMasterDriver(read_and_write(), failover=THREE_RESTARTS, adaptive=adaptive)
    job.offer(1, 2, tm=1)
    job.offer(3, 4, tm=2)
    job.now += 9.0
    for attempt_id in job.running():
        job.report(attempt_id, ExecutionState.RUNNING)
    finish_first(job)
    job.now += 5.0
    job.restart_due()
    settle(job)
    assert not declared(job).shunned
    job.now += 5.0
    job.restart_due()
    settle(job)
    assert declared(job).shunned


def test_who_reads_more_is_not_slow_yet() -> None:
    made = graph(
        source("seed"),
        vertex("read", parallelism=4),
        vertex("write", OperatorKind.SINK),
        edges=(edge("seed", "read"), edge("read", "write", ExchangeMode.GATHER)),
    )
    job = JobMasterDriver(made, failover=THREE_RESTARTS, adaptive=AdaptiveSettings(speculation=SETTINGS))
    job.offer(1, tm=1)
    (seed,) = job.running()
    (spec,) = job.deployed[seed].outputs
    sizes = (10, 10, 40, 10)
    files = tuple(PartitionFile(f"p/{index}", size, 1, index) for index, size in enumerate(sizes))
    job.report(seed, partitions=(replace(parquet(seed, spec), files=files),))
    settle(job)
    job.offer(2, tm=1)
    job.offer(3, 4, tm=2)
    for attempt_id in job.running():
        job.report(attempt_id, ExecutionState.RUNNING)
    job.now += 0.5
    job.restart_due()
    finish_first(job)
    slow(job)
    job.offer(5, 6, tm=1)
    assert sorted(one.subtask_index for one in job.running()) == [2, 3, 3], "four times as much may take so much longer"


def test_a_blocked_task_manager_gets_no_second_attempt() -> None:
    job, _, _ = speculated(begun(concurrent_max=3))
    placement = job.core._scheduler._placement  # type: ignore[union-attr]
    placement.blocked.block(location(3).incarnation, job.now + 1_000.0)
    job.now += 100.0
    job.restart_due()
    settle(job)
    before = len(job.running())
    job.offer(7, 8, tm=3)
    assert len(job.running()) == before
    assert not job.slots & {number for number, where in job.places.items() if where == location(3)}


def test_no_more_slots_are_taken_than_second_attempts_wait_for() -> None:
    job = begun()
    finish_first(job)
    slow(job)
    job.offer(5, 6, 7, 8, tm=1)
    assert len(job.running()) == 4
    assert len(job.rejected) >= 2


def test_a_failed_second_attempt_was_in_vain() -> None:
    job, _, second = speculated()
    job.report(second, ExecutionState.FAILED, failure=user_failure())
    assert job.core.speculation.wasted == 1


@pytest.mark.parametrize(("is_users", "attempts"), [(True, 1), (False, 2)])
def test_only_where_code_has_failed_no_further_attempt_follows(*, is_users: bool, attempts: int) -> None:
    job, first, second = speculated()
    if is_users:
        job.report(second, ExecutionState.FAILED, failure=user_failure())
    else:
        job.loses(1, job.deployed[second].allocation_id, reason="drained")
        job.in_slot.pop(job.deployed[second].allocation_id)
    job.now += 10.0
    job.restart_due()
    settle(job)
    job.offer(7, 8, tm=3)
    assert len([one for one in job.running() if one.subtask_index == first.subtask_index]) == attempts


def test_partitions_of_the_slower_one_are_deleted() -> None:
    job, first, second = speculated()
    job.report(second)
    job.report(first)
    released = [one.producer for message in job.messages(ReleasePartitions) for one in message.partitions]
    assert first in released
    assert second not in released
