"""R68, R69: what comes while the queries of a rescale end, and what the next owner makes of bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.states import JobStatus
from runtime.gateways.job_master import CancelTasks
from runtime.gateways.rescales import VertexBounds
from runtime.scheduler.core import events as ev
from tests.kit.control_plane.adaptive_driver import SETTINGS, AdaptiveDriver
from tests.kit.control_plane.job_graphs import graph
from tests.kit.control_plane.streaming_jobs import query

ORDERS = query("orders", parallelism=4, splits=4)
PLAIN = query("plain", parallelism=1)


def growing() -> AdaptiveDriver:
    """One subtask ends, so that there can be four."""
    job = AdaptiveDriver(graph(ORDERS), adaptive=SETTINGS)
    job.offer(1, tm=1)
    job.after(10.0)
    for slot in (2, 3, 4):
        job.offer(slot, tm=slot)
    job.after(30.0)
    assert job.ended_gently()
    return job


def test_a_cancel_does_not_wait_for_the_batches() -> None:
    job = growing()
    sent = len(job.sent)
    job.handle(ev.CancelWanted(job.at(), "user"))
    orders = [one for _, messages in job.sent[sent:] for one in messages if isinstance(one, CancelTasks)]
    assert [one.ends_batches for one in orders] == [False]


def test_an_upper_bound_that_comes_meanwhile_holds() -> None:
    job = growing()
    job.wants(VertexBounds(ORDERS.id, 1, 2))
    job.settle()
    assert [one.refusal for one in job.requirement_answers] == [""]
    job.after(1.0)
    job.stop_cancelled()
    job.settle()
    assert len(job.shares()) == 2
    (vertex,) = job.shown().history[0].vertices
    assert (vertex.before, vertex.after, vertex.upper) == (1, 2, 2)


def test_slots_that_are_lost_meanwhile_are_not_counted_on() -> None:
    job = growing()
    for slot in (2, 3, 4):
        job.lose_task_manager(slot, is_reaped=True)
    job.after(1.0)
    job.stop_cancelled()
    job.settle()
    assert list(map(len, job.shares())) == [4]


@pytest.mark.parametrize("names_all", [False, True])
@pytest.mark.parametrize("slots", [2, 3, 5])
def test_a_vertex_that_keeps_its_parallelism_may_be_named(*, names_all: bool, slots: int) -> None:
    """As a client does that sends back what it has got."""
    job = AdaptiveDriver(graph(ORDERS, PLAIN), adaptive=SETTINGS)
    for slot in range(1, slots + 1):
        job.offer(slot, tm=slot)
    job.after(10.0)
    job.settle()
    job.after(100.0)
    before = job.shares()
    job.wants(VertexBounds(ORDERS.id, 1, 4), *([VertexBounds(PLAIN.id, 1, 1)] if names_all else []))
    job.settle()
    assert [one.refusal for one in job.requirement_answers] == [""]
    job.change_owner(range(1, slots + 1))
    job.settle()
    for _ in range(40):
        job.after(10.0)
        job.stop_cancelled()
    assert job.status() is JobStatus.RUNNING
    assert job.shares() == before


@pytest.mark.parametrize(("lower", "is_taken"), [(1, False), (2, True)])
def test_a_lower_bound_leaves_no_subtask_with_too_many_queries(*, lower: int, is_taken: bool) -> None:
    many = query("orders", parallelism=30, splits=30)
    settings = replace(SETTINGS, is_reactive=True, submission_stabilization=0.0, executing_stabilization=0.0)
    job = AdaptiveDriver(graph(many), adaptive=settings)
    job.offer(1, 2)
    job.settle()
    job.wants(VertexBounds(many.id, lower, 30))
    job.settle()
    (answer,) = job.requirement_answers
    assert ("its lower bound is at least 2" in answer.refusal) is not is_taken
