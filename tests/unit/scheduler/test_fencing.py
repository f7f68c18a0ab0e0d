"""Fences: their states, and what an owner does about exclusive tasks that it cannot see (R13, R14, R16, R18)."""

from __future__ import annotations

import pytest

from runtime.common.fsm import IllegalTransitionError, StateMachine
from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import CancelTasks, DeployTasks
from runtime.gateways.task import TASK_ISOLATED, FailureInfo
from runtime.jobgraph.graph import JobGraph, OperatorKind
from runtime.jobgraph.restart_strategy import NO_RESTART, FixedDelayRestartStrategy
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.task_managers.fencing import FENCE_TRANSITIONS, Fences, FenceState
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import (
    UNCONFIRMED_WAIT,
    JobMasterDriver,
    allocation,
    location,
    user_failure,
)

E = ExecutionState
J = JobStatus
F = FenceState
TM = location(1).incarnation
FENCED = FailoverSettings(
    restart_strategy=FixedDelayRestartStrategy(attempts=3, delay_seconds=0.0), unconfirmed_wait=UNCONFIRMED_WAIT
)

# --- the fences of a job ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(a, b) for a in F for b in F if not FENCE_TRANSITIONS.allows(a, b)])
def test_every_other_step_is_refused(before: FenceState, after: FenceState) -> None:
    with pytest.raises(IllegalTransitionError):
        StateMachine("fence", FENCE_TRANSITIONS, before).to(after)


def test_a_fence_is_asked_for_once_and_again_only_when_it_was_confirmed() -> None:
    fences = Fences(10.0)
    fences.ask(TM)
    fences.ask(TM)
    assert fences.take_to_write() == [TM]
    assert fences.take_to_write() == []
    assert fences.written(TM, 5, 100.0) == 110.0
    fences.ask(TM)
    assert fences.take_to_write() == []
    fences.confirmed(TM)
    fences.ask(TM)
    assert fences.take_to_write() == [TM]


def test_who_has_not_confirmed_has_stopped_when_it_was_waited_out_and_stays_closed() -> None:
    fences = Fences(10.0)
    fences.ask(TM)
    fences.written(TM, 5, 100.0)
    assert (fences.waited_out(109.9), fences.has_stopped(TM), fences.is_closed(TM)) == ([], False, True)
    assert (fences.waited_out(110.0), fences.has_stopped(TM), fences.is_closed(TM)) == ([TM], True, True)
    assert fences.waited_out(120.0) == []
    fences.confirmed(TM)
    assert (fences.is_closed(TM), fences.closed(), fences.revision(TM)) == (False, (), 5)


def test_the_wait_counts_from_the_acknowledgement_of_the_fence_that_stands() -> None:  # R14
    """It was taken away, and put back: who had contact in between has not heard of it."""
    fences = Fences(10.0)
    fences.ask(TM)
    assert fences.written(TM, 5, 100.0) == 110.0
    assert fences.written(TM, 5, 103.0) == 110.0, "told twice, it is still the same one"
    assert fences.written(TM, 9, 108.0) == 118.0
    assert (fences.waited_out(117.9), fences.has_stopped(TM)) == ([], False)
    assert (fences.waited_out(118.0), fences.has_stopped(TM)) == ([TM], True)


def test_nobody_is_fenced_off_to_begin_with() -> None:
    fences = Fences(None)
    assert not fences.are_available
    assert (fences.has_stopped(TM), fences.is_closed(TM), fences.revision(TM)) == (False, False, 0)


# --- exclusive tasks that nobody can see --------------------------------------------------------------------------


def both() -> JobGraph:
    """Two readers that may run twice, and two functions that may not."""
    return graph(
        source("read", parallelism=2),
        vertex("once", OperatorKind.FUNCTION, parallelism=2),
        vertex("report", OperatorKind.SINK),
        edges=(edge("read", "report"),),
    )


def exclusive() -> JobGraph:
    return graph(vertex("once", OperatorKind.FUNCTION, parallelism=2))


