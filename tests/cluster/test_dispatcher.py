"""Dispatchers of both kinds with a ResourceManager, JobMaster processes and TaskManagers, over the local transport."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from jobmaster_process.container_runner import JobMasterRefusedError
from runtime.common.errors import (
    BackpressureError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    StaleTokenError,
    UnavailableError,
)
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobRequest, SubmitOutcome
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.metrics import table
from runtime.rpc.service import StreamHello, StreamKind
from tests.kit.control_plane.led_jobs import status, until
from tests.kit.control_plane.plane import ControlPlane, Leader, eventually

pytestmark = pytest.mark.asyncio


async def start(plane: ControlPlane) -> Leader:
    """A leader, and a JobMaster process where the mode has them."""
    leader = await plane.lead()
    if plane.is_split:
        await plane.start_job_master()
        await eventually(lambda: any(one.state == "ready" for one in leader.dispatcher.job_masters()))
    return leader


async def test_a_job_from_submit_to_its_archive(plane: ControlPlane) -> None:
    leader = await start(plane)
    task_manager = await plane.start_task_manager(1)
    job = plane.new_job()
    answer = await leader.dispatcher.submit_job(job)
    assert answer.outcome is SubmitOutcome.ACCEPTED
    await until(leader, job.job_id, JobStatus.RUNNING)
    owner = leader.dispatcher.job_owner(job.job_id)
    assert owner is not None
    assert task_manager.requests[0].job_master_address == owner.address
    assert leader.resource_manager.slot_counts() == (1, 0)
    plane.runners.by_job[job.job_id].finish()
    await until(leader, job.job_id, JobStatus.FINISHED)
    await eventually(lambda: leader.resource_manager.slot_counts() == (1, 1))
    assert task_manager.ended == [job.job_id]  # R16
    await eventually(lambda: len(plane.archives.objects) == 1, "the archive of the cleaned job")
    await eventually(lambda: not leader.dispatcher._registry._jobs)
    response = await leader.dispatcher.request_job(JobRequest(job.job_id))
    assert ArchivedExecutionGraph.from_json(response.archived_graph).status is JobStatus.FINISHED


async def test_the_execution_graph_at_every_stage(plane: ControlPlane) -> None:
    plane.clean_period = 3600.0
    leader = await plane.lead()
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)

    async def shown() -> JobStatus:
        response = await leader.dispatcher.request_job(JobRequest(job.job_id))
        return ArchivedExecutionGraph.from_json(response.archived_graph).status

    if plane.is_split:
        assert await shown() is JobStatus.INITIALIZING
        await plane.start_job_master()
    await until(leader, job.job_id, JobStatus.CREATED)
    assert await shown() is JobStatus.CREATED
    plane.runners.by_job[job.job_id].finish()
    await until(leader, job.job_id, JobStatus.FINISHED)
    assert await shown() is JobStatus.FINISHED
    with pytest.raises(NotFoundError):
        await leader.dispatcher.request_job(JobRequest(JobId("0" * 32)))


async def test_many_jobs_share_a_slot_one_after_another_and_an_archive(plane: ControlPlane) -> None:
    plane.clean_period = 0.2
    leader = await start(plane)
    task_manager = await plane.start_task_manager(2)
    task_manager.is_automatic = True
    jobs = [plane.new_job() for _ in range(40)]
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(leader.dispatcher.submit_job(job))
    for job in jobs:
        await until(leader, job.job_id, JobStatus.FINISHED)
    await eventually(lambda: not leader.dispatcher._registry._jobs)
    assert len(plane.archives.objects) < len(jobs) // 2, "archives are packed"
    assert len(task_manager.requests) == 40


async def test_the_same_submit_again(plane: ControlPlane) -> None:
    leader = await start(plane)
    job = plane.new_job()
    async with asyncio.TaskGroup() as group:
        answers = [group.create_task(leader.dispatcher.submit_job(job)) for _ in range(3)]
    outcomes = sorted(answer.result().outcome.name for answer in answers)
    assert outcomes == ["ACCEPTED", "ALREADY_SUBMITTED", "ALREADY_SUBMITTED"]
    other = plane.new_job(b'{"name":"other"}')
    with pytest.raises(ConflictError):
        await leader.dispatcher.submit_job(type(job)(job.job_id, other.graph, other.digest, "tests"))
    await until(leader, job.job_id, JobStatus.CREATED)
    plane.runners.by_job[job.job_id].finish()
    await eventually(lambda: leader.dispatcher._registry.finished.get(job.job_id) is not None)
    again = await leader.dispatcher.submit_job(job)
    assert (again.outcome, again.status) == (SubmitOutcome.ALREADY_SUBMITTED, JobStatus.FINISHED)
    assert len(plane.runners.created) == 1
    counted = {family.metric: family for family in plane.metrics.families()}
    submits = {("accepted",): 1, ("already_submitted",): 3, ("conflict",): 1}
    assert counted[table.SUBMITS].values == submits
    assert counted[table.SUBMIT_SECONDS].distributions[0].buckets[-1][1] == sum(submits.values())
    assert counted[table.JOBS_ENDED].values == {("FINISHED",): 1}


async def test_a_cleaned_job_that_is_not_shown_any_more_never_runs_twice(plane: ControlPlane) -> None:
    leader = await start(plane)
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    await until(leader, job.job_id, JobStatus.CREATED)
    plane.runners.by_job[job.job_id].finish()
    registry, ids = leader.dispatcher._registry, frozenset({job.job_id})
    await eventually(lambda: registry.finished.get(job.job_id) is not None)
    assert await leader.dispatcher.wait_for_jobs({job.job_id: 1 << 60}, timeout=3600.0) == ids
    registry.shown.expire(1 << 62)
    assert await leader.dispatcher.wait_for_jobs({job.job_id: 1 << 60}, timeout=3600.0) == ids
    assert leader.dispatcher.job_summary(job.job_id) is None
    found = await leader.dispatcher.find_job(job.job_id)
    assert found is not None
    assert (found.status, found.name) == (JobStatus.FINISHED, "job")
    assert await leader.dispatcher.find_job(JobId("0" * 32)) is None
    assert await leader.dispatcher.find_jobs([job.job_id, JobId("0" * 32)]) == {job.job_id: found}
    again = await leader.dispatcher.submit_job(job)
    assert (again.outcome, again.status) == (SubmitOutcome.ALREADY_SUBMITTED, JobStatus.FINISHED)
    with pytest.raises(ConflictError):
        await leader.dispatcher.cancel_job(JobRequest(job.job_id))


async def test_bad_submits(plane: ControlPlane) -> None:
    leader = await start(plane)
    job = plane.new_job()
    with pytest.raises(InvalidInputError, match="digest"):
        await leader.dispatcher.submit_job(type(job)(job.job_id, job.graph, "0" * 64, "tests"))
    with pytest.raises(InvalidInputError, match="name"):
        await leader.dispatcher.submit_job(plane.new_job(b"[]"))


async def test_a_job_that_refers_to_a_blob_that_is_too_old(plane: ControlPlane) -> None:  # R19
    leader = await start(plane)
    key = f"{'a' * 64}-{'b' * 32}"
    plane.archives.missing.add(key)
    with pytest.raises(InvalidInputError) as caught:
        await leader.dispatcher.submit_job(plane.new_job(f'{{"name":"job","blob":"{key}"}}'.encode()))
    assert key in caught.value.problems[0]
    await leader.dispatcher.submit_job(plane.new_job())


async def test_old_ids_are_forgotten(plane: ControlPlane) -> None:
    plane.remembered = Retention(2, 3_600_000)

    unreadable = 0

    async def run_three(leader: Leader) -> None:
        for _ in range(3):
            job = plane.new_job()
            await leader.dispatcher.submit_job(job)
            await until(leader, job.job_id, JobStatus.CREATED)
            plane.runners.by_job[job.job_id].finish()
            await until(leader, job.job_id, JobStatus.FINISHED)
        await eventually(lambda: not leader.dispatcher._registry._jobs)
        async with asyncio.timeout(100):
            while len((await plane.kv.range(plane.keys.all_done, is_prefix=True, timeout=1.0)).kvs) != 2 + unreadable:
                await asyncio.sleep(0.01)

    first = await start(plane)
    await run_three(first)
    await plane.depose(first)
    # Written by another version, or damaged: it stays, and the others go as ever.
    await plane.kv.txn(Txn((), (Put(plane.keys.done(JobId("0" * 32)), b"unreadable"),)), timeout=1.0)
    unreadable = 1
    second = await plane.lead()
    await run_three(second)


async def test_too_many_jobs(plane: ControlPlane) -> None:
    plane.limits = JobRegistryLimits(jobs_max=2, submits_in_flight_max=2)
    leader = await start(plane)
    for _ in range(2):
        await leader.dispatcher.submit_job(plane.new_job())
    with pytest.raises(BackpressureError) as caught:
        await leader.dispatcher.submit_job(plane.new_job())
    assert caught.value.retry_after > 0


async def test_cancel_of_a_running_job(plane: ControlPlane) -> None:
    leader = await start(plane)
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    await until(leader, job.job_id, JobStatus.CREATED)
    await leader.dispatcher.cancel_job(JobRequest(job.job_id))
    await until(leader, job.job_id, JobStatus.CANCELED)
    await leader.dispatcher.cancel_job(JobRequest(job.job_id))
    with pytest.raises(NotFoundError):
        await leader.dispatcher.cancel_job(JobRequest(JobId("0" * 32)))


async def test_a_job_without_slots_learns_why(plane: ControlPlane) -> None:
    leader = await start(plane)
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    await eventually(lambda: job.job_id in plane.runners.by_job)
    runner = plane.runners.by_job[job.job_id]
    await eventually(lambda: len(runner.reasons) == 1)
    assert "bin/taskmanager.sh start" in runner.reasons[0]
    runner.declare(1)
    await eventually(lambda: len(runner.reasons) == 2)
    assert runner.reasons[1] == runner.reasons[0], "an owner that declares on a new stream may hold another one"
    await plane.start_task_manager(1)
    await until(leader, job.job_id, JobStatus.RUNNING)
    await eventually(lambda: runner.reasons[-1] == "")


async def test_long_polls_wake_at_the_change(plane: ControlPlane) -> None:
    leader = await start(plane)
    job, other = plane.new_job(), plane.new_job()
    for one in (job, other):
        await leader.dispatcher.submit_job(one)
        await until(leader, one.job_id, JobStatus.CREATED)
    summary = leader.dispatcher.job_summary(job.job_id)
    assert summary is not None
    known = {job.job_id: summary.last_modification_millis}
    waiting = asyncio.ensure_future(leader.dispatcher.wait_for_jobs(known, timeout=30.0))
    plane.runners.by_job[other.job_id].finish()
    await until(leader, other.job_id, JobStatus.FINISHED)
    assert not waiting.done(), "another job's change wakes nobody"
    plane.runners.by_job[job.job_id].finish()
    assert await asyncio.wait_for(waiting, 5.0) == known.keys()
    assert status(leader, job.job_id) is JobStatus.FINISHED
    assert await leader.dispatcher.wait_for_jobs(known, timeout=30.0) == known.keys()
    assert await leader.dispatcher.wait_for_jobs({job.job_id: 1 << 60}, timeout=30.0) == known.keys()
    assert leader.dispatcher._waiters.count == 0


async def test_a_long_poll_ends_after_its_time(plane: ControlPlane) -> None:
    leader = await start(plane)
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    await until(leader, job.job_id, JobStatus.CREATED)
    summary = leader.dispatcher.job_summary(job.job_id)
    assert summary is not None
    known = {job.job_id: summary.last_modification_millis}
    assert await leader.dispatcher.wait_for_jobs(known, timeout=0.01) == frozenset()
    earlier = {job.job_id: summary.last_modification_millis + 60_000}
    assert await leader.dispatcher.wait_for_jobs(earlier, timeout=30.0) == known.keys(), "clocks are not compared"


async def test_everything_is_there_after_a_restart(plane: ControlPlane) -> None:
    plane.clean_period = 3600.0
    first = await start(plane)
    dirty, running = plane.new_job(), plane.new_job()
    for job in (dirty, running):
        await first.dispatcher.submit_job(job)
        await until(first, job.job_id, JobStatus.CREATED)
    plane.runners.by_job[dirty.job_id].finish()
    await until(first, dirty.job_id, JobStatus.FINISHED)
    shown = first.dispatcher.job_summary(running.job_id)
    assert shown is not None
    known = {running.job_id: shown.last_modification_millis}
    waiting = asyncio.ensure_future(first.dispatcher.wait_for_jobs(known, timeout=30.0))
    await asyncio.sleep(0)
    await plane.depose(first)
    with pytest.raises(UnavailableError):
        await waiting
    with pytest.raises(UnavailableError):
        first.dispatcher.job_summaries()
    with pytest.raises(UnavailableError):
        await first.dispatcher.submit_job(plane.new_job())

    plane.clean_period = 0.02
    second = await plane.lead()
    assert status(second, dirty.job_id) is JobStatus.FINISHED
    await eventually(lambda: second.dispatcher._registry.finished.get(dirty.job_id) is not None, "the clean-up")
    await until(second, running.job_id, JobStatus.CREATED)
    last = plane.runners.created[-1]
    if plane.is_split:
        assert len(plane.runners.created) == 2, "the JobMaster process noticed nothing"
    else:
        assert (last.job_id, last.is_fresh) == (running.job_id, False), "a new owner, under a new epoch (R6)"
    plane.runners.by_job[running.job_id].finish()
    await until(second, running.job_id, JobStatus.FINISHED)
    await eventually(lambda: not second.dispatcher._registry._jobs)

    await plane.depose(second)
    third = await plane.lead()
    assert [one.status for one in third.dispatcher.job_summaries()] == [JobStatus.FINISHED] * 2
    response = await third.dispatcher.request_job(JobRequest(dirty.job_id))
    assert ArchivedExecutionGraph.from_json(response.archived_graph).job_id == dirty.job_id


async def test_a_superseded_leader_stops_by_itself(plane: ControlPlane) -> None:
    plane.clean_period = 3600.0
    leader = await start(plane)
    await plane.supersede(leader)
    with pytest.raises(StaleTokenError):
        await leader.dispatcher.submit_job(plane.new_job())
    await eventually(leader.task.done)
    assert isinstance(leader.task.exception(), ExceptionGroup)
    plane.tasks.remove(leader.task)


class TestSplit:
    """What only JobMaster processes have."""

    async def test_a_job_waits_for_a_process(self, split: ControlPlane) -> None:
        leader = await split.lead()
        job = split.new_job()
        await leader.dispatcher.submit_job(job)
        summary = leader.dispatcher.job_summary(job.job_id)
        assert summary is not None
        assert summary.status is JobStatus.INITIALIZING
        assert "bin/start-jobmaster.sh" in summary.pending_reason
        await split.start_job_master()
        await until(leader, job.job_id, JobStatus.CREATED)

    async def test_a_waiting_job_is_cancelled(self, split: ControlPlane) -> None:
        leader = await split.lead()
        job = split.new_job()
        await leader.dispatcher.submit_job(job)
        await leader.dispatcher.cancel_job(JobRequest(job.job_id))
        assert status(leader, job.job_id) is JobStatus.CANCELED
        await eventually(lambda: leader.dispatcher._registry.finished.get(job.job_id) is not None)
        response = await leader.dispatcher.request_job(JobRequest(job.job_id))
        assert ArchivedExecutionGraph.from_json(response.archived_graph).status is JobStatus.CANCELED
        await split.start_job_master()
        assert split.runners.created == []

    async def test_jobs_are_spread_and_a_new_process_gets_its_share(self, split: ControlPlane) -> None:
        leader = await split.lead()
        first, second = await split.start_job_master(), await split.start_job_master()
        await eventually(lambda: [one.state for one in leader.dispatcher.job_masters()] == ["ready", "ready"])
        for _ in range(4):
            await leader.dispatcher.submit_job(split.new_job())
        await eventually(lambda: first.dispatcher.jobs_running == second.dispatcher.jobs_running == 2)
        third = await split.start_job_master()
        await eventually(lambda: leader.dispatcher.job_masters()[-1].state == "ready")
        await leader.dispatcher.submit_job(split.new_job())
        await eventually(lambda: third.dispatcher.jobs_running == 1)

    async def test_a_full_process_gets_no_more(self, split: ControlPlane) -> None:
        leader = await split.lead()
        await split.start_job_master(capacity=1)
        await eventually(lambda: leader.dispatcher.job_masters()[0].state == "ready")
        jobs = [split.new_job() for _ in range(2)]
        for job in jobs:
            await leader.dispatcher.submit_job(job)
        await until(leader, jobs[0].job_id, JobStatus.CREATED)
        summary = leader.dispatcher.job_summary(jobs[1].job_id)
        assert summary is not None
        assert "full" in summary.pending_reason
        split.runners.by_job[jobs[0].job_id].finish()
        await until(leader, jobs[1].job_id, JobStatus.CREATED)

    async def test_the_jobs_of_a_dead_process_move(self, split: ControlPlane) -> None:
        leader = await split.lead()
        process = await split.start_job_master()
        await eventually(lambda: leader.dispatcher.job_masters()[0].state == "ready")
        job = split.new_job()
        await leader.dispatcher.submit_job(job)
        await until(leader, job.job_id, JobStatus.CREATED)
        await split.kill_job_master(process)
        await split.start_job_master()
        await eventually(lambda: len(split.runners.created) == 2)
        before, after = split.runners.created
        assert after.epoch > before.epoch
        assert (before.is_fresh, after.is_fresh) == (True, False)

    async def test_a_broken_job_master_moves_alone(self, split: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
        leader = await split.lead()
        await split.start_job_master()
        await split.start_job_master()
        await eventually(lambda: [one.state for one in leader.dispatcher.job_masters()] == ["ready", "ready"])
        job = split.new_job()
        await leader.dispatcher.submit_job(job)
        await until(leader, job.job_id, JobStatus.CREATED)
        split.runners.by_job[job.job_id].break_down()
        await eventually(lambda: len(split.runners.created) == 2)
        assert not split.runners.created[1].is_fresh
        assert "broke" in caplog.text

    async def test_a_process_with_another_storage_is_refused(self, split: ControlPlane) -> None:  # R20
        # It is asked more than once, and must not be lost for its silence meanwhile.
        split.heartbeat_timeout = 10.0
        await split.lead()
        process = await split.start_job_master(is_blind=True)
        await eventually(process.task.done)
        assert "storageDir must be shared" in process.container.terminated.result()
        with pytest.raises(JobMasterRefusedError, match="shared"):
            await process.task
        split.tasks.remove(process.task)

    async def test_a_lost_stream_loses_nothing(self, split: ControlPlane) -> None:
        leader = await split.lead()
        await split.start_job_master()
        await eventually(lambda: leader.dispatcher.job_masters()[0].state == "ready")
        job = split.new_job()
        await leader.dispatcher.submit_job(job)
        await until(leader, job.job_id, JobStatus.CREATED)
        (stream,) = leader.rpc._switchboard.open_streams()
        stream.abort("the network")
        split.runners.by_job[job.job_id].finish()
        await until(leader, job.job_id, JobStatus.FINISHED)
        assert len(split.runners.created) == 1


async def test_who_has_taken_the_port_of_a_leader_ends_no_process(
    split: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R52: he answers something, and the process goes on looking for its leader."""
    leader = await split.lead()
    process = await split.start_job_master()
    await eventually(lambda: leader.dispatcher.job_masters()[0].state == "ready")
    dial: Any = process.container._rpc.open_stream
    answers = [PermanentError("the peer does not know this call"), InvalidInputError("no message of ours")]

    async def dialled(*arguments: Any, **more: Any) -> Any:
        if answers:
            raise answers.pop()
        return await dial(*arguments, **more)

    monkeypatch.setattr(process.container._rpc, "open_stream", dialled)
    (stream,) = leader.rpc._switchboard.open_streams()
    stream.abort("the leader has ended")
    await eventually(lambda: not answers)
    await eventually(lambda: leader.dispatcher.job_masters()[0].state == "ready")
    assert not process.task.done()


