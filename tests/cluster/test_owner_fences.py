"""An owner and the fences that it puts on TaskManagers, over a real store (R14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.aio.retry import RetryPolicy
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import AssignJob
from runtime.gateways.job_master import DeployTasks
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.highavailability.jobs.fences import Fence, TaskManagerFences
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn
from runtime.highavailability.leadership.registration import TaskManagerRegistry
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import OwnerRecord, TaskManagerRecord
from runtime.jobgraph.restart_strategy import NO_RESTART
from runtime.jobmaster.endpoint import JobMasterSettings
from runtime.jobmaster.runner import DefaultJobManagerRunner
from runtime.scheduler.core.failover.settings import FailoverSettings
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.job_master_box import (
    JobMasterBox,
    ScriptedTaskManager,
    finishing,
    job_master_box,
    sleeping,
    stored_archive,
    stored_result,
)
from tests.kit.control_plane.plane import eventually

JOB = JobId("1" * 32)
QUICK = RetryPolicy(delay_initial=0.001, delay_max=0.002)
pytestmark = pytest.mark.asyncio


def task_manager_half(box: JobMasterBox, incarnation: Incarnation) -> TaskManagerFences:
    return TaskManagerFences(box.kv, box.keys, incarnation, SeededEntropy(3), timeout=5.0)


async def fence_on(box: JobMasterBox, incarnation: Incarnation) -> Fence:
    """As soon as the TaskManager finds one."""
    half = task_manager_half(box, incarnation)
    while JOB not in (prefix := await half.read()).fences:
        await half.wait_changed(prefix.revision)
    return prefix.fences[JOB]


class Lost:
    """A job with one exclusive task, on a TaskManager that is registered and has just gone silent."""

    def __init__(self, box: JobMasterBox, task_manager: ScriptedTaskManager, assignment: AssignJob) -> None:
        self.box = box
        self.task_manager = task_manager
        self.assignment = assignment
        self.runner: DefaultJobManagerRunner | None = None


@asynccontextmanager
async def lost_task_manager(wait: float) -> AsyncIterator[Lost]:
    failover = FailoverSettings(restart_strategy=NO_RESTART, unconfirmed_wait=wait)
    settings = JobMasterSettings(write_retry=QUICK, failover=failover, validate=True)
    async with job_master_box(settings=settings, timing=HeartbeatTiming(interval=0.02, timeout=0.5)) as box:
        registry = TaskManagerRegistry(box.kv, box.keys, SeededEntropy(2), timeout=5.0)
        task_manager = await box.task_manager(1, sleeping)
        await registry.register(TaskManagerRecord(task_manager.incarnation, "tm-1", "tm-1:1", "", "", 1))
        yield Lost(box, task_manager, await box.assign(JOB, lone()))


async def begin(lost: Lost) -> None:
    box, assignment = lost.box, lost.assignment
    lost.runner, running = box.start(assignment)
    await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
    lost.task_manager.offer(JOB, assignment.epoch)
    await lost.task_manager.wait_for(DeployTasks)
    assert not running.done()
    assert lost.task_manager.stream is not None
    lost.task_manager.stream.abort("killed")


async def runs_again(lost: Lost) -> None:
    runner = lost.runner
    assert runner is not None
    await eventually(lambda: runner.summary().pending_reason == "waiting for slots")


async def finish_elsewhere(lost: Lost) -> None:
    box = lost.box
    await runs_again(lost)
    other = await box.task_manager(2, finishing)
    other.offer(JOB, lost.assignment.epoch)
    await other.wait_for(DeployTasks)
    await eventually(lambda: lost.runner is not None and lost.runner.summary().status is JobStatus.FINISHED)


async def test_a_confirmed_fence_lets_an_exclusive_task_run_again_and_is_lifted() -> None:
    async with lost_task_manager(wait=1000.0) as lost:
        await begin(lost)
        box, incarnation = lost.box, lost.task_manager.incarnation
        fence = await fence_on(box, incarnation)
        assert fence.epoch == lost.assignment.epoch
        assert lost.runner is not None
        assert "exclusive tasks may still run" in lost.runner.summary().pending_reason
        half = task_manager_half(box, incarnation)
        assert await half.confirm(JOB, fence)
        await runs_again(lost)
        assert (await half.read()).fences == {}
        await finish_elsewhere(lost)
        (failure,) = [one.failure for one in (await stored_archive(box, JOB)).exceptions]
        assert failure.class_name == "TaskManagerLostError"
        assert "it has confirmed that they are stopped" in failure.message


async def test_a_fence_that_nobody_confirms_is_waited_out() -> None:
    async with lost_task_manager(wait=0.05) as lost:
        await begin(lost)
        await runs_again(lost)
        await finish_elsewhere(lost)
        fence = (await task_manager_half(lost.box, lost.task_manager.incarnation).read()).fences[JOB]
        assert not fence.is_confirmed, "it stays for whoever comes back"


async def test_a_key_that_is_gone_is_as_good_as_a_confirmation() -> None:  # R13
    async with lost_task_manager(wait=1000.0) as lost:
        await begin(lost)
        box, incarnation = lost.box, lost.task_manager.incarnation
        await fence_on(box, incarnation)
        await TaskManagerRegistry(box.kv, box.keys, SeededEntropy(2), timeout=5.0).unregister(incarnation)
        await finish_elsewhere(lost)


async def test_a_fence_that_somebody_has_taken_away_is_put_back_and_not_taken_for_confirmed() -> None:
    async with lost_task_manager(wait=1000.0) as lost:
        await begin(lost)
        box, incarnation = lost.box, lost.task_manager.incarnation
        fence = await fence_on(box, incarnation)
        await box.kv.txn(Txn((), (Delete(box.keys.fence(incarnation, JOB)),)), timeout=5)
        async with asyncio.timeout(100):
            again = await fence_on(box, incarnation)
        assert (again.epoch, again.revision > fence.revision) == (fence.epoch, True)
        assert lost.runner is not None
        assert "exclusive tasks may still run" in lost.runner.summary().pending_reason
        assert await task_manager_half(box, incarnation).confirm(JOB, again)
        await finish_elsewhere(lost)


async def test_a_cancelled_job_has_no_result_before_its_exclusive_task_has_stopped() -> None:  # R16
    async with lost_task_manager(wait=1000.0) as lost:
        await begin(lost)
        box, incarnation = lost.box, lost.task_manager.incarnation
        fence = await fence_on(box, incarnation)
        assert lost.runner is not None
        lost.runner.cancel_job()
        assert lost.runner.summary().status is JobStatus.CANCELLING
        assert (await box.kv.range(box.keys.result(JOB), is_prefix=False, timeout=5)).kvs == ()
        await task_manager_half(box, incarnation).confirm(JOB, fence)
        await eventually(lambda: lost.runner is not None and lost.runner.summary().status is JobStatus.CANCELED)
        assert (await stored_result(box, JOB)).status is JobStatus.CANCELED


async def test_an_owner_that_is_over_learns_it_from_its_fence() -> None:  # R1
    async with lost_task_manager(wait=1000.0) as lost:
        box = lost.box
        lost.runner, running = box.start(lost.assignment)
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        lost.task_manager.offer(JOB, lost.assignment.epoch)
        await lost.task_manager.wait_for(DeployTasks)
        owner = encode_record(OwnerRecord(Incarnation("e" * 32), "elsewhere:1"))
        await box.kv.txn(Txn((), (Put(box.keys.owner(JOB), owner),)), timeout=5)
        assert lost.task_manager.stream is not None
        lost.task_manager.stream.abort("killed")
        assert (await running).summary is None
