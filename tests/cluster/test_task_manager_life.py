"""A TaskExecutor whose owners stay away, or that is drained, between scripted peers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.fencing import FencingToken
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import SlotsDraining
from runtime.gateways.resource_manager import DrainTaskManager, SlotReport, SlotsFreed
from runtime.gateways.task_executor import CensusRequest, TaskExecutorGateway
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.rpc.local import LocalRpcService
from runtime.rpc.service import StreamKind
from runtime.rpc.settings import RpcSettings
from tests.kit.control_plane.task_executor_cluster import (
    CLUSTER,
    ScriptedPeer,
    TaskExecutorCluster,
    task_executor_cluster,
)
from tests.kit.control_plane.task_messages import (
    acknowledge,
    allocation_id,
    attempt_id,
    deploy,
    free_slots,
    incarnation,
    job_id,
    request_slot,
)

pytestmark = pytest.mark.asyncio
E = ExecutionState
QUICK = HeartbeatTiming(interval=0.02, timeout=5.0)


class Contact:
    """A ContactKeeper that says what the test says."""

    def __init__(self, *, is_away: bool) -> None:
        self.is_away = is_away
        self.loss = ""
        self.obeyer: object = None


async def running_without_an_owner(cluster: TaskExecutorCluster) -> None:
    await cluster.activate()
    cluster.job_master.send(deploy(1, 0))
    await cluster.pool.wait_started(1)
    await cluster.job_master.rpc.stop(grace=0.0)


async def test_tasks_without_an_owner_are_given_up_and_the_next_one_hears_why(tmp_path: Path) -> None:  # R18
    async with task_executor_cluster(tmp_path, heartbeat=QUICK, owner_timeout=0.2) as cluster:
        await running_without_an_owner(cluster)
        freed = await cluster.leader.wait_for(SlotsFreed)
        assert freed.allocations == (allocation_id(1),)
        assert cluster.pool.cancelled == [attempt_id(1, 0)]
        rpc = LocalRpcService(cluster.network, RpcSettings(incarnation(7), None), LoopClock())
        heir = ScriptedPeer(rpc, incarnation(7), StreamKind.TASK_MANAGER_TO_JOB_MASTER)
        await heir.start()
        sender = FencingToken(CLUSTER, 1)
        gateway = rpc.connect(TaskExecutorGateway, cluster.rpc.server.address, target=None, sender=sender, timeout=5)
        await gateway.request_census(CensusRequest(job_id(1), 8, heir.incarnation, heir.address))
        [report] = await heir.wait_reports(1)
        assert (report.attempt_id, report.state) == (attempt_id(1, 0), E.FAILED)
        assert report.failure is not None
        assert report.failure.is_isolation
        assert "taskmanager.jobmaster-timeout" in report.failure.message
        await rpc.stop(grace=0.0)


async def test_the_time_without_etcd_does_not_count(tmp_path: Path) -> None:  # R18
    contact = Contact(is_away=True)
    async with task_executor_cluster(tmp_path, heartbeat=QUICK, owner_timeout=0.2, contact=contact) as cluster:
        await running_without_an_owner(cluster)
        await asyncio.sleep(0.5)
        assert not cluster.pool.cancelled
        contact.is_away = False
        await cluster.leader.wait_for(SlotsFreed)


async def test_jobs_that_are_over_are_ended_though_nobody_says_so(tmp_path: Path) -> None:  # R16
    async with task_executor_cluster(tmp_path) as cluster:
        await running_without_an_owner(cluster)
        async with asyncio.timeout(100):
            while cluster.executor.unattended_jobs(idle=False) != [job_id(1)]:
                await asyncio.sleep(0.005)
        cluster.executor.end_jobs([job_id(1)])
        await cluster.leader.wait_for(SlotsFreed)
        assert cluster.pool.cancelled == [attempt_id(1, 0)]
        assert cluster.executor.unattended_jobs(idle=True) == []


async def test_somebody_drains_it_and_has_it_used_again(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path, drain_timeout=0.1) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0, 1))
        await cluster.pool.wait_started(1)
        cluster.leader.send(DrainTaskManager(is_draining=True))
        drained = await cluster.job_master.wait_for(SlotsDraining)
        assert drained.allocations == (allocation_id(1),)
        await cluster.leader.wait(lambda: last_report(cluster).is_draining)
        assert [status.slot_index for status in last_report(cluster).slots] == [0]
        ended = {report.attempt_id.subtask_index: report for report in await cluster.job_master.wait_reports(3)}
        assert [ended[index].state for index in (0, 1)] == [E.FAILED, E.FAILED]
        assert cluster.pool.cancelled == [attempt_id(1, 0)], "the other one had not begun"
        cluster.job_master.send(acknowledge(0, 1), free_slots(1))
        await cluster.leader.wait(lambda: not last_report(cluster).slots)
        cluster.leader.send(DrainTaskManager(is_draining=False))
        await cluster.leader.wait(lambda: not last_report(cluster).is_draining)
        assert len(last_report(cluster).slots) == 2
        cluster.leader.send(request_slot(5, owner=2, address=cluster.job_master.address))
        await cluster.job_master.wait(lambda: 5 in cluster.offered())


async def test_a_drain_that_is_taken_back_in_time_ends_nothing(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path, drain_timeout=0.1) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.pool.wait_started(1)
        cluster.leader.send(DrainTaskManager(is_draining=True))
        cluster.leader.send(DrainTaskManager(is_draining=False))
        await asyncio.sleep(0.3)
        assert not cluster.pool.cancelled


async def test_the_end_of_the_process_is_for_good(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.pool.wait_started(1)
        async with asyncio.TaskGroup() as tasks:
            _ = tasks.create_task(cluster.executor.drain(0.1, report_patience=5))
            await cluster.job_master.wait_for(SlotsDraining)
            cluster.leader.send(DrainTaskManager(is_draining=False))
            await cluster.job_master.wait_reports(2)
            cluster.job_master.send(acknowledge(0))
        assert last_report(cluster).is_draining


def last_report(cluster: TaskExecutorCluster) -> SlotReport:
    return cluster.leader.of(SlotReport)[-1]