async def test_a_task_manager_of_another_version_is_refused(plane: ControlPlane) -> None:
    await start(plane)
    task_manager = await plane.start_task_manager(1, version=99)
    assert "protocol 99" in task_manager.refusal


async def test_a_task_manager_with_another_exchange_directory_is_refused(plane: ControlPlane) -> None:  # R20
    leader = await start(plane)
    first, same, unknown, other = [
        await plane.start_task_manager(1, exchange_id=exchange_id) for exchange_id in ("one", "one", "", "another")
    ]
    assert [first.refusal, same.refusal, unknown.refusal] == ["", "", ""]
    assert "exchange.dir must be shared by all hosts" in other.refusal
    assert len(leader.resource_manager.task_managers()) == 3


@pytest.mark.parametrize("kind", [StreamKind.JOB_MASTER_TO_DISPATCHER, StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER])
async def test_who_dials_and_says_nothing_is_cut_off(split: ControlPlane, kind: StreamKind) -> None:
    split.heartbeat_timeout = 0.2
    leader = await split.lead()
    stranger = Incarnation(split.entropy.hex_id())
    rpc = await split.new_rpc(stranger)
    hello = StreamHello(kind, stranger, rpc.server.address, 1, None, "")
    stream = await rpc.open_stream(leader.rpc.server.address, hello, timeout=5.0)
    async with asyncio.timeout(100):
        with pytest.raises(UnavailableError):
            await stream.receive()


