"""The commit of outputs: decided once by an event, carried out by one mover at a time, too late to be cancelled."""

from __future__ import annotations

import pytest

from runtime.common.fsm import IllegalTransitionError, StateMachine
from runtime.common.ids import ExecutionAttemptId, PartitionId
from runtime.common.states import ExecutionState as E
from runtime.common.states import JobStatus as J
from runtime.executiongraph.core.failures import system_failure
from runtime.gateways.job_master import EndJob
from runtime.gateways.task import APPEND, OVERWRITE, OutputDirectory
from runtime.jobgraph.graph import OperatorKind
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.failover.settings import NO_FAILOVER, FailoverSettings
from runtime.scheduler.core.job_events import JobEvent, OutputsCommitting
from runtime.scheduler.core.outputs.kept_outputs import Kept, what_is_kept
from runtime.scheduler.core.outputs.output_commit import COMMIT_TRANSITIONS, CommitState
from tests.kit.control_plane.job_graphs import edge, graph, vertex
from tests.kit.control_plane.job_master_driver import (
    JOB_ID,
    UNCONFIRMED_WAIT,
    JobMasterDriver,
    location,
    unreadable,
    user_failure,
)

C = CommitState
FENCED = FailoverSettings(
    restart_strategy=FixedDelayRestartStrategy(attempts=3, delay_seconds=0.0), unconfirmed_wait=UNCONFIRMED_WAIT
)


@pytest.mark.parametrize(("before", "after"), [(a, b) for a in C for b in C if not COMMIT_TRANSITIONS.allows(a, b)])
def test_every_other_step_is_refused(before: CommitState, after: CommitState) -> None:
    with pytest.raises(IllegalTransitionError):
        StateMachine("commit", COMMIT_TRANSITIONS, before).to(after)


def output(attempt_id: ExecutionAttemptId, base: str = "base", mode: str = APPEND) -> OutputDirectory:
    return OutputDirectory(base, f"{base}/.attempt-{attempt_id}", mode)


def two_sinks(failover: FailoverSettings = FENCED) -> JobMasterDriver:
    """One sink on each of two TaskManagers."""
    job = JobMasterDriver(graph(vertex("a", OperatorKind.SINK), vertex("b", OperatorKind.SINK)), failover=failover)
    job.offer(1, tm=1)
    job.offer(2, tm=2)
    return job


def committing(failover: FailoverSettings = FENCED) -> JobMasterDriver:
    """Both have finished, it is decided, and TaskManager 2 has the order."""
    job = two_sinks(failover)
    for attempt_id in job.running():
        job.report(attempt_id, outputs=(output(attempt_id),))
    job.events_durable()
    job.events_durable()
    assert [incarnation for incarnation, _ in job.commits] == [location(2).incarnation]
    return job


def movers(job: JobMasterDriver) -> list[tuple[int, int]]:
    """Who has been ordered to move, and the number of the order."""
    return [(int(incarnation, 16), commit.order) for incarnation, commit in job.commits]


# --- the decision (R26) ---------------------------------------------------------------------------------------------


def test_nothing_is_moved_while_another_vertex_may_still_fail_the_job() -> None:
    job = two_sinks()
    first, second = job.running()
    job.report(first, outputs=(output(first),))
    job.events_durable()
    assert job.commits == []
    job.report(second, E.FAILED, failure=user_failure())
    job.restart_due()
    job.events_durable()
    job.restart_due()
    job.events_durable()
    assert job.commits == []
    assert not job.core.summary().is_committing


def test_the_decision_travels_with_the_last_acceptance_and_is_durable_before_anything_moves() -> None:
    job = two_sinks()
    first, second = job.running()
    job.report(first, outputs=(output(first),))
    job.events_durable()
    job.report(second, outputs=(output(second),))
    assert job.pending_events is not None
    assert job.pending_events.events[-1] == OutputsCommitting()
    assert job.commits == []
    assert not job.core.summary().is_committing, "what is not durable is not shown (R3)"
    job.events_durable()
    assert movers(job) == [(2, 1)]
    assert len(job.durable) == 2, "no event of its own"
    assert set(job.commits[0][1].outputs) == {output(first), output(second)}
    assert job.core.summary().is_committing


def test_a_job_without_outputs_decides_nothing() -> None:
    job = JobMasterDriver(graph(vertex("lone", OperatorKind.FUNCTION)))
    job.offer(1)
    job.report(job.running()[0])
    assert job.has_result()
    assert job.durable == []


