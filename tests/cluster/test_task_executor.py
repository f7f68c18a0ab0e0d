"""A TaskExecutor between a scripted leader and a scripted JobMaster process, over the local transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.common.errors import NotFoundError, StaleTokenError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid, PartitionId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import (
    CommitOutputs,
    JobCensus,
    OfferSlots,
    OutputsCommitted,
    RegisterJob,
    ReleasePartitions,
    SlotsLost,
    TaskProgresses,
    TaskReports,
)
from runtime.gateways.resource_manager import (
    JobsEnded,
    RegisterTaskManager,
    SlotReport,
    SlotRequestRefused,
    SlotsFreed,
)
from runtime.gateways.task import BlobReference, ExchangeMode, OutputDirectory, ResultPartitionSpec, TaskProgress
from runtime.gateways.task_executor import (
    AttemptLogRequest,
    AttemptLogsRequest,
    CensusRequest,
    LogStream,
    TaskExecutorGateway,
)
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.taskexecutor.connections.resource_manager_connection import (
    LeaderLocation,
    NoLeaderError,
    RegistrationRefusedError,
)
from tests.kit.control_plane.task_executor_cluster import (
    CLUSTER,
    ScriptedPeer,
    TaskExecutorCluster,
    refused,
    registered,
    task_executor_cluster,
    until_gone,
)
from tests.kit.control_plane.task_messages import (
    VERTEX,
    acknowledge,
    allocation_id,
    answer_offers,
    attempt_id,
    cancel,
    deploy,
    end_job,
    free_slots,
    incarnation,
    job_id,
    register_job,
)
from tests.kit.control_plane.testing_slot_pool import AT_ONCE, TestingSlotPool, report_of

pytestmark = pytest.mark.asyncio


def states(cluster: TaskExecutorCluster) -> list[tuple[int, str]]:
    return [(report.attempt_id.subtask_index, report.state.value) for report in cluster.job_master.reports]


# --- the leader ---------------------------------------------------------------------------------------------


async def test_it_registers_and_reports_its_slots(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        registration, report = cluster.leader.received[:2]
        assert isinstance(registration, RegisterTaskManager)
        assert registration.incarnation == incarnation(3)
        assert isinstance(report, SlotReport)
        assert [status.allocation_id for status in report.slots] == [None, None]
        await cluster.executor.is_serving.wait_until(bool)


async def test_slots_are_reported_when_they_are_ready(tmp_path: Path) -> None:
    pool = TestingSlotPool(is_ready=False)
    async with task_executor_cluster(tmp_path, pool=pool) as cluster:
        assert (await cluster.leader.wait_for(SlotReport)).slots == ()
        assert not cluster.executor.is_serving.value
        pool.readiness.set(True)
        assert len((await cluster.leader.wait_for(SlotReport, 2)).slots) == 2
        pool.readiness.set(False)
        assert (await cluster.leader.wait_for(SlotReport, 3)).slots == ()


async def test_it_registers_again_when_the_stream_is_lost(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.leader.stream.abort("test")
        report = await cluster.leader.wait_for(SlotReport, 2)
        assert [status.allocation_id for status in report.slots] == [allocation_id(1), None]
        numbers = [stream.hello.number for stream in cluster.leader.streams]
        assert numbers == sorted(set(numbers)), "streams are numbered (R11)"


async def test_a_refused_registration_ends_it_with_the_leaders_sentence(tmp_path: Path) -> None:
    def refuse(leader: ScriptedPeer, _: ScriptedPeer) -> None:
        leader.answer_registration = lambda _: refused("version 9 is not version 1")

    async with task_executor_cluster(tmp_path, waits=False, prepare=refuse) as cluster:
        with pytest.raises(ExceptionGroup) as caught:
            await cluster.executor.wait_failed()
    assert caught.group_contains(RegistrationRefusedError, match="version 9 is not version 1")


async def test_without_a_leader_it_gives_up_at_start(tmp_path: Path) -> None:
    class NoLeader:
        async def leaders(self) -> AsyncIterator[LeaderLocation | None]:
            yield None
            await asyncio.Event().wait()

    async with task_executor_cluster(tmp_path, waits=False, retrieval=NoLeader(), registration_timeout=0.05) as cluster:
        with pytest.raises(ExceptionGroup) as caught:
            await cluster.executor.wait_failed()
    assert caught.group_contains(NoLeaderError, match=r"within 0.05 s .*no JobManager is known")


async def test_an_unreachable_leader_counts_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    class WrongLeader:
        async def leaders(self) -> AsyncIterator[LeaderLocation | None]:
            yield LeaderLocation("nowhere:1")
            await asyncio.Event().wait()

    async with task_executor_cluster(
        tmp_path, waits=False, retrieval=WrongLeader(), registration_timeout=0.05
    ) as cluster:
        with pytest.raises(ExceptionGroup) as caught:
            await cluster.executor.wait_failed()
    assert caught.group_contains(NoLeaderError, match="nowhere:1 cannot be reached")
    told = {one.levelname for one in caplog.records if "cannot register with the JobManager" in one.getMessage()}
    assert told == {"INFO"}, "it is not late yet"


async def test_a_leader_of_a_lower_term_is_left(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:  # R1
        epochs = iter([5, 4, 6])
        cluster.leader.answer_registration = lambda _: registered(epoch=next(epochs))
        cluster.leader.stream.abort("test")
        await cluster.leader.wait_for(SlotReport, 2)
        cluster.leader.stream.abort("test")
        await cluster.leader.wait_for(SlotReport, 3)
        assert len(cluster.leader.of(RegisterTaskManager)) == 4


async def test_another_cluster_ends_everything_that_runs(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:  # R1
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.pool.wait_started(1)
        cluster.leader.answer_registration = lambda _: registered(cluster=ClusterUuid("cd" * 16))
        cluster.leader.stream.abort("test")
        await cluster.leader.wait_for(SlotReport, 2)
        await cluster.executor.running.wait_until(lambda running: running == 0)
        assert cluster.pool.cancelled == [attempt_id(1, 0)]


async def test_a_silent_leader_is_left(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path, heartbeat=HeartbeatTiming(interval=0.02, timeout=0.1)) as cluster:
        cluster.leader.is_silent = True
        await cluster.leader.wait_streams(3)


# --- slots --------------------------------------------------------------------------------------------------


async def test_a_requested_slot_is_offered_to_the_job_master_that_it_names(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        cluster.request(1)
        offer = await cluster.job_master.wait_for(OfferSlots)
        assert [entry.allocation_id for entry in offer.offers] == [allocation_id(1)]
        assert offer.task_manager_id == "tm-test"
        hello = cluster.job_master.stream.hello
        assert hello.target_incarnation == cluster.job_master.incarnation
        assert hello.dialer == incarnation(3)


async def test_slots_of_many_jobs_share_one_stream(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        cluster.request(1, slot=0, job=1)
        cluster.request(2, slot=1, job=2)
        await cluster.job_master.wait(lambda: len(cluster.offered()) == 2)
        assert len(cluster.job_master.streams) == 1


async def test_an_untaken_slot_is_freed_after_the_timeout(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path, slot_timeout=0.05) as cluster:
        cluster.request(1)
        assert (await cluster.leader.wait_for(SlotsFreed)).allocations == (allocation_id(1),)
        assert (await cluster.job_master.wait_for(SlotsLost)).allocations == (allocation_id(1),)


async def test_a_taken_slot_is_refused_to_others(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate(1)
        cluster.request(2, slot=0, job=2)
        refusal = await cluster.leader.wait_for(SlotRequestRefused)
        assert (refusal.allocation_id, refusal.slot_index) == (allocation_id(2), 0)


async def test_a_draining_task_manager_takes_no_slot_and_waits_for_what_runs(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.pool.wait_started(1)
        async with asyncio.TaskGroup() as tasks:
            draining = tasks.create_task(cluster.executor.drain(10, report_patience=1))
            report = await cluster.leader.wait_for(SlotReport, 2)
            assert [status.slot_index for status in report.slots] == [0]
            cluster.request(2, slot=1)
            await cluster.leader.wait_for(SlotRequestRefused)
            assert not draining.done()
            cluster.pool.finish(attempt_id(1, 0))


# --- tasks --------------------------------------------------------------------------------------------------


async def test_a_whole_small_job(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        cluster.request(1)
        await cluster.job_master.wait_for(OfferSlots)
        cluster.job_master.send(answer_offers(1), register_job(), deploy(1, 0, operators=AT_ONCE))
        await cluster.job_master.wait_reports(2)
        assert states(cluster) == [(0, "RUNNING"), (0, "FINISHED")]
        assert len(cluster.job_master.of(TaskReports)) == 1, "both reports travel together"
        work = cluster.pool.work[attempt_id(1, 0)]
        assert work.job_directory.is_dir()
        assert work.exchange_directory.endswith(f"exchange/{incarnation(3)}")
        cluster.job_master.send(acknowledge(0), free_slots(1), end_job())
        await cluster.leader.wait_for(SlotsFreed)
        await cluster.executor.flush()
        assert not list((tmp_path / "jobs").iterdir())


async def test_a_job_that_comes_back_waits_until_its_first_stay_is_over(tmp_path: Path) -> None:
    """R50: its directory is deleted, and its group is another job's, behind that."""
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0, operators=AT_ONCE))
        await cluster.job_master.wait_reports(2)
        cluster.pool.may_end_jobs.clear()
        cluster.job_master.send(acknowledge(0), free_slots(1), end_job())
        await cluster.leader.wait_for(SlotsFreed)
        assert cluster.pool.ended_jobs == [job_id(1)]
        cluster.request(2, epoch=2)
        await cluster.job_master.wait(lambda: 2 in cluster.offered())
        back = deploy(2, 0, epoch=2, operators=AT_ONCE)
        cluster.job_master.send(answer_offers(2, epoch=2), register_job(epoch=2), back)
        while not cluster.executor._attempts.ids:
            await asyncio.sleep(0)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert list(cluster.pool.work) == [attempt_id(1, 0)]
        assert (tmp_path / "jobs" / job_id(1)).exists(), "its processes end before its files"
        cluster.pool.may_end_jobs.set()
        await cluster.pool.wait_started(2)
        assert cluster.pool.work[back.tasks[0].attempt_id].job_directory.is_dir()


