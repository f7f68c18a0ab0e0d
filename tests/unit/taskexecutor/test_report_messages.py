"""Reports travel in messages that the transport takes, whatever user code has put into them (R52)."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from runtime.common.ids import PartitionId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import StreamPhase
from runtime.gateways.job_master import TaskReports
from runtime.gateways.task import FailureInfo, OutputDirectory, TaskExecutionReport, TaskMetrics, TaskProgress
from runtime.rpc import codec
from runtime.rpc.settings import RpcLimits
from runtime.taskexecutor.core.reports import messages_of, progress_size_bytes, report_size_bytes
from runtime.taskexecutor.slot_process.own_failures import of_exception
from runtime.taskexecutor.spark_host.stream_progress import QUERIES_MAX
from tests.kit.control_plane.streaming_jobs import PROGRESS, told
from tests.kit.control_plane.task_messages import attempt_id, job_id

MESSAGE_MAX = RpcLimits().message_size_max
SMILES = "\U0001f600" * 100_000


def report(number: int, failure: FailureInfo, *outputs: OutputDirectory) -> TaskExecutionReport:
    attempt = attempt_id(1, number, epoch=7)
    return TaskExecutionReport(attempt, ExecutionState.FAILED, 1, failure, b"", (), outputs, TaskMetrics())


def failure(**fields: object) -> FailureInfo:
    known = of_exception(ValueError(SMILES), timestamp_millis=1)
    return FailureInfo(**{**{name: getattr(known, name) for name in FailureInfo.__slots__}, **fields})


LOST = tuple(PartitionId(attempt_id(1, number, epoch=7), 0) for number in range(500))


@pytest.mark.parametrize(
    ("one", "outputs"),
    [
        (failure(), ()),
        (failure(class_name="A" * 400), ()),
        (failure(lost_partitions=LOST), ()),
        (failure(), (OutputDirectory("/\udce4" * 1000, "/\udce4" * 1000),) * 5),
    ],
    ids=["four bytes a letter", "long classes", "many lost partitions", "names that are no text"],
)
def test_no_message_is_larger_than_one_may_be(one: FailureInfo, outputs: tuple[OutputDirectory, ...]) -> None:
    groups = list(messages_of((report(number, one, *outputs) for number in range(40)), report_size_bytes))
    sizes = [len(codec.encode(TaskReports(job_id(1), 7, group))) for group in groups]
    assert max(sizes) <= MESSAGE_MAX
    assert all(len(codec.encode(single)) <= report_size_bytes(single) for single in groups[0])


def test_a_class_that_is_made_of_data_is_cut() -> None:
    told = of_exception(type("A" * 6_000_000, (Exception,), {})(), timestamp_millis=1)
    assert len(told.class_name) < 1000


def test_progress_of_a_script_with_many_queries_counts_what_it_takes() -> None:
    largest = told(
        **{name: 2**62 for name, value in asdict(PROGRESS).items() if type(value) is int},
        query_id="q" * 60,
        run_id="r" * 60,
        phases=tuple(StreamPhase("p" * 60, 2**62) for _ in range(20)),
        committed_batch=2**62,
    )
    progress = TaskProgress(attempt_id(1, 0, epoch=7), 0.5, "half", 1, 1, 1, 1, streams=(largest,) * QUERIES_MAX)
    assert len(codec.encode(progress)) <= progress_size_bytes(progress)
