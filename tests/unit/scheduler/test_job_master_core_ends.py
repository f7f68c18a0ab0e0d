"""How jobs end: results, sinks, failure, cancel, loss."""

from __future__ import annotations

import json

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import (
    CancelTasks,
    CommitOutputs,
    EndJob,
)
from runtime.gateways.task import OutputDirectory, TaskProgress
from runtime.jobgraph.graph import JobGraph, OperatorKind
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.effects import (
    EndRunner,
)
from tests.kit.control_plane.job_graphs import diamond, edge, graph, lone, source, vertex
from tests.kit.control_plane.job_master_driver import (
    EPOCH,
    JOB_ID,
    JobMasterDriver,
    allocation,
    location,
    user_failure,
)

E = ExecutionState
J = JobStatus


def two_stages(producers: int = 2, consumers: int = 2, mode: ExchangeMode = ExchangeMode.REBALANCE) -> JobGraph:
    return graph(
        source("read", parallelism=producers),
        vertex("report", OperatorKind.SINK, parallelism=consumers),
        edges=(edge("read", "report", mode),),
    )


def wide(parallelism: int) -> JobGraph:
    return graph(vertex("wide", OperatorKind.FUNCTION, parallelism=parallelism))


# --- results and sinks -----------------------------------------------------------------------------------------------


def test_result_of_several_terminal_subtasks_is_by_vertex() -> None:
    job = JobMasterDriver(graph(vertex("a", OperatorKind.FUNCTION, parallelism=2), vertex("b", OperatorKind.FUNCTION)))
    job.offer(1, 2, 3)
    for number, attempt_id in enumerate(job.running()):
        job.report(attempt_id, value=b"%d" % number if number else b"")
    assert job.pending_result is not None
    assert json.loads(job.pending_result.archived.result) == {"a": [None, 1], "b": [2]}


def test_outputs_are_moved_after_acceptance_and_before_the_result() -> None:
    job = JobMasterDriver(graph(vertex("sink", OperatorKind.SINK, parallelism=2)))
    job.offer(1, 2)
    first, second = job.running()
    job.report(first, outputs=(OutputDirectory("base", "hidden-0"),))
    assert job.pending_events is not None
    job.report(second, outputs=(OutputDirectory("base", "hidden-1"),))
    job.events_durable()
    assert job.commits == []
    job.events_durable()
    assert [commit.outputs for _, commit in job.commits] == [
        (OutputDirectory("base", "hidden-0"), OutputDirectory("base", "hidden-1"))
    ]
    assert not job.has_result()
    job.moved(1)
    assert job.pending_result is not None
    job.result_durable()
    assert job.status() is J.FINISHED


def test_failed_move_of_outputs_fails_the_job() -> None:
    job = JobMasterDriver(graph(vertex("sink", OperatorKind.SINK)))
    job.offer(1)
    attempt_id = job.running()[0]
    job.report(attempt_id, outputs=(OutputDirectory("base", "hidden"),))
    job.events_durable()
    job.moved(1, user_failure("disk full"))
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED
    assert job.pending_result.archived.exceptions[0].task_name == "the commit of the outputs"


def test_another_task_manager_moves_the_outputs_when_the_first_is_lost() -> None:
    job = JobMasterDriver(graph(vertex("sink", OperatorKind.SINK, parallelism=2)))
    job.offer(1, tm=1)
    job.offer(2, tm=2)
    for attempt_id in job.running():
        job.report(attempt_id, outputs=(OutputDirectory("base", str(attempt_id)),))
        job.events_durable()
    assert [incarnation for incarnation, _ in job.commits] == [location(2).incarnation]
    job.lose_task_manager(2, is_reaped=True)
    assert [incarnation for incarnation, _ in job.commits] == [location(2).incarnation, location(1).incarnation]
    job.lose_task_manager(1, is_reaped=True)
    assert not job.has_result()
    assert job.requirements[-1].requirements[0].count == 1, "any TaskManager will do, and none is known any more"
    job.lose_task_manager(2)
    job.offer(3, 4, tm=3)
    assert job.commits[-1][0] == location(3).incarnation
    assert allocation(3) in job.slots
    assert allocation(4) in job.rejected
    assert not job.has_result()
    job.moved(job.commits[-1][1].order)
    assert job.pending_result is not None
    assert job.pending_result.status is J.FINISHED
    job.result_durable()
    assert job.slots == set()
    assert any(isinstance(one, EndJob) for one in job.sent[-1][1])


