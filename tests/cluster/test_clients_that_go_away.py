"""Clients that promise to come back and do not: their jobs are cancelled, under each leader, owned or not."""

from __future__ import annotations

import pytest

from runtime.common.errors import NotFoundError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobRequest, SubmitJobRequest
from tests.kit.control_plane.led_jobs import start_job, status, until
from tests.kit.control_plane.plane import ControlPlane, Leader, eventually

pytestmark = pytest.mark.asyncio
LATE = "its client did not come back by "


async def promise(plane: ControlPlane, leader: Leader, job: SubmitJobRequest, seconds: float) -> None:
    expires = plane.clock.epoch_millis() + round(seconds * 1000)
    await leader.dispatcher.client_heartbeat(job.job_id, expires_millis=expires)


async def test_a_client_that_does_not_come_back(plane: ControlPlane) -> None:
    leader, job = await start_job(plane)
    await promise(plane, leader, job, 0.2)
    assert status(leader, job.job_id) is JobStatus.CREATED
    await until(leader, job.job_id, JobStatus.CANCELED)
    assert plane.runners.by_job[job.job_id].reasons[-1].startswith(LATE)
    ((told, reason),) = plane.told_cancels
    assert (told, reason[: len(LATE)]) == (job.job_id, LATE)


async def test_one_that_comes_back(plane: ControlPlane) -> None:
    leader, job = await start_job(plane)
    await promise(plane, leader, job, 0.3)
    await leader.dispatcher.client_heartbeat(job.job_id, expires_millis=0)
    begun = plane.clock.monotonic()
    await eventually(lambda: plane.clock.monotonic() > begun + 0.5)
    assert status(leader, job.job_id) is JobStatus.CREATED
    await leader.dispatcher.cancel_job(JobRequest(job.job_id))
    assert not plane.told_cancels, "what a person wants is told by who answers it"


async def test_the_next_leader_keeps_an_acknowledged_promise(plane: ControlPlane) -> None:
    first, job = await start_job(plane)
    await promise(plane, first, job, 0.05)
    await plane.depose(first)
    begun = plane.clock.monotonic()
    second = await plane.lead()
    await until(second, job.job_id, JobStatus.CANCELED)
    assert plane.clock.monotonic() - begun > 0.4, "clients have time to find the new leader (R4)"
    assert plane.runners.by_job[job.job_id].reasons[-1].startswith(LATE)


async def test_who_finds_the_next_leader_in_time(plane: ControlPlane) -> None:
    first, job = await start_job(plane)
    await promise(plane, first, job, 0.05)
    await plane.depose(first)
    second = await plane.lead()
    await second.dispatcher.client_heartbeat(job.job_id, expires_millis=0)
    begun = plane.clock.monotonic()
    await eventually(lambda: plane.clock.monotonic() > begun + 0.8)
    assert status(second, job.job_id) in {JobStatus.INITIALIZING, JobStatus.CREATED}


async def test_a_job_that_nobody_runs(split: ControlPlane) -> None:
    leader = await split.lead()
    job = split.new_job()
    await leader.dispatcher.submit_job(job)
    await promise(split, leader, job, 0.1)
    await until(leader, job.job_id, JobStatus.CANCELED)
    response = await leader.dispatcher.request_job(JobRequest(job.job_id))
    cancellation = ArchivedExecutionGraph.from_json(response.archived_graph).cancellation
    assert cancellation is not None
    assert cancellation.message.startswith(LATE)
    assert [told for told, _ in split.told_cancels] == [job.job_id]


async def test_a_job_that_has_ended(plane: ControlPlane) -> None:
    leader, job = await start_job(plane)
    await leader.dispatcher.cancel_job(JobRequest(job.job_id))
    await until(leader, job.job_id, JobStatus.CANCELED)
    await promise(plane, leader, job, 60.0)
    await eventually(lambda: not leader.dispatcher._registry._jobs)
    leader.dispatcher._registry.shown.expire(1 << 62)
    await promise(plane, leader, job, 60.0)
    with pytest.raises(NotFoundError):
        await leader.dispatcher.client_heartbeat(JobId("0" * 32), expires_millis=0)
