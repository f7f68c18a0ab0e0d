"""A later owner of a job: what it waits for, what it adopts, what it runs again, and what it stops (R6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.core.failures import system_failure
from runtime.gateways.job_master import (
    AcknowledgeReports,
    DeployTasks,
    EndJob,
    HeldAttempt,
    RegisterJob,
    SlotOffer,
)
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.effects import DeclareRequirements
from runtime.scheduler.core.job_events import SubtasksReset
from tests.kit.control_plane.job_graphs import graph, source, two_readers
from tests.kit.control_plane.job_master_driver import (
    EPOCH,
    THREE_RESTARTS,
    JobMasterDriver,
    allocation,
    location,
    running_pair,
    user_failure,
    with_census,
)

E = ExecutionState
J = JobStatus


def test_what_runs_goes_on_under_its_own_id_and_nothing_is_deployed() -> None:  # R9
    job = running_pair()
    before, deployed = job.running(), len(job.messages(DeployTasks))
    job.change_owner([1, 2])
    assert job.status() is J.RUNNING
    assert job.running() == before
    assert len(job.messages(DeployTasks)) == deployed
    job.finish_all()
    (last,) = job.running() or list(job.deployed)[-1:]
    assert (last.epoch, last.counter) == (EPOCH + 1, 0), "what was never started is started by the new owner"
    job.finish_all()
    job.result_durable()
    assert job.status() is J.FINISHED
    ended = [incarnation for incarnation, messages in job.sent if any(isinstance(one, EndJob) for one in messages)]
    assert set(ended) == {location(1).incarnation, location(2).incarnation}


def test_it_knows_since_when_its_attempts_are_deployed_and_run() -> None:
    job = running_pair()
    first, second = job.running()
    for attempt_id in (first, second):
        job.now += 1
        job.report(attempt_id, E.RUNNING)

    def began() -> list[tuple[int, int]]:
        attempts = [one.current.timestamps for vertex in job.core.archived().vertices for one in vertex.subtasks]
        return [(one[E.DEPLOYING], one[E.RUNNING]) for one in attempts if E.DEPLOYING in one]

    before, starts = began(), [vertex.start_millis for vertex in job.core.archived().vertices]
    assert len(set(before)) == 2
    job.now += 7
    job.change_owner([1, 2])
    assert began() == before
    assert [vertex.start_millis for vertex in job.core.archived().vertices] == starts
    job.now += 1
    job.change_owner([1, 2])
    assert began() == before, "another one is told the same"
    assert job.running() == [first, second]


def test_it_decides_nothing_before_every_task_manager_has_answered() -> None:
    job = running_pair()
    both = frozenset({location(1).incarnation, location(2).incarnation})
    census = [job.census_of(location(1)), job.census_of(location(2))]
    job.begin_next_owner()
    job.handle(ev.TaskManagersRegistered(both, job.at()))
    job.handle(ev.JobRead(two_readers(), (), job.at()))
    job.handle(census[0])
    assert job.core.summary().pending_reason == "waiting for 1 TaskManagers to say what they have of the job"
    assert job.core.summary().pending_kind == "takeover"
    assert job.status() is J.INITIALIZING
    effects = job.handle(ev.TaskManagersRegistered(frozenset({location(1).incarnation}), job.at()))
    assert job.status() is J.RUNNING, "the other one is dead: its key is gone (R13, R14)"
    (declared,) = [effect for effect in effects if isinstance(effect, DeclareRequirements)]
    assert declared.requirements.requirements[0].count == 2


def test_it_says_whose_record_it_cannot_read_and_what_helps() -> None:  # R31
    job = running_pair()
    first, second = (location(number).incarnation for number in (1, 2))
    answer = job.census_of(location(1))
    job.begin_next_owner()
    job.handle(ev.JobRead(two_readers(), (), job.at()))
    job.handle(ev.TaskManagersRegistered(frozenset({first, second}), job.at(), frozenset({second})))
    job.handle(answer)
    reason = job.core.summary().pending_reason
    assert f"taskmanagers/{second} in etcd cannot be read" in reason
    assert "if that TaskManager has ended, start it again in its run directory, or delete the key when" in reason
    assert first not in reason
    job.handle(ev.TaskManagersRegistered(frozenset({first, second}), job.at()))
    assert job.core.summary().pending_reason == "waiting for 1 TaskManagers to say what they have of the job"


def test_a_durable_result_is_not_computed_again_and_its_report_is_acknowledged() -> None:  # R10
    job = running_pair()
    first, _ = job.running()
    job.report(first)
    job.events_applied()
    job.sent.clear()
    job.change_owner([1, 2])
    assert [one.attempts for one in job.messages(AcknowledgeReports)] == [(first,)]
    assert not [task for message in job.messages(DeployTasks) for task in message.tasks]


def test_a_report_that_the_last_owner_had_not_made_durable_counts() -> None:  # R10
    job = running_pair()
    first, _ = job.running()
    job.report(first)
    job.change_owner([1, 2])
    assert job.pending_events is not None
    job.events_durable()
    assert [first] in [list(one.attempts) for one in job.messages(AcknowledgeReports)]


@pytest.mark.parametrize("is_one_message", [True, False])
@pytest.mark.parametrize("failed", [0, 1])
def test_what_has_finished_counts_before_a_failure_that_would_cancel_it(*, failed: int, is_one_message: bool) -> None:
    """R17: all of the job restarts, and what is exclusive has taken effect already."""
    exclusive = graph(source("read", parallelism=2, exclusive=True))
    job = JobMasterDriver(exclusive, failover=replace(THREE_RESTARTS, is_full=True))
    job.offer(1, tm=1)
    job.offer(2, tm=1 if is_one_message else 2)
    attempts = job.running()
    for number, attempt_id in enumerate(attempts):
        if number == failed:
            job.report(attempt_id, E.FAILED, failure=user_failure())
        else:
            job.report(attempt_id)
    job.durable.clear()
    job.change_owner([1, 2])
    states = [execution.state for execution in job.core.graph.executions()]
    assert states[1 - failed] is E.FINISHED
    job.restart_due()
    assert job.pending_events is not None
    resets = [event for event in job.pending_events.events if isinstance(event, SubtasksReset)]
    assert [event.subtasks for event in resets] == [(failed,)]


@pytest.mark.parametrize("is_first_news", [True, False])
def test_a_cancel_waits_until_it_is_known_what_there_is_to_stop(*, is_first_news: bool) -> None:  # R16
    job = running_pair()
    census = [job.census_of(location(1)), job.census_of(location(2))]
    everyone = frozenset(one.location.incarnation for one in census)
    job.begin_next_owner()
    news: list[ev.Event] = [ev.TaskManagersRegistered(everyone, job.at()), ev.CancelWanted(job.at())]
    for event in reversed(news) if is_first_news else news:
        job.handle(event)
        assert not job.has_result()
    job.handle(ev.JobRead(two_readers(), (), job.at()))
    for one in census:
        job.handle(one)
    assert job.status() is J.CANCELLING
    assert sorted(map(str, job.cancelled)) == sorted(map(str, job.running()))


def test_what_was_replaced_before_is_stopped() -> None:  # R9
    job = running_pair()
    first, second = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.events_durable()
    stale = HeldAttempt(first, 0, E.RUNNING, allocation(1))
    job.slots.add(allocation(1))
    census = with_census(job.census_of(location(1)), slots=(SlotOffer(allocation(1), 1),), attempts=(stale,))
    job.begin_next_owner()
    everyone = frozenset({location(1).incarnation, location(2).incarnation})
    job.handle(ev.TaskManagersRegistered(everyone, job.at()))
    job.handle(ev.JobRead(two_readers(), tuple(job.durable), job.at()))
    job.handle(census)
    job.handle(job.census_of(location(2)))
    assert job.cancelled == [first]
    assert second in job.running()


def test_what_its_tasks_share_is_told_to_every_task_manager_that_has_some() -> None:
    job = running_pair()
    job.sent.clear()
    job.change_owner([1, 2, 3])
    told = {to for to, messages in job.sent if any(isinstance(one, RegisterJob) for one in messages)}
    assert told == {location(1).incarnation, location(2).incarnation}


# --- a job that cannot be read (R16, R20) -------------------------------------------------------------------

UNREADABLE = system_failure("JobInitializationError", "events 3 cannot be read", 0)


def unreadable(job: JobMasterDriver, *registered: int) -> None:
    """Another owner begins, that cannot read what the job's events say."""
    job.begin_next_owner()
    everyone = frozenset(location(number).incarnation for number in registered)
    job.handle(ev.TaskManagersRegistered(everyone, job.at()))
    job.handle(ev.InitializationFailed(UNREADABLE, "", job.at(), may_run=True))