def silent(job_graph: JobGraph, settings: FailoverSettings = FENCED) -> JobMasterDriver:
    """Everything runs, half of it on a TaskManager that does not answer any more and lives."""
    job = JobMasterDriver(job_graph, failover=settings)
    count = sum(one.parallelism for one in job_graph.vertices)
    for number in range(count):
        job.offer(number, tm=number % 2 + 1)
    job.go_silent(1)
    return job


def on_the_silent_one(job: JobMasterDriver, name: str) -> list[object]:
    ids = {one.id for one in job.core.graph.job_graph.vertices if one.name == name} if job.core.graph.job_graph else ()
    return [one for one in job.running() if one.vertex_id in ids and job.whereabouts(one) == location(1)]


def restart(job: JobMasterDriver) -> None:
    for _ in range(3):
        job.events_durable()
        job.restart_due()


def test_what_is_not_exclusive_runs_again_at_once_and_the_rest_waits_for_the_fence() -> None:
    job = silent(both())
    assert job.fences == [TM]
    restart(job)
    before = len(job.deployed)
    job.offer(11, 12, 13, tm=3)
    assert {job.deployed[one].task.vertex_name for one in list(job.deployed)[before:]} == {"read"}
    assert "1 exclusive tasks may still run on the TaskManager at host-1:1" in job.core.summary().pending_reason
    assert job.core.summary().pending_kind == "takeover"
    assert job.requirements[-1].unreachable == (TM,)
    job.write_fences()
    restart(job)
    assert {job.deployed[one].task.vertex_name for one in list(job.deployed)[before:]} == {"read"}
    job.obey_fence(TM)
    restart(job)
    job.offer(14, tm=3)
    assert "once" in {job.deployed[one].task.vertex_name for one in list(job.deployed)[before:]}
    failures = job.core.archived().exceptions
    assert [one.failure.class_name for one in failures] == ["TaskManagerLostError", "TaskManagerLostError"]


def test_without_a_confirmation_it_runs_again_when_the_task_manager_must_have_stopped() -> None:
    job = silent(exclusive())
    job.write_fences()
    job.now += UNCONFIRMED_WAIT - 0.1
    job.handle(ev.RestartDue(job.at()))
    assert job.status() is J.RUNNING
    job.wait_out_fences()
    assert job.status() is J.RESTARTING
    restart(job)
    job.offer(9, tm=2)
    assert len(job.deployed) == 3
    assert job.requirements[-1].unreachable == (TM,), "until it has confirmed"


def test_a_stop_by_a_fence_never_counts() -> None:
    job = silent(exclusive(), FailoverSettings(restart_strategy=NO_RESTART, unconfirmed_wait=UNCONFIRMED_WAIT))
    job.write_fences()
    job.obey_fence(TM)
    assert job.status() is J.RESTARTING


def test_proof_of_death_needs_no_fence() -> None:  # R13
    job = silent(exclusive())
    job.lose_task_manager(1, "its process died", is_reaped=True)
    restart(job)
    job.offer(9, tm=2)
    assert len(job.deployed) == 3
    assert job.core.archived().exceptions[0].failure.message == "its process died"
    job.write_fences()
    job.handle(ev.FenceConfirmed(TM, job.at()))
    assert job.status() is J.RUNNING


def test_a_proof_counts_once_with_what_was_lost_before() -> None:  # one lost TaskManager is one failure
    once = FailoverSettings(
        restart_strategy=FixedDelayRestartStrategy(attempts=1, delay_seconds=0.0), unconfirmed_wait=UNCONFIRMED_WAIT
    )
    job = silent(both(), once)
    job.lose_task_manager(1, "its process died", is_reaped=True)
    assert job.status() is J.RESTARTING


def test_it_may_finish_behind_the_fence() -> None:  # R17
    job = silent(exclusive())
    (unseen,) = [one for one in job.running() if job.whereabouts(one) == location(1)]
    job.report(unseen)
    job.write_fences()
    job.reconnect(1)
    job.finish_all()
    job.result_durable()
    assert job.status() is J.FINISHED
    assert len(job.deployed) == 2, "nothing ran again"


