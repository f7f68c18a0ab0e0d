"""A job whose JobMaster breaks on every process ends, and not before its exclusive tasks have stopped (R16)."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import ExecutionAttemptId, Incarnation, JobId, VertexId
from runtime.common.states import JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.dispatcher import JobRequest
from runtime.gateways.task import OVERWRITE, OutputDirectory, TaskMetrics
from runtime.highavailability.jobs.fences import Fence, TaskManagerFences
from runtime.highavailability.jobs.payloads import inline_payload
from runtime.scheduler.core.job_events import AttemptFinished, OutputsCommitting, encode_events
from tests.kit.control_plane.led_jobs import status, until
from tests.kit.control_plane.plane import ControlPlane, HollowTaskManager, Leader, eventually

pytestmark = pytest.mark.asyncio


async def broken_everywhere(
    plane: ControlPlane, *, processes: int, events: bytes = b"", is_cancelled: bool = False
) -> tuple[Leader, HollowTaskManager, JobId]:
    """A job that two processes have begun and broken down with, and a TaskManager that may run tasks of it."""
    leader = await plane.lead()
    for _ in range(processes):
        await plane.start_job_master()
    task_manager = await plane.start_task_manager(1)
    await eventually(lambda: [one.state for one in leader.dispatcher.job_masters()] == ["ready"] * processes)
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    for count in range(1, processes + 1):
        await eventually(partial(lambda wanted: len(plane.runners.created) == wanted, count))
        if events and count == 1:
            epoch = plane.runners.created[-1].epoch
            await plane.owner_store.append_events(job.job_id, epoch, 0, inline_payload(events))
        if is_cancelled:
            await leader.dispatcher.cancel_job(JobRequest(job.job_id))
        plane.runners.by_job[job.job_id].break_down()
    return leader, task_manager, job.job_id


def half(plane: ControlPlane, task_manager: HollowTaskManager) -> TaskManagerFences:
    return TaskManagerFences(plane.kv, plane.keys, task_manager.incarnation, SeededEntropy(1), timeout=5.0)


async def fence_on(plane: ControlPlane, task_manager: HollowTaskManager, job_id: JobId) -> Fence:
    async with asyncio.timeout(100):
        while (fence := (await half(plane, task_manager).read()).fences.get(job_id)) is None:
            await asyncio.sleep(0.01)
    return fence


async def test_it_fails_when_its_tasks_have_stopped(split: ControlPlane) -> None:
    leader, task_manager, job_id = await broken_everywhere(split, processes=2)
    await until(leader, job_id, JobStatus.FAILING)
    fence = await fence_on(split, task_manager, job_id)
    assert fence.epoch == split.runners.created[-1].epoch
    assert status(leader, job_id) is JobStatus.FAILING, "nothing says that they have stopped"
    assert not (await split.kv.range(split.keys.result(job_id), is_prefix=False, timeout=5.0)).kvs
    assert await half(split, task_manager).confirm(job_id, fence)
    await until(leader, job_id, JobStatus.FAILED)


async def test_who_does_not_confirm_is_waited_out(split: ControlPlane) -> None:
    split.isolation_timeout = -4.9  # with the margin of five seconds a tenth of one is left
    leader, task_manager, job_id = await broken_everywhere(split, processes=1)
    await until(leader, job_id, JobStatus.FAILED)
    assert not (await fence_on(split, task_manager, job_id)).is_confirmed


async def test_a_task_manager_that_is_gone_runs_nothing(split: ControlPlane) -> None:
    leader, task_manager, job_id = await broken_everywhere(split, processes=1)
    await fence_on(split, task_manager, job_id)
    await split.registry.unregister(task_manager.incarnation)
    await until(leader, job_id, JobStatus.FAILED)


def decided(*, is_decided: bool = True) -> bytes:
    attempt_id = ExecutionAttemptId(JobId("1" * 32), VertexId("2" * 32), 0, 7, 1)
    written = OutputDirectory("/data/out", f"/data/out/.attempt-{attempt_id}", OVERWRITE)
    accepted = AttemptFinished(
        attempt_id=attempt_id,
        ordinal=0,
        location=TaskManagerLocation(Incarnation("3" * 32), "tm", "host:1"),
        timestamps={},
        value=b"",
        partitions=(),
        outputs=(written,),
        metrics=TaskMetrics(),
    )
    return encode_events((accepted, OutputsCommitting()) if is_decided else (accepted,))


@pytest.mark.parametrize(
    ("events", "is_kept", "said"),
    [
        (
            decided(),
            True,
            r"its outcome was decided, and .* bin/commit-outputs.sh overwrite=/data/out/\.attempt-",
        ),
        (decided(is_decided=False), False, ""),
        (b"not events", True, r"whether its outcome was decided cannot be read, .* bin/commit-outputs.sh MODE=BASE/"),
    ],
)
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_it_wrote_is_kept_and_named_if_its_outcome_was_decided(
    split: ControlPlane, events: bytes, is_kept: bool, said: str, is_cancelled: bool
) -> None:
    """R26, R28: and a cancel came too late."""
    leader, task_manager, job_id = await broken_everywhere(split, processes=1, events=events, is_cancelled=is_cancelled)
    await fence_on(split, task_manager, job_id)
    await split.registry.unregister(task_manager.incarnation)
    is_failed = not is_cancelled or "was decided, and" in said
    await until(leader, job_id, JobStatus.FAILED if is_failed else JobStatus.CANCELED)
    summary = leader.dispatcher.job_summary(job_id)
    assert summary is not None
    assert summary.keeps_outputs is is_kept
    if summary.status is JobStatus.CANCELED:
        return
    details = await leader.dispatcher.request_job(JobRequest(job_id))
    failure = ArchivedExecutionGraph.from_json(details.archived_graph).failure
    assert failure is not None
    assert re.search(said, failure.message)
    assert ("bin/commit-outputs.sh" in failure.message) is is_kept


async def test_a_job_that_nobody_has_begun_is_not_waited_for(split: ControlPlane) -> None:
    """Every process has refused it before it could start anything."""
    leader = await split.lead()
    await split.start_task_manager(1)
    job = split.new_job()
    await leader.dispatcher.submit_job(job)
    await leader.dispatcher.cancel_job(JobRequest(job.job_id))
    await until(leader, job.job_id, JobStatus.CANCELED)