async def test_a_silent_task_manager_is_lost(plane: ControlPlane) -> None:
    plane.heartbeat_timeout = 0.2
    leader = await start(plane)
    task_manager = await plane.start_task_manager(1)
    assert [one.registration.incarnation for one in leader.resource_manager.task_managers()] == [
        task_manager.incarnation
    ]
    await eventually(lambda: len(leader.resource_manager.task_managers()) == 0)


async def test_a_drain_is_asked_of_the_task_manager_itself(plane: ControlPlane) -> None:
    plane.heartbeat_timeout = 0.5
    leader = await start(plane)
    task_manager = await plane.start_task_manager(1)
    manager = leader.resource_manager
    await manager.drain_task_manager(task_manager.incarnation, is_draining=True)
    assert (task_manager.is_draining, manager.task_managers()[0].is_draining) == (True, True)
    assert manager.slot_counts() == (0, 0)
    await manager.drain_task_manager("tm", is_draining=False)
    assert manager.slot_counts() == (1, 1)
    with pytest.raises(NotFoundError):
        await manager.drain_task_manager("nobody", is_draining=True)
    task_manager.obeys = False
    with pytest.raises(UnavailableError, match="does not say that it drains"):
        await manager.drain_task_manager("tm", is_draining=True)


async def test_a_drain_cannot_be_asked_of_a_task_manager_that_is_not_connected(plane: ControlPlane) -> None:
    leader = await start(plane)
    task_manager = await plane.start_task_manager(1)
    manager = leader.resource_manager
    await eventually(lambda: manager.slot_counts() == (1, 1), "it is used")
    assert task_manager.stream is not None
    task_manager.stream.abort("the network")
    await eventually(lambda: manager.slot_counts() == (1, 0), "it is not connected")
    with pytest.raises(UnavailableError, match="is not connected"):
        await manager.drain_task_manager("tm", is_draining=True)