def test_a_cancel_is_before_it_or_too_late() -> None:
    job = two_sinks()
    first, second = job.running()
    job.report(first, outputs=(output(first),))
    job.report(second, outputs=(output(second),))
    job.events_durable()
    assert job.pending_events is not None, "the decision is on its way"
    job.handle(ev.CancelWanted(job.at()))
    assert job.status() is J.RUNNING
    job.events_durable()
    job.handle(ev.CancelWanted(job.at()))
    job.handle(ev.DeadlineReached(job.at()))
    job.moved(1)
    assert job.pending_result is not None
    assert job.pending_result.status is J.FINISHED


def test_a_cancel_before_it_leaves_nothing_to_be_moved() -> None:
    job = two_sinks()
    first, second = job.running()
    job.report(first, outputs=(output(first),))
    job.events_durable()
    job.handle(ev.CancelWanted(job.at()))
    job.report(second, E.CANCELED)
    assert job.pending_result is not None
    assert job.pending_result.status is J.CANCELED
    assert job.commits == []


def test_a_sink_that_is_not_exclusive_runs_again_as_long_as_nothing_is_decided() -> None:
    sinks = [vertex(name, OperatorKind.SINK, exclusive=False) for name in ("a", "b")]
    edges = (edge("read", "a"), edge("read", "b"))
    job = JobMasterDriver(graph(vertex("read", OperatorKind.SOURCE), *sinks, edges=edges), failover=FENCED)
    job.offer(1, 2, tm=1)
    (read,) = job.running()
    job.report(read)
    job.events_durable()
    job.offer(3, 4, tm=1)
    first, second = job.running()
    job.report(first, outputs=(output(first),))
    job.events_durable()
    job.report(second, E.FAILED, failure=unreadable(PartitionId(read, 1)))
    job.events_durable()
    for _ in range(6):
        job.restart_due()
        job.offer(job.revision + 100, job.revision + 101, tm=1)
        job.revision += 2
        for attempt_id in job.running():
            is_sink = not job.deployed[attempt_id].outputs
            job.report(attempt_id, outputs=(output(attempt_id),) if is_sink else ())
        job.events_durable()
    ((_, commit),) = job.commits
    assert len(commit.outputs) == 2
    assert output(first) not in commit.outputs


# --- one mover at a time (R27) --------------------------------------------------------------------------------------


def test_a_mover_that_cannot_be_reached_is_not_replaced_before_its_fence_is_confirmed() -> None:
    job = committing()
    job.go_silent(2)
    assert movers(job) == [(2, 1)]
    assert "waiting until it has stopped" in job.core.summary().pending_reason
    assert job.core.summary().pending_kind == "commit"
    job.write_fences()
    assert movers(job) == [(2, 1)]
    job.obey_fence(location(2).incarnation)
    assert movers(job) == [(2, 1), (1, 2)]


def test_a_mover_that_cannot_be_reached_is_replaced_when_its_fence_is_waited_out() -> None:
    job = committing()
    job.go_silent(2)
    job.write_fences()
    job.now += UNCONFIRMED_WAIT - 1
    job.handle(ev.RestartDue(job.at()))
    assert movers(job) == [(2, 1)]
    job.wait_out_fences()
    assert movers(job) == [(2, 1), (1, 2)]


def test_the_answers_of_a_mover_that_was_given_up_count_for_nothing() -> None:
    job = committing()
    job.lose_task_manager(2, is_reaped=True)
    assert movers(job) == [(2, 1), (1, 2)]
    job.moved(1, user_failure("no such file"))
    assert job.status() is J.RUNNING
    job.moved(1)
    assert not job.has_result()
    job.moved(2)
    assert job.pending_result is not None
    assert job.pending_result.status is J.FINISHED


def test_a_mover_that_has_done_it_while_it_could_not_be_reached_has_done_it() -> None:
    job = committing()
    job.go_silent(2)
    job.moved(1)
    assert job.has_result()


def test_a_slow_mover_is_waited_for() -> None:
    job = committing()
    for _ in range(5):
        job.now += 3600
        job.handle(ev.Ticked(job.at()))
        job.moving(1, 12_000, 120_000)
    assert movers(job) == [(2, 1)]
    assert job.core.summary().pending_reason == "committing: 12 000 of 120 000 files"
    job.moving(1, 12_000, 120_000, "the storage fails")
    assert job.core.summary().pending_reason == "committing: 12 000 of 120 000 files: the storage fails"


def test_a_mover_whose_stream_broke_gets_the_same_order_again() -> None:
    job = committing()
    job.cut_off(2)
    assert movers(job) == [(2, 1)]
    job.reconnect(2)
    assert movers(job) == [(2, 1), (2, 1)]


