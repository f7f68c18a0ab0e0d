"""What is shown of a streaming query that has finished: its result, where that is ahead of what it told before."""

from __future__ import annotations

import pytest

from runtime.common.states import ExecutionState
from runtime.common.stream_progress import StreamProgress
from runtime.gateways.job_master import TaskProgresses
from runtime.gateways.task import TaskProgress
from tests.kit.control_plane.job_master_driver import EPOCH, JOB_ID, JobMasterDriver
from tests.kit.control_plane.streaming_jobs import streaming_job, told

RESULT = b'{"batches":2,"rows":600,"last_batch":1}'


def ended(value: bytes, *streams: StreamProgress) -> tuple[StreamProgress, ...]:
    """What the archive has of the only query of a job, which told of `streams`, and then finished with `value`."""
    job = JobMasterDriver()
    job.load(streaming_job("orders", ends=True))
    job.offer(0)
    (attempt_id,) = job.running()
    job.report(attempt_id, ExecutionState.RUNNING)
    if streams:
        progress = TaskProgress(attempt_id, 0.0, "", 0, 0, 0, 0, streams=streams)
        job.says(TaskProgresses(JOB_ID, EPOCH, (progress,)))
    job.report(attempt_id, value=value)
    return job.core.archived().vertices[0].subtasks[0].current.streams


def test_a_query_that_ended_before_it_was_looked_at_has_its_batch_and_its_rows() -> None:
    (one,) = ended(RESULT)
    assert (one.batch_id, one.batches, one.rows, one.name) == (1, 2, 600, "orders")
    assert one.progressed_millis > 0


def test_the_last_batches_of_a_query_that_was_looked_at_before_them() -> None:
    (one,) = ended(RESULT, told(batch_id=0, batches=1, rows=300))
    assert (one.batch_id, one.batches, one.rows) == (1, 2, 600)
    assert one.query_id == told().query_id


def test_a_query_that_has_read_nothing_has_no_batch() -> None:
    assert ended(b'{"batches":0,"rows":0,"last_batch":-1}') == ()
    (one,) = ended(b'{"batches":0,"rows":0,"last_batch":-1}', told(batch_id=6))
    assert one.batch_id == 6, "the one that it went on behind"


@pytest.mark.parametrize("value", [b"", b"no JSON", b"7", b'{"batches":-1,"rows":"x","last_batch":true}'])
def test_a_result_that_is_none_of_a_query_changes_nothing(value: bytes) -> None:
    assert ended(value) == ()
    assert ended(value, told()) == (told(),)