async def test_attempts_run_one_after_another_in_a_slot(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0, 1, 2, operators=AT_ONCE))
        await cluster.job_master.wait_reports(6)
        finished = [subtask for subtask, state in states(cluster) if state == "FINISHED"]
        assert finished == [0, 1, 2]


async def test_a_cancelled_attempt_ends_in_a_report(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0, 1))
        await cluster.pool.wait_started(1)
        cluster.job_master.send(cancel(0, 1))
        await cluster.job_master.wait_reports(3)
        assert set(states(cluster)) == {(0, "RUNNING"), (0, "CANCELED"), (1, "CANCELED")}
        ended = [report for report in cluster.job_master.reports if report.state is ExecutionState.CANCELED]
        assert {report.attempt_id.subtask_index: report.has_not_begun for report in ended} == {0: False, 1: True}


async def test_a_slot_that_says_nothing_and_one_that_breaks_are_failures(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0, 1))
        await cluster.pool.wait_started(1)
        cluster.pool.end(attempt_id(1, 0), None)
        await cluster.pool.wait_started(2)
        cluster.pool.crash(attempt_id(1, 1), ValueError("a bug of ours"))
        await cluster.job_master.wait_reports(4)
        failures = [report.failure for report in cluster.job_master.reports if report.failure is not None]
        assert [failure.message for failure in failures] == ["its slot ended without a report", "a bug of ours"]


