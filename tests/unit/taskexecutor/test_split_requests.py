"""R12 on the TaskManager: who waits for a split is told of until it has one, and gets it once."""

from __future__ import annotations

from runtime.common.states import ExecutionState
from runtime.gateways.job_master import AnswerSplits, SplitAnswer, SplitRequest, SplitsRequested
from runtime.taskexecutor.core.events import (
    AttemptReported,
    Effect,
    GiveSplit,
    JobMasterConnected,
    JobMasterDisconnected,
    SplitWanted,
    TellOwner,
)
from tests.kit.control_plane.task_messages import attempt_id, cancel, deploy, end_job, incarnation, job_id, report
from tests.unit.taskexecutor.test_task_executor_core import Driver

WANTED = SplitWanted(attempt_id(1, 0), 2)
ASKED = SplitRequest(attempt_id(1, 0), 2)


def reader() -> Driver:
    driver = Driver()
    driver.activate()
    driver.says(deploy(1, 0))
    return driver


def told(effects: list[Effect]) -> list[SplitRequest]:
    messages = [one.message for one in effects if isinstance(one, TellOwner)]
    return [request for one in messages if isinstance(one, SplitsRequested) for request in one.requests]


def answer(driver: Driver, sequence: int = 2, split: int = 5) -> list[Effect]:
    answers = (SplitAnswer(attempt_id(1, 0), sequence, split),)
    return driver.says(AnswerSplits(job_id(1), 7, answers))


def new_stream(driver: Driver) -> list[Effect]:
    driver.handle(JobMasterDisconnected(incarnation(1)))
    return driver.handle(JobMasterConnected(incarnation(1)))


def test_the_owner_is_asked_and_its_answer_handed_on() -> None:
    driver = reader()
    assert told(driver.handle(WANTED)) == [ASKED]
    assert answer(driver) == [GiveSplit(attempt_id(1, 0), 5)]


def test_a_request_is_repeated_on_each_stream_until_it_is_answered() -> None:
    driver = reader()
    driver.handle(WANTED)
    effects = new_stream(driver)
    assert told(effects) == [ASKED]
    assert told(effects[:1]) == [], "the census comes before all else of the job (R11)"
    assert told(new_stream(driver)) == [ASKED]
    answer(driver)
    assert told(new_stream(driver)) == []


def test_without_a_stream_the_next_one_begins_with_it() -> None:
    driver = reader()
    driver.handle(JobMasterDisconnected(incarnation(1)))
    assert driver.handle(WANTED) == []
    assert told(driver.handle(JobMasterConnected(incarnation(1)))) == [ASKED]


def test_an_answer_counts_once_and_for_its_request_only() -> None:
    driver = reader()
    driver.handle(WANTED)
    assert answer(driver, sequence=1) == []
    assert answer(driver) == [GiveSplit(attempt_id(1, 0), 5)]
    assert answer(driver) == []


def test_who_has_ended_waits_no_more() -> None:
    driver = reader()
    driver.handle(WANTED)
    driver.handle(AttemptReported(report(1, 0, ExecutionState.FAILED)))
    assert told(new_stream(driver)) == []
    assert answer(driver) == []


def test_who_is_being_cancelled_asks_no_more() -> None:
    driver = reader()
    driver.says(cancel(0))
    assert driver.handle(WANTED) == []


def test_the_end_of_the_job_ends_its_requests() -> None:
    driver = reader()
    driver.handle(WANTED)
    driver.says(end_job())
    assert driver.handle(WANTED) == []
    assert not [one for one in answer(driver) if isinstance(one, GiveSplit)]
