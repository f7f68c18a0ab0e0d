"""R66: a job whose parallelism is chosen, under one owner and under the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.common.exchange import AUTO_PARALLELISM, ExchangeMode, InputShare
from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState, JobStatus, JobType, SchedulerType
from runtime.gateways.task import PartitionDescriptor, PartitionFile
from runtime.jobgraph.graph import JobGraph, OperatorKind
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.job_events import ParallelismDecided
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings
from runtime.scheduler.core.scheduler_factory import scheduler_type_of
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import THREE_RESTARTS, JobMasterDriver, parquet

CHOSEN: dict[str, Any] = {"parallelism": AUTO_PARALLELISM, "max_parallelism": 4}
MIB = 1 << 20


def adaptive(**hashed: Any) -> JobGraph:
    """Two readers, totals by key, and what comes of them in one place."""
    return graph(
        source("read", parallelism=2),
        vertex("totals", **CHOSEN),
        vertex("write", OperatorKind.SINK),
        edges=(
            edge("read", "totals", ExchangeMode.HASH, key_columns=("k",), **hashed),
            edge("totals", "write", ExchangeMode.GATHER),
        ),
    )


def written(job: JobMasterDriver, attempt_id: ExecutionAttemptId, *mib: int) -> tuple[PartitionDescriptor, ...]:
    """What a reader has written: so many MiB in each subpartition."""
    (spec,) = job.deployed[attempt_id].outputs
    assert spec.is_dynamic
    files = tuple(PartitionFile(f"p/{index}", size * MIB, 1, index) for index, size in enumerate(mib))
    return (replace(parquet(attempt_id, spec), files=files),)


def started(made: JobGraph | None = None) -> JobMasterDriver:
    settings = AdaptiveSettings(bytes_per_task=16 * MIB)
    job = JobMasterDriver(made or adaptive(), failover=THREE_RESTARTS, adaptive=settings)
    job.offer(1, 2, tm=1)
    return job


def read_all(job: JobMasterDriver, *mib: int) -> None:
    for attempt_id in job.running():
        job.report(attempt_id, partitions=written(job, attempt_id, *mib))


def of(job: JobMasterDriver, name: str) -> tuple[int, str]:
    """Parallelism and decision of a vertex, as clients see them."""
    (found,) = [one for one in job.core.archived().vertices if one.name == name]
    return found.parallelism, found.decision


def decisions(job: JobMasterDriver) -> list[ParallelismDecided]:
    return [event for batch in job.durable for event in batch if isinstance(event, ParallelismDecided)]


def is_decision(event: object) -> bool:
    return isinstance(event, ParallelismDecided)


def shares(job: JobMasterDriver) -> list[InputShare | None]:
    """Of the subtasks of `totals` that were deployed last, in their order."""
    ids = sorted((one for one in job.deployed if job.deployed[one].task.vertex_name == "totals"), key=str)
    latest = {one.subtask_index: job.deployed[one] for one in ids}
    return [latest[index].inputs[0].share for index in sorted(latest)]


def test_it_is_unknown_until_all_producers_have_finished() -> None:
    job = started()
    assert of(job, "totals") == (AUTO_PARALLELISM, "")
    first, second = job.running()
    job.report(first, partitions=written(job, first, 8, 8, 8, 8))
    job.events_durable()
    assert of(job, "totals")[0] == AUTO_PARALLELISM
    job.report(second, partitions=written(job, second, 8, 8, 8, 8))
    assert of(job, "totals") == (4, "4 for 64.0 MiB and 8 rows, one for each 16.0 MiB")
    assert job.status() is JobStatus.RUNNING


def test_no_subtask_starts_before_the_decision_is_durable() -> None:
    job = started()
    read_all(job, 8, 8, 8, 8)
    assert not shares(job)
    assert not decisions(job)
    job.events_durable()
    job.events_durable()
    (decided,) = decisions(job)
    assert shares(job)
    assert tuple(shares(job)) == decided.shares[: len(shares(job))]


@pytest.mark.parametrize("is_durable", [True, False])
def test_the_next_owner_has_the_same_subtasks(*, is_durable: bool) -> None:
    """Between the decision and the deployment of its subtasks, and between the reports and the decision."""
    job = started()
    read_all(job, 30, 1, 1, 1)
    before = of(job, "totals")
    while job.pending_events is not None and not any(is_decision(one) for one in job.pending_events.events):
        job.events_durable()
    if is_durable:
        job.events_applied()
    job.change_owner([1])
    job.events_durable()
    job.events_durable()
    assert of(job, "totals") == before
    assert len(decisions(job)) == 1
    job.offer(1, 2, tm=1)
    assert shares(job)[:1] == [InputShare(0, 1)]
    job.finish_all()
    job.result_durable()
    assert job.status() is JobStatus.FINISHED


def test_a_producer_that_runs_again_changes_nothing() -> None:
    job = started()
    read_all(job, 8, 8, 8, 8)
    job.events_durable()
    job.events_durable()
    before = of(job, "totals")
    running = job.running()
    job.lose_task_manager(tm=1, is_reaped=True)
    job.events_durable()
    job.restart_due()
    job.events_durable()
    job.offer(3, 4, tm=2)
    for attempt_id in job.running():
        if attempt_id not in running and job.deployed[attempt_id].task.vertex_name == "read":
            job.report(attempt_id, partitions=written(job, attempt_id, 1, 1, 1, 1))
    job.events_durable()
    assert of(job, "totals") == before
    job.finish_all()
    job.result_durable()
    assert job.status() is JobStatus.FINISHED


def test_what_forward_edges_join_has_one_parallelism() -> None:
    """`days` has a subtask for each of its splits, so `join` has as many, whatever it reads of `read`."""
    job = started(
        graph(
            source("read", parallelism=2),
            source("days", splits=(1, 2, 3), **CHOSEN),
            vertex("join", **CHOSEN),
            vertex("write", OperatorKind.SINK),
            edges=(
                edge("read", "join", ExchangeMode.HASH, key_columns=("k",)),
                edge("days", "join", ExchangeMode.FORWARD, input_index=1),
                edge("join", "write", ExchangeMode.GATHER),
            ),
        )
    )
    job.offer(3, 4, 5, tm=1)
    for attempt_id in job.running():
        is_read = job.deployed[attempt_id].task.vertex_name == "read"
        job.report(attempt_id, partitions=written(job, attempt_id, 1, 1, 1, 1) if is_read else None)
    assert of(job, "join") == (3, "3 for 8.0 MiB and 8 rows; forward edges dictate it")
    job.finish_all()
    job.result_durable()
    assert job.status() is JobStatus.FINISHED


def test_it_waits_for_each_of_its_producers() -> None:
    """And counts of each only what is for it: another consumer of `read` has a partition of its own."""
    job = started(
        graph(
            source("read", parallelism=1),
            source("more", parallelism=1),
            vertex("totals", **CHOSEN),
            vertex("write", OperatorKind.SINK),
            edges=(
                edge("read", "write", ExchangeMode.GATHER, input_index=1),
                edge("read", "totals", ExchangeMode.HASH, key_columns=("k",)),
                edge("more", "totals", ExchangeMode.HASH, key_columns=("k",), input_index=1),
                edge("totals", "write", ExchangeMode.GATHER),
            ),
        )
    )
    first, second = job.running()
    for attempt_id, other in ((first, second), (second, first)):
        specs = job.deployed[attempt_id].outputs
        files = tuple(PartitionFile(f"p/{index}", 8 * MIB, 1, index) for index in range(4))
        made = [parquet(attempt_id, spec) for spec in specs]
        found = tuple(
            replace(one, files=files)
            if spec.is_dynamic
            else replace(one, files=(PartitionFile("p/all", 900 * MIB, 9, -1),))
            for one, spec in zip(made, specs, strict=True)
        )
        job.report(attempt_id, partitions=found)
        if other in job.running():
            assert of(job, "totals")[0] == AUTO_PARALLELISM
    assert of(job, "totals") == (4, "4 for 64.0 MiB and 8 rows, one for each 16.0 MiB")


def test_a_forward_group_has_no_more_subtasks_than_each_of_it_allows() -> None:
    job = started(
        graph(
            source("read", parallelism=2),
            vertex("totals", **CHOSEN),
            vertex("few", parallelism=AUTO_PARALLELISM, max_parallelism=2),
            vertex("write", OperatorKind.SINK),
            edges=(
                edge("read", "totals", ExchangeMode.HASH, key_columns=("k",)),
                edge("totals", "few", ExchangeMode.FORWARD),
                edge("few", "write", ExchangeMode.GATHER),
            ),
        )
    )
    read_all(job, 30, 30, 30, 30)
    assert of(job, "totals")[0] == 2


def test_a_key_with_most_rows_of_a_wide_file_is_seen() -> None:
    job = started(adaptive(splittable=True))
    for attempt_id in job.running():
        (spec,) = job.deployed[attempt_id].outputs
        file = PartitionFile("p/0", 80 * MIB, 100, 0, span=4, heaviest=2, heaviest_rows=90)
        job.report(attempt_id, partitions=(replace(parquet(attempt_id, spec), files=(file,)),))
    job.events_durable()
    job.events_durable()
    (decided,) = decisions(job)
    assert {(one.first, one.end) for one in decided.shares if one.parts > 1} == {(2, 3)}
    assert len(decided.shares) == 4


def test_a_cancel_before_the_decision_ends_the_job() -> None:
    job = started()
    first, second = job.running()
    job.report(first, partitions=written(job, first, 8, 8, 8, 8))
    job.handle(ev.CancelWanted(job.at()))
    job.report(second, ExecutionState.CANCELED)
    job.events_durable()
    job.result_durable()
    assert job.status() is JobStatus.CANCELED
    assert of(job, "totals") == (AUTO_PARALLELISM, "")


def test_the_default_scheduler_gives_the_default() -> None:
    job = JobMasterDriver(failover=THREE_RESTARTS)
    job.core._context.scheduler_type = SchedulerType.DEFAULT
    job.core._context.adaptive_of = lambda _configuration: AdaptiveSettings(parallelism_default=3)
    job.graph = adaptive()
    job.load(job.graph)
    job.offer(1, 2, tm=1)
    read_all(job, 16, 16, 16, 16)
    assert of(job, "totals") == (3, "3 for 128.0 MiB and 8 rows; parallelism.default")


@pytest.mark.parametrize(
    ("job_type", "configured", "expected"),
    [
        (JobType.BATCH, SchedulerType.ADAPTIVE_BATCH, SchedulerType.ADAPTIVE_BATCH),
        (JobType.BATCH, SchedulerType.DEFAULT, SchedulerType.DEFAULT),
        (JobType.STREAMING, SchedulerType.ADAPTIVE_BATCH, SchedulerType.DEFAULT),
        (JobType.STREAMING, SchedulerType.DEFAULT, SchedulerType.DEFAULT),
    ],
)
def test_selection_by_the_type_of_the_job(
    job_type: JobType, configured: SchedulerType, expected: SchedulerType
) -> None:
    assert scheduler_type_of(job_type, configured) is expected


def test_a_result_of_a_chosen_parallelism_is_a_list() -> None:
    job = started(
        graph(
            source("read", parallelism=2),
            vertex("totals", OperatorKind.SINK, **CHOSEN),
            edges=(edge("read", "totals", ExchangeMode.HASH, key_columns=("k",)),),
        )
    )
    read_all(job, 1, 1, 1, 1)
    job.events_durable()
    job.events_durable()
    (only,) = job.running()
    job.report(only, value=b"7")
    job.events_durable()
    job.result_durable()
    assert job.core.archived().result == '{"totals":[7]}'


@pytest.mark.parametrize(("below", "mode"), [(100 * MIB, ExchangeMode.BROADCAST), (MIB, ExchangeMode.HASH)])
def test_the_plan_shows_how_an_input_is_read(below: int, mode: ExchangeMode) -> None:
    made = graph(
        source("read", parallelism=1),
        source("names", parallelism=1),
        vertex("joined", OperatorKind.SINK, **CHOSEN),
        edges=(
            edge("read", "joined", ExchangeMode.HASH),
            edge("names", "joined", ExchangeMode.HASH, input_index=1, broadcast_below=below),
        ),
    )
    job = started(made)
    assert shown_modes(job) == [ExchangeMode.HASH, ExchangeMode.HASH]
    read_all(job, 20, 20, 20, 20)
    assert shown_modes(job) == [ExchangeMode.HASH, mode]


def shown_modes(job: JobMasterDriver) -> list[ExchangeMode]:
    return [edge.mode for edge in job.core.archived().edges]
