"""A job whose owner record was deleted by hand goes on under a later epoch, and is not begun twice (R5, R6)."""

from __future__ import annotations

import asyncio

import pytest

from runtime.common.errors import PermanentError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import JobRequest
from runtime.highavailability.kv.key_value_store import Delete, Txn
from tests.kit.control_plane.led_jobs import ready, start_job, until
from tests.kit.control_plane.plane import ControlPlane, eventually

pytestmark = pytest.mark.asyncio


async def delete(plane: ControlPlane, key: str) -> None:
    """As a person does it by hand."""
    await plane.kv.txn(Txn((), (Delete(key),)), timeout=5.0)


async def stored_epoch(plane: ControlPlane, job_id: JobId) -> int:
    """Of the owner in the store, 0 if there is none."""
    found = await plane.kv.range(plane.keys.owner(job_id), is_prefix=False, timeout=5.0)
    return found.kvs[0].mod_revision if found.kvs else 0


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_job_gets_an_owner_under_a_later_epoch_that_asks_what_runs(
    split: ControlPlane, processes: int
) -> None:
    leader, job = await start_job(split)
    for _ in range(1, processes):
        await split.start_job_master()
    await ready(leader, processes)
    (first,) = split.runners.created
    await delete(split, split.keys.owner(job.job_id))
    split.runners.by_job[job.job_id].finish()
    await eventually(lambda: len(split.runners.created) == 2, "another owner")
    second = split.runners.created[-1]
    assert second.epoch == await stored_epoch(split, job.job_id) > first.epoch
    assert (first.is_fresh, second.is_fresh) == (True, False)
    split.runners.by_job[job.job_id].finish()
    await until(leader, job.job_id, JobStatus.FINISHED)
    assigned = sum(one.jobs_assigned for one in leader.dispatcher.job_masters())
    assert assigned <= 3, "the process refused, the store refused, the last one counts"


async def test_the_loss_of_the_process_finds_it_too(split: ControlPlane) -> None:
    leader = await split.lead()
    process = await split.start_job_master()
    job = split.new_job()
    await leader.dispatcher.submit_job(job)
    await until(leader, job.job_id, JobStatus.CREATED)
    await delete(split, split.keys.owner(job.job_id))
    await split.kill_job_master(process)
    await split.start_job_master()
    await eventually(lambda: len(split.runners.created) == 2, "another owner")
    assert not split.runners.created[-1].is_fresh


async def test_a_cancel_ends_the_job(split: ControlPlane) -> None:
    leader, job = await start_job(split)
    await delete(split, split.keys.owner(job.job_id))
    await leader.dispatcher.cancel_job(JobRequest(job.job_id))
    await until(leader, job.job_id, JobStatus.CANCELED)


async def test_a_cancel_ends_the_job_when_nobody_could_run_it_after_what_runs_was_stopped(split: ControlPlane) -> None:
    split.isolation_timeout = -4.9  # with the margin of five seconds a tenth of one is left
    leader = await split.lead()
    process = await split.start_job_master()
    task_manager = await split.start_task_manager(1)
    job = split.new_job()
    await leader.dispatcher.submit_job(job)
    await eventually(lambda: len(split.runners.created) == 1)
    await delete(split, split.keys.owner(job.job_id))
    await split.kill_job_master(process)
    await split.depose(leader)
    leader = await split.lead()
    await leader.dispatcher.cancel_job(JobRequest(job.job_id))
    await until(leader, job.job_id, JobStatus.CANCELED)
    fence = await split.kv.range(split.keys.fence(task_manager.incarnation, job.job_id), is_prefix=False, timeout=5.0)
    assert fence.kvs, "what the owner may have started was stopped first (R16)"


async def test_another_leader_takes_no_job_for_fresh_because_no_owner_is_stored(split: ControlPlane) -> None:
    leader, job = await start_job(split)
    await delete(split, split.keys.owner(job.job_id))
    await split.depose(leader)
    leader = await split.lead()
    await eventually(lambda: len(split.runners.created) == 2, "another owner")
    assert not split.runners.created[-1].is_fresh
    split.runners.by_job[job.job_id].finish()
    await until(leader, job.job_id, JobStatus.FINISHED)


async def test_nor_because_the_owner_record_was_created_anew(split: ControlPlane) -> None:
    leader, job = await start_job(split)
    await delete(split, split.keys.owner(job.job_id))
    split.runners.by_job[job.job_id].finish()
    await eventually(lambda: len(split.runners.created) == 2, "another owner")
    found = await split.kv.range(split.keys.owner(job.job_id), is_prefix=False, timeout=5.0)
    assert found.kvs[0].create_revision == found.kvs[0].mod_revision, "it looks like a first one"
    await split.depose(leader)
    for process in list(split.registered):
        split.lose_process(process)
    leader = await split.lead()
    await split.start_job_master()
    await eventually(lambda: len(split.runners.created) == 3, "another owner")
    assert not split.runners.created[-1].is_fresh
    assert job.job_id == split.runners.created[-1].job_id


async def test_a_job_whose_graph_is_gone_is_not_assigned_without_a_pause_and_a_cancel_is_refused(
    split: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, job = await start_job(split)
    asked: list[int] = []

    def delay(policy: object, attempt: int, entropy: object) -> float:
        del policy, entropy
        asked.append(attempt)
        return 0.01

    monkeypatch.setattr("runtime.aio.retry.RetryPolicy.delay", delay)
    await delete(split, split.keys.graph(job.job_id))
    split.runners.by_job[job.job_id].break_down()
    await eventually(lambda: max(asked, default=0) >= 6, "longer and longer pauses")
    async with asyncio.timeout(100):
        with pytest.raises(PermanentError, match="its graph is gone from the store"):
            await leader.dispatcher.cancel_job(JobRequest(job.job_id))
