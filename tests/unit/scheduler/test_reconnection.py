"""What was lost with a stream is settled by the census that the next one begins with (R11)."""

from __future__ import annotations

from dataclasses import replace

from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    CancelTasks,
    DeployTasks,
    FreeSlots,
    HeldAttempt,
    RegisterJob,
    ReleasePartitions,
    SlotOffer,
)
from runtime.gateways.task import OutputDirectory
from runtime.jobgraph.graph import OperatorKind
from runtime.scheduler.core import events as ev
from tests.kit.control_plane.job_graphs import edge, graph, source, two_readers, vertex
from tests.kit.control_plane.job_master_driver import (
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


def test_the_end_of_a_stream_ends_no_attempt() -> None:
    job = running_pair()
    job.cut_off(1)
    assert job.status() is J.RUNNING
    assert len(job.running()) == 2
    job.sent.clear()
    job.reconnect(1)
    assert job.messages(DeployTasks) == []
    job.finish_all()
    job.finish_all()
    job.result_durable()
    assert job.status() is J.FINISHED
    assert job.core.archived().exceptions == ()


def test_what_was_reported_into_the_void_counts_after_the_census() -> None:
    job = running_pair()
    first, _ = job.running()
    job.cut_off(1)
    job.report(first)
    assert not job.events_durable(), "nothing was heard of it"
    job.reconnect(1)
    job.events_durable()
    assert first in [one for message in job.messages(AcknowledgeReports) for one in message.attempts]


def test_a_deployment_that_never_arrived_is_sent_again_under_its_id() -> None:  # R9
    job = JobMasterDriver(two_readers(), failover=THREE_RESTARTS)
    job.cut.add(location(1).incarnation)
    job.offer(1, tm=1)
    job.offer(2, tm=2)
    job.cut_off(1)
    (sent,) = [task for to, messages in job.sent if to == location(1).incarnation for message in messages
               if isinstance(message, DeployTasks) for task in message.tasks]  # fmt: skip
    assert sent.attempt_id not in job.deployed
    job.reconnect(1)
    assert job.deployed[sent.attempt_id] == sent
    last = [messages for to, messages in job.sent if to == location(1).incarnation][-1]
    assert [type(one) for one in last] == [AnswerSlotOffers, RegisterJob, DeployTasks]


def test_a_cancel_that_was_lost_is_sent_again() -> None:
    job = running_pair()
    first, second = job.running()
    job.cut_off(1)
    job.handle(ev.CancelWanted(job.at()))
    assert job.cancelled == [second]
    job.report(second, E.CANCELED)
    assert not job.has_result()
    job.reconnect(1)
    assert job.cancelled == [second, first]
    job.report(first, E.CANCELED)
    job.result_durable()
    assert job.status() is J.CANCELED


def test_slots_that_nobody_knows_are_freed_and_ours_are_confirmed() -> None:
    job = running_pair()
    job.cut_off(1)
    job.sent.clear()
    foreign = SlotOffer(allocation(9), 3)
    job.handle(with_census(job.census_of(location(1)), slots=(foreign,)))
    assert [one.allocations for one in job.messages(FreeSlots)] == [(allocation(9),)]
    assert [one.accepted for one in job.messages(AnswerSlotOffers)] == [(allocation(1),)]


def test_what_was_replaced_meanwhile_is_stopped_or_acknowledged() -> None:
    job = running_pair()
    first, second = job.running()
    job.report(first, E.FAILED, failure=user_failure())
    job.events_durable()
    job.cut_off(1)
    job.sent.clear()
    stale = (HeldAttempt(first, 0, E.RUNNING, allocation(1)), HeldAttempt(second, 0, E.FAILED, None))
    job.handle(with_census(job.census_of(location(1)), attempts=stale))
    assert [one.attempts for one in job.messages(CancelTasks)] == [(first,)]
    ended = replace(second, counter=77)
    job.handle(with_census(job.census_of(location(1)), attempts=(HeldAttempt(ended, 0, E.FAILED, None),)))
    assert (ended,) in [one.attempts for one in job.messages(AcknowledgeReports)]


def test_an_absent_task_manager_gets_no_new_work_before_it_has_said_what_it_has() -> None:
    job = JobMasterDriver(graph(vertex("wide", OperatorKind.FUNCTION, parallelism=3)), failover=THREE_RESTARTS)
    job.offer(1, tm=1)
    (first,) = job.running()
    job.now = 10.0
    job.report(first)
    (second,) = job.running()
    job.cut_off(1)
    job.cut.clear()
    job.report(second)
    assert job.running() == []
    job.offer(2, tm=2)
    assert len(job.running()) == 1
    job.reconnect(1)
    assert [task.allocation_id for task in list(job.deployed.values())[2:]] == [allocation(2)]


def test_a_census_in_parts_is_settled_by_the_last_one() -> None:
    job = running_pair()
    first, _ = job.running()
    whole = job.census_of(location(1))
    job.cut_off(1)
    job.sent.clear()
    job.handle(with_census(whole, is_complete=False))
    assert job.sent == []
    job.handle(with_census(whole, attempts=()))
    assert job.messages(DeployTasks) == [], "it was in the first part"
    job.handle(with_census(whole, is_complete=False))
    job.cut_off(1)
    job.cut.clear()
    job.deployed.clear()
    job.handle(with_census(whole, attempts=()))
    assert list(job.deployed) == [first], "a part of an earlier stream is nothing"


def test_a_release_that_was_lost_is_sent_again() -> None:
    chain = graph(source("read"), vertex("clean"), vertex("write", OperatorKind.SINK),
                  edges=(edge("read", "clean"), edge("clean", "write")))  # fmt: skip
    job = JobMasterDriver(chain, failover=THREE_RESTARTS)
    job.offer(1, tm=1)
    job.report(job.running()[0])
    job.events_durable()
    job.report(job.running()[0])
    job.cut.add(location(1).incarnation)
    job.events_durable()
    lost = job.messages(ReleasePartitions)
    assert [one.partitions[0].producer.vertex_id for one in lost] == [chain.vertices[0].id]
    job.cut_off(1)
    job.sent.clear()
    job.reconnect(1)
    assert job.messages(ReleasePartitions) == lost


def test_a_commit_is_asked_for_again() -> None:
    job = JobMasterDriver(graph(vertex("sink", OperatorKind.SINK)), failover=THREE_RESTARTS)
    job.offer(1, tm=1)
    (attempt_id,) = job.running()
    job.report(attempt_id, outputs=(OutputDirectory("base", "hidden"),))
    job.events_durable()
    assert len(job.commits) == 1
    job.cut_off(1)
    job.reconnect(1)
    assert [commit for _, commit in job.commits] == [job.commits[0][1]] * 2
    job.moved(1)
    assert job.has_result()


def test_one_that_stays_away_is_lost() -> None:
    job = running_pair()
    first, second = job.running()
    job.cut_off(1)
    job.lose_task_manager(1)
    job.events_durable()
    job.restart_due()
    job.events_durable()
    job.offer(3, tm=2)
    (again,) = [one for one in job.running() if one != second]
    assert (again.subtask_index, again.counter) == (first.subtask_index, first.counter + 1)
