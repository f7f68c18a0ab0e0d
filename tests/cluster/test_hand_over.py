"""JobMaster processes that are drained or stopped: their jobs go to others, over the local transport."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from runtime.common.errors import ConflictError, NotFoundError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import JobRequest, SubmitJobRequest
from runtime.highavailability.records import WantedRecord
from tests.kit.control_plane.led_jobs import ready, status
from tests.kit.control_plane.plane import ControlPlane, Leader, Process, eventually

pytestmark = pytest.mark.asyncio


async def submit(split: ControlPlane, leader: Leader, count: int) -> list[SubmitJobRequest]:
    """Jobs that are begun."""
    jobs = [split.new_job() for _ in range(count)]
    for job in jobs:
        await leader.dispatcher.submit_job(job)
    await eventually(lambda: all(job.job_id in split.runners.by_job for job in jobs))
    return jobs


def owner(leader: Leader, job_id: JobId) -> Incarnation | None:
    found = leader.dispatcher.owner_of(job_id)
    return None if found is None else found.incarnation


def states(leader: Leader) -> dict[Incarnation, str]:
    return {one.incarnation: one.state for one in leader.dispatcher.job_masters()}


async def finish(split: ControlPlane, leader: Leader, jobs: list[SubmitJobRequest]) -> None:
    """Every job can end where it is now."""
    for job in jobs:
        split.runners.by_job[job.job_id].finish()
    await eventually(lambda: all(status(leader, job.job_id) is JobStatus.FINISHED for job in jobs))


async def leave(process: Process) -> bool:
    async with asyncio.timeout(5.0):
        return await process.container.leave()


async def test_a_process_that_leaves_hands_every_job_over(split: ControlPlane) -> None:
    leader = await split.lead()
    first = await split.start_job_master()
    await ready(leader, 1)
    jobs = await submit(split, leader, 30)
    second = await split.start_job_master()
    await ready(leader, 2)
    assert await leave(first)
    assert first.dispatcher.jobs_running == 0
    await eventually(lambda: second.dispatcher.jobs_running == 30)
    assert {owner(leader, job.job_id) for job in jobs} == {second.incarnation}
    again = split.runners.created[30:]
    assert len(again) == 30
    assert not any(assignment.is_fresh for assignment in again)  # R6
    await split.kill_job_master(first)
    await finish(split, leader, jobs)
    assert len(split.runners.created) == 60


async def test_every_change_of_a_jobs_owner_is_stored_with_its_reason(split: ControlPlane) -> None:
    leader = await split.lead()
    first = await split.start_job_master()
    await ready(leader, 1)
    (job,) = await submit(split, leader, 1)
    second = await split.start_job_master()
    await ready(leader, 2)
    assert await leave(first)
    await eventually(lambda: second.dispatcher.jobs_running == 1)
    await split.kill_job_master(first)
    await split.depose(leader)
    await split.kill_job_master(second)
    leader = await split.lead()
    third = await split.start_job_master()
    await eventually(lambda: third.dispatcher.jobs_running == 1)
    found = await split.owner_store.takeovers(job.job_id)
    assert [(one.former, one.owner, one.reason) for one in found] == [
        (first.incarnation, second.incarnation, "its JobMaster process drains"),
        (second.incarnation, third.incarnation, "its JobMaster process was lost"),
    ]
    assert 0 < found[0].millis <= found[1].millis


async def test_a_job_can_be_looked_at_all_the_time(split: ControlPlane) -> None:
    leader = await split.lead()
    first = await split.start_job_master()
    await ready(leader, 1)
    (job,) = await submit(split, leader, 1)
    await split.start_job_master()
    await ready(leader, 2)
    leaving = split.spawn(_ignore(leave(first)))
    while not leaving.done():
        await leader.dispatcher.request_job(JobRequest(job.job_id))
        await asyncio.sleep(0)


async def _ignore(work: object) -> None:
    await work  # type: ignore[misc]  # any awaitable


async def test_with_nobody_to_take_them_jobs_are_left_as_they_are(split: ControlPlane) -> None:
    leader = await split.lead()
    process = await split.start_job_master()
    await ready(leader, 1)
    jobs = await submit(split, leader, 2)
    assert not await leave(process)
    assert process.dispatcher.jobs_running == 2
    await split.kill_job_master(process)
    await split.start_job_master()
    await eventually(lambda: len(split.runners.created) == 4)
    await finish(split, leader, jobs)


async def test_with_nobody_to_take_them_jobs_are_cancelled_if_that_is_wanted(split: ControlPlane) -> None:
    leader = await split.lead()
    process = await split.start_job_master()
    process.container._settings = replace(process.container._settings, stops_jobs=True)
    await ready(leader, 1)
    (job,) = await submit(split, leader, 1)
    assert await leave(process)

    def is_cancelled() -> bool:
        summary = leader.dispatcher.job_summary(job.job_id)
        return summary is not None and summary.status is JobStatus.CANCELED

    await eventually(is_cancelled)


async def test_without_jobs_it_leaves_at_once_also_without_a_leader(split: ControlPlane) -> None:
    leader = await split.lead()
    process = await split.start_job_master()
    await ready(leader, 1)
    await split.depose(leader)
    assert await leave(process)


async def test_drain_and_undrain(split: ControlPlane) -> None:
    leader = await split.lead()
    first, second = await split.start_job_master(), await split.start_job_master()
    await ready(leader, 2)
    jobs = await submit(split, leader, 4)
    await leader.dispatcher.drain_job_master(first.incarnation, is_draining=True)
    assert states(leader)[first.incarnation] == "draining"
    await eventually(lambda: second.dispatcher.jobs_running == 4)
    await eventually(lambda: first.dispatcher.jobs_running == 0)
    assert [one.job_id for one in leader.dispatcher.jobs_of(second.incarnation)] == sorted(one.job_id for one in jobs)
    more = await submit(split, leader, 2)
    assert {owner(leader, job.job_id) for job in more} == {second.incarnation}
    await leader.dispatcher.drain_job_master(first.incarnation, is_draining=False)
    last = await submit(split, leader, 1)
    assert owner(leader, last[0].job_id) == first.incarnation
    await finish(split, leader, jobs + more + last)


async def test_a_new_leader_knows_who_is_draining(split: ControlPlane) -> None:
    leader = await split.lead()
    first, second = await split.start_job_master(), await split.start_job_master()
    await ready(leader, 2)
    await leader.dispatcher.drain_job_master(first.incarnation, is_draining=True)
    await split.depose(leader)
    leader = await split.lead()
    await eventually(lambda: sorted(states(leader).values()) == ["draining", "ready"])
    jobs = await submit(split, leader, 2)
    assert {owner(leader, job.job_id) for job in jobs} == {second.incarnation}


async def test_an_unknown_process_cannot_be_drained(split: ControlPlane) -> None:
    leader = await split.lead()
    with pytest.raises(NotFoundError):
        await leader.dispatcher.drain_job_master(Incarnation("9" * 32), is_draining=True)
    with pytest.raises(NotFoundError):
        leader.dispatcher.jobs_of(Incarnation("9" * 32))


async def test_inside_the_job_manager_nothing_can_be_drained() -> None:
    plane = ControlPlane(is_split=False)
    try:
        leader = await plane.lead()
        (process,) = leader.dispatcher.job_masters()
        with pytest.raises(ConflictError, match="inside the JobManager"):
            await leader.dispatcher.drain_job_master(process.incarnation, is_draining=True)
    finally:
        await plane.stop()


async def test_a_job_moves_where_somebody_wants_it(split: ControlPlane) -> None:
    leader = await split.lead()
    first, second = await split.start_job_master(), await split.start_job_master()
    await ready(leader, 2)
    (job,) = await submit(split, leader, 1)
    assert owner(leader, job.job_id) == first.incarnation
    await leader.dispatcher.move_job(job.job_id, second.incarnation)
    await eventually(lambda: owner(leader, job.job_id) == second.incarnation)
    await eventually(lambda: (first.dispatcher.jobs_running, second.dispatcher.jobs_running) == (0, 1))
    await finish(split, leader, [job])
    with pytest.raises(ConflictError):
        await leader.dispatcher.move_job(job.job_id, first.incarnation)


async def test_a_wish_outlives_its_leader(split: ControlPlane) -> None:
    leader = await split.lead()
    first, second = await split.start_job_master(), await split.start_job_master(capacity=1)
    await ready(leader, 2)
    (job,) = await submit(split, leader, 1)
    stored = await split.owner_store.job(job.job_id)
    assert stored is not None
    source, target = (first, second) if owner(leader, job.job_id) == first.incarnation else (second, first)
    # Durable, and not fulfilled: the leader dies between the two.
    await leader.dispatcher._services.store.want(job.job_id, wanted(target.incarnation, stored.epoch))
    await split.depose(leader)
    leader = await split.lead()
    await eventually(lambda: owner(leader, job.job_id) == target.incarnation)
    await eventually(lambda: (source.dispatcher.jobs_running, target.dispatcher.jobs_running) == (0, 1))
    await split.depose(leader)
    leader = await split.lead()
    await ready(leader, 2)
    assert owner(leader, job.job_id) == target.incarnation, "the wish was for the owner of then"
    assert len(split.runners.created) == 2
    await finish(split, leader, [job])


def wanted(target: Incarnation, epoch: int) -> WantedRecord:
    return WantedRecord(wants_cancel=False, client="", move_to=target, move_epoch=epoch)


async def test_a_process_that_does_not_answer_is_not_said_to_drain(split: ControlPlane) -> None:
    leader = await split.lead()
    process = await split.start_job_master()
    await ready(leader, 1)
    leader.dispatcher._settings = replace(leader.dispatcher._settings, rpc_timeout=0.05)
    process.container.dispatcher.drain = lambda *, is_draining: None  # type: ignore[method-assign]  # it is deaf
    with pytest.raises(UnavailableError, match="does not answer"):
        await leader.dispatcher.drain_job_master(process.incarnation, is_draining=True)
