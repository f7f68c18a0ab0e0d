"""A TaskManager that was away for too long comes back with tasks that run elsewhere by now (R9, R14, R18)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import (
    AcknowledgeReports,
    CancelTasks,
    DeployTasks,
    FreeSlots,
    HeldAttempt,
    JobCensus,
    SlotOffer,
)
from runtime.gateways.task import TaskDeploymentDescriptor, TaskExecutionReport
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.scheduler.core.job_events import AttemptFinished, decode_events
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_box import (
    JobMasterBox,
    ScriptedTaskManager,
    job_master_box,
    reports_of,
    sleeping,
)

JOB = JobId("1" * 32)
E = ExecutionState
QUICK = HeartbeatTiming(interval=0.05, timeout=0.2)


async def restarted_elsewhere(
    box: JobMasterBox,
) -> tuple[ScriptedTaskManager, ScriptedTaskManager, TaskDeploymentDescriptor, int]:
    """A job whose only task runs on the second TaskManager since the first one fell silent; what the first one has."""
    strategy = FixedDelayRestartStrategy(attempts=1, delay_seconds=0.0)
    job = graph(source("read"), vertex("sum"), edges=(edge("read", "sum"),), restart_strategy=strategy)
    first, second = await box.task_manager(1, sleeping), await box.task_manager(2, sleeping)
    epoch, _, _ = await box.begin(first, JOB, job)
    await first.wait_for(DeployTasks)
    assert first.stream is not None
    first.stream.abort("the network")
    await box.listener.changes.wait_until(lambda _: box.listener.summaries[-1].tasks.running == 0)
    while not second.accepted:
        second.offer(JOB, epoch)
        await second.received.wait_changed(second.received.generation)
    await second.wait_for(DeployTasks)
    [old] = [message.tasks[0] for message in first.messages() if isinstance(message, DeployTasks)]
    first.batches.clear()
    return first, second, old, epoch


async def come_back(
    manager: ScriptedTaskManager, old: TaskDeploymentDescriptor, epoch: int, state: ExecutionState
) -> None:
    """Over a new stream, which begins with a census (R11)."""
    await manager.connect()
    assert manager.stream is not None
    is_over = state.is_terminal
    slots = () if is_over else (SlotOffer(old.allocation_id, 0),)
    held = HeldAttempt(old.attempt_id, old.ordinal, state, None if is_over else old.allocation_id)
    manager.stream.send(JobCensus(JOB, epoch, slots, (held,), is_complete=True))


@pytest.mark.asyncio
async def test_its_own_copy_is_stopped_before_anything_else_is_asked_of_it() -> None:
    async with job_master_box(timing=QUICK) as box:
        first, second, old, epoch = await restarted_elsewhere(box)
        [new] = [message.tasks[0] for message in second.messages() if isinstance(message, DeployTasks)]
        assert (new.attempt_id != old.attempt_id, new.ordinal) == (True, old.ordinal + 1)
        await come_back(first, old, epoch, E.RUNNING)
        await first.wait_for(CancelTasks)
        orders = [message for message in first.messages() if isinstance(message, CancelTasks | DeployTasks | FreeSlots)]
        assert orders[0] == CancelTasks(JOB, epoch, (old.attempt_id,))
        assert not [message for message in orders if isinstance(message, DeployTasks)]


@pytest.mark.asyncio
async def test_its_result_is_refused_and_the_new_attempt_counts() -> None:
    async with job_master_box(timing=QUICK) as box:
        first, second, old, epoch = await restarted_elsewhere(box)
        [new] = [message.tasks[0] for message in second.messages() if isinstance(message, DeployTasks)]
        await come_back(first, old, epoch, E.FINISHED)
        first.report(JOB, epoch, *finished(old))
        await first.wait_for(AcknowledgeReports)
        second.report(JOB, epoch, *finished(new))
        await second.wait_for(DeployTasks, 2)
        batches = await box.store.events(JOB)
        accepted = [one.attempt_id for one in events(batches) if isinstance(one, AttemptFinished)]
        assert accepted == [new.attempt_id]
        read = [
            gate
            for message in second.messages()
            if isinstance(message, DeployTasks)
            for gate in message.tasks[0].inputs
        ]
        assert [partition.partition_id.producer for gate in read for partition in gate.partitions] == [new.attempt_id]
        assert box.listener.summaries[-1].status is JobStatus.RUNNING


def finished(task: TaskDeploymentDescriptor) -> list[TaskExecutionReport]:
    return [replace(one, value=b"") for one in reports_of(task, E.FINISHED)]


def events(batches: Iterable[bytes]) -> list[object]:
    return [event for batch in batches for event in decode_events(batch)]