def test_without_fences_a_mover_that_cannot_be_reached_ends_the_job_with_what_is_left() -> None:
    job = committing(FailoverSettings(restart_strategy=FixedDelayRestartStrategy(attempts=3, delay_seconds=0.0)))
    job.go_silent(2)
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED
    message = job.pending_result.archived.exceptions[0].failure.message
    assert "may go on; what the job wrote is kept, visible or not; to commit what is left" in message
    assert "bin/commit-outputs.sh append=base/.attempt-" in message
    assert movers(job) == [(2, 1)]


def test_an_order_that_no_stream_can_carry_ends_the_job_with_what_is_left() -> None:
    job = committing()
    (_, order), *_ = job.commits
    job.handle(ev.SendFailed(order, system_failure("MessageTooLargeError", "outputs cannot be moved", 0), job.at()))
    job.events_durable()
    assert job.pending_result is not None
    assert (job.pending_result.status, job.pending_result.summary.keeps_outputs) == (J.FAILED, True)
    assert job.pending_result.archived.exceptions[0].failure.message.startswith("outputs cannot be moved")


def test_who_fails_behind_the_decision_has_its_outputs_kept() -> None:
    """Also where no mover could claim them: the storage took nothing."""
    job = committing()
    failure = system_failure("MessageTooLargeError", "outputs cannot be moved", 0)
    job.moved(1, failure)
    job.events_durable()
    assert job.pending_result is not None
    assert (job.pending_result.status, job.pending_result.summary.keeps_outputs) == (J.FAILED, True)
    job.result_durable()
    assert [end.keeps_outputs for end in job.messages(EndJob)] == [True, True]


def test_who_fails_before_it_has_its_outputs_deleted() -> None:
    job = two_sinks(NO_FAILOVER)
    first, second = job.running()
    job.report(first, outputs=(output(first),))
    job.report(second, E.FAILED, failure=user_failure())
    job.events_durable()
    assert job.pending_result is not None
    assert not job.pending_result.summary.keeps_outputs
    job.result_durable()
    assert [end.keeps_outputs for end in job.messages(EndJob)] == [False, False]


def batches(*, is_decided: bool) -> list[tuple[JobEvent, ...]]:
    job = committing()
    return (
        job.durable if is_decided else [tuple(one for one in job.durable[0] if not isinstance(one, OutputsCommitting))]
    )


def test_what_is_kept_of_a_job_follows_from_its_events_and_in_doubt_it_is_kept() -> None:
    decided = what_is_kept(JOB_ID, batches(is_decided=True))
    assert decided.is_decided
    assert decided.text.count("append=base/.attempt-") == 2
    assert what_is_kept(JOB_ID, batches(is_decided=False)) == Kept()
    unknown = what_is_kept(JOB_ID, None)
    assert not unknown.is_decided
    assert f"bin/commit-outputs.sh MODE=BASE/.attempt-{JOB_ID}_*" in unknown.text


@pytest.mark.parametrize("is_decided", [True, False])
def test_a_job_that_cannot_be_read_and_is_cancelled_has_failed_if_it_was_decided(is_decided: bool) -> None:
    job = JobMasterDriver()
    job.begin_next_owner()
    job.handle(ev.TaskManagersRegistered(frozenset(), job.at()))
    job.handle(ev.CancelWanted(job.at()))
    failure = system_failure("JobInitializationError", "unreadable", 0)
    job.handle(ev.InitializationFailed(failure, "", job.at(), True, keeps_outputs=True, is_decided=is_decided))
    assert job.pending_result is not None
    assert job.pending_result.status is (J.FAILED if is_decided else J.CANCELED)
    assert job.pending_result.summary.keeps_outputs


# --- owners change (R6) -----------------------------------------------------------------------------------------------


def take_over(job: JobMasterDriver, moving: int | None, silent: tuple[int, ...] = (), *, also: int = 0) -> None:
    job.begin_next_owner()
    everyone = [location(tm) for tm in (1, 2)]
    assert job.graph is not None
    job.handle(ev.TaskManagersRegistered(frozenset(one.incarnation for one in everyone), job.at()))
    job.handle(ev.JobRead(job.graph, tuple(job.durable), job.at()))
    for tm in range(1, len(everyone) + 1):
        if tm not in silent:
            job.counts(tm, is_moving=tm in {moving, also})


def test_the_next_owner_leaves_the_move_to_the_mover_that_has_it() -> None:
    job = committing()
    take_over(job, moving=2)
    assert movers(job)[1:] == [(2, 1)]
    assert job.commits[-1][1].epoch == job.epoch
    job.moved(1)
    assert job.has_result()


def behind_its_fence() -> JobMasterDriver:
    """TaskManager 2 was slow to answer the next owner, which fences it off."""
    job = committing()
    take_over(job, moving=2, silent=(2,))
    job.handle(ev.TaskManagerLost(location(2).incarnation, "no answer", job.at()))
    job.write_fences()
    return job


