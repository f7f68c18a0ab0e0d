"""One JobMaster process from the outside: what it registers, and that it answers leaders only."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jobmaster_process.container_runner import ContainerState
from jobmaster_process.registered_load import register_load
from runtime.common.errors import NotFoundError, StaleTokenError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid, JobId
from runtime.gateways.dispatcher import DispatcherGateway, JobRequest, JobSummaries
from runtime.highavailability.records import JobMasterRecord
from tests.kit.control_plane.plane import ControlPlane, NoLoad, eventually

pytestmark = pytest.mark.asyncio


class Records:
    """A registration that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[JobMasterRecord] = []

    def update(self, record: JobMasterRecord) -> None:
        self.written.append(record)

    @property
    def states(self) -> list[str]:
        return [record.state for record in self.written]


async def test_the_registration_tells_state_jobs_and_load(split: ControlPlane) -> None:
    records = Records()
    leader = await split.lead()
    process = await split.start_job_master()
    record = JobMasterRecord(process.incarnation, process.rpc.server.address, 10, 0, "created", "0.1.0")
    _ = split.spawn(register_load(records, record, process.container, NoLoad(), period=0.01))
    await eventually(lambda: "ready" in records.states)
    await leader.dispatcher.submit_job(split.new_job())
    await eventually(lambda: records.written[-1].jobs == 1)
    assert records.written[-1].cpu_fraction == 0.2
    assert records.written[-1].memory_bytes == 0
    await split.depose(leader)
    await eventually(lambda: records.states[-1] == "connecting")


async def test_only_a_leader_is_answered(split: ControlPlane) -> None:  # R1
    leader = await split.lead()
    process = await split.start_job_master()
    await eventually(lambda: process.container.state.value is ContainerState.READY)

    async def ask(sender: FencingToken | None) -> None:
        address = process.rpc.server.address
        client = leader.rpc.connect(DispatcherGateway, address, target=None, sender=sender, timeout=5)
        await client.request_job(JobRequest(JobId("0" * 32)))

    with pytest.raises(NotFoundError):
        await ask(leader.token)
    older = FencingToken(leader.token.cluster, leader.token.revision - 1)
    for stale in (None, older, FencingToken(ClusterUuid("e" * 32), leader.token.revision)):
        with pytest.raises(StaleTokenError):
            await ask(stale)


async def test_a_new_leader_hears_of_many_jobs_in_bounded_messages(split: ControlPlane) -> None:
    leader = await split.lead()
    process = await split.start_job_master(capacity=1000)
    jobs = [split.new_job() for _ in range(600)]
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            _ = group.create_task(leader.dispatcher.submit_job(job))

    def hear() -> list[JobSummaries]:
        sent: list[Any] = []
        stream: Any = SimpleNamespace(send=sent.append)
        process.dispatcher.attach(stream, leader.token)
        process.dispatcher.detach(stream)
        return [message for message in sent if isinstance(message, JobSummaries)]

    await eventually(lambda: sum(len(message.summaries) for message in hear()) == 600, "each job has a summary")
    told = hear()
    assert len(told) > 1
    assert {summary.job_id for message in told for summary in message.summaries} == {job.job_id for job in jobs}
