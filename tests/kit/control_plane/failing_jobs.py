"""Jobs whose tasks fail under a JobMasterDriver: one stage, or two that exchange partitions."""

from __future__ import annotations

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import ExecutionAttemptId, PartitionId
from runtime.jobgraph.graph import JobGraph, OperatorKind, vertex_id_of
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.control_plane.job_master_driver import EPOCH, JOB_ID, JobMasterDriver


def two_stages(*, readers_are_exclusive: bool = False, mode: ExchangeMode = ExchangeMode.REBALANCE) -> JobGraph:
    return graph(
        source("read", parallelism=2),
        vertex("use", parallelism=2, exclusive=readers_are_exclusive),
        edges=(edge("read", "use", mode),),
    )


def wide(parallelism: int) -> JobGraph:
    return graph(vertex("wide", OperatorKind.FUNCTION, parallelism=parallelism))


def second_stage(job: JobMasterDriver) -> tuple[ExecutionAttemptId, ExecutionAttemptId]:
    """Both producers are accepted, both consumers run."""
    job.offer(1, 2)
    for attempt_id in job.running():
        job.report(attempt_id)
    settle(job)
    first, second = sorted(job.running())
    return first, second


def settle(job: JobMasterDriver) -> None:
    """Everything is made durable, and there are slots for whatever is to run."""
    while job.pending_events is not None:
        job.events_durable()
    number = max((int(one[1:], 16) for one in job.places), default=0)
    job.offer(*range(number + 1, number + 9))


def partition_of(name: str, index: int = 0, counter: int = 0, output: int = 0) -> PartitionId:
    return PartitionId(ExecutionAttemptId(JOB_ID, vertex_id_of(name), index, EPOCH, counter), output)


def names(attempts: list[ExecutionAttemptId]) -> list[tuple[str, int, int]]:
    known = {vertex_id_of(name): name for name in ("read", "use", "wide", "noop", "middle", "other")}
    return sorted((known[one.vertex_id], one.subtask_index, one.counter) for one in attempts)
