"""The AdaptiveScheduler in the core: how a job begins, is rescaled, and goes on under the next owner (R68, R69)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.states import ExecutionState, JobStatus, SchedulerType
from runtime.common.waiting import WaitingKind
from runtime.executiongraph.archived_rescales import RescaleCause, RescaleReason, RescaleState
from runtime.gateways.rescales import VertexBounds
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.job_events import JobRescaled
from tests.kit.control_plane.adaptive_driver import SETTINGS, AdaptiveDriver
from tests.kit.control_plane.job_graphs import graph
from tests.kit.control_plane.job_master_driver import location
from tests.kit.control_plane.streaming_jobs import query

E = ExecutionState
VERTEX = query("orders", parallelism=4, splits=4)


def adaptive(*, reactive: bool = False, splits: int = 4, parallelism: int = 4) -> AdaptiveDriver:
    """A job of one query with splits."""
    settings = replace(SETTINGS, is_reactive=reactive)
    return AdaptiveDriver(graph(query("orders", parallelism=parallelism, splits=splits)), adaptive=settings)


def begun(*slots: int) -> AdaptiveDriver:
    """A job that runs in these slots, of a TaskManager each."""
    job = adaptive()
    for slot in slots:
        job.offer(slot, tm=slot)
    job.after(10.0)
    return job


def test_a_job_begins_at_once_with_all_that_it_can_use() -> None:
    job = adaptive()
    assert job.wanted_slots == 4
    job.offer(1, 2, 3, 4)
    assert job.running() == [], "the parallelism is durable before anything is deployed"
    job.settle()
    assert job.shares() == [[0], [1], [2], [3]]
    assert job.core.summary().status is JobStatus.RUNNING
    assert job.core.archived().scheduler_type is SchedulerType.ADAPTIVE


def test_a_job_begins_with_fewer_slots_once_no_more_come() -> None:
    job = adaptive()
    job.offer(1, 2)
    job.after(9.0)
    assert job.running() == []
    assert job.core.summary().pending_kind == WaitingKind.SLOTS.value
    job.after(1.0)
    assert job.shares() == [[0, 2], [1, 3]]
    assert job.wanted_slots == 4, "it would take two more"
    (rescale,) = job.shown().history
    assert (rescale.cause, rescale.state) == (RescaleCause.INITIAL_SCHEDULE, RescaleState.COMPLETED)


def test_a_job_without_slots_fails_when_it_has_waited_long_enough() -> None:
    job = adaptive()
    job.after(299.0)
    assert job.core.summary().status is JobStatus.CREATED
    job.after(1.0)
    job.result_durable()
    assert job.core.summary().status is JobStatus.FAILED
    assert "NoResourceAvailableException" in job.core.archived().exceptions[0].failure.class_name


def test_slots_that_come_are_used_behind_the_cooldown() -> None:
    job = begun(1)
    assert job.shares() == [[0, 1, 2, 3]]
    for slot in (2, 3, 4):
        job.offer(slot, tm=slot)
    job.after(29.0)
    assert job.ended_gently() == [], "the job began 29 seconds ago"
    job.after(1.0)
    (ended,) = job.ended_gently()
    assert job.core.summary().status is JobStatus.RESTARTING
    assert job.running() == [ended], "nothing begins before it has ended"
    job.after(2.0)
    job.stop_cancelled()
    assert job.shares() == [[0], [1], [2], [3]]
    assert job.core.summary().status is JobStatus.RUNNING
    newest = job.shown().history[0]
    assert (newest.cause, newest.reason) == (RescaleCause.NEW_RESOURCE_AVAILABLE, RescaleReason.SUCCEEDED)
    assert newest.pause_millis == 2000
    assert [(one.before, one.after) for one in newest.vertices] == [(1, 4)]


def test_more_slots_are_waited_for_when_the_job_could_use_still_more() -> None:
    job = begun(1)
    job.offer(2, tm=2)
    job.after(30.0 + 59.0)
    assert job.ended_gently() == []
    job.after(1.0)
    job.stop_cancelled()
    assert job.shares() == [[0, 2], [1, 3]]


def test_a_job_goes_on_with_fewer_slots_when_a_task_manager_is_gone() -> None:
    job = begun(1, 2, 3, 4)
    (gone,) = [one for one in job.running() if job.whereabouts(one) == location(4)]
    job.lose_task_manager(4, is_reaped=True)
    job.settle()
    job.after(0.0)
    assert gone not in job.running()
    job.after(9.0)
    assert job.ended_gently() == [], "another slot may come in its place"
    job.after(1.0)
    assert len(job.ended_gently()) == 3
    job.stop_cancelled()
    assert job.shares() == [[0, 3], [1], [2]]
    newest = job.shown().history[0]
    assert newest.cause is RescaleCause.RECOVERABLE_FAILOVER


def test_a_failed_query_restarts_alone() -> None:
    job = begun(1, 2, 3, 4)
    first, *others = job.running()
    job.report(first, E.FAILED)
    job.settle()
    job.restart_due()
    job.settle()
    assert set(others) < set(job.running())
    assert len(job.running()) == 4
    job.after(100.0)
    assert job.ended_gently() == []


def test_bounds_are_durable_before_they_are_answered_and_then_hold() -> None:
    job = begun(1, 2, 3, 4)
    job.after(30.0)
    job.wants(VertexBounds(VERTEX.id, 1, 2))
    assert job.requirement_answers == []
    job.events_durable()
    assert [one.refusal for one in job.requirement_answers] == [""]
    assert len(job.ended_gently()) == 4
    job.stop_cancelled()
    assert job.shares() == [[0, 2], [1, 3]]
    assert job.wanted_slots == 2
    assert len(job.slots) == 2, "the others went back"
    newest = job.shown().history[0]
    assert newest.cause is RescaleCause.UPDATE_REQUIREMENT


def test_a_rescale_that_new_bounds_overtake_says_so() -> None:
    job = begun(1, 2, 3, 4)
    job.after(100.0)
    job.wants(VertexBounds(VERTEX.id, 1, 2), request_id="first")
    job.settle()
    job.after(100.0)
    for attempt_id in job.ended_gently():
        job.report(attempt_id, E.CANCELED)
    while job.pending_events is not None:  # its queries are deployed, and do not work yet
        job.events_durable()
    assert [one.reason for one in job.shown().history] == [None, RescaleReason.SUCCEEDED]
    job.wants(VertexBounds(VERTEX.id, 1, 3), request_id="second")
    job.events_durable()
    job.offer(7, 8, 9)
    job.after(100.0)
    overtaken = job.shown().history[1]
    assert (overtaken.cause, overtaken.state) == (RescaleCause.UPDATE_REQUIREMENT, RescaleState.FAILED)
    assert overtaken.reason is RescaleReason.RESOURCE_REQUIREMENTS_UPDATED


def test_bounds_that_hold_already_are_no_event() -> None:
    job = begun(1, 2, 3, 4)
    job.wants(VertexBounds(VERTEX.id, 1, 4))
    assert job.requirement_answers == [], "nobody has said so before, and another configuration could change them"
    job.events_durable()
    job.wants(VertexBounds(VERTEX.id, 1, 4))
    assert [one.refusal for one in job.requirement_answers] == ["", ""]
    job.wants(VertexBounds(VERTEX.id, 1, 3))
    job.wants(VertexBounds(VERTEX.id, 1, 4))
    assert len(job.requirement_answers) == 2, "it waits for those before it"
    job.settle()
    assert [(one.lower, one.upper) for one in job.shown().bounds] == [(1, 4)]


def test_the_next_owner_knows_which_bounds_hold() -> None:
    job = begun(1)
    job.wants(VertexBounds(VERTEX.id, 1, 3))
    job.settle()
    job.change_owner(range(5))
    job.settle()
    job.wants(VertexBounds(VERTEX.id, 1, 3))
    assert job.pending_events is None


@pytest.mark.parametrize(
    ("lower", "upper", "why"),
    [(0, 2, "at least 1"), (3, 2, "at most the upper"), (1, 5, "has 4 splits, so at most as many subtasks")],
)
def test_bounds_that_cannot_hold_are_refused(lower: int, upper: int, why: str) -> None:
    job = begun(1)
    job.wants(VertexBounds(VERTEX.id, lower, upper))
    (answer,) = job.requirement_answers
    assert why in answer.refusal
    assert job.pending_events is None


def test_a_job_of_another_scheduler_keeps_its_parallelism() -> None:
    job = AdaptiveDriver(graph(query("orders", parallelism=2)))
    job.offer(1, 2)
    job.settle()
    job.wants(VertexBounds(query("orders", parallelism=2).id, 1, 1))
    assert "keeps its 2 subtasks" in job.requirement_answers[0].refusal


def test_reactive_jobs_take_a_slot_for_each_split() -> None:
    job = adaptive(reactive=True, parallelism=1)
    assert job.wanted_slots == 4


def test_subtasks_have_at_most_twenty_queries() -> None:
    job = adaptive(splits=50, parallelism=1)
    assert job.wanted_slots == 3
    job.offer(1, 2)
    job.after(20.0)
    assert job.running() == [], "two slots are too few"
    job.offer(3)
    job.settle()
    assert [len(share) for share in job.shares()] == [17, 17, 16]


def test_the_next_owner_has_parallelism_bounds_and_history() -> None:
    job = begun(1)
    job.offer(2, 3, 4)
    job.after(30.0)
    job.stop_cancelled()
    job.wants(VertexBounds(VERTEX.id, 1, 3))
    job.settle()
    before = job.running()
    job.change_owner(range(5))
    job.settle()
    assert job.running() == before, "attempts are adopted"
    shown = job.shown()
    assert [(one.lower, one.upper) for one in shown.bounds] == [(1, 3)]
    assert [one.number for one in shown.history] == [2, 1]
    assert job.core.archived().scheduler_type is SchedulerType.ADAPTIVE


@pytest.mark.parametrize("is_known", [True, False])
def test_an_owner_that_dies_between_the_end_of_queries_and_their_start(is_known: bool) -> None:
    job = begun(1)
    job.offer(2, 3, 4)
    job.after(30.0)
    (ended,) = job.running()
    job.report(ended, E.CANCELED)
    assert job.pending_events is not None
    assert any(isinstance(one, JobRescaled) for one in job.pending_events.events)
    if is_known:
        job.events_applied()
    else:
        job.pending_events = None
    job.change_owner(range(5))
    job.settle()
    job.restart_due()
    job.settle()
    assert ended not in job.running()
    numbers = sorted(number for share in job.shares() for number in share)
    assert numbers == [0, 1, 2, 3], "each query runs once"
    assert len(job.shares()) == 4, "as it was, or decided anew"


def test_subtasks_that_come_back_have_attempts_of_their_own() -> None:
    job = begun(1, 2)
    seen = set(job.running())
    for bounds in ((1, 1), (1, 2)):
        job.wants(VertexBounds(VERTEX.id, *bounds))
        job.settle()
        job.after(30.0)
        job.stop_cancelled()
        if bounds == (1, 1):
            job.offer(7, tm=7)
        job.offer(8, 9, tm=8)
        job.after(90.0)
        job.stop_cancelled()
        assert not seen & set(job.running())
        seen |= set(job.running())
    assert [len(share) for share in job.shares()] == [2, 2]


def test_nothing_is_rescaled_while_the_job_ends() -> None:
    job = begun(1)
    job.offer(2, 3, 4)
    job.after(30.0)
    job.handle(ev.CancelWanted(job.at()))
    for attempt_id in job.running():
        job.report(attempt_id, E.CANCELED)
    job.result_durable()
    assert job.core.summary().status is JobStatus.CANCELED
    newest = job.shown().history[0]
    assert newest.reason is RescaleReason.JOB_CANCELED


def test_a_job_keeps_its_scheduler_whatever_is_configured_later() -> None:
    job = begun(1, 2)
    job.scheduler_type = SchedulerType.DEFAULT
    job.change_owner(range(3))
    job.settle()
    assert job.core.archived().scheduler_type is SchedulerType.ADAPTIVE
    assert job.shares() == [[0, 2], [1, 3]]
    assert job.core.graph.vertices[VERTEX.id].parallelism == 2


def test_a_job_that_has_bounds_only_keeps_its_scheduler_too() -> None:
    job = adaptive()
    job.wants(VertexBounds(VERTEX.id, 1, 2))
    job.settle()
    job.scheduler_type = SchedulerType.DEFAULT
    job.change_owner(())
    assert job.core.archived().scheduler_type is SchedulerType.ADAPTIVE
    assert job.wanted_slots == 4, "it has four subtasks until it begins"


def test_savepoints_are_compared_with_a_query_for_each_split() -> None:
    ending = query("ending", splits=3, ends=True)
    made = graph(query("orders", splits=4), ending, query("plain", parallelism=2))
    assert made.queries_by_split == {"orders": 4, "ending": 1, "plain": 2}
    job = AdaptiveDriver(made)
    by_split = {vertex.vertex.stream_sink: vertex.queries for vertex in job.core.graph.vertices.values()}
    assert {sink.uid: number for sink, number in by_split.items() if sink is not None and number} == {"orders": 4}