# --- failure, cancel, loss -------------------------------------------------------------------------------------------


def test_a_failed_task_fails_the_job_with_its_cause_first() -> None:
    job = JobMasterDriver(wide(3))
    job.offer(1, 2)
    first, second = job.running()
    job.report(first, E.RUNNING)
    job.report(first, E.FAILED, failure=user_failure("no such table"))
    assert job.status() is J.FAILING
    assert job.cancelled == [second]
    assert job.core.summary().pending_reason == "waiting for 1 tasks to stop"
    assert job.core.summary().pending_kind == "stopping"
    assert job.requirements[-1].requirements == ()
    assert not job.has_result()  # R16
    job.report(second, E.CANCELED)
    job.result_durable()
    archived = job.core.archived()
    assert job.status() is J.FAILED
    assert archived.failure == user_failure("no such table")
    assert archived.exceptions[0].task_name == "wide (1/3) - execution #0"
    assert archived.exceptions[0].task_manager_id == "tm-0"
    states = [subtask.current.state for subtask in archived.vertices[0].subtasks]
    assert states == [E.FAILED, E.CANCELED, E.CANCELED]


def test_failures_that_follow_are_concurrent_and_bounded() -> None:
    job = JobMasterDriver(wide(30))
    job.offer(*range(30))
    attempts = job.running()
    for attempt_id in attempts:
        job.report(attempt_id, E.FAILED, failure=user_failure(str(attempt_id.subtask_index)))
    job.result_durable()
    (root,) = job.core.archived().exceptions
    assert root.failure.message == "0"
    assert [one.failure.message for one in root.concurrent] == [str(number) for number in range(1, 16)]


def test_a_task_canceled_unasked_is_a_failure() -> None:
    job = JobMasterDriver(lone())
    job.offer(1)
    job.report(job.running()[0], E.CANCELED)
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED


def test_cancel_while_initializing_needs_no_graph() -> None:
    job = JobMasterDriver()
    job.handle(ev.CancelWanted(job.at()))
    assert job.pending_result is not None
    job.load(lone())
    job.result_durable()
    assert job.status() is J.CANCELED


def test_cancel_without_slots_ends_at_once() -> None:
    job = JobMasterDriver(wide(2))
    job.handle(ev.CancelWanted(job.at()))
    job.result_durable()
    assert job.status() is J.CANCELED
    assert job.core.summary().tasks.canceled == 2


def test_cancel_stops_every_task_before_the_result() -> None:  # R16
    job = JobMasterDriver(wide(3))
    job.offer(1, 2)
    first, second = job.running()
    job.handle(ev.CancelWanted(job.at()))
    job.handle(ev.CancelWanted(job.at()))
    assert job.cancelled == [first, second]
    assert len(job.messages(CancelTasks)) == 1
    job.report(first)  # finishes while being cancelled
    assert not job.has_result()
    job.report(second, E.CANCELED)
    job.result_durable()
    assert job.status() is J.CANCELED
    assert job.core.archived().result == ""
    assert job.core.summary().tasks.canceled == 3


def test_a_cancel_of_the_cluster_says_why() -> None:
    """Also while it is initialised, and once however often it is told. A person's says nothing."""
    running, waiting, person = JobMasterDriver(lone()), JobMasterDriver(), JobMasterDriver(lone())
    running.offer(1)
    for job in (running, waiting):
        job.handle(ev.CancelWanted(job.at(), "nobody came back"))
        job.handle(ev.CancelWanted(job.at(), "nobody came back"))
    running.report(running.running()[0], E.CANCELED)
    person.handle(ev.CancelWanted(person.at()))
    for job, reasons in ((running, ["nobody came back"]), (waiting, ["nobody came back"]), (person, [])):
        job.result_durable()
        archived = job.core.archived()
        assert archived.status is J.CANCELED
        assert [one.failure.message for one in archived.exceptions] == reasons
        assert (archived.cancellation is not None) is bool(reasons)