def test_a_task_manager_that_is_back_gets_work_when_it_has_confirmed_and_hears_which_fence() -> None:
    job = silent(exclusive())
    job.write_fences()
    job.reconnect(1)
    assert job.messages(CancelTasks) == [], "the fence stops it"
    job.offer(7, tm=1)
    assert len(job.deployed) == 2
    job.obey_fence(TM)
    restart(job)
    job.offer(8, tm=1)
    last = job.messages(DeployTasks)[-1]
    assert (last.tasks[0].allocation_id in {allocation(7), allocation(8)}, last.fence_revision) == (True, job.revision)


def test_a_cancelled_job_ends_when_its_exclusive_tasks_are_known_to_have_stopped() -> None:  # R16
    job = silent(exclusive())
    job.handle(ev.CancelWanted(job.at()))
    for attempt_id in [one for one in job.running() if job.whereabouts(one) == location(2)]:
        job.report(attempt_id, E.CANCELED)
    assert job.status() is J.CANCELLING
    assert not job.has_result()
    assert "exclusive tasks may still run" in job.core.summary().pending_reason
    job.write_fences()
    job.obey_fence(TM)
    job.result_durable()
    assert job.status() is J.CANCELED


def test_a_failing_job_waits_too() -> None:  # R16
    job = silent(exclusive(), FailoverSettings(restart_strategy=NO_RESTART, unconfirmed_wait=UNCONFIRMED_WAIT))
    (seen,) = [one for one in job.running() if job.whereabouts(one) == location(2)]
    job.report(seen, E.FAILED, failure=user_failure())
    assert job.status() is J.FAILING
    assert not job.has_result()
    job.write_fences()
    job.wait_out_fences()
    job.result_durable()
    assert job.status() is J.FAILED
    assert job.core.archived().exceptions[0].failure.class_name == "ValueError"


def test_where_nobody_can_be_fenced_off_the_job_fails() -> None:
    job = silent(exclusive(), FailoverSettings(restart_strategy=FixedDelayRestartStrategy(attempts=3)))
    assert job.status() is J.FAILING


# --- a new owner (R6) ---------------------------------------------------------------------------------------------


def taken_over(job_graph: JobGraph) -> JobMasterDriver:
    job = JobMasterDriver(job_graph, failover=FENCED)
    job.offer(1, tm=1)
    job.offer(2, tm=2)
    job.change_owner([1, 2], silent=[1])
    return job


def test_a_new_owner_fences_off_who_does_not_answer_before_it_runs_anything_exclusive() -> None:
    job = taken_over(exclusive())
    assert job.status() is J.INITIALIZING
    assert job.core.summary().pending_reason == (
        "waiting for 1 TaskManagers to say what they have of the job, 1 of them cannot be reached"
        " (taskmanager.isolation-timeout)"
    )
    assert job.fences == [TM]
    job.write_fences()
    job.obey_fence(TM)
    assert job.status() is J.RUNNING
    assert job.requirements[-1].unreachable == (TM,), "it holds slots for the last owner, and has not heard of this one"
    job.offer(3, tm=2)
    assert len(job.deployed) == 3
    job.reconnect(1)
    assert not job.requirements[-1].unreachable


def test_a_new_owner_goes_on_when_the_fence_was_waited_out() -> None:
    job = taken_over(exclusive())
    job.write_fences()
    job.wait_out_fences()
    assert job.status() is J.RUNNING


def test_a_new_owner_need_not_fence_off_what_may_run_twice() -> None:
    readers = graph(source("read", parallelism=2), vertex("join", OperatorKind.APPLY, exclusive=False),
                    edges=(edge("read", "join"),))  # fmt: skip
    job = taken_over(readers)
    assert job.fences == []
    assert job.status() is J.RUNNING
    job.offer(3, tm=2)
    assert len(job.deployed) == 3
    job.reconnect(1)
    assert len(job.cancelled) == 1, "the copy that was replaced is stopped when it is heard of"


def test_one_that_answers_after_all_is_adopted_and_its_fence_runs_its_course() -> None:
    job = taken_over(exclusive())
    job.write_fences()
    job.reconnect(1)
    assert job.status() is J.RUNNING
    assert len(job.running()) == 2
    job.obey_fence(TM)
    assert job.status() is J.RESTARTING
    restart(job)
    job.offer(3, tm=2)
    assert len(job.deployed) == 3


