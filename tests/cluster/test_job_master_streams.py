"""Streams between TaskManagers and a JobMaster process that end, and what becomes of the attempts behind them."""

from __future__ import annotations

import pytest

from runtime.common.errors import UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import ExecutionState, JobStatus
from runtime.gateways.job_master import (
    DeployTasks,
    EndJob,
    Heartbeat,
    HeldAttempt,
    SlotOffer,
)
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.jobgraph.graph import OperatorKind
from tests.kit.control_plane.job_graphs import graph, lone, vertex
from tests.kit.control_plane.job_master_box import finishing, job_master_box, reports_of, sleeping, stored_archive
from tests.kit.control_plane.plane import eventually

JOB = JobId("1" * 32)
TM = Incarnation("9" * 32)
E = ExecutionState


@pytest.mark.asyncio
async def test_a_task_manager_that_stays_away_fails_its_attempts() -> None:  # R18
    async with job_master_box(timing=HeartbeatTiming(interval=0.01, timeout=0.05)) as box:
        task_manager = await box.task_manager(1, sleeping)
        _, _, running = await box.begin(task_manager, JOB, lone())
        await task_manager.wait_for(DeployTasks)
        assert task_manager.stream is not None
        task_manager.stream.abort("killed")
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED
        failure = (await stored_archive(box, JOB)).failure
        assert failure is not None
        assert failure.class_name == "TaskManagerLostError"
        assert "tm-1:1" in failure.message


@pytest.mark.asyncio
async def test_the_end_of_a_stream_disturbs_no_attempt_and_what_was_lost_is_sent_again() -> None:  # R11
    async with job_master_box() as box:
        task_manager = await box.task_manager(1, sleeping)
        epoch, runner, running = await box.begin(
            task_manager, JOB, graph(vertex("two", OperatorKind.FUNCTION, parallelism=2)), slots=2
        )
        await task_manager.wait_for(DeployTasks)
        (deployment,) = [message for message in task_manager.messages() if isinstance(message, DeployTasks)]
        arrived, lost = deployment.tasks
        assert task_manager.stream is not None
        task_manager.stream.abort("a cable")
        await task_manager.connect()
        task_manager.behaviour = finishing
        slots = (SlotOffer(arrived.allocation_id, 0), SlotOffer(lost.allocation_id, 1))
        held = HeldAttempt(arrived.attempt_id, 0, E.RUNNING, arrived.allocation_id)
        task_manager.count(JOB, epoch, held, slots=slots)
        task_manager.report(JOB, epoch, *reports_of(arrived, E.FINISHED))
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FINISHED
        again = [message for message in task_manager.messages() if isinstance(message, DeployTasks)][1:]
        assert [one.tasks for one in again] == [(lost,)]
        assert runner.summary().tasks.finished == 2


@pytest.mark.asyncio
async def test_one_that_is_back_and_says_nothing_is_asked() -> None:
    asked: list[tuple[JobId, int, str]] = []

    async with job_master_box(timing=HeartbeatTiming(interval=0.02, timeout=5.0)) as box:

        async def ask(job_id: JobId, epoch: int, address: str) -> None:
            asked.append((job_id, epoch, address))
            if len(asked) == 1:
                message = "not now"
                raise UnavailableError(message)
            await task_manager.connect()
            task_manager.count(job_id, epoch)

        box.connections.ask_census = ask
        task_manager = await box.task_manager(1, sleeping)
        epoch, _, running = await box.begin(task_manager, JOB, lone())
        await task_manager.wait_for(DeployTasks)
        task_manager.behaviour = finishing
        assert task_manager.stream is not None
        task_manager.stream.abort("killed")
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FINISHED
        assert set(asked) == {(JOB, epoch, "tm-1:1")}


@pytest.mark.asyncio
async def test_one_whose_record_could_not_be_read_is_asked_where_it_is() -> None:  # R31
    asked: list[str] = []

    async with job_master_box(timing=HeartbeatTiming(interval=0.02, timeout=5.0)) as box:

        async def ask(_job: JobId, _epoch: int, address: str) -> None:
            asked.append(address)

        box.connections.ask_census = ask
        _, _ = box.start(await box.assign(JOB, lone()))
        box.connections.expect(JOB, {TM: ""})
        box.connections.task_manager_found(TM, "tm-1:1")
        await eventually(lambda: "tm-1:1" in asked)
        assert set(asked) == {"tm-1:1"}


@pytest.mark.asyncio
async def test_newer_stream_takes_the_place_of_the_older_one() -> None:  # R11
    async with job_master_box() as box:
        task_manager = await box.task_manager(1, sleeping)
        assignment = await box.assign(JOB, lone())
        _, running = box.start(assignment)
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        older = task_manager.stream
        await task_manager.connect()
        task_manager.behaviour = finishing
        task_manager.offer(JOB, assignment.epoch)
        assert (await running).summary is not None
        assert older is not None
        with pytest.raises(UnavailableError):
            older.send(EndJob(JOB, 1))
        assert box.connections.connected == (task_manager.incarnation,)


@pytest.mark.asyncio
async def test_silent_task_manager_is_lost_after_the_heartbeat_timeout() -> None:
    timing = HeartbeatTiming(interval=0.01, timeout=0.05)
    async with job_master_box(timing=timing) as box:
        task_manager = await box.task_manager(1, sleeping)
        _, _, running = await box.begin(task_manager, JOB, lone())
        await task_manager.wait_for(Heartbeat)
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED
        failure = (await stored_archive(box, JOB)).failure
        assert failure is not None
        assert "no sign of life" in failure.message
