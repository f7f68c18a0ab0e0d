"""A job whose task was preempted, and what its JobMaster process counts of that (R64)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState as E
from runtime.common.states import JobStatus
from runtime.gateways.task import SLOT_PREEMPTED, FailureInfo, TaskDeploymentDescriptor, TaskExecutionReport
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.job_master_box import finishing, job_master_box, reports_of

JOB = JobId("a" * 32)


@pytest.mark.asyncio
async def test_a_preempted_task_is_no_restart_that_anybody_is_alarmed_by() -> None:
    preempted = FailureInfo(SLOT_PREEMPTED, "for reports", "", "SYSTEM", True, 0, is_isolation=True)

    def preempted_first(task: TaskDeploymentDescriptor) -> Iterable[TaskExecutionReport]:
        return reports_of(task, E.FAILED, failure=preempted) if task.ordinal == 0 else finishing(task)

    async with job_master_box() as box:
        task_manager = await box.task_manager(1, preempted_first)
        epoch, _, running = await box.begin(task_manager, JOB, lone())
        await box.listener.changes.wait_until(lambda _: len(box.listener.requirements) >= 3)
        task_manager.offer(JOB, epoch)
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FINISHED
        assert JobStatus.RESTARTING in {summary.status for summary in box.listener.summaries}
        assert box.preemptions == 1
        assert box.counted == (0, 0)