def test_cancel_of_a_failing_job_and_failure_of_a_cancelled_one_change_nothing() -> None:
    failing = JobMasterDriver(wide(2))
    failing.offer(1, 2)
    first, second = failing.running()
    failing.report(first, E.FAILED, failure=user_failure())
    failing.handle(ev.CancelWanted(failing.at()))
    failing.report(second, E.CANCELED)
    failing.result_durable()
    assert failing.status() is J.FAILED
    cancelled = JobMasterDriver(lone())
    cancelled.offer(1)
    cancelled.handle(ev.CancelWanted(cancelled.at()))
    cancelled.report(cancelled.running()[0], E.FAILED, failure=user_failure())
    cancelled.result_durable()
    assert cancelled.status() is J.CANCELED
    assert cancelled.core.archived().exceptions == ()


def test_cancel_after_the_result_was_asked_for_is_too_late() -> None:
    job = JobMasterDriver(lone())
    job.offer(1)
    job.report(job.running()[0])
    job.handle(ev.CancelWanted(job.at()))
    job.result_durable()
    assert job.status() is J.FINISHED


def test_lost_task_manager_fails_its_attempts_with_that_reason() -> None:
    job = JobMasterDriver(wide(3))
    job.offer(1, 2, tm=1)
    job.offer(3, tm=2)
    job.lose_task_manager(1, "stream to host-1:1 ended")
    assert job.status() is J.FAILING
    assert len(job.cancelled) == 1
    job.report(job.running()[0], E.CANCELED)
    job.result_durable()
    failure = job.core.archived().failure
    assert failure is not None
    assert failure.class_name == "TaskManagerLostError"
    assert "host-1:1" in failure.message
    gone = {incarnation for incarnation, messages in job.sent if any(isinstance(one, EndJob) for one in messages)}
    assert gone == {location(2).incarnation}


def test_task_manager_lost_while_cancelling_ends_its_attempts() -> None:
    job = JobMasterDriver(lone())
    job.offer(1)
    job.handle(ev.CancelWanted(job.at()))
    job.lose_task_manager(0)
    job.result_durable()
    assert job.status() is J.CANCELED


def test_lost_idle_task_manager_disturbs_nobody() -> None:
    job = JobMasterDriver(wide(2))
    job.offer(1, tm=1)
    job.offer(2, tm=2)
    job.report(job.in_slot[allocation(1)][0])
    job.lose_task_manager(1)
    assert job.status() is J.RUNNING


def test_task_manager_with_a_slot_but_no_task_hears_of_the_end_too() -> None:
    job = JobMasterDriver(two_stages())
    job.offer(1, 2, tm=1)
    job.reports(*(job.make_report(attempt_id) for attempt_id in job.running()))
    job.loses(1, allocation(1), reason="gone")
    job.offer(3, tm=2)
    job.handle(ev.CancelWanted(job.at()))
    job.events_durable()
    job.result_durable()
    ended = {incarnation for incarnation, messages in job.sent if any(isinstance(one, EndJob) for one in messages)}
    assert ended == {location(1).incarnation, location(2).incarnation}


def test_lost_slot_fails_what_ran_in_it() -> None:
    job = JobMasterDriver(lone())
    job.offer(1)
    job.in_slot.clear()
    job.loses(0, allocation(1), allocation(9), reason="slot process died")
    assert job.pending_result is not None
    failure = job.pending_result.archived.failure
    assert failure is not None
    assert failure.message == "slot process died"


