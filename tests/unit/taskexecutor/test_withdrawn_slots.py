"""Slots that are asked back for another queue: what runs there runs again later, and the owner gives them up (R64)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.states import ExecutionState
from runtime.gateways.job_master import DeployTasks, SlotsDraining
from runtime.gateways.resource_manager import PreemptionRefused, PreemptSlots
from runtime.taskexecutor.core.events import (
    AttemptEnded,
    AttemptReported,
    CancelAttempt,
    Effect,
    FreeSlot,
    JobMasterConnected,
    JobMasterDisconnected,
    ReportUnstarted,
    SendReport,
    TellOwner,
    TellResourceManager,
)
from runtime.taskexecutor.core.slot_table import SlotState
from tests.kit.control_plane.task_messages import (
    allocation_id,
    attempt_id,
    free_slots,
    incarnation,
    report,
    request_slot,
)
from tests.kit.control_plane.task_messages import deploy as deploy_to
from tests.unit.taskexecutor.test_task_executor_core import Driver, only, started

WHY = "its slot goes to queue b"


def preempt(*allocations: int) -> PreemptSlots:
    return PreemptSlots(tuple(map(allocation_id, allocations)), WHY)


def deploy(*subtasks: int, is_exclusive: bool = False) -> DeployTasks:
    order = deploy_to(1, *subtasks)
    tasks = (replace(one, task=replace(one.task, is_exclusive=is_exclusive)) for one in order.tasks)
    return replace(order, tasks=tuple(tasks))


def told(effects: list[Effect]) -> list[SlotsDraining]:
    return [one.message for one in only(effects, TellOwner) if isinstance(one.message, SlotsDraining)]


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    made.activate()
    return made


def test_what_runs_ends_for_no_fault_of_its_own_and_the_slot_is_given_up(driver: Driver) -> None:
    assert started(driver.says(deploy(1, 2))) == [1]
    effects = driver.handle(preempt(1))
    (draining,) = told(effects)
    assert (draining.allocations, draining.reason) == ((allocation_id(1),), WHY)
    assert only(effects, CancelAttempt) == [CancelAttempt(0, attempt_id(1, 1))]
    assert only(effects, ReportUnstarted) == [ReportUnstarted(attempt_id(1, 2), ExecutionState.FAILED, WHY)]
    (sent,) = only(driver.reports(effects), SendReport)
    assert sent.report.failure is not None
    assert sent.report.failure.class_name == "SlotPreempted"
    ended = driver.handle(AttemptReported(report(1, 1, ExecutionState.CANCELED)))
    (sent,) = only(ended, SendReport)
    assert sent.report.state is ExecutionState.FAILED
    assert sent.report.failure is not None
    assert (sent.report.failure.message, sent.report.failure.is_isolation) == (WHY, True), "no restart counts it"
    driver.handle(AttemptEnded(0, attempt_id(1, 1)))
    assert driver.state() is SlotState.ACTIVE, "its owner frees it"
    assert only(driver.says(free_slots(1)), FreeSlot) == [FreeSlot(0, allocation_id(1))]
    driver.handle(request_slot(7, slot=0))
    assert driver.state() is SlotState.ALLOCATED, "and it is like any other one then"


def test_one_that_has_finished_has_finished(driver: Driver) -> None:
    driver.says(deploy(1))
    driver.handle(preempt(1))
    (sent,) = only(driver.handle(AttemptReported(report(1, 1, ExecutionState.FINISHED))), SendReport)
    assert (sent.report.state, sent.report.failure) == (ExecutionState.FINISHED, None)


def test_what_is_exclusive_goes_on_and_the_slot_is_kept(driver: Driver) -> None:
    driver.says(deploy(1, is_exclusive=True))
    effects = driver.handle(preempt(1))
    assert effects == [TellResourceManager(PreemptionRefused((allocation_id(1),)))]
    driver.handle(AttemptReported(report(1, 1)))
    driver.handle(AttemptEnded(0, attempt_id(1, 1)))
    assert started(driver.says(deploy(2))) == [2], "the slot is as it was"


def test_what_is_exclusive_and_has_not_begun_runs_elsewhere(driver: Driver) -> None:
    driver.says(deploy(1))
    driver.says(deploy(2, is_exclusive=True))
    effects = driver.handle(preempt(1))
    assert [one.attempt_id for one in only(effects, ReportUnstarted)] == [attempt_id(1, 2)]


def test_what_is_deployed_meanwhile_is_refused(driver: Driver) -> None:
    driver.handle(preempt(1))
    effects = driver.says(deploy(3))
    assert only(effects, ReportUnstarted) == [ReportUnstarted(attempt_id(1, 3), ExecutionState.FAILED, WHY)]
    assert started(effects) == []


def test_an_owner_that_comes_back_hears_of_it(driver: Driver) -> None:
    driver.says(deploy(1))
    driver.handle(JobMasterDisconnected(incarnation(1)))
    effects = driver.handle(preempt(1))
    assert (told(effects), len(only(effects, CancelAttempt))) == ([], 1)
    (draining,) = told(driver.handle(JobMasterConnected(incarnation(1))))
    assert draining.allocations == (allocation_id(1),)


@pytest.mark.parametrize("allocation", [1, 9])
def test_a_slot_that_is_free_or_unknown_or_released_is_no_matter(driver: Driver, allocation: int) -> None:
    driver.says(deploy(1))
    driver.says(free_slots(1))
    assert driver.handle(preempt(allocation)) == []


def test_one_that_no_job_has_taken_yet_is_kept(driver: Driver) -> None:
    driver.handle(request_slot(2, slot=1))
    refused = driver.handle(preempt(2))
    assert refused == [TellResourceManager(PreemptionRefused((allocation_id(2),)))]
