"""The decisions of one job, event by event."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from runtime.common.exchange import ExchangeMode
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    CancelTasks,
    CommitOutputs,
    DeployTasks,
    EndJob,
    FreeSlots,
    RegisterJob,
    ReleasePartitions,
)
from runtime.gateways.task import OutputDirectory, ResourceProfile, TaskProgress
from runtime.jobgraph.graph import JobGraph, OperatorKind, ResourceSpec
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.effects import (
    DeclareRequirements,
    EndRunner,
    PublishSummary,
    SendMessages,
    WriteEvents,
    WriteResult,
)
from runtime.scheduler.core.job_events import AttemptFinished, PartitionsReleased
from tests.kit.job_graphs import diamond, edge, graph, lone, source, vertex
from tests.kit.job_master_driver import (
    EPOCH,
    JOB_ID,
    JobMasterDriver,
    allocation,
    inline,
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


# --- the no-op job ---------------------------------------------------------------------------------------------------


def test_noop_job_costs_two_letters_no_events_and_three_pushes() -> None:
    job = JobMasterDriver()
    loaded = job.load(lone())
    assert [type(effect) for effect in loaded] == [DeclareRequirements, PublishSummary]
    offered = job.offer(1)
    assert [type(effect) for effect in offered] == [SendMessages, PublishSummary]
    assert [type(message) for message in job.sent[0][1]] == [AnswerSlotOffers, RegisterJob, DeployTasks]
    (attempt_id,) = job.running()
    both = (job.make_report(attempt_id, E.RUNNING), job.make_report(attempt_id, value=b"null"))
    assert [type(effect) for effect in job.reports(*both)] == [WriteResult]
    ended = job.result_durable()
    assert [type(effect) for effect in ended] == [SendMessages, DeclareRequirements, PublishSummary, EndRunner]
    assert [type(message) for message in job.sent[1][1]] == [AcknowledgeReports, FreeSlots, EndJob]
    assert job.durable == []
    assert len(job.sent) == 2
    assert [summary.status for summary in job.summaries] == [J.CREATED, J.RUNNING, J.FINISHED]


def test_terminal_state_is_shown_only_after_the_result_transaction() -> None:  # R3
    job = JobMasterDriver(lone())
    job.offer(1)
    job.report(job.running()[0], value=b'"done"')
    assert job.status() is J.RUNNING
    assert job.core.summary().status is J.RUNNING
    assert job.core.archived().status is J.RUNNING
    assert job.messages(EndJob) == []
    assert job.pending_result is not None
    assert job.pending_result.archived.status is J.FINISHED
    job.result_durable()
    assert job.status() is J.FINISHED
    assert job.ended == [job.core.summary()]
    assert job.core.archived() == job.pending_result.archived
    assert job.core.archived().result == '"done"'
    assert job.core.archived().end_millis == job.core.summary().end_millis


def test_requirements_end_with_the_job() -> None:
    job = JobMasterDriver(lone())
    assert [one.count for one in job.requirements[-1].requirements] == [1]
    job.offer(1)
    job.report(job.running()[0])
    assert len(job.requirements) == 1
    job.result_durable()
    assert job.requirements[-1].requirements == ()


def test_a_store_that_is_away_shows_as_the_reason_and_the_end_still_comes_last() -> None:  # R20
    job = JobMasterDriver(lone())
    job.offer(1)
    job.report(job.running()[0])
    for _ in range(3):
        job.handle(ev.WriteDelayed("etcd is away", job.at()))
    assert job.summaries[-1].pending_reason == "etcd is away"
    assert job.summaries[-1].status is J.RUNNING
    pushed = len(job.summaries)
    job.result_durable()
    assert len(job.summaries) == pushed + 1
    assert (job.summaries[-1].status, job.summaries[-1].pending_reason) == (J.FINISHED, "")
    assert job.summaries[-1].sequence > job.summaries[-2].sequence


def test_store_reason_goes_when_events_get_through() -> None:
    job = JobMasterDriver(two_stages())
    job.offer(1, 2)
    job.report(job.running()[0])
    job.handle(ev.WriteDelayed("etcd is away", job.at()))
    assert job.core.summary().pending_reason == "etcd is away"
    job.events_durable()
    assert job.core.summary().pending_reason == ""


# --- slots -----------------------------------------------------------------------------------------------------------


def test_waits_for_slots_with_a_reason() -> None:
    job = JobMasterDriver(lone())
    assert job.status() is J.CREATED
    assert job.core.summary().pending_reason == "waiting for slots"
    job.handle(ev.ResourcesNotified("no TaskManager is registered", job.at()))
    assert job.summaries[-1].pending_reason == "waiting for slots: no TaskManager is registered"
    job.offer(1)
    assert job.summaries[-1].pending_reason == ""


def test_takes_only_slots_it_has_work_for() -> None:
    job = JobMasterDriver(wide(2))
    job.offer(1, 2, 3)
    assert job.slots == {allocation(1), allocation(2)}
    assert job.rejected == {allocation(3)}


def test_repeated_offer_of_a_held_slot_is_taken_again() -> None:  # R11
    job = JobMasterDriver(wide(2))
    job.offer(1)
    job.offer(1)
    assert job.slots == {allocation(1)}
    assert len(job.running()) == 1


def test_frees_a_slot_as_soon_as_nothing_is_runnable_for_it() -> None:
    job = JobMasterDriver(wide(2))
    job.offer(1, 2)
    job.report(job.running()[0])
    assert [message.allocations for message in job.messages(FreeSlots)] == [(allocation(1),)]
    assert job.slots == {allocation(2)}


def test_slots_stay_while_the_consumers_wait_for_durability() -> None:
    job = JobMasterDriver(two_stages())
    job.offer(1, 2)
    job.reports(*(job.make_report(attempt_id) for attempt_id in job.running()))
    assert job.pending_events is not None
    assert job.slots == {allocation(1), allocation(2)}
    job.events_durable()
    assert job.slots == {allocation(1), allocation(2)}
    assert len(job.running()) == 2


def test_one_slot_is_enough_for_a_whole_graph() -> None:
    job = JobMasterDriver(diamond())
    job.offer(1)
    job.finish_all()
    job.result_durable()
    assert job.status() is J.FINISHED
    assert len(job.deployed) == 12


def test_slots_of_another_group_or_profile_are_not_shared() -> None:
    big = ResourceSpec(memory_bytes=1 << 30)
    job = JobMasterDriver(
        graph(
            vertex("a", OperatorKind.FUNCTION),
            vertex("b", OperatorKind.FUNCTION, slot_sharing_group="other"),
            vertex("c", OperatorKind.FUNCTION, resources=big),
        )
    )
    assert {(one.profile.memory_bytes, one.count) for one in job.requirements[-1].requirements} == {
        (0, 2),
        (1 << 30, 1),
    }
    profile = ResourceProfile(memory_bytes=1 << 30)
    job.offer(1, profile=profile)
    assert [job.deployed[one].task.vertex_name for one in job.running()] == ["c"]
    job.offer(2, profile=profile)
    assert allocation(2) in job.rejected
    job.offer(3)
    assert [job.deployed[one].task.vertex_name for one in job.in_slot[allocation(3)]] == ["a"]
    job.report(job.in_slot[allocation(3)][0])
    assert allocation(3) not in job.slots
    job.offer(4)
    assert [job.deployed[one].task.vertex_name for one in job.in_slot[allocation(4)]] == ["b"]


def test_deploys_ahead_only_once_tasks_are_known_to_be_short() -> None:
    job = JobMasterDriver(wide(100))
    job.offer(1)
    assert len(job.running()) == 1
    job.now += 0.001
    job.report(job.running()[0])
    assert len(job.running()) == 9
    job.now += 60.0
    job.report(job.running()[0])
    assert len(job.running()) == 8
    for _ in range(8):
        job.now += 60.0
        job.report(job.running()[0])
    assert len(job.running()) == 1


def test_long_tasks_are_left_for_slots_to_come() -> None:
    job = JobMasterDriver(wide(4))
    for number in range(4):
        job.offer(number)
    assert [len(attempts) for attempts in job.in_slot.values()] == [1, 1, 1, 1]


def test_requirements_of_a_wide_job_are_not_told_for_every_task() -> None:
    job = JobMasterDriver(wide(500), validate=False)
    job.offer(1, 2)
    job.finish_all()
    counts = [sum(one.count for one in declared.requirements) for declared in job.requirements]
    assert counts[0] == 500
    assert counts == sorted(counts, reverse=True)
    assert len(counts) < 60
    assert all(before - after <= max(1, before // 8 + 1) for before, after in pairwise(counts))


# --- inputs, events, partitions --------------------------------------------------------------------------------------


def test_consumers_start_only_after_the_events_transaction() -> None:  # R10
    job = JobMasterDriver(two_stages())
    job.offer(1, 2)
    first, second = job.running()
    job.report(first)
    assert isinstance(job.pending_events, WriteEvents)
    assert job.messages(AcknowledgeReports) == []
    job.report(second)
    job.events_durable()
    assert [message.attempts for message in job.messages(AcknowledgeReports)] == [(first,)]
    assert job.running() == []
    job.events_durable()
    assert len(job.running()) == 1
    assert [event.attempt_id for batch in job.durable for event in batch if isinstance(event, AttemptFinished)] == [
        first,
        second,
    ]


def test_gates_hold_what_one_consumer_reads() -> None:
    job = JobMasterDriver(two_stages(mode=ExchangeMode.HASH))
    job.offer(1, 2)
    for attempt_id in job.running():
        job.report(attempt_id)
        job.events_durable()
    for attempt_id in job.running():
        (gate,) = job.deployed[attempt_id].inputs
        assert gate.source_name == "read"
        assert [partition.partition_id.producer.subtask_index for partition in gate.partitions] == [0, 1]
        consumers = {file.consumer for partition in gate.partitions for file in partition.files}
        assert consumers == {attempt_id.subtask_index}


def test_partitions_are_released_after_their_last_consumer_is_durable() -> None:
    job = JobMasterDriver(
        graph(
            source("read", parallelism=2),
            vertex("middle"),
            vertex("report", OperatorKind.SINK),
            edges=(edge("read", "middle"), edge("middle", "report")),
        )
    )
    job.offer(1)
    for _ in range(2):
        job.report(job.running()[0])
        job.events_durable()
    job.report(job.running()[0])
    assert job.messages(ReleasePartitions) == []
    job.events_durable()
    (release,) = job.messages(ReleasePartitions)
    assert sorted(one.producer.subtask_index for one in release.partitions) == [0, 1]
    assert any(isinstance(event, PartitionsReleased) for event in job.durable[-1])


def test_inline_values_travel_and_need_no_release() -> None:
    job = JobMasterDriver(two_stages(producers=2, consumers=1, mode=ExchangeMode.GATHER))
    job.offer(1)
    for number in range(2):
        (attempt_id,) = job.running()
        job.report(attempt_id, partitions=(inline(attempt_id, 0, b"%d" % number),))
        job.events_durable()
    (consumer,) = job.running()
    assert [partition.inline for partition in job.deployed[consumer].inputs[0].partitions] == [b"0", b"1"]
    job.report(consumer)
    job.result_durable()
    assert job.messages(ReleasePartitions) == []


def test_mixed_kinds_of_results_fail_the_job() -> None:
    job = JobMasterDriver(two_stages())
    job.offer(1, 2)
    first, second = job.running()
    job.report(first)
    job.events_durable()
    job.report(second, partitions=(inline(second, 0, b"1"),))
    job.events_durable()
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED
    failure = job.pending_result.archived.failure
    assert failure is not None
    assert "read returned DataFrames and JSON values" in failure.message


def test_finished_tasks_that_nobody_waits_for_ride_along_in_batches() -> None:
    job = JobMasterDriver(wide(200), validate=False)
    job.offer(1, 2)
    job.finish_all()
    assert [len(batch) for batch in job.durable] == [64, 64, 64]
    assert job.pending_result is not None


def test_the_wheel_writes_what_was_left() -> None:
    job = JobMasterDriver(wide(3))
    job.offer(1, 2)
    job.report(job.running()[0])
    assert job.events_durable() == []
    assert job.core.wants_tick
    job.handle(ev.Ticked(job.at()))
    assert job.pending_events is not None
    job.events_durable()
    assert len(job.messages(AcknowledgeReports)) == 1
    assert not job.core.wants_tick


def test_accepted_report_told_again_is_acknowledged_again() -> None:  # R11
    job = JobMasterDriver(two_stages())
    job.offer(1, 2)
    first = job.running()[0]
    report = job.make_report(first)
    job.reports(report)
    job.reports(report)
    assert job.messages(AcknowledgeReports) == []
    job.events_durable()
    job.reports(report)
    assert len(job.messages(AcknowledgeReports)) == 2
    assert job.core.summary().tasks.finished == 1


def test_a_finished_report_without_its_partitions_fails_the_attempt() -> None:
    job = JobMasterDriver(two_stages(producers=1))
    job.offer(1)
    job.report(job.running()[0], partitions=())
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED


def test_splits_are_dealt_out_round_robin() -> None:
    job = JobMasterDriver(graph(source("read", parallelism=3, splits=("a", "b", "c", "d", {"e": 1}))))
    job.offer(1, 2, 3)
    splits = [json.loads(job.deployed[one].splits) for one in job.running()]
    assert splits == [["a", "d"], ["b", {"e": 1}], ["c"]]


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
    job.handle(ev.OutputsMoved(first.vertex_id, None, job.at()))
    assert job.pending_result is not None
    job.result_durable()
    assert job.status() is J.FINISHED


def test_failed_move_of_outputs_fails_the_job() -> None:
    job = JobMasterDriver(graph(vertex("sink", OperatorKind.SINK)))
    job.offer(1)
    attempt_id = job.running()[0]
    job.report(attempt_id, outputs=(OutputDirectory("base", "hidden"),))
    job.events_durable()
    job.handle(ev.OutputsMoved(attempt_id.vertex_id, user_failure("disk full"), job.at()))
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED
    assert job.pending_result.archived.exceptions[0].task_name == "sink"


def test_another_task_manager_moves_the_outputs_when_the_first_is_lost() -> None:
    job = JobMasterDriver(graph(vertex("sink", OperatorKind.SINK, parallelism=2)))
    job.offer(1, tm=1)
    job.offer(2, tm=2)
    for attempt_id in job.running():
        job.report(attempt_id, outputs=(OutputDirectory("base", str(attempt_id)),))
        job.events_durable()
    assert [incarnation for incarnation, _ in job.commits] == [location(2).incarnation]
    job.lose_task_manager(2)
    assert [incarnation for incarnation, _ in job.commits] == [location(2).incarnation, location(1).incarnation]
    job.lose_task_manager(1)
    assert job.pending_result is not None
    assert job.pending_result.status is J.FAILED


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
    job.handle(ev.SlotsGone(location(1).incarnation, (allocation(1),), "gone", job.at()))
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
    job.handle(ev.SlotsGone(location().incarnation, (allocation(1), allocation(9)), "slot process died", job.at()))
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
    job.handle(ev.AttemptsProgressed((progress,), job.at()))
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