def test_a_dead_one_is_not_waited_for() -> None:  # R13
    job = taken_over(exclusive())
    job.lose_task_manager(1, "its process died", is_reaped=True)
    assert job.status() is J.RUNNING


# --- a TaskManager that knows of a fence, and its owner does not (R31) --------------------------------------------


def isolated(job: JobMasterDriver, attempt_id: ExecutionAttemptId) -> None:
    """Its TaskManager has refused it, or has stopped it."""
    failure = FailureInfo(TASK_ISOLATED, "its fence cannot be read", "", "SYSTEM", True, 0, (), is_isolation=True)
    job.report(attempt_id, E.FAILED, failure=failure)


def test_who_refuses_a_deployment_is_fenced_off_anew_and_used_when_that_is_confirmed() -> None:
    job = JobMasterDriver(graph(vertex("once", OperatorKind.FUNCTION)), failover=FENCED)
    job.offer(1, tm=1)
    isolated(job, *job.running())
    assert job.fences == [TM]
    job.write_fences()
    restart(job)
    assert job.running() == []
    assert job.requirements[-1].unreachable == (TM,)
    job.obey_fence(TM)
    (again,) = job.running()
    (*_, deployed) = job.messages(DeployTasks)
    assert deployed.fence_revision == job.fence_revisions[TM]
    job.report(again)
    job.events_durable()
    job.result_durable()
    assert job.status() is J.FINISHED


def test_who_has_no_contact_is_not_fenced_off_for_what_ran() -> None:
    job = JobMasterDriver(graph(vertex("once", OperatorKind.FUNCTION)), failover=FENCED)
    job.offer(1, tm=1)
    (attempt_id,) = job.running()
    job.report(attempt_id, E.RUNNING)
    isolated(job, attempt_id)
    assert job.fences == []
    assert job.status() is J.RESTARTING


def test_what_counts_for_nothing_does_not_restart_as_fast_as_it_can() -> None:
    job = JobMasterDriver(graph(vertex("once", OperatorKind.FUNCTION)), failover=FENCED)
    pauses = []
    for number in range(12):
        job.offer(number, tm=1)
        (attempt_id,) = job.running()
        job.report(attempt_id, E.RUNNING)
        job.restarts.clear()
        failed_at = job.now
        isolated(job, attempt_id)
        job.events_durable()
        pauses.append(round((job.restarts or [job.now])[-1] - failed_at, 3))
        restart(job)
    assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0]


def test_slots_of_a_task_manager_that_is_not_registered_any_more_count_for_nothing() -> None:  # R6
    job = JobMasterDriver(exclusive(), failover=FENCED)
    job.begin_next_owner()
    job.handle(ev.TaskManagersRegistered(frozenset({location(1).incarnation}), job.at()))
    job.offer(7, tm=1)
    job.handle(ev.TaskManagersRegistered(frozenset(), job.at()))
    assert job.graph is not None
    job.handle(ev.JobRead(job.graph, (), job.at()))
    assert not job.deployed


def test_a_task_manager_that_answers_after_all_is_not_named_unreachable() -> None:  # R7
    readers = graph(
        source("read", parallelism=2),
        vertex("join", OperatorKind.APPLY, exclusive=False),
        edges=(edge("read", "join"),),
    )
    job = JobMasterDriver(readers, failover=FENCED)
    job.offer(1, tm=1)
    job.begin_next_owner()
    job.handle(ev.TaskManagersRegistered(frozenset(location(tm).incarnation for tm in (1, 2)), job.at()))
    assert job.graph is not None
    job.handle(ev.JobRead(job.graph, (), job.at()))
    job.handle(ev.TaskManagerLost(location(1).incarnation, "no answer", job.at()))
    job.handle(job.census_of(location(1)))
    job.handle(job.census_of(location(2)))
    assert (scheduler := job.core._scheduler) is not None
    assert location(1).incarnation not in scheduler.slot_needs().unreachable