def test_execution_timeout_counts_from_the_first_deployment() -> None:
    job = JobMasterDriver(lone(execution_timeout_seconds=5.0))
    job.now = 3.0
    job.handle(ev.DeadlineReached(job.at()))
    assert job.status() is J.CREATED
    job.offer(1)
    assert job.deadlines == [8.0]
    job.handle(ev.DeadlineReached(job.at()))
    assert job.status() is J.FAILING
    job.report(job.running()[0], E.CANCELED)
    job.result_durable()
    failure = job.core.archived().failure
    assert failure is not None
    assert "execution.timeout of 5 s" in failure.message


def test_unreadable_graph_fails_that_job_with_its_reason() -> None:
    job = JobMasterDriver()
    job.handle(ev.InitializationDelayed("storage is away", job.at()))
    assert job.summaries[-1].pending_reason == "storage is away"
    job.handle(ev.InitializationFailed(user_failure("not JSON", "InvalidInputError"), "nightly", job.at()))
    job.result_durable()
    assert job.status() is J.FAILED
    assert job.core.summary().name == "nightly"
    assert job.core.archived().vertices == ()
    assert job.core.archived().failure == user_failure("not JSON", "InvalidInputError")


def test_lost_ownership_says_nothing_to_anybody() -> None:
    job = JobMasterDriver(two_stages())
    job.offer(1, 2)
    job.report(job.running()[0])
    sent = len(job.sent)
    effects = job.handle(ev.OwnershipLost("epoch 9 is the owner's", job.at()))
    assert effects == [EndRunner(None)]
    assert job.status() is J.SUSPENDED
    assert job.offer(3) == []
    assert len(job.sent) == sent


def test_offers_outside_of_the_life_of_a_job_are_refused() -> None:
    job = JobMasterDriver()
    job.offer(1)
    job.load(lone())
    job.offer(2)
    job.handle(ev.CancelWanted(job.at()))
    job.offer(3)
    assert job.rejected == {allocation(1), allocation(3)}


def test_reports_of_strangers_and_steps_back_are_dropped() -> None:
    job = JobMasterDriver(wide(2))
    job.offer(1)
    (attempt_id,) = job.running()
    job.report(attempt_id, E.RUNNING)
    job.report(attempt_id, E.INITIALIZING)
    job.report(attempt_id, E.SCHEDULED)
    assert job.core.summary().tasks.running == 1
    stranger = type(attempt_id)(JOB_ID, attempt_id.vertex_id, 0, EPOCH + 1, 0)
    job.reports(job.make_report(stranger, E.FAILED))
    never_deployed = type(attempt_id)(JOB_ID, attempt_id.vertex_id, 1, EPOCH, 0)
    job.reports(job.make_report(never_deployed, E.FAILED))
    assert job.status() is J.RUNNING


def test_progress_of_running_attempts_is_kept_with_the_graph() -> None:
    job = JobMasterDriver(lone())
    job.offer(1)
    progress = TaskProgress(job.running()[0], 0.5, "half way", 1, 2, 3, 4)
    job.progresses(progress)
    shown = job.core.archived().vertices[0].subtasks[0].current.progress
    assert shown is not None
    assert (shown.fraction, shown.text, shown.spark_tasks_total) == (0.5, "half way", 4)


def test_summaries_rise_in_sequence_and_time() -> None:
    job = JobMasterDriver(diamond())
    job.offer(1, 2)
    job.finish_all()
    job.result_durable()
    sequences = [summary.sequence for summary in job.summaries]
    times = [summary.last_modification_millis for summary in job.summaries]
    assert sequences == sorted(set(sequences))
    assert times == sorted(set(times))
    assert job.summaries[-1].tasks.finished == 12
    assert job.summaries[-1].start_millis == 1000


@pytest.mark.parametrize("count", [1, 2, 7])
def test_vertices_reuse_the_slots_one_after_another(count: int) -> None:
    job = JobMasterDriver(diamond())
    job.offer(*range(count))
    job.finish_all()
    job.result_durable()
    assert job.status() is J.FINISHED
    assert job.messages(CommitOutputs) == []