def test_a_mover_that_answers_behind_its_fence_gets_the_order_when_it_has_confirmed_that() -> None:
    """An order before that would end with the move that the fence ends, and nobody would be told."""
    job = behind_its_fence()
    job.counts(2, is_moving=True)
    assert job.status() is J.RUNNING
    assert len(movers(job)) == 1
    job.obey_fence(location(2).incarnation)
    assert movers(job)[1:] == [(2, 1)]
    job.moved(1)
    assert job.has_result()


def test_one_that_answers_behind_its_fence_and_falls_silent_again_is_waited_out() -> None:
    job = behind_its_fence()
    job.counts(2, is_moving=True)
    job.lose_task_manager(2, is_reaped=False)
    job.wait_out_fences()
    job.offer(9, tm=1)
    assert movers(job)[1:] == [(1, 1)]


def test_one_that_answers_when_its_fence_was_waited_out_has_stopped() -> None:
    job = committing()
    take_over(job, moving=None, silent=(1, 2))
    job.handle(ev.TaskManagerLost(location(2).incarnation, "no answer", job.at()))
    job.write_fences()
    job.wait_out_fences()
    job.counts(2, is_moving=True)
    job.counts(1)
    job.offer(9, tm=1)
    assert movers(job)[1:] == [(1, 1)]


def test_two_movers_that_the_next_owner_finds_are_stopped_before_one_goes_on() -> None:
    job = committing()
    take_over(job, moving=2, also=1)
    job.write_fences()
    assert len(movers(job)) == 1
    job.obey_fence(location(2).incarnation)
    assert len(movers(job)) == 1
    job.obey_fence(location(1).incarnation)
    assert movers(job)[1:] == [(2, 1)]
    job.moved(1)
    assert job.has_result()


def test_of_two_movers_that_the_next_owner_finds_one_may_die() -> None:
    job = committing()
    take_over(job, moving=2, also=1)
    job.write_fences()
    job.obey_fence(location(1).incarnation)
    job.lose_task_manager(2, is_reaped=True)
    assert movers(job)[1:] == [(1, 1)]


def test_the_next_owner_orders_nothing_before_the_last_mover_has_answered_or_stopped() -> None:
    job = committing()
    take_over(job, moving=None, silent=(2,))
    job.handle(ev.TaskManagerLost(location(2).incarnation, "no answer", job.at()))
    assert len(movers(job)) == 1
    job.write_fences()
    assert len(movers(job)) == 1
    job.wait_out_fences()
    assert job.requirements[-1].requirements, "nobody knows the job any more: it asks for a slot"
    job.offer(9, tm=1)
    assert movers(job)[1:] == [(1, 1)]


def test_a_cancel_that_the_next_owner_finds_behind_the_decision_is_too_late() -> None:
    job = committing()
    job.begin_next_owner()
    job.handle(ev.CancelWanted(job.at()))
    take_over(job, moving=2)
    assert job.status() is J.RUNNING
    job.moved(1)
    assert job.pending_result is not None
    assert job.pending_result.status is J.FINISHED


# --- modes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (("/out", OVERWRITE), ("/out", APPEND), "use one mode"),
        (("/out", OVERWRITE), ("file:///out/", APPEND), "use one mode"),
        (("/out", OVERWRITE), ("/x/../out", "error"), "use one mode"),
        (("/out", OVERWRITE), ("/out/day=1", OVERWRITE), "/out/day=1 lies within /out, so one would delete"),
        (("s3://b/out/day=1", APPEND), ("s3://b/out", OVERWRITE), "s3://b/out/day=1 lies within s3://b/out, so one"),
    ],
)
def test_modes_that_contradict_each_other_are_refused(
    first: tuple[str, str], second: tuple[str, str], why: str
) -> None:
    job = two_sinks()
    one, other = job.running()
    job.report(one, outputs=(output(one, *first),))
    job.report(other, outputs=(output(other, *second),))
    assert not job.has_result()
    job.events_durable()
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED
    failure = job.pending_result.archived.exceptions[0].failure
    assert failure.kind == "USER"
    assert why in failure.message
    assert failure.message.startswith("'a' writes ")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("/out", OVERWRITE), ("/out", OVERWRITE)),
        (("/out", APPEND), ("/out/day=1", APPEND)),
        (("/out", OVERWRITE), ("/out2", APPEND)),
        (("s3://b/out", OVERWRITE), ("/b/out", APPEND)),
    ],
)
def test_modes_that_go_together(first: tuple[str, str], second: tuple[str, str]) -> None:
    job = two_sinks()
    one, other = job.running()
    job.report(one, outputs=(output(one, *first),))
    job.report(other, outputs=(output(other, *second),))
    job.events_durable()
    job.events_durable()
    assert len(job.commits) == 1