async def test_a_job_that_cannot_be_stored_ends_no_other(plane: ControlPlane) -> None:
    leader = await start(plane)
    unstorable = replace(plane.new_job(), client="\ud800")
    with pytest.raises(PermanentError, match="PydanticSerializationError"):
        await leader.dispatcher.submit_job(unstorable)
    assert leader.dispatcher.job_summary(unstorable.job_id) is None
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    await until(leader, job.job_id, JobStatus.CREATED)


async def test_a_job_whose_job_master_breaks_ends_where_nobody_else_may_run_it() -> None:
    plane = ControlPlane(is_split=False)
    leader = await start(plane)
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    await until(leader, job.job_id, JobStatus.CREATED)
    plane.runners.by_job[job.job_id].break_down()
    await until(leader, job.job_id, JobStatus.FAILED)
    response = await leader.dispatcher.request_job(JobRequest(job.job_id))
    failure = ArchivedExecutionGraph.from_json(response.archived_graph).failure
    assert failure is not None
    assert "RuntimeError: a bug" in failure.message
    await plane.stop()


async def test_a_refused_submit_has_finished_jobs_cleaned_at_once() -> None:
    plane = ControlPlane(is_split=False)
    plane.limits = JobRegistryLimits(jobs_max=1, submits_in_flight_max=1)
    plane.clean_period = 3600.0
    leader = await start(plane)
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    await until(leader, job.job_id, JobStatus.CREATED)
    plane.runners.by_job[job.job_id].finish()
    await until(leader, job.job_id, JobStatus.FINISHED)
    with pytest.raises(BackpressureError, match="0 jobs are not finished, 1 finished ones"):
        await leader.dispatcher.submit_job(plane.new_job())
    await eventually(lambda: not leader.dispatcher._registry._jobs)
    await leader.dispatcher.submit_job(plane.new_job())
    await plane.stop()


async def test_the_reason_of_another_leader_is_replaced(split: ControlPlane) -> None:
    first = await start(split)
    job = split.new_job()
    await first.dispatcher.submit_job(job)
    await eventually(lambda: job.job_id in split.runners.by_job)
    runner = split.runners.by_job[job.job_id]
    await eventually(lambda: len(runner.reasons) == 1)
    await split.depose(first)
    told = len(runner.reasons)
    second = await split.lead()
    await split.start_task_manager(1)
    await until(second, job.job_id, JobStatus.RUNNING)
    await eventually(lambda: len(runner.reasons) > told)
    assert runner.reasons[-1] == ""