async def test_progress_reaches_the_owner(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.pool.wait_started(1)
        [attempt] = cluster.executor._attempts._running.values()
        for fraction in (0.25, 0.5):
            attempt.task_progressed(TaskProgress(attempt_id(1, 0), fraction, "", 0, 0, 0, 0))
        progress = await cluster.job_master.wait_for(TaskProgresses)
        assert [entry.fraction for entry in progress.progresses] == [0.5], "only the latest of a turn"


async def test_unacknowledged_reports_are_repeated_on_each_new_stream(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:  # R10, R11
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0, 1, operators=AT_ONCE))
        await cluster.job_master.wait_reports(4)
        cluster.job_master.send(acknowledge(0))
        await cluster.executor.flush()
        cluster.job_master.stream.abort("test")
        reports = await cluster.job_master.wait_reports(5)
        assert (reports[4].attempt_id, reports[4].state) == (attempt_id(1, 1), ExecutionState.FINISHED)
        assert cluster.job_master.stream.hello.number > cluster.job_master.streams[0].hello.number


async def test_a_task_outlives_its_owners_stream(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.pool.wait_started(1)
        cluster.job_master.stream.abort("test")
        await cluster.job_master.wait_streams(2)
        cluster.pool.finish(attempt_id(1, 0))
        await cluster.job_master.wait(lambda: (0, "FINISHED") in states(cluster))
        assert not cluster.pool.cancelled


async def test_the_leader_can_end_a_job(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:  # R16
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.pool.wait_started(1)
        cluster.leader.send(JobsEnded((job_id(1),)))
        await cluster.leader.wait_for(SlotsFreed)
        assert cluster.pool.cancelled == [attempt_id(1, 0)]


async def test_files_that_cannot_be_fetched_fail_the_attempt(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        missing = BlobReference("0" * 64 + "-1", "0" * 64, 3, "a.txt")
        with_files = RegisterJob(replace(register_job().job, files=(missing,)))
        cluster.job_master.send(with_files, deploy(1, 0))
        [report] = await cluster.job_master.wait_reports(1)
        assert report.failure is not None
        assert report.failure.class_name == "NotFoundError"


async def test_secrets_are_read_when_a_task_is_handed_over(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path, secrets_directory=str(tmp_path)) as cluster:
        cluster.request(1)
        await cluster.job_master.wait_for(OfferSlots)
        register = RegisterJob(replace(register_job().job, secrets=("KEY",)))
        cluster.job_master.send(answer_offers(1), register, deploy(1, 0))
        [report] = await cluster.job_master.wait_reports(1)
        assert report.failure is not None
        assert "the secret 'KEY', which TaskManager tm-test cannot give it" in report.failure.message
        (tmp_path / "KEY").write_text("hush")  # from now on it is there
        cluster.job_master.send(deploy(1, 1))
        await cluster.pool.wait_started(1)
        work = cluster.pool.work[attempt_id(1, 1)]
        assert work.secrets == {"KEY": "hush"}
        cluster.pool.finish(attempt_id(1, 1))
        await cluster.job_master.wait_reports(3)


async def test_a_cancel_during_preparation_ends_the_attempt_before_it_reaches_its_slot(tmp_path: Path) -> None:
    class SlowBlobs:
        asked = asyncio.Event()

        @asynccontextmanager
        async def file(self, _key: str, /) -> AsyncIterator[Path]:
            self.asked.set()
            await asyncio.Event().wait()
            yield tmp_path

    blobs = SlowBlobs()
    async with task_executor_cluster(tmp_path, blobs=blobs) as cluster:
        await cluster.activate()
        blob = BlobReference("0" * 64 + "-1", "0" * 64, 3, "code.pkl")
        message = deploy(1, 0)
        with_code = replace(message.tasks[0], task=replace(message.tasks[0].task, code_blobs=(blob,)))
        cluster.job_master.send(replace(message, tasks=(with_code,)))
        await blobs.asked.wait()
        cluster.job_master.send(cancel(0))
        [report] = await cluster.job_master.wait_reports(1)
        assert report.state is ExecutionState.CANCELED
        assert not cluster.pool.work


# --- files --------------------------------------------------------------------------------------------------


async def test_partitions_are_deleted_when_released_and_when_the_job_ends(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        message = deploy(1, 0, operators=AT_ONCE)
        spec = ResultPartitionSpec(0, ExchangeMode.HASH, ("k",), 2, inline_size_max=0)
        cluster.job_master.send(replace(message, tasks=(replace(message.tasks[0], outputs=(spec,)),)))
        await cluster.job_master.wait_reports(2)
        root = Path(cluster.pool.work[attempt_id(1, 0)].exchange_directory) / job_id(1)
        partitions = [PartitionId(attempt_id(1, 0), output) for output in (0, 1)]
        for partition in partitions:
            (root / str(partition)).mkdir(parents=True)
        cluster.job_master.send(ReleasePartitions(job_id(1), 1, (partitions[0],)))
        cluster.job_master.send(CommitOutputs(job_id(1), 1, VERTEX, ()))
        await cluster.job_master.wait_for(OutputsCommitted)
        await until_gone(root / str(partitions[0]))
        assert (root / str(partitions[1])).exists()
        cluster.job_master.send(end_job())
        await until_gone(root)


async def test_a_failed_commit_is_answered_with_its_reason(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        base, attempt = tmp_path / "base", tmp_path / "base/.attempt"
        attempt.mkdir(parents=True)
        (attempt / "a").write_text("new")
        (base / "a").write_text("old")
        outputs = (OutputDirectory(str(base), str(attempt)),)
        cluster.job_master.send(CommitOutputs(job_id(1), 1, VERTEX, outputs))
        answer = await cluster.job_master.wait_for(OutputsCommitted)
        assert answer.failure is not None
        assert "exists already" in answer.failure.message


async def test_outputs_on_an_unknown_file_system_cost_their_job_and_nothing_else(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.pool.wait_started(1)
        output = OutputDirectory("foo://bucket", "foo://bucket/.attempt-0")
        report = replace(report_of(attempt_id(1, 0)), outputs=(output,))
        cluster.pool.end(attempt_id(1, 0), report)
        await cluster.job_master.wait_reports(2)
        cluster.job_master.send(CommitOutputs(job_id(1), 1, VERTEX, (output,)))
        answer = await cluster.job_master.wait_for(OutputsCommitted)
        assert answer.failure is not None
        assert "foo://bucket cannot be reached from this TaskManager" in answer.failure.message
        assert answer.failure.kind == "USER"
        cluster.job_master.send(end_job())
        await until_gone(tmp_path / "jobs" / job_id(1))
        await cluster.activate(2, job=2)  # the TaskManager lives


async def test_logs_are_read_over_rpc(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        directory = tmp_path / "log" / str(attempt_id(1, 0))
        directory.mkdir(parents=True)
        (directory / "stdout").write_text("hello\nworld\n")
        gateway = cluster.leader.rpc.connect(
            TaskExecutorGateway, cluster.rpc.server.address, target=None, sender=FencingToken(CLUSTER, 1), timeout=5
        )
        answer = await gateway.request_attempt_log(AttemptLogRequest(attempt_id(1, 0), LogStream.STDOUT, 6, 100))
        assert (answer.data, answer.next_offset) == (b"world\n", 12)
        with pytest.raises(NotFoundError):
            await gateway.request_attempt_log(AttemptLogRequest(attempt_id(9, 0), LogStream.STDOUT, 0, 100))
        reads = tuple(AttemptLogRequest(attempt_id(job, 0), LogStream.STDOUT, 6, 100) for job in (1, 9, 1))
        many = await gateway.request_attempt_logs(AttemptLogsRequest(reads, size_bytes_max=8))
        found = [(one.index, None if one.piece is None else one.piece.data) for one in many.pieces]
        assert found == [(0, b"world\n"), (1, None), (2, b"wo")]


@pytest.mark.parametrize("sender", [FencingToken(ClusterUuid("cd" * 16), 3), None])
async def test_callers_of_another_cluster_or_none_are_refused(tmp_path: Path, sender: FencingToken | None) -> None:
    async with task_executor_cluster(tmp_path) as cluster:  # R1
        gateway = cluster.leader.rpc.connect(
            TaskExecutorGateway,
            cluster.rpc.server.address,
            target=None,
            sender=sender,
            timeout=5,
        )
        with pytest.raises(StaleTokenError):
            await gateway.request_attempt_log(AttemptLogRequest(attempt_id(1, 0), LogStream.STDOUT, 0, 100))


async def test_a_new_owner_takes_a_census(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:  # R6
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.job_master.wait_reports(1)
        gateway = cluster.leader.rpc.connect(
            TaskExecutorGateway, cluster.rpc.server.address, target=None, sender=FencingToken(CLUSTER, 1), timeout=5
        )
        owner = (incarnation(2), cluster.job_master.address)
        await gateway.request_census(CensusRequest(job_id(1), 8, *owner))
        census = await cluster.job_master.wait_for(JobCensus)
        assert census.epoch == 8
        assert [(held.attempt_id, held.state) for held in census.attempts] == [
            (attempt_id(1, 0), ExecutionState.RUNNING)
        ]
        with pytest.raises(StaleTokenError, match="its owner is at epoch 8"):
            await gateway.request_census(CensusRequest(job_id(1), 7, *owner))
