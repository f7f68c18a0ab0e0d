"""What a TaskManager does about fences, and about exclusive attempts while it has no contact (R14, R15)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.ids import VertexId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import CommitOutputs, DeployTasks
from runtime.gateways.task import FailureInfo, TaskExecutionReport
from runtime.taskexecutor.core.events import (
    AttemptEnded,
    AttemptReported,
    CancelAttempt,
    ContactLost,
    ContactRegained,
    Deregistered,
    Effect,
    Event,
    FenceObeyed,
    FenceReadable,
    FenceRequested,
    ForgetJob,
    JobMasterConnected,
    MoveOutputs,
    OutputsMoved,
    OwnerSpoke,
    ReportUnstarted,
    RunAttempt,
    SendReport,
    StopMove,
)
from runtime.taskexecutor.core.isolation import FENCES_REMEMBERED_MAX, Isolation, StopReason
from runtime.taskexecutor.core.jobs import JobMasterLocation
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from tests.kit.control_plane.task_messages import (
    acknowledge,
    answer_offers,
    attempt_id,
    cancel,
    deploy,
    end_job,
    incarnation,
    job_id,
    register_job,
    report,
    request_slot,
)

EPOCH = 10
FENCE = 20


class Driver:
    """Two slots of job 1, owned at EPOCH. `sent` has the terminal reports."""

    def __init__(self) -> None:
        self.core = TaskExecutorCore(
            "tm", slots=2, queue_max=8, reports_max=100, report_bytes_max=1 << 20, owner_timeout=60.0
        )
        self.sent: list[TaskExecutionReport] = []
        self.effects: list[Effect] = []
        self.handle(request_slot(1, slot=0, epoch=EPOCH))
        self.handle(request_slot(2, slot=1, epoch=EPOCH))
        self.handle(JobMasterConnected(incarnation(1)))
        self.says(answer_offers(1, 2, epoch=EPOCH))
        self.says(register_job(epoch=EPOCH))

    def handle(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event)
        self.core.check_invariants()
        for effect in effects:
            if isinstance(effect, SendReport) and effect.report.state.is_terminal:
                self.sent.append(effect.report)
            if isinstance(effect, ReportUnstarted):
                self.handle(AttemptReported(report(1, effect.attempt_id.subtask_index, effect.state, epoch=EPOCH)))
        return effects

    def says(self, message: object, *, epoch: int = EPOCH) -> list[Effect]:
        return self.handle(OwnerSpoke(JobMasterLocation(incarnation(1), "job-master:1"), message))  # type: ignore[arg-type]

    def deploy(self, allocation: int, *subtasks: int, fence: int = 0, exclusive: bool = True) -> list[Effect]:
        return self.says(replace(self.message(allocation, *subtasks, exclusive=exclusive), fence_revision=fence))

    def message(self, allocation: int, *subtasks: int, exclusive: bool = True) -> DeployTasks:
        made = deploy(allocation, *subtasks, epoch=EPOCH)
        tasks = tuple(replace(task, task=replace(task.task, is_exclusive=exclusive)) for task in made.tasks)
        return replace(made, tasks=tasks)

    def ends(self, slot: int, subtask: int, state: ExecutionState = ExecutionState.CANCELED) -> list[Effect]:
        self.handle(AttemptReported(report(1, subtask, state, epoch=EPOCH)))
        return self.handle(AttemptEnded(slot, attempt_id(1, subtask, epoch=EPOCH)))

    def failure(self, subtask: int) -> FailureInfo:
        [failure] = [sent.failure for sent in self.sent if sent.attempt_id.subtask_index == subtask]
        assert failure is not None
        return failure


def cancelled(effects: list[Effect]) -> list[int]:
    return [effect.attempt_id.subtask_index for effect in effects if isinstance(effect, CancelAttempt)]


def started(effects: list[Effect]) -> list[int]:
    return [effect.task.attempt_id.subtask_index for effect in effects if isinstance(effect, RunAttempt)]


def obeyed(effects: list[Effect]) -> list[int]:
    return [effect.revision for effect in effects if isinstance(effect, FenceObeyed)]


# --- fences -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_fence_stops_what_runs_and_what_waits_and_is_obeyed_when_all_of_it_is_gone(*, exclusive: bool) -> None:
    driver = Driver()
    driver.deploy(1, 0, 1, exclusive=exclusive)
    driver.deploy(2, 2, exclusive=exclusive)
    effects = driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    assert cancelled(effects) == [0, 2]
    assert [effect.attempt_id.subtask_index for effect in effects if isinstance(effect, ReportUnstarted)] == [1]
    assert obeyed(effects) == []
    assert obeyed(driver.ends(0, 0)) == []
    assert obeyed(driver.ends(1, 2)) == [FENCE]
    assert {sent.state for sent in driver.sent} == {ExecutionState.FAILED}
    for subtask in (0, 1, 2):
        assert driver.failure(subtask).is_isolation
        assert f"fence {FENCE}" in driver.failure(subtask).message


def test_a_reported_attempt_counts_until_its_slot_process_is_gone() -> None:
    driver = Driver()  # R15
    driver.deploy(1, 0)
    driver.handle(AttemptReported(report(1, 0, epoch=EPOCH)))
    effects = driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    assert (cancelled(effects), obeyed(effects)) == ([], [])
    assert obeyed(driver.handle(AttemptEnded(0, attempt_id(1, 0, epoch=EPOCH)))) == [FENCE]


def test_what_had_finished_before_the_fence_reached_it_has_finished() -> None:
    driver = Driver()
    driver.deploy(1, 0)
    driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    driver.ends(0, 0, ExecutionState.FINISHED)
    [sent] = driver.sent
    assert (sent.state, sent.failure) == (ExecutionState.FINISHED, None)


def test_a_fence_on_nothing_is_obeyed_at_once_and_once() -> None:
    driver = Driver()
    assert obeyed(driver.handle(FenceRequested(job_id(7), EPOCH, FENCE))) == [FENCE]
    assert obeyed(driver.handle(FenceRequested(job_id(7), EPOCH, FENCE))) == []
    assert obeyed(driver.handle(FenceRequested(job_id(7), EPOCH, FENCE + 1))) == [FENCE + 1]


def test_a_fence_leaves_other_jobs_and_newer_epochs_alone() -> None:
    driver = Driver()
    driver.deploy(1, 0)
    assert obeyed(driver.handle(FenceRequested(job_id(1), EPOCH - 1, FENCE))) == [FENCE]
    assert obeyed(driver.handle(FenceRequested(job_id(2), EPOCH, FENCE))) == [FENCE]
    assert not driver.sent


def test_a_fence_waits_for_an_ending_job_too() -> None:
    driver = Driver()
    driver.deploy(1, 0)
    driver.says(end_job(epoch=EPOCH))
    effects = driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    assert (cancelled(effects), obeyed(effects)) == ([], [])
    assert obeyed(driver.handle(AttemptEnded(0, attempt_id(1, 0, epoch=EPOCH)))) == [FENCE]


def test_a_newer_fence_takes_the_place_of_a_pending_one() -> None:
    driver = Driver()
    driver.deploy(1, 0)
    driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    driver.handle(FenceRequested(job_id(1), EPOCH, FENCE + 5))
    assert obeyed(driver.ends(0, 0)) == [FENCE + 5]


def test_deployments_older_than_the_fence_are_refused_with_a_report() -> None:
    driver = Driver()
    driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    assert started(driver.deploy(1, 0)) == []
    assert driver.failure(0).is_isolation
    assert started(driver.deploy(1, 1, fence=FENCE - 1)) == []
    assert started(driver.deploy(1, 2, fence=FENCE)) == [2]


def test_an_owner_that_is_newer_than_the_fence_need_not_name_it() -> None:
    driver = Driver()
    driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    made = driver.message(1, 5)
    assert started(driver.says(replace(made, epoch=FENCE + 1))) == [5]


def test_under_a_fence_that_cannot_be_read_nothing_begins_until_it_can() -> None:  # R31
    driver = Driver()
    driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    driver.deploy(1, 0, fence=FENCE)
    unreadable = FENCE + 10
    assert cancelled(driver.handle(FenceRequested(job_id(1), unreadable, unreadable, is_readable=False))) == [0]
    assert obeyed(driver.ends(0, 0)) == [unreadable]
    assert started(driver.deploy(1, 1, fence=FENCE)) == []
    assert f"fence {unreadable} of its job on this TaskManager cannot be read" in driver.failure(1).message
    driver.handle(FenceReadable(job_id(1)))
    assert started(driver.deploy(1, 2, fence=FENCE)) == [2]
    assert started(driver.deploy(2, 3, fence=FENCE - 1)) == [], "what was known before is not forgotten"


def test_a_newer_fence_and_a_newer_owner_need_not_wait_for_that() -> None:
    driver = Driver()
    unreadable = FENCE + 10
    driver.handle(FenceRequested(job_id(1), unreadable, unreadable, is_readable=False))
    assert started(driver.deploy(1, 0, fence=unreadable + 1)) == [0]
    made = driver.message(2, 5)
    assert started(driver.says(replace(made, epoch=unreadable + 1))) == [5]


def test_a_mover_stops_for_a_fence_that_cannot_be_read_and_goes_on_afterwards() -> None:  # R27, R31
    driver = Driver()
    order = CommitOutputs(job_id(1), EPOCH, VertexId("0" * 32), (), 1)
    unreadable = FENCE + 10
    assert MoveOutputs(order) in driver.says(order)
    effects = driver.handle(FenceRequested(job_id(1), unreadable, unreadable, is_readable=False))
    assert [type(effect) for effect in effects] == [StopMove]
    assert obeyed(driver.handle(OutputsMoved(job_id(1), None, is_stopped=True))) == [unreadable]
    assert driver.says(replace(order, order=2)) == []
    assert driver.handle(FenceReadable(job_id(1))) == [MoveOutputs(replace(order, order=2))]


def test_a_mover_ends_when_the_fence_was_for_it_after_all() -> None:
    driver = Driver()
    order = CommitOutputs(job_id(1), EPOCH, VertexId("0" * 32), (), 1)
    driver.says(order)
    driver.handle(FenceRequested(job_id(1), FENCE, FENCE, is_readable=False))
    assert obeyed(driver.handle(FenceRequested(job_id(1), EPOCH, FENCE + 1))) == []
    driver.handle(FenceReadable(job_id(1)))
    assert obeyed(driver.handle(OutputsMoved(job_id(1), None, is_stopped=True))) == [FENCE + 1]


def test_a_report_of_a_fenced_attempt_is_kept_until_it_is_acknowledged() -> None:
    driver = Driver()  # R10
    driver.deploy(1, 0)
    driver.handle(FenceRequested(job_id(1), EPOCH, FENCE))
    driver.ends(0, 0)
    [kept] = driver.core.ledger.pending(job_id(1))
    assert kept.failure is not None
    assert kept.failure.is_isolation
    driver.says(acknowledge(0, epoch=EPOCH))
    assert driver.core.ledger.pending(job_id(1)) == ()


# --- contact ------------------------------------------------------------------------------------------------


def test_without_contact_exclusive_attempts_stop_and_the_others_go_on() -> None:
    driver = Driver()
    driver.deploy(1, 0)
    driver.deploy(2, 1, exclusive=False)
    assert cancelled(driver.handle(ContactLost("taskmanager.isolation-timeout: 60 s"))) == [0]
    driver.ends(0, 0)
    assert driver.failure(0).is_isolation
    assert driver.failure(0).message == "taskmanager.isolation-timeout: 60 s"
    assert driver.core.running == 1


def test_without_contact_exclusive_attempts_wait() -> None:
    driver = Driver()
    driver.handle(ContactLost("away"))
    assert started(driver.deploy(1, 0, 1)) == []
    assert started(driver.deploy(2, 2, exclusive=False)) == [2]
    assert not driver.sent
    assert started(driver.handle(ContactRegained())) == [0]
    assert started(driver.ends(0, 0, ExecutionState.FINISHED)) == [1]


def test_an_attempt_that_waits_for_contact_can_be_cancelled() -> None:
    driver = Driver()
    driver.handle(ContactLost("away"))
    driver.deploy(1, 0)
    driver.says(cancel(0, epoch=EPOCH))
    assert [sent.state for sent in driver.sent] == [ExecutionState.CANCELED]


def test_a_process_that_the_guard_has_killed_meanwhile_is_said_to_be_isolated() -> None:
    driver = Driver()
    driver.deploy(1, 0)
    driver.handle(ContactLost("frozen"))
    driver.ends(0, 0, ExecutionState.FAILED)
    assert driver.failure(0).is_isolation


def test_a_task_manager_that_was_declared_dead_ends_every_job() -> None:
    driver = Driver()
    driver.deploy(1, 0)
    assert cancelled(driver.handle(Deregistered())) == [0]
    assert ForgetJob(job_id(1), deletes_finished=False) in driver.handle(AttemptEnded(0, attempt_id(1, 0, epoch=EPOCH)))


# --- memory -------------------------------------------------------------------------------------------------


def test_the_memory_of_fences_is_bounded_by_the_oldest() -> None:
    isolation = Isolation()
    for number in range(FENCES_REMEMBERED_MAX + 1):
        isolation.fence(job_id(number), EPOCH, FENCE)
    assert isolation.refusal(job_id(0), EPOCH, 0) == ""
    assert isolation.refusal(job_id(1), EPOCH, 0)


def test_nothing_is_remembered_of_the_attempts_of_a_job_that_has_ended() -> None:
    isolation = Isolation()
    isolation.stop(attempt_id(1, 0), StopReason.isolated("why"))
    isolation.end_job(job_id(1))
    failed = report(1, 0, ExecutionState.FAILED)
    assert isolation.explained(failed) is failed