def test_a_job_that_cannot_be_read_ends_when_nothing_of_it_runs() -> None:
    job = running_pair()
    census = [job.census_of(location(1)), job.census_of(location(2))]
    first, second = job.running()
    unreadable(job, 1, 2)
    assert job.core.summary().pending_reason == "waiting for 2 TaskManagers to say what they have of the job"
    for one in census:
        job.handle(one)
    assert job.cancelled == [first, second]
    assert not job.has_result()
    assert job.core.summary().pending_reason == "stopping its tasks: events 3 cannot be read"
    job.report(first, E.CANCELED)
    assert not job.has_result()
    job.report(second, E.FINISHED)
    assert job.has_result()
    job.result_durable()
    assert job.status() is J.FAILED
    assert "events 3" in job.core.archived().exceptions[0].failure.message


def test_a_task_manager_that_is_gone_for_good_runs_nothing_of_an_unreadable_job() -> None:
    job = running_pair()
    census = [job.census_of(location(1)), job.census_of(location(2))]
    first, _ = job.running()
    unreadable(job, 1, 2)
    for one in census:
        job.handle(one)
    job.report(first, E.CANCELED)
    job.lose_task_manager(2)
    assert not job.has_result(), "it may only be silent (R18)"
    job.handle(ev.TaskManagersRegistered(frozenset({location(1).incarnation}), job.at()))
    assert job.has_result()


def test_on_a_new_stream_an_unreadable_jobs_tasks_are_told_again_to_stop() -> None:  # R11
    job = running_pair()
    census = [job.census_of(location(1)), job.census_of(location(2))]
    first, second = job.running()
    unreadable(job, 1, 2)
    for one in census:
        job.handle(one)
    job.handle(ev.TaskManagerLost(location(2).incarnation, "stream ended", job.at()))
    job.handle(census[1])
    assert job.cancelled == [first, second, second]


def test_an_unreadable_job_that_was_to_be_cancelled_is() -> None:
    job = running_pair()
    unreadable(job)
    assert job.has_result(), "no TaskManager is there"
    job = running_pair()
    census = job.census_of(location(1))
    unreadable(job, 1)
    job.handle(ev.CancelWanted(job.at(), "nobody came back"))
    job.handle(census)
    for attempt_id in list(job.cancelled):
        job.report(attempt_id, E.CANCELED)
    job.result_durable()
    assert job.status() is J.CANCELED
    cancellation = job.core.archived().cancellation
    assert cancellation is not None
    assert cancellation.message == "nobody came back"


def test_a_fresh_job_that_cannot_be_read_has_failed_at_once() -> None:
    job = JobMasterDriver()
    job.handle(ev.InitializationFailed(UNREADABLE, "nap", job.at()))
    assert job.has_result()
