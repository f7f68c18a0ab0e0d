"""What a TaskManager does about each order: lists of effects."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from runtime.common.ids import PartitionId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import (
    CommitOutputs,
    JobCensus,
    OfferSlots,
    OutputsCommitted,
    ReleasePartitions,
    SlotsLost,
)
from runtime.gateways.resource_manager import JobsEnded, SlotRequestRefused
from runtime.gateways.task import TaskProgress
from runtime.taskexecutor.core.events import (
    AttemptEnded,
    AttemptProgressed,
    AttemptReported,
    CancelAttempt,
    CensusRequested,
    ClusterChanged,
    ConnectJobMaster,
    DeletePartitions,
    Effect,
    Event,
    ForgetJob,
    FreeSlot,
    JobMasterConnected,
    JobMasterDisconnected,
    MoveOutputs,
    OutputsMoved,
    OwnerMessage,
    OwnerSpoke,
    Refused,
    ReportUnstarted,
    RunAttempt,
    SendProgress,
    SendReport,
    SlotTimedOut,
    StartSlotTimer,
    TellOwner,
    TellResourceManager,
)
from runtime.taskexecutor.core.jobs import ENDED_JOBS_REMEMBERED_MAX, JobMasterLocation
from runtime.taskexecutor.core.owner_links import CENSUS_ATTEMPTS_MAX
from runtime.taskexecutor.core.slot_table import SlotState
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from tests.kit.control_plane.task_messages import (
    VERTEX,
    acknowledge,
    allocation_id,
    answer_offers,
    attempt_id,
    cancel,
    deploy,
    end_job,
    free_slots,
    incarnation,
    job_id,
    register_job,
    report,
    request_slot,
)

EffectT = TypeVar("EffectT")


class Driver:
    """A core with its invariants checked after each event, and short words for what peers say."""

    def __init__(self, *, slots: int = 2, reports_max: int = 1000) -> None:
        self.core = TaskExecutorCore(
            "tm-1", slots=slots, queue_max=8, reports_max=reports_max, report_bytes_max=1 << 20, owner_timeout=60.0
        )

    def handle(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event)
        self.core.check_invariants()
        return effects

    def says(self, message: OwnerMessage, *, owner: int = 1) -> list[Effect]:
        return self.handle(OwnerSpoke(JobMasterLocation(incarnation(owner), "job-master:1"), message))

    def state(self, slot: int = 0) -> SlotState:
        found = self.core.slots.slot(slot)
        assert found is not None
        return found.state

    def activate(self, allocation: int = 1, *, slot: int = 0, job: int = 1) -> None:
        self.handle(request_slot(allocation, slot=slot, job=job))
        self.handle(JobMasterConnected(incarnation(1)))
        self.says(answer_offers(allocation, job=job))
        self.says(register_job(job))
        assert self.state(slot) is SlotState.ACTIVE

    def reports(self, effects: list[Effect]) -> list[Effect]:
        """Do what the shell does with ReportUnstarted."""
        sent: list[Effect] = []
        for effect in only(effects, ReportUnstarted):
            made = report(1, effect.attempt_id.subtask_index, effect.state)
            sent += self.core.handle(AttemptReported(made))
        self.core.check_invariants()
        return sent


def only(effects: list[Effect], kind: type[EffectT]) -> list[EffectT]:
    return [effect for effect in effects if isinstance(effect, kind)]


def started(effects: list[Effect]) -> list[int]:
    return [effect.task.attempt_id.subtask_index for effect in only(effects, RunAttempt)]


# --- slots --------------------------------------------------------------------------------------------------


def test_the_first_request_allocates_dials_the_owner_and_starts_the_timer() -> None:
    driver = Driver()
    effects = driver.handle(request_slot(1))
    location = JobMasterLocation(incarnation(1), "job-master:1")
    assert effects == [StartSlotTimer(allocation_id(1)), ConnectJobMaster(location)]
    assert driver.state() is SlotState.ALLOCATED


def test_slots_are_offered_once_the_owner_is_connected() -> None:
    driver = Driver()
    driver.handle(request_slot(1, slot=0))
    driver.handle(request_slot(2, slot=1))
    [told] = only(driver.handle(JobMasterConnected(incarnation(1))), TellOwner)
    assert isinstance(told.message, OfferSlots)
    assert [offer.allocation_id for offer in told.message.offers] == [allocation_id(1), allocation_id(2)]
    assert told.message.task_manager_id == "tm-1"


def test_a_request_for_a_connected_owner_is_offered_at_once() -> None:
    driver = Driver()
    driver.activate(1, slot=0)
    effects = driver.handle(request_slot(2, slot=1))
    assert [type(effect) for effect in effects] == [StartSlotTimer, TellOwner]


def test_a_repeated_request_offers_again_and_starts_no_second_timer() -> None:
    driver = Driver()
    driver.handle(JobMasterConnected(incarnation(1)))
    driver.handle(request_slot(1))
    assert [type(effect) for effect in driver.handle(request_slot(1))] == [TellOwner]
    driver.says(answer_offers(1))
    assert driver.handle(request_slot(1)) == []


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (request_slot(2, slot=0), "is held by job"),
        (request_slot(1, slot=1), "slot 0 is held by job"),
        (request_slot(1, slot=0, job=2), "is held by job"),
        (request_slot(3, slot=9), "there is no slot 9"),
        (request_slot(3, slot=1, epoch=0), "at epoch 0 refused"),
    ],
)
def test_requests_that_contradict_what_is_held_are_refused(request_: object, reason: str) -> None:
    driver = Driver()
    driver.activate(1)
    [effect] = driver.core.handle(request_)  # type: ignore[arg-type]  # parametrised
    assert isinstance(effect, TellResourceManager)
    assert isinstance(effect.message, SlotRequestRefused)
    assert reason in effect.message.reason
    assert effect.message.is_slot_free == (effect.message.slot_index == 1)


def test_an_allocation_that_ended_does_not_come_back() -> None:
    driver = Driver()
    driver.activate(1)
    driver.says(free_slots(1))
    [effect] = driver.handle(request_slot(1))
    assert isinstance(effect, TellResourceManager)
    assert isinstance(effect.message, SlotRequestRefused)
    assert "has ended" in effect.message.reason


def test_a_slot_that_is_not_taken_in_time_is_freed_and_both_are_told() -> None:
    driver = Driver()
    driver.handle(JobMasterConnected(incarnation(1)))
    driver.handle(request_slot(1))
    effects = driver.handle(SlotTimedOut(allocation_id(1)))
    assert only(effects, FreeSlot) == [FreeSlot(0, allocation_id(1))]
    assert isinstance(only(effects, TellOwner)[0].message, SlotsLost)
    assert not only(effects, TellResourceManager), "its owner hears of it"
    assert driver.state() is SlotState.FREE
    assert driver.core.jobs.get(job_id(1)) is None, "a job without anything leaves"


def test_a_slot_that_cannot_be_offered_is_freed_and_the_leader_hears_why() -> None:  # R7
    driver = Driver()
    driver.handle(request_slot(1))
    effects = driver.handle(SlotTimedOut(allocation_id(1)))
    [told] = only(effects, TellResourceManager)
    assert isinstance(told.message, SlotRequestRefused)
    assert (told.message.allocation_id, told.message.is_owner_unreachable) == (allocation_id(1), True)
    assert told.message.is_slot_free, "others may have it"
    assert only(effects, FreeSlot) == [FreeSlot(0, allocation_id(1))]
    assert not only(effects, TellOwner)


def test_the_timer_of_a_taken_slot_means_nothing() -> None:
    driver = Driver()
    driver.activate(1)
    assert driver.handle(SlotTimedOut(allocation_id(1))) == []
    assert driver.handle(SlotTimedOut(allocation_id(77))) == []


def test_rejected_offers_are_freed() -> None:
    driver = Driver()
    driver.handle(JobMasterConnected(incarnation(1)))
    driver.handle(request_slot(1))
    driver.handle(request_slot(2, slot=1))
    effects = driver.says(answer_offers(1, rejected=(2,)))
    assert effects == [FreeSlot(1, allocation_id(2))]
    assert driver.state(0) is SlotState.ACTIVE


def test_accepting_a_slot_that_timed_out_tells_the_owner_that_it_is_lost() -> None:
    driver = Driver()
    driver.handle(JobMasterConnected(incarnation(1)))
    driver.handle(request_slot(1))
    driver.handle(SlotTimedOut(allocation_id(1)))
    [told] = only(driver.says(answer_offers(1)), TellOwner)
    assert isinstance(told.message, SlotsLost)
    effects = driver.says(register_job()) + driver.says(deploy(1, 0))
    assert [effect.state for effect in only(effects, ReportUnstarted)] == [ExecutionState.FAILED]


# --- attempts -----------------------------------------------------------------------------------------------


def test_a_deployed_attempt_runs_and_its_reports_go_to_the_owner() -> None:
    driver = Driver()
    driver.activate()
    assert started(driver.says(deploy(1, 0))) == [0]
    running, finished = report(1, 0, ExecutionState.RUNNING), report(1, 0)
    assert driver.handle(AttemptReported(running)) == [SendReport(incarnation(1), 1, running)]
    assert driver.handle(AttemptReported(finished)) == [SendReport(incarnation(1), 1, finished)]
    assert driver.handle(AttemptEnded(0, attempt_id(1, 0))) == []
    assert driver.core.running == 0


def test_deployed_ahead_attempts_follow_one_after_another() -> None:
    driver = Driver()
    driver.activate()
    assert started(driver.says(deploy(1, 0, 1, 2))) == [0]
    assert started(driver.handle(AttemptEnded(0, attempt_id(1, 0)))) == [1]
    assert started(driver.handle(AttemptEnded(0, attempt_id(1, 1)))) == [2]
    assert started(driver.handle(AttemptEnded(0, attempt_id(1, 2)))) == []


def test_eight_wait_and_the_tenth_attempt_is_failed() -> None:
    driver = Driver()
    driver.activate()
    effects = driver.says(deploy(1, *range(10)))
    [refused] = only(effects, ReportUnstarted)
    assert (refused.attempt_id, refused.state) == (attempt_id(1, 9), ExecutionState.FAILED)


def test_a_repeated_deployment_takes_effect_once() -> None:
    driver = Driver()  # R11
    driver.activate()
    driver.says(deploy(1, 0, 1))
    assert driver.says(deploy(1, 0, 1)) == []
    driver.handle(AttemptReported(report(1, 0)))
    driver.handle(AttemptEnded(0, attempt_id(1, 0)))
    driver.says(acknowledge(0))
    assert driver.says(deploy(1, 0)) == []


def test_a_deployment_before_the_job_is_registered_fails() -> None:
    driver = Driver()
    driver.handle(request_slot(1))
    driver.handle(JobMasterConnected(incarnation(1)))
    driver.says(answer_offers(1))
    [refused] = only(driver.says(deploy(1, 0)), ReportUnstarted)
    assert "was not registered" in refused.reason


def test_a_deployment_into_a_slot_that_is_not_active_fails() -> None:
    driver = Driver()
    driver.activate(1)
    driver.handle(request_slot(2, slot=1))
    [refused] = only(driver.says(deploy(2, 0)), ReportUnstarted)
    assert "does not hold allocation" in refused.reason


def test_cancelling_a_running_attempt_asks_the_slot() -> None:
    driver = Driver()
    driver.activate()
    driver.says(deploy(1, 0))
    assert driver.says(cancel(0)) == [CancelAttempt(0, attempt_id(1, 0))]


def test_cancelling_a_waiting_attempt_reports_at_once_and_it_never_runs() -> None:
    driver = Driver()
    driver.activate()
    driver.says(deploy(1, 0, 1))
    effects = driver.says(cancel(1))
    assert [effect.state for effect in only(effects, ReportUnstarted)] == [ExecutionState.CANCELED]
    assert len(driver.reports(effects)) == 1
    assert driver.handle(AttemptEnded(0, attempt_id(1, 0))) == []


def test_cancelling_an_unknown_attempt_reports_and_its_late_deployment_is_ignored() -> None:
    driver = Driver()
    driver.activate()
    effects = driver.says(cancel(5))
    assert [effect.state for effect in only(effects, ReportUnstarted)] == [ExecutionState.CANCELED]
    assert driver.says(deploy(1, 5)) == []


def test_cancelling_a_finished_attempt_does_nothing() -> None:
    driver = Driver()
    driver.activate()
    driver.says(deploy(1, 0))
    driver.handle(AttemptReported(report(1, 0)))
    driver.handle(AttemptEnded(0, attempt_id(1, 0)))
    assert driver.says(cancel(0)) == []


def test_an_attempt_of_another_job_cannot_be_cancelled() -> None:
    driver = Driver()
    driver.activate(1, slot=0, job=1)
    driver.activate(2, slot=1, job=2)
    driver.says(deploy(2, 0, job=2))
    foreign = cancel(0, job=2)
    [refused] = driver.says(type(foreign)(job_id(1), 1, foreign.attempts))
    assert isinstance(refused, Refused)


def test_freeing_a_slot_cancels_what_runs_and_reports_what_waited() -> None:
    driver = Driver()
    driver.activate()
    driver.says(deploy(1, 0, 1))
    effects = driver.says(free_slots(1))
    assert only(effects, CancelAttempt) == [CancelAttempt(0, attempt_id(1, 0))]
    assert [effect.attempt_id for effect in only(effects, ReportUnstarted)] == [attempt_id(1, 1)]
    assert driver.state() is SlotState.RELEASING
    assert driver.handle(AttemptEnded(0, attempt_id(1, 0))) == [FreeSlot(0, allocation_id(1))]
    assert driver.state() is SlotState.FREE


def test_without_room_for_reports_nothing_starts_until_an_acknowledgement() -> None:
    driver = Driver(slots=1, reports_max=1)
    driver.activate()
    driver.says(deploy(1, 0, 1))
    driver.handle(AttemptReported(report(1, 0)))
    assert started(driver.handle(AttemptEnded(0, attempt_id(1, 0)))) == []
    assert started(driver.says(acknowledge(0))) == [1]


def test_progress_is_passed_on_while_the_attempt_runs() -> None:
    driver = Driver()
    driver.activate()
    progress = TaskProgress(attempt_id(1, 0), 0.5, "half", 0, 0, 0, 0)
    assert driver.handle(AttemptProgressed(progress)) == []
    driver.says(deploy(1, 0))
    assert driver.handle(AttemptProgressed(progress)) == [SendProgress(incarnation(1), 1, progress)]
    driver.handle(JobMasterDisconnected(incarnation(1)))
    assert driver.handle(AttemptProgressed(later := replace(progress, fraction=0.7))) == []
    effects = driver.handle(JobMasterConnected(incarnation(1)))
    assert only(effects, SendProgress) == [SendProgress(incarnation(1), 1, later)]
    driver.handle(AttemptReported(report(1, 0)))
    assert driver.handle(AttemptProgressed(progress)) == []


# --- owners and epochs --------------------------------------------------------------------------------------


def test_reports_wait_for_the_next_stream_to_the_owner() -> None:
    driver = Driver()  # R10, R11
    driver.activate()
    driver.says(deploy(1, 0, 1))
    driver.handle(JobMasterDisconnected(incarnation(1)))
    assert driver.handle(AttemptReported(report(1, 0))) == []
    driver.handle(AttemptEnded(0, attempt_id(1, 0)))
    running = report(1, 1, ExecutionState.RUNNING)
    driver.handle(AttemptReported(running))
    effects = driver.handle(JobMasterConnected(incarnation(1)))
    assert [effect.report for effect in only(effects, SendReport)] == [report(1, 0), running]
    driver.says(acknowledge(0))
    effects = driver.handle(JobMasterConnected(incarnation(1)))
    assert [effect.report for effect in only(effects, SendReport)] == [running]


def test_orders_of_a_lower_epoch_are_refused() -> None:
    driver = Driver()  # R1, R7
    driver.handle(request_slot(1, epoch=5))
    driver.handle(JobMasterConnected(incarnation(1)))
    for message in (answer_offers(1, epoch=4), register_job(epoch=4), deploy(1, 0, epoch=4), end_job(epoch=4)):
        [refused] = driver.says(message)
        assert isinstance(refused, Refused)
    assert driver.state() is SlotState.ALLOCATED


def test_a_higher_epoch_moves_the_job_to_its_new_owner() -> None:
    driver = Driver()
    driver.activate(1)
    driver.says(deploy(1, 0))
    driver.handle(JobMasterConnected(incarnation(2)))
    driver.says(acknowledge(9, epoch=8), owner=2)
    [sent] = driver.handle(AttemptReported(report(1, 0)))
    assert isinstance(sent, SendReport)
    assert (sent.owner, sent.epoch) == (incarnation(2), 8)
    [refused] = driver.says(end_job(epoch=1))
    assert isinstance(refused, Refused)


def census_request(*, job: int = 1, epoch: int = 8, owner: int = 2) -> CensusRequested:
    return CensusRequested(job_id(job), epoch, JobMasterLocation(incarnation(owner), "job-master:2"))


def census_of(effects: list[Effect]) -> list[JobCensus]:
    return [tell.message for tell in only(effects, TellOwner) if isinstance(tell.message, JobCensus)]


def test_a_new_owner_is_dialled_and_told_everything_that_is_not_acknowledged() -> None:
    driver = Driver(slots=3)  # R6
    driver.activate(1)
    driver.activate(2, slot=1)
    driver.handle(request_slot(3, slot=2))
    driver.says(deploy(1, 0, 1))
    driver.says(deploy(2, 2))
    for subtask, slot in ((0, 0), (2, 1)):
        driver.handle(AttemptReported(report(1, subtask)))
        driver.handle(AttemptEnded(slot, attempt_id(1, subtask)))
    driver.says(acknowledge(2))
    assert driver.handle(census_request()) == [ConnectJobMaster(JobMasterLocation(incarnation(2), "job-master:2"))]
    effects = driver.handle(JobMasterConnected(incarnation(2)))
    [census] = census_of(effects)
    assert (census.epoch, census.is_complete, census.task_manager_id) == (8, True, "tm-1")
    assert [slot.allocation_id for slot in census.slots] == [allocation_id(1), allocation_id(2)]
    assert [(held.attempt_id.subtask_index, held.state.value, held.allocation_id) for held in census.attempts] == [
        (0, "FINISHED", None),
        (1, "RUNNING", allocation_id(1)),
    ]
    assert [effect.report for effect in only(effects, SendReport)] == [report(1, 0)]
    [offered] = [tell.message for tell in only(effects, TellOwner) if isinstance(tell.message, OfferSlots)]
    assert [offer.allocation_id for offer in offered.offers] == [allocation_id(3)]
    assert isinstance(effects[0], TellOwner)
    assert effects[0].message is census, "the census comes before all else of the job (R11)"


def test_an_attempt_that_waits_is_deploying_in_the_census() -> None:
    driver = Driver()
    driver.activate()
    driver.says(deploy(1, 0, 1))
    driver.handle(JobMasterConnected(incarnation(2)))
    [census] = census_of(driver.handle(census_request()))
    assert [held.state.value for held in census.attempts] == ["RUNNING", "DEPLOYING"]


def test_a_census_says_since_when_attempts_are_deployed_and_run() -> None:
    driver = Driver()
    driver.activate()
    orders = deploy(1, 0, 1)
    driver.says(replace(orders, tasks=tuple(replace(one, deployed_millis=5) for one in orders.tasks)))
    driver.handle(AttemptReported(replace(report(1, 0, ExecutionState.RUNNING), timestamp_millis=9)))
    driver.handle(JobMasterConnected(incarnation(2)))
    [census] = census_of(driver.handle(census_request()))
    assert [(held.deployed_millis, held.running_millis) for held in census.attempts] == [(5, 9), (5, 0)]
    driver.handle(AttemptReported(replace(report(1, 0), timestamp_millis=20)))
    [census] = census_of(driver.handle(census_request(epoch=9)))
    held = census.attempts[0]
    assert (held.state, held.deployed_millis, held.running_millis) == (ExecutionState.FINISHED, 5, 9)


def test_after_a_census_lower_epochs_are_refused_also_where_nothing_of_the_job_is() -> None:
    driver = Driver()  # R6
    driver.handle(JobMasterConnected(incarnation(2)))
    [census] = census_of(driver.handle(census_request()))
    assert (census.slots, census.attempts, census.is_complete) == ((), (), True)
    [refused] = driver.handle(request_slot(1, epoch=7))
    assert isinstance(refused, TellResourceManager)
    assert isinstance(driver.says(register_job(epoch=7))[0], Refused)
    assert isinstance(driver.handle(census_request(epoch=7, owner=3))[0], Refused)
    driver.says(end_job(epoch=8), owner=2)
    assert driver.core.jobs.get(job_id(1)) is None


def test_a_large_census_comes_in_parts() -> None:
    driver = Driver()
    driver.activate()
    count = CENSUS_ATTEMPTS_MAX + 1
    driver.reports(driver.says(cancel(*range(count))))
    driver.handle(JobMasterConnected(incarnation(2)))
    first, last = census_of(driver.handle(census_request()))
    assert (len(first.attempts), first.is_complete) == (CENSUS_ATTEMPTS_MAX, False)
    assert (len(last.attempts), last.is_complete) == (1, True)


def test_a_new_stream_to_the_same_owner_begins_with_a_census_only_when_there_is_something() -> None:
    driver = Driver()  # R11
    driver.handle(request_slot(1))
    assert census_of(driver.handle(JobMasterConnected(incarnation(1)))) == []
    driver.says(answer_offers(1))
    [census] = census_of(driver.handle(JobMasterConnected(incarnation(1))))
    assert [slot.allocation_id for slot in census.slots] == [allocation_id(1)]


def test_an_acknowledgement_for_an_unknown_job_leaves_no_trace() -> None:
    driver = Driver()
    assert driver.says(acknowledge(0, job=3)) == []
    assert driver.core.jobs.get(job_id(3)) is None


# --- end of jobs --------------------------------------------------------------------------------------------


def test_an_idle_job_ends_at_once() -> None:
    driver = Driver()
    driver.activate()
    assert driver.says(end_job()) == [FreeSlot(0, allocation_id(1)), ForgetJob(job_id(1))]
    assert not driver.core.has_jobs_of(incarnation(1))


def test_a_job_leaves_when_its_last_attempt_is_gone() -> None:
    driver = Driver()
    driver.activate(1, slot=0)
    driver.activate(2, slot=1)
    driver.says(deploy(1, 0, 1))
    effects = driver.says(end_job())
    assert effects == [CancelAttempt(0, attempt_id(1, 0)), FreeSlot(1, allocation_id(2))]
    assert driver.handle(AttemptReported(report(1, 0))) == [], "an ending job reports nothing"
    effects = driver.handle(AttemptEnded(0, attempt_id(1, 0)))
    assert effects == [FreeSlot(0, allocation_id(1)), ForgetJob(job_id(1))]


def test_result_acknowledgement_free_and_end_in_one_write() -> None:
    driver = Driver()
    driver.activate()
    driver.says(deploy(1, 0))
    driver.handle(AttemptReported(report(1, 0)))
    driver.says(acknowledge(0))
    assert driver.says(free_slots(1)) == [], "the attempt has reported its end: nothing to cancel"
    assert driver.says(end_job()) == []
    effects = driver.handle(AttemptEnded(0, attempt_id(1, 0)))
    assert effects == [FreeSlot(0, allocation_id(1)), ForgetJob(job_id(1))]
    assert driver.core.ledger.kept == 0


def test_a_slot_request_that_comes_after_the_end_is_refused() -> None:
    driver = Driver()
    driver.activate()
    driver.says(end_job())
    [effect] = driver.handle(request_slot(9))
    assert isinstance(effect, TellResourceManager)
    assert isinstance(effect.message, SlotRequestRefused)
    assert effect.message.is_slot_free, "the job was the reason, not the slot"
    assert driver.handle(request_slot(9, epoch=2))[0] == StartSlotTimer(allocation_id(9))


def test_the_leader_ends_jobs_whatever_their_epoch() -> None:
    driver = Driver()  # R16
    driver.activate()
    effects = driver.handle(JobsEnded((job_id(1), job_id(42))))
    assert only(effects, ForgetJob) == [ForgetJob(job_id(1)), ForgetJob(job_id(42))]


def test_another_cluster_ends_everything() -> None:
    driver = Driver()  # R1
    driver.activate(1, slot=0, job=1)
    driver.activate(2, slot=1, job=2)
    left = [ForgetJob(job_id(number), deletes_finished=False) for number in (1, 2)]
    assert only(driver.handle(ClusterChanged()), ForgetJob) == left


def test_ended_jobs_are_remembered_within_a_bound() -> None:
    driver = Driver()
    for number in range(ENDED_JOBS_REMEMBERED_MAX + 5):
        driver.core.handle(OwnerSpoke(JobMasterLocation(incarnation(1), "x"), end_job(number)))
    assert len(driver.core.jobs._ended) == ENDED_JOBS_REMEMBERED_MAX
    assert not list(driver.core.jobs)


# --- files --------------------------------------------------------------------------------------------------


def test_partitions_and_outputs_are_handed_to_the_shell() -> None:
    driver = Driver()
    driver.activate()
    partitions = (PartitionId(attempt_id(1, 0), 0),)
    assert driver.says(ReleasePartitions(job_id(1), 1, partitions)) == [DeletePartitions(partitions)]
    commit = CommitOutputs(job_id(1), 1, VERTEX, (), 1)
    assert driver.says(commit) == [MoveOutputs(commit)]
    answer = OutputsCommitted(job_id(1), 1, VERTEX, None, 1)
    assert driver.handle(OutputsMoved(job_id(1))) == [TellOwner(incarnation(1), answer)]
