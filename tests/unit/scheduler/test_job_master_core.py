"""The decisions of one job, event by event."""

from __future__ import annotations

import json
from itertools import pairwise

from runtime.common.exchange import ExchangeMode
from runtime.common.states import ExecutionState, JobStatus
from runtime.common.waiting import Waiting, WaitingKind
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    DeployTasks,
    EndJob,
    FreeSlots,
    HeldAttempt,
    RegisterJob,
    ReleasePartitions,
    SlotOffer,
)
from runtime.gateways.task import ResourceProfile
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
from tests.kit.control_plane.job_graphs import diamond, edge, graph, lone, source, vertex
from tests.kit.control_plane.job_master_driver import (
    JobMasterDriver,
    allocation,
    inline,
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
    assert job.core.summary().pending_kind == WaitingKind.STORE.value
    job.events_durable()
    assert job.core.summary().pending_reason == ""


# --- slots -----------------------------------------------------------------------------------------------------------


def test_waits_for_slots_with_a_reason() -> None:
    job = JobMasterDriver(lone())
    assert job.status() is J.CREATED
    assert job.core.summary().pending_reason == "waiting for slots"
    assert job.core.summary().pending_kind == WaitingKind.SLOTS.value
    job.handle(ev.ResourcesNotified(Waiting(WaitingKind.TASK_MANAGERS, "no TaskManager is registered"), job.at()))
    assert job.summaries[-1].pending_reason == "waiting for slots: no TaskManager is registered"
    assert job.summaries[-1].pending_kind == WaitingKind.TASK_MANAGERS.value
    job.offer(1)
    assert job.summaries[-1].pending_reason == ""
    assert job.summaries[-1].pending_kind == ""


def test_takes_only_slots_it_has_work_for() -> None:
    job = JobMasterDriver(wide(2))
    job.offer(1, 2, 3)
    assert job.slots == {allocation(1), allocation(2)}
    assert job.rejected == {allocation(3)}


def test_what_a_lost_stream_left_behind_ends_when_its_task_manager_comes_back() -> None:  # R11
    job = JobMasterDriver(wide(2))
    job.offer(1, tm=0)
    job.offer(2, tm=1)
    first, second = job.running()
    job.lose_task_manager(0)
    assert job.status() is J.FAILING
    slots = (SlotOffer(allocation(1), 1),)
    attempts = (HeldAttempt(first, 0, E.RUNNING, allocation(1)), HeldAttempt(second, 0, E.FAILED, None))
    job.cancelled.clear()
    job.counts(0, slots, attempts)
    assert job.cancelled == [first]
    assert job.messages(FreeSlots)[-1].allocations == (allocation(1),)


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
