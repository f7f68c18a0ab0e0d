"""An owner learns from the TaskManager's key that nothing of it runs any more (R13), whatever became of the stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.gateways.job_master import DeployTasks
from runtime.highavailability.leadership.registration import TaskManagerRegistry, follow_task_managers
from runtime.highavailability.records import TaskManagerRecord
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.jobmaster.registered_task_managers import RegisteredTaskManager, follow_ends
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.job_master_box import (
    JobMasterBox,
    ScriptedTaskManager,
    finishing,
    job_master_box,
    sleeping,
    stored_archive,
)
from tests.kit.control_plane.plane import eventually

pytestmark = pytest.mark.asyncio

JOB = JobId("1" * 32)


def registry_of(box: JobMasterBox) -> TaskManagerRegistry:
    """With the process's follower on it."""

    def registered() -> AsyncIterator[Mapping[Incarnation, RegisteredTaskManager]]:
        return follow_task_managers(box.kv, box.keys, timeout=5, entropy=SeededEntropy(2))

    connections = box.connections
    box.scope.spawn_eternal(
        "ends", follow_ends(registered, connections.task_manager_died, connections.task_manager_found)
    )
    return TaskManagerRegistry(box.kv, box.keys, SeededEntropy(3), timeout=5)


async def begin(box: JobMasterBox, task_manager: ScriptedTaskManager) -> int:
    """An exclusive task runs there; its job's epoch."""
    strategy = FixedDelayRestartStrategy(delay_seconds=0.0)
    epoch, _, _ = await box.begin(task_manager, JOB, lone(restart_strategy=strategy))
    await task_manager.wait_for(DeployTasks)
    return epoch


def status(box: JobMasterBox) -> JobStatus:
    return box.listener.summaries[-1].status


@pytest.mark.parametrize("is_stream_open", [False, True])
async def test_an_exclusive_task_of_a_dead_task_manager_runs_elsewhere(*, is_stream_open: bool) -> None:
    async with job_master_box() as box:
        registry = registry_of(box)
        dead, other = await box.task_manager(1, sleeping), await box.task_manager(2, finishing)
        await registry.register(TaskManagerRecord(dead.incarnation, dead.name, "host-1:1", "host-1:2", "boot", 1))
        epoch = await begin(box, dead)
        if not is_stream_open:
            assert dead.stream is not None
            dead.stream.abort("it died")
            await eventually(lambda: dead.incarnation not in box.connections.connected)
            assert status(box) is JobStatus.RUNNING, "the end of a stream proves nothing"
        await registry.unregister(dead.incarnation)
        await eventually(lambda: JobStatus.RESTARTING in {summary.status for summary in box.listener.summaries})
        other.offer(JOB, epoch)
        await eventually(lambda: status(box) is JobStatus.FINISHED)
        archived = await stored_archive(box, JOB)
        (exception,) = archived.exceptions
        assert exception.failure.message == f"TaskManager {dead.name} on host host-1: its process died"
        assert exception.failure.class_name == "TaskManagerLostError"


async def test_the_end_of_another_one_changes_nothing() -> None:
    async with job_master_box() as box:
        registry = registry_of(box)
        used, other = await box.task_manager(1, sleeping), await box.task_manager(2, finishing)
        for one in (used, other):
            await registry.register(TaskManagerRecord(one.incarnation, one.name, "host:1", "host:2", "boot", 1))
        await begin(box, used)
        await eventually(lambda: status(box) is JobStatus.RUNNING)
        await registry.unregister(other.incarnation)
        await eventually(lambda: other.incarnation not in box.connections.connected)
        assert status(box) is JobStatus.RUNNING
