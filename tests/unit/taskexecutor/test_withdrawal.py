"""Owners that stay away, and drains: what a TaskManager keeps, ends and refuses, with no fault in the reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.states import ExecutionState
from runtime.gateways.job_master import JobCensus, OfferSlots, SlotsDraining
from runtime.gateways.resource_manager import SlotRequestRefused
from runtime.gateways.task import FailureInfo, TaskExecutionReport
from runtime.taskexecutor.core.absence import OwnerAbsence
from runtime.taskexecutor.core.events import (
    AttemptEnded,
    AttemptReported,
    CancelAttempt,
    CensusRequested,
    DrainChanged,
    Effect,
    Event,
    FreeSlot,
    JobMasterConnected,
    JobMasterDisconnected,
    OwnerNews,
    OwnersAwaited,
    OwnerSpoke,
    Released,
    ReportUnstarted,
    RunAttempt,
    SendReport,
    TellOwner,
    TellResourceManager,
)
from runtime.taskexecutor.core.jobs import JobMasterLocation
from runtime.taskexecutor.core.slot_table import SlotState
from runtime.taskexecutor.core.task_executor import TaskExecutorCore
from tests.kit.control_plane.task_messages import (
    acknowledge,
    allocation_id,
    answer_offers,
    attempt_id,
    cancel,
    deploy,
    free_slots,
    incarnation,
    job_id,
    register_job,
    report,
    request_slot,
)

TIMEOUT = 60.0
E = ExecutionState


class Driver:
    """Two slots of job 1. Plays the slots: a cancelled attempt ends CANCELED when `end` is called."""

    def __init__(self) -> None:
        self.core = TaskExecutorCore(
            "tm", slots=2, queue_max=8, reports_max=100, report_bytes_max=1 << 20, owner_timeout=TIMEOUT
        )
        self.sent: list[TaskExecutionReport] = []
        self.told: list[OwnerNews] = []
        self.handle(request_slot(1, slot=0))
        self.handle(request_slot(2, slot=1))
        self.handle(JobMasterConnected(incarnation(1)))
        self.says(answer_offers(1, 2))
        self.says(register_job())

    def handle(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event)
        self.core.check_invariants()
        for effect in effects:
            match effect:
                case SendReport(_, _, sent) if sent.state.is_terminal:
                    self.sent.append(sent)
                case TellOwner(_, message):
                    self.told.append(message)
                case ReportUnstarted(attempt, state, _):
                    self.handle(AttemptReported(report(1, attempt.subtask_index, state)))
                case _:
                    pass
        return effects

    def says(self, message: object, *, owner: int = 1) -> list[Effect]:
        location = JobMasterLocation(incarnation(owner), "job-master:1")
        return self.handle(OwnerSpoke(location, message))  # type: ignore[arg-type]  # any message

    def end(self, slot: int, subtask: int, state: ExecutionState = E.CANCELED) -> list[Effect]:
        effects = self.handle(AttemptReported(report(1, subtask, state)))
        return effects + self.handle(AttemptEnded(slot, attempt_id(1, subtask)))

    def failures(self) -> dict[int, FailureInfo]:
        return {one.attempt_id.subtask_index: one.failure for one in self.sent if one.failure is not None}

    def slot_states(self) -> list[SlotState]:
        return [slot.state for slot in self.core.slots]


def cancelled(effects: list[Effect]) -> list[int]:
    return [effect.attempt_id.subtask_index for effect in effects if isinstance(effect, CancelAttempt)]


# --- owners that stay away (R18) ----------------------------------------------------------------------------


def test_tasks_are_kept_until_the_time_is_over_and_then_ended_for_no_fault_of_theirs() -> None:
    driver = Driver()
    driver.says(deploy(1, 0, 1))
    driver.says(deploy(2, 2))
    driver.handle(JobMasterDisconnected(incarnation(1)))
    assert not driver.handle(OwnersAwaited(TIMEOUT - 1))
    assert cancelled(driver.handle(OwnersAwaited(1))) == [0, 2]
    assert not driver.handle(OwnersAwaited(TIMEOUT)), "once"
    freed = driver.end(0, 0) + driver.end(1, 2)
    assert [type(effect) for effect in freed if isinstance(effect, FreeSlot)] == [FreeSlot, FreeSlot]
    assert driver.slot_states() == [SlotState.FREE, SlotState.FREE]
    assert driver.sent == [], "there is no owner to send it to"
    driver.handle(JobMasterConnected(incarnation(1)))
    failures = driver.failures()
    assert failures.keys() == {0, 1, 2}
    assert all(one.is_isolation and "taskmanager.jobmaster-timeout" in one.message for one in failures.values())


def test_what_had_finished_is_delivered_to_the_owner_that_comes_at_last() -> None:  # R10, R18
    driver = Driver()
    driver.says(deploy(1, 0))
    driver.handle(JobMasterDisconnected(incarnation(1)))
    driver.end(0, 0, E.FINISHED)
    driver.handle(OwnersAwaited(TIMEOUT))
    driver.handle(OwnersAwaited(10 * TIMEOUT))
    driver.handle(CensusRequested(job_id(1), 5, JobMasterLocation(incarnation(2), "job-master:2")))
    driver.handle(JobMasterConnected(incarnation(2)))
    assert [(one.attempt_id, one.state) for one in driver.sent] == [(attempt_id(1, 0), E.FINISHED)]


def test_an_owner_that_comes_in_time_begins_the_time_anew() -> None:
    driver = Driver()
    driver.says(deploy(1, 0))
    for _ in range(3):
        driver.handle(JobMasterDisconnected(incarnation(1)))
        assert not driver.handle(OwnersAwaited(TIMEOUT - 1))
        driver.handle(JobMasterConnected(incarnation(1)))
        assert not driver.handle(OwnersAwaited(TIMEOUT))


def test_a_new_owner_that_does_not_connect_has_no_time_of_its_own() -> None:
    driver = Driver()
    driver.says(deploy(1, 0))
    driver.handle(JobMasterDisconnected(incarnation(1)))
    driver.handle(OwnersAwaited(TIMEOUT - 1))
    driver.handle(CensusRequested(job_id(1), 5, JobMasterLocation(incarnation(2), "job-master:2")))
    assert cancelled(driver.handle(OwnersAwaited(1))) == [0]


def test_jobs_without_an_owner_or_a_slot_are_unattended() -> None:  # R16
    driver = Driver()
    assert driver.core.unattended_jobs(idle=True) == []
    driver.handle(JobMasterDisconnected(incarnation(1)))
    assert driver.core.unattended_jobs(idle=False) == [job_id(1)]
    driver.handle(JobMasterConnected(incarnation(1)))
    driver.says(free_slots(1, 2))
    assert driver.core.unattended_jobs(idle=False) == []
    assert driver.core.unattended_jobs(idle=True) == [job_id(1)], "the owner may have forgotten it"


steps = st.lists(st.tuples(st.floats(0, 40), st.frozensets(st.integers(1, 3))), max_size=30)


@given(steps)
def test_a_job_is_given_up_exactly_when_its_last_absence_has_lasted(steps: list[tuple[float, frozenset[int]]]) -> None:
    absence = OwnerAbsence(TIMEOUT)
    away: dict[int, float] = {}
    for seconds, absent in steps:
        found = absence.passed(seconds, map(job_id, sorted(absent)))
        before, away = away, {number: away.get(number, 0.0) + seconds for number in absent}
        due = {number for number in absent if away[number] >= TIMEOUT > before.get(number, 0.0)}
        assert set(found) == set(map(job_id, due))


# --- a drain ------------------------------------------------------------------------------------------------


def test_a_drain_closes_slots_and_sends_what_waits_elsewhere_while_the_rest_goes_on() -> None:
    driver = Driver()
    driver.says(deploy(1, 0, 1))
    effects = driver.handle(DrainChanged("maintenance"))
    assert not cancelled(effects)
    assert driver.told[-1] == SlotsDraining(job_id(1), 1, (allocation_id(1), allocation_id(2)), "maintenance")
    failures = driver.failures()
    assert failures.keys() == {1}
    assert (failures[1].is_isolation, failures[1].is_recoverable) == (True, True)
    driver.says(free_slots(2))
    driver.end(0, 0, E.FINISHED)
    assert [one.state for one in driver.sent] == [E.FAILED, E.FINISHED]
    driver.says(free_slots(1))
    assert driver.slot_states() == [SlotState.FREE, SlotState.FREE]


def test_nothing_is_taken_while_it_drains_and_nothing_that_crosses_counts() -> None:
    driver = Driver()
    driver.says(free_slots(2))
    driver.handle(DrainChanged("maintenance"))
    [refused] = [one for one in driver.handle(request_slot(3, slot=1)) if isinstance(one, TellResourceManager)]
    assert refused.message == SlotRequestRefused(allocation_id(3), 1, "maintenance", is_slot_free=False)
    assert not [one for one in driver.says(deploy(1, 5)) if isinstance(one, RunAttempt)]
    assert driver.failures()[5].is_isolation


def test_what_does_not_end_in_time_is_released_when_nothing_of_it_is_left() -> None:  # R15
    driver = Driver()
    driver.says(deploy(1, 0))
    driver.says(deploy(2, 1))
    driver.says(cancel(1))
    driver.handle(DrainChanged("maintenance"))
    assert cancelled(driver.handle(Released("time is over"))) == [0], "the other one is being cancelled already"
    assert driver.sent == []
    driver.end(0, 0)
    driver.end(1, 1)
    assert [(one.attempt_id.subtask_index, one.state) for one in driver.sent] == [(0, E.FAILED), (1, E.CANCELED)]
    assert driver.failures()[0].class_name == "TaskManagerDrained"


def test_one_attempt_is_released_alone() -> None:
    driver = Driver()
    driver.says(deploy(1, 0))
    driver.says(deploy(2, 1))
    driver.handle(DrainChanged("maintenance"))
    assert cancelled(driver.handle(Released("its query has ended", attempt_id(1, 1)))) == [1]


def test_one_that_finishes_after_all_has_finished() -> None:
    driver = Driver()
    driver.says(deploy(1, 0))
    driver.handle(DrainChanged("maintenance"))
    driver.handle(Released("time is over"))
    driver.end(0, 0, E.FINISHED)
    assert [one.state for one in driver.sent] == [E.FINISHED]


def test_every_stream_is_told_while_it_drains_and_none_afterwards() -> None:
    driver = Driver()
    driver.handle(DrainChanged("maintenance"))
    for is_draining in (True, False):
        if not is_draining:
            driver.handle(DrainChanged(""))
        driver.told.clear()
        driver.handle(JobMasterDisconnected(incarnation(1)))
        driver.handle(JobMasterConnected(incarnation(1)))
        kinds = [type(message) for message in driver.told]
        assert kinds == ([JobCensus, SlotsDraining] if is_draining else [JobCensus])


def test_after_the_drain_slots_are_given_away_again() -> None:
    driver = Driver()
    driver.says(free_slots(2))
    driver.handle(DrainChanged("maintenance"))
    driver.handle(DrainChanged(""))
    driver.handle(request_slot(3, slot=1))
    assert isinstance(driver.told[-1], OfferSlots)


# --- what a census says of cancelled attempts ---------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "free", "drain"])
def test_a_census_names_attempts_that_their_owner_has_cancelled(how: str) -> None:  # R6
    driver = Driver()
    driver.says(deploy(1, 0))
    if how == "drain":
        driver.handle(Released("time is over"))
    else:
        driver.says(cancel(0) if how == "cancel" else free_slots(1))
    assert not cancelled(driver.says(cancel(0))), "once"
    driver.handle(CensusRequested(job_id(1), 5, JobMasterLocation(incarnation(1), "job-master:1")))
    census = driver.told[-1]
    assert isinstance(census, JobCensus)
    [held] = census.attempts
    # What is released reports FAILED, which runs it again: for its owner it runs until then.
    assert held.state is (E.RUNNING if how == "drain" else E.CANCELING)
    driver.end(0, 0)
    driver.says(acknowledge(0))
