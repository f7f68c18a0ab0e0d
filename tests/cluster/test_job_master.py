"""Whole JobMasters over the local transport and the memory store, with scripted TaskManagers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from itertools import groupby

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.aio.retry import RetryPolicy
from runtime.common.errors import NotFoundError, UnavailableError
from runtime.common.exchange import ExchangeMode
from runtime.common.ids import ClusterUuid, ExecutionAttemptId, Incarnation, JobId, VertexId
from runtime.common.states import ExecutionState, JobStatus
from runtime.dispatcher.runner_registry import JobManagerRunnerRegistry
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.dispatcher import JobInventoryEntry, JobSummary
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    CommitOutputs,
    DeployTasks,
    EndJob,
    FreeSlots,
    RegisterJob,
    ReleasePartitions,
)
from runtime.gateways.overview import Takeover
from runtime.gateways.task import OutputDirectory, TaskDeploymentDescriptor, TaskExecutionReport, TaskMetrics
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvOwnerJobStore
from runtime.highavailability.jobs.payloads import INLINE_BYTES_MAX, Payloads, inline_payload
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.record_codec import decode_record, encode_record
from runtime.highavailability.records import OwnerRecord, TaskManagerRecord
from runtime.jobgraph.graph import OperatorKind
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from runtime.jobmaster.census_taker import CensusSettings, CensusTaker
from runtime.rpc.settings import RpcLimits
from runtime.scheduler.core.job_events import AttemptFinished, OutputsCommitting, decode_events, encode_events
from tests.kit.control_plane.job_graphs import diamond, edge, graph, lone, source, vertex
from tests.kit.control_plane.job_master_box import (
    JOB_MASTER,
    finishing,
    job_master_box,
    reports_of,
    sleeping,
    stored_archive,
    stored_result,
)
from tests.kit.control_plane.job_master_driver import user_failure
from tests.kit.control_plane.plane import eventually
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore

JOB = JobId("1" * 32)
E = ExecutionState


@pytest.mark.asyncio
async def test_noop_job_takes_two_writes_down_and_one_transaction() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        _, running = box.start(await box.assign(JOB, lone()))
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        epoch = box.listener.requirements[0].epoch
        before = (await box.kv.status(timeout=5)).revision
        task_manager.offer(JOB, epoch)
        result = await running
        await task_manager.wait_for(EndJob)
        assert result.summary is not None
        assert result.summary.status is JobStatus.FINISHED
        assert result.summary.tasks.finished == 1
        assert [[type(message) for message in batch] for batch in task_manager.batches] == [
            [AnswerSlotOffers, RegisterJob, DeployTasks],
            [AcknowledgeReports, FreeSlots, EndJob],
        ]
        assert (await box.kv.status(timeout=5)).revision == before + 1
        assert await box.store.events(JOB) == []
        record = await stored_result(box, JOB)
        assert record.status is JobStatus.FINISHED
        assert decode_record(JobSummary, record.summary, key="summary") == result.summary
        archive = await stored_archive(box, JOB)
        assert archive.result == "null"
        assert archive.vertices[0].subtasks[0].current.task_manager_id == "tm-1"
        assert [one.requirements for one in box.listener.requirements][-1] == ()
        statuses = [summary.status for summary in box.listener.summaries]
        assert statuses == [JobStatus.CREATED, JobStatus.RUNNING, JobStatus.FINISHED]


@pytest.mark.asyncio
async def test_whole_graph_with_events_and_releases() -> None:
    async with job_master_box() as box:
        first, second = await box.task_manager(1), await box.task_manager(2)
        assignment = await box.assign(JOB, diamond())
        runner, running = box.start(assignment)
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        while not running.done():
            if box.listener.requirements[-1].requirements:
                first.offer(JOB, assignment.epoch)
                second.offer(JOB, assignment.epoch)
            generation = box.listener.changes.generation
            waiting = box.scope.start("changes", box.listener.changes.wait_changed(generation))
            await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        assert runner.summary().status is JobStatus.FINISHED
        batches = await box.store.events(JOB)
        kinds = [event.type for batch in batches for event in decode_events(batch)]
        assert kinds.count("attempt-finished") == 11
        released = [
            partition
            for task_manager in (first, second)
            for message in task_manager.messages()
            if isinstance(message, ReleasePartitions)
            for partition in message.partitions
        ]
        assert len(released) == len(set(released)) == 2 + 2 + 2 + 3


@pytest.mark.asyncio
async def test_sink_outputs_are_committed_before_the_result() -> None:
    def sink(task: TaskDeploymentDescriptor) -> list[TaskExecutionReport]:
        return reports_of(task, E.FINISHED, outputs=(OutputDirectory("base", str(task.attempt_id)),))

    async with job_master_box() as box:
        task_manager = await box.task_manager(1, sink)
        _, _, running = await box.begin(
            task_manager, JOB, graph(vertex("sink", OperatorKind.FUNCTION, parallelism=2)), slots=2
        )
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FINISHED
        (commit,) = [message for message in task_manager.messages() if isinstance(message, CommitOutputs)]
        assert len(commit.outputs) == 2
        assert len(await box.store.events(JOB)) == 1


@pytest.mark.asyncio
async def test_failing_task_fails_the_job_and_its_archive_says_why() -> None:
    def failing(task: TaskDeploymentDescriptor) -> list[TaskExecutionReport]:
        if task.attempt_id.subtask_index == 1:
            return reports_of(task, E.RUNNING, E.FAILED, failure=user_failure("no such table"))
        return reports_of(task, E.RUNNING)

    async with job_master_box() as box:
        task_manager = await box.task_manager(1, failing)
        _, runner, running = await box.begin(
            task_manager, JOB, graph(vertex("load", OperatorKind.FUNCTION, parallelism=3)), slots=3
        )
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED
        archive = await stored_archive(box, JOB)
        assert archive.failure == user_failure("no such table")
        assert archive == ArchivedExecutionGraph.from_json(runner.archived_graph())


@pytest.mark.asyncio
async def test_cancel_stops_the_tasks_and_then_ends_the_job() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager(1, sleeping)
        _, runner, running = await box.begin(task_manager, JOB, lone())
        await task_manager.wait_for(DeployTasks)
        runner.cancel_job()
        runner.cancel_job()
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.CANCELED


@pytest.mark.asyncio
async def test_offers_for_jobs_that_are_not_here_are_refused() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        task_manager.offer(JobId("9" * 32), 5)
        await task_manager.wait_for(AnswerSlotOffers)
        (answer,) = task_manager.messages()
        assert isinstance(answer, AnswerSlotOffers)
        assert answer.accepted == ()
        assert len(answer.rejected) == 1


@pytest.mark.asyncio
async def test_messages_of_another_epoch_do_not_reach_the_job() -> None:  # R1
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        assignment = await box.assign(JOB, lone())
        runner, running = box.start(assignment)
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        task_manager.offer(JOB, assignment.epoch - 1)
        await task_manager.wait_for(AnswerSlotOffers)
        assert task_manager.accepted == []
        task_manager.offer(JOB, assignment.epoch + 1)
        task_manager.offer(JOB, assignment.epoch)
        await running
        assert len(task_manager.accepted) == 1
        assert runner.summary().status is JobStatus.FINISHED


@pytest.mark.asyncio
async def test_a_higher_epoch_ends_the_runner_without_a_word() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        assignment = await box.assign(JOB, lone())
        runner, running = box.start(assignment)
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        owner = encode_record(OwnerRecord(Incarnation("e" * 32), "elsewhere:1"))
        await box.kv.txn(Txn((), (Put(box.keys.owner(JOB), owner),)), timeout=5)
        task_manager.offer(JOB, assignment.epoch)
        result = await running
        assert result.summary is None
        assert runner.summary().status is not JobStatus.FINISHED
        assert not any(isinstance(message, EndJob) for message in task_manager.messages())


@pytest.mark.asyncio
async def test_graph_is_fetched_when_it_did_not_travel_inline() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        assignment = await box.assign(JOB, lone(), graph_key="key")
        box.graphs["key"] = UnavailableError("storage is away")
        runner, running = box.start(assignment)
        await box.listener.changes.wait_until(
            lambda _: bool(box.listener.summaries) and "storage is away" in box.listener.summaries[-1].pending_reason
        )
        assert runner.summary().status is JobStatus.INITIALIZING
        box.graphs["key"] = lone().canonical_json()
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        task_manager.offer(JOB, assignment.epoch)
        assert (await running).summary is not None


@pytest.mark.asyncio
@pytest.mark.parametrize("found", [NotFoundError("no such object"), b'{"name": "other"}'])
async def test_missing_or_wrong_graph_is_looked_for_twice_and_fails_the_job(found: bytes | Exception) -> None:  # R20
    async with job_master_box() as box:
        box.graphs["key"] = found
        _, running = box.start(await box.assign(JOB, lone(), graph_key="key"))
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED
        assert box.graph_reads == 2
        failure = (await stored_archive(box, JOB)).failure
        assert failure is not None
        assert failure.class_name == "JobInitializationError"


@pytest.mark.asyncio
async def test_unreadable_graph_fails_that_job_only() -> None:
    async with job_master_box() as box:
        _, broken = box.start(await box.assign(JOB, b'{"name": "nightly", "vertices": 7}'))
        result = await broken
        assert result.summary is not None
        assert (result.summary.status, result.summary.name) == (JobStatus.FAILED, "nightly")
        other = JobId("2" * 32)
        task_manager = await box.task_manager()
        _, _, running = await box.begin(task_manager, other, lone())
        assert (await running).summary is not None


@pytest.mark.asyncio
async def test_what_a_job_wrote_whose_graph_is_gone_is_kept_and_named_if_its_outcome_was_decided() -> None:  # R28
    async with job_master_box() as box:
        attempt_id = ExecutionAttemptId(JOB, VertexId("2" * 32), 0, 7, 1)
        accepted = AttemptFinished(
            attempt_id=attempt_id,
            ordinal=0,
            location=TaskManagerLocation(Incarnation("3" * 32), "tm", "host:1"),
            timestamps={},
            value=b"",
            partitions=(),
            outputs=(OutputDirectory("/out", f"/out/.attempt-{attempt_id}", "append"),),
            metrics=TaskMetrics(),
        )
        assignment = replace(await box.assign(JOB, lone(), graph_key="key"), is_fresh=False)
        events = inline_payload(encode_events((accepted, OutputsCommitting())))
        await box.store.append_events(JOB, assignment.epoch, 0, events)
        box.graphs["key"] = NotFoundError("no such object")
        _, running = box.start(assignment)
        result = await running
        assert result.summary is not None
        assert result.summary.keeps_outputs
        failure = (await stored_archive(box, JOB)).failure
        assert failure is not None
        assert f"bin/commit-outputs.sh append=/out/.attempt-{attempt_id}" in failure.message


@pytest.mark.asyncio
async def test_a_stored_record_that_cannot_be_read_is_named_in_the_failure() -> None:
    async with job_master_box() as box:
        assignment = replace(await box.assign(JOB, lone()), graph=b"", digest="")
        await box.kv.txn(Txn((), (Put(box.keys.graph(JOB), b"graph"),)), timeout=5)
        _, running = box.start(assignment)
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED
        failure = (await stored_archive(box, JOB)).failure
        assert failure is not None
        assert f"{box.keys.graph(JOB)} does not hold a readable GraphRecord" in failure.message


@pytest.mark.asyncio
async def test_job_that_may_be_running_elsewhere_is_not_started_again() -> None:  # R6
    async with job_master_box() as box:
        assignment = replace(await box.assign(JOB, lone()), is_fresh=False)
        _, running = box.start(assignment)
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED
        failure = (await stored_archive(box, JOB)).failure
        assert failure is not None
        assert "not started a second time" in failure.message
        assert box.listener.requirements == []


@pytest.mark.asyncio
async def test_the_archive_says_how_the_job_came_to_its_owner() -> None:
    async def nobody() -> AsyncIterator[Mapping[Incarnation, TaskManagerRecord]]:
        yield {}

    async with job_master_box() as box:
        census = CensusSettings(JOB_MASTER, ClusterUuid("e" * 32), 5.0, RetryPolicy(delay_initial=0.01, delay_max=0.05))
        box.factory._census_taker = CensusTaker(census, box.rpc, nobody, clock=box.clock, entropy=SeededEntropy(2))
        takeover = Takeover(5, Incarnation("e" * 32), "lost:1", JOB_MASTER, box.address, "it was lost")
        assignment = await box.assign(JOB, lone())
        owner = Put(box.keys.owner(JOB), encode_record(OwnerRecord(JOB_MASTER, box.address, (takeover,))))
        epoch = (await box.kv.txn(Txn((), (owner,)), timeout=5)).revision
        runner, running = box.start(replace(assignment, epoch=epoch, is_fresh=False))
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        assert ArchivedExecutionGraph.from_json(runner.archived_graph()).takeovers == (takeover,)
        task_manager = await box.task_manager()
        task_manager.offer(JOB, epoch)
        await running
        assert (await stored_archive(box, JOB)).takeovers == (takeover,)
        assert box.counted == (1, 0), "in its metrics too"


@pytest.mark.asyncio
async def test_cancel_while_the_graph_cannot_be_read() -> None:
    async with job_master_box() as box:
        box.graphs["key"] = UnavailableError("storage is away")
        runner, running = box.start(await box.assign(JOB, lone(), graph_key="key"))
        await box.listener.changes.wait_until(lambda _: bool(box.listener.summaries))
        runner.cancel_job()
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.CANCELED


@pytest.mark.asyncio
async def test_cancelled_runner_leaves_durable_state_alone() -> None:
    async with job_master_box() as box:
        runner, running = box.start(await box.assign(JOB, lone()))
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert (await box.kv.range(box.keys.result(JOB), is_prefix=False, timeout=5)).count == 0
        assert runner.summary().status is JobStatus.CREATED


@pytest.mark.asyncio
async def test_a_job_that_is_dropped_in_the_turn_of_its_start_is_gone() -> None:
    async with job_master_box() as box:
        ended: list[object] = []
        registry = JobManagerRunnerRegistry(box.scope, box.factory, box.listener, ended.append)
        first = await box.assign(JOB, lone())
        registry.start(first)
        registry.drop(JobInventoryEntry(JOB, first.epoch, JobStatus.CREATED))
        await eventually(lambda: not len(registry))
        second = await box.assign(JOB, lone())
        registry.start(second)
        third = await box.assign(JOB, lone())
        # Takes the place of one that has not made its first step.
        registry.start(third)
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        assert box.listener.requirements[-1].epoch == third.epoch
        registry.drop(JobInventoryEntry(JOB, third.epoch, JobStatus.CREATED))
        await eventually(lambda: not len(registry))
        assert not ended


@pytest.mark.asyncio
async def test_execution_timeout_fails_the_job() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager(1, sleeping)
        _, _, running = await box.begin(task_manager, JOB, lone(execution_timeout_seconds=0.01))
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED


@pytest.mark.asyncio
async def test_a_failed_task_restarts_after_its_pause_and_the_job_finishes() -> None:
    def failing_first(task: TaskDeploymentDescriptor) -> Iterable[TaskExecutionReport]:
        return reports_of(task, E.FAILED, failure=user_failure("once")) if task.ordinal == 0 else finishing(task)

    async with job_master_box() as box:
        task_manager = await box.task_manager(1, failing_first)
        strategy = FixedDelayRestartStrategy(delay_seconds=0.01)
        epoch, _, running = await box.begin(task_manager, JOB, lone(restart_strategy=strategy))
        await box.listener.changes.wait_until(lambda _: len(box.listener.requirements) >= 3)
        task_manager.offer(JOB, epoch)
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FINISHED
        statuses = [summary.status for summary in box.listener.summaries]
        assert [status.name for status, _ in groupby(statuses)] == [
            "CREATED",
            "RUNNING",
            "RESTARTING",
            "RUNNING",
            "FINISHED",
        ]
        archived = await stored_archive(box, JOB)
        assert [one.failure.message for one in archived.exceptions] == ["once"]
        assert archived.vertices[0].subtasks[0].current.attempt == 1
        assert box.preemptions == 0
        assert box.counted == (0, 1), "in its metrics too"


@pytest.mark.asyncio
async def test_what_cannot_be_sent_fails_the_job_with_that_reason() -> None:
    async with job_master_box(limits=RpcLimits(message_size_max=4096)) as box:
        task_manager = await box.task_manager(1, finishing)
        big = graph(
            source("read", splits=tuple("x" * 100 for _ in range(50))), vertex("use"), edges=(edge("read", "use"),)
        )
        _, _, running = await box.begin(task_manager, JOB, big)
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FAILED
        failure = (await stored_archive(box, JOB)).failure
        assert failure is not None
        assert "rpc.max-message-size" in failure.message
        assert not failure.is_recoverable


@pytest.mark.asyncio
async def test_what_an_order_to_move_that_cannot_be_sent_was_about_is_kept_and_named() -> None:  # R28
    def sink(task: TaskDeploymentDescriptor) -> list[TaskExecutionReport]:
        base = f"/{'x' * 1000}"
        return reports_of(task, E.FINISHED, outputs=(OutputDirectory(base, f"{base}/.attempt-{task.attempt_id}"),))

    async with job_master_box(limits=RpcLimits(message_size_max=4096)) as box:
        task_manager, other = await box.task_manager(1, sink), await box.task_manager(2, sink)
        sinks = graph(vertex("sink", OperatorKind.FUNCTION, parallelism=2))
        epoch, _, running = await box.begin(task_manager, JOB, sinks)
        other.offer(JOB, epoch)
        summary = (await running).summary
        assert summary is not None
        assert (summary.status, summary.keeps_outputs) == (JobStatus.FAILED, True)
        await task_manager.wait_for(EndJob)
        assert [one.keeps_outputs for one in task_manager.messages() if isinstance(one, EndJob)] == [True]
        failure = (await stored_archive(box, JOB)).failure
        assert failure is not None
        assert "rpc.max-message-size" in failure.message
        assert failure.message.count("/.attempt-") == 2


@pytest.mark.asyncio
async def test_writes_are_repeated_until_they_get_through() -> None:  # R2
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        away = FaultyKeyValueStore(box.kv)
        away.faults.extend([Fault.REFUSED] * 3)
        box.factory._store = KvOwnerJobStore(
            away, box.keys, Payloads(box.objects), JobStoreSettings(timeout=5.0), SeededEntropy(2)
        )
        _, _, running = await box.begin(task_manager, JOB, lone(params={"text": "x" * INLINE_BYTES_MAX}))
        result = await running
        assert result.summary is not None
        assert result.summary.status is JobStatus.FINISHED
        assert "refused by the test" in box.listener.summaries[-2].pending_reason
        assert len(box.objects.objects) == 1, "the large archive was stored once"
        assert (await stored_result(box, JOB)).status is JobStatus.FINISHED


@pytest.mark.asyncio
async def test_large_archive_goes_out_of_line() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        _, _, running = await box.begin(
            task_manager, JOB, graph(vertex("wide", OperatorKind.FUNCTION, parallelism=100)), slots=2
        )
        await running
        assert (await stored_result(box, JOB)).archive.object_key
        assert len((await stored_archive(box, JOB)).vertices[0].subtasks) == 100


@pytest.mark.asyncio
async def test_many_jobs_share_one_stream() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        running = []
        for number in range(20):
            job_id = JobId(f"{number:032x}")
            assignment = await box.assign(job_id, lone())
            _, task = box.start(assignment)
            running.append(task)
            task_manager.offer(job_id, assignment.epoch)
            await asyncio.sleep(0)
        results = []
        for number, task in enumerate(running):
            job_id = JobId(f"{number:032x}")
            # An offer may have come before the job had declared anything; then it was refused.
            while not task.done():
                task_manager.offer(job_id, box.listener.requirements[number].epoch)
                await asyncio.wait({task}, timeout=0.05)
            results.append(task.result())
        assert all(one.summary is not None and one.summary.status is JobStatus.FINISHED for one in results)
        assert task_manager.streams == 1


@pytest.mark.asyncio
async def test_wheel_makes_durable_what_nobody_waits_for() -> None:
    def first_finishes(task: TaskDeploymentDescriptor) -> list[TaskExecutionReport]:
        is_first = task.attempt_id.subtask_index == 0
        return reports_of(task, E.FINISHED) if is_first else reports_of(task, E.RUNNING)

    async with job_master_box() as box:
        task_manager = await box.task_manager(1, first_finishes)
        _, runner, running = await box.begin(
            task_manager, JOB, graph(vertex("two", OperatorKind.FUNCTION, parallelism=2)), slots=2
        )
        await task_manager.wait_for(FreeSlots)
        assert await box.store.events(JOB) == []
        box.connections.turn()
        await task_manager.wait_for(AcknowledgeReports)
        assert len(await box.store.events(JOB)) == 1
        runner.cancel_job()
        await running


@pytest.mark.asyncio
async def test_a_bug_in_one_job_ends_that_runner_only() -> None:
    async with job_master_box() as box:
        task_manager = await box.task_manager()
        assignment = await box.assign(JOB, lone())
        runner = box.factory.create(assignment, box.listener)
        running = asyncio.get_running_loop().create_task(runner.run())
        await box.listener.changes.wait_until(lambda _: bool(box.listener.requirements))
        runner._job_master._core._publication = None  # type: ignore[assignment]  # break it
        runner.cancel_job()
        with pytest.raises(AttributeError):
            await running
        runner.cancel_job()
        other = JobId("2" * 32)
        assignment = await box.assign(other, lone())
        _, task = box.start(assignment)
        await box.listener.changes.wait_until(lambda _: len(box.listener.requirements) > 1)
        task_manager.offer(other, assignment.epoch)
        assert (await task).summary is not None


@pytest.mark.asyncio
async def test_exchange_modes_reach_the_consumer() -> None:
    seen: list[TaskDeploymentDescriptor] = []

    def watching(task: TaskDeploymentDescriptor) -> list[TaskExecutionReport]:
        seen.append(task)
        return reports_of(task, E.FINISHED)

    async with job_master_box() as box:
        task_manager = await box.task_manager(1, watching)
        two = graph(
            source("left", parallelism=2),
            source("right"),
            vertex("join", OperatorKind.SINK, parallelism=2),
            edges=(
                edge("left", "join", ExchangeMode.HASH),
                edge("right", "join", ExchangeMode.BROADCAST, input_index=1),
            ),
        )
        _, _, running = await box.begin(task_manager, JOB, two)
        await running
        joins = [task for task in seen if task.task.vertex_name == "join"]
        assert [[gate.mode for gate in task.inputs] for task in joins] == [
            [ExchangeMode.HASH, ExchangeMode.BROADCAST]
        ] * 2
        assert [task.outputs[0].consumer_parallelism for task in seen[:3]] == [2, 2, 2]
