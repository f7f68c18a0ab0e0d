"""Whole jobs with real JobMasters, in both modes: Dispatcher, ResourceManager, JobMaster process, slots, result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime.common.ids import Incarnation
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobRequest, SubmitJobRequest
from runtime.jobgraph.graph import JobGraph
from runtime.rpc.settings import RpcLimits
from tests.kit.control_plane.job_graphs import diamond, graph, source
from tests.kit.control_plane.obedient_task_manager import ObedientTaskManager, Outcome, finish
from tests.kit.control_plane.plane import ControlPlane, Leader, eventually

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(params=["standalone", "split"])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[ControlPlane]:
    """A world in either mode, with JobMasters that run ExecutionGraphs."""
    made = ControlPlane(is_split=request.param == "split", has_real_job_masters=True)
    yield made
    await made.stop()


async def start(plane: ControlPlane, *, slots: int = 2, outcome: Outcome = finish) -> Leader:
    leader = await plane.lead()
    if plane.is_split:
        await plane.start_job_master()
        await eventually(lambda: any(one.state == "ready" for one in leader.dispatcher.job_masters()))
    incarnation = Incarnation(plane.entropy.hex_id())
    rpc = await plane.new_rpc(incarnation)
    task_manager = ObedientTaskManager(incarnation, rpc, plane.clock, slots=slots, outcome=outcome)
    _ = plane.spawn(task_manager.run(leader.rpc.server.address))
    await eventually(task_manager.registered.is_set)
    return leader


async def run(plane: ControlPlane, leader: Leader, job_graph: JobGraph, wanted: JobStatus) -> ArchivedExecutionGraph:
    submit = plane.new_job(job_graph.canonical_json())
    await leader.dispatcher.submit_job(submit)
    return await ended(leader, submit, wanted)


async def ended(leader: Leader, submit: SubmitJobRequest, wanted: JobStatus) -> ArchivedExecutionGraph:
    def is_over() -> bool:
        summary = leader.dispatcher.job_summary(submit.job_id)
        return summary is not None and summary.status is wanted

    await eventually(is_over, f"{wanted.name} of job {submit.job_id}")
    response = await leader.dispatcher.request_job(JobRequest(submit.job_id))
    return ArchivedExecutionGraph.from_json(response.archived_graph)


async def test_a_no_op_job(plane: ControlPlane) -> None:
    leader = await start(plane)
    archived = await run(plane, leader, graph(source("only")), JobStatus.FINISHED)
    assert [vertex.state for vertex in archived.vertices] == [ExecutionState.FINISHED]
    await eventually(lambda: leader.resource_manager.slot_counts() == (2, 2), "all slots free again")


async def test_a_job_with_a_large_graph(plane: ControlPlane) -> None:
    leader = await start(plane)
    large = graph(source("only"), params={"text": "x" * 100_000})
    archived = await run(plane, leader, large, JobStatus.FINISHED)
    assert archived.graph_digest == large.digest()


async def test_a_running_job_larger_than_a_message_can_be_looked_at(plane: ControlPlane) -> None:
    leader = await start(plane, outcome=lambda _attempt: None)
    wide = graph(source("wide", parallelism=12_000, max_parallelism=12_000))
    submit = plane.new_job(wide.canonical_json())
    await leader.dispatcher.submit_job(submit)

    def is_running() -> bool:
        summary = leader.dispatcher.job_summary(submit.job_id)
        return summary is not None and summary.tasks.running == 2

    await eventually(is_running)
    response = await leader.dispatcher.request_job(JobRequest(submit.job_id))
    assert len(response.archived_graph) > RpcLimits().message_size_max
    archived = ArchivedExecutionGraph.from_json(response.archived_graph)
    assert len(archived.vertices[0].subtasks) == 12_000


async def test_a_failing_task_fails_its_job(plane: ControlPlane) -> None:
    leader = await start(plane, outcome=lambda _attempt: ExecutionState.FAILED)
    archived = await run(plane, leader, graph(source("only")), JobStatus.FAILED)
    assert archived.failure is not None
    assert archived.failure.message == "as told"


async def test_cancel_reaches_the_task(plane: ControlPlane) -> None:
    leader = await start(plane, outcome=lambda _attempt: None)
    submit = plane.new_job(graph(source("only")).canonical_json())
    await leader.dispatcher.submit_job(submit)

    def is_running() -> bool:
        summary = leader.dispatcher.job_summary(submit.job_id)
        return summary is not None and summary.tasks.running == 1

    await eventually(is_running)
    await leader.dispatcher.cancel_job(JobRequest(submit.job_id))
    await ended(leader, submit, JobStatus.CANCELED)
    await eventually(lambda: leader.resource_manager.slot_counts() == (2, 2), "all slots free again")


async def test_many_jobs_over_two_slots(plane: ControlPlane) -> None:
    leader = await start(plane)
    one = graph(source("only")).canonical_json()
    jobs = [plane.new_job(one) for _ in range(100)]
    async with asyncio.TaskGroup() as group:
        for submit in jobs:
            _ = group.create_task(leader.dispatcher.submit_job(submit))
    for submit in jobs:
        await ended(leader, submit, JobStatus.FINISHED)
    await eventually(lambda: leader.resource_manager.slot_counts() == (2, 2), "all slots free again")


async def test_a_wide_job_does_not_hold_up_a_small_one(plane: ControlPlane) -> None:
    leader = await start(plane)
    wide = plane.new_job(graph(source("wide", parallelism=500, max_parallelism=1000)).canonical_json())
    small = plane.new_job(graph(source("only")).canonical_json())
    await leader.dispatcher.submit_job(wide)
    await leader.dispatcher.submit_job(small)
    await ended(leader, small, JobStatus.FINISHED)
    await ended(leader, wide, JobStatus.FINISHED)


async def test_a_graph_with_every_kind_of_edge(plane: ControlPlane) -> None:
    """The hollow tasks give no partitions, so the job fails; what counts is that the reason gets through."""
    leader = await start(plane)
    archived = await run(plane, leader, diamond(), JobStatus.FAILED)
    assert archived.failure is not None
