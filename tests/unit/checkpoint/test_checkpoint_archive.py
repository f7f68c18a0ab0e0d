"""What an archive has of a job's checkpoints: each state, what is dropped for size, and Flink's quantiles."""

from __future__ import annotations

import pytest

from runtime.checkpoint.core import checkpoint_archive
from runtime.checkpoint.core.checkpoint_archive import archived_checkpoints, summary_of
from runtime.checkpoint.core.checkpoint_coordinator import CheckpointCoordinator, RecordCheckpoint
from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.archived_checkpoints import CheckpointStatus, SubtaskOfCheckpoint
from runtime.gateways.checkpoints import QueryPosition
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.job_master_driver import JobMasterDriver
from tests.kit.control_plane.streaming_jobs import streaming_job

ONE, TWO = (ExecutionAttemptId(JobId("1" * 32), VertexId(str(number) * 32), 0, 7, 0) for number in (1, 2))
BOTH = {ONE: True, TWO: True}
S = CheckpointStatus


def position(attempt_id: ExecutionAttemptId, millis: int) -> QueryPosition:
    return QueryPosition(attempt_id.vertex_id, attempt_id.subtask_index, "uid", "query", 5, 1, 100, millis)


def coordinator(retained: int = 1) -> CheckpointCoordinator:
    return CheckpointCoordinator(CheckpointSettings(interval=10.0, timeout=5.0, retained=retained), 0.0)


def complete(one: CheckpointCoordinator, now: float, *, is_durable: bool = True) -> None:
    millis = int(now * 1000)
    one.advance(now, millis, BOTH)
    pending = one.pending
    assert pending is not None
    for after, attempt_id in enumerate((ONE, TWO), start=1):
        one.acknowledged(pending.checkpoint_id, attempt_id, position(attempt_id, millis + 10 * after))
    (record,) = (order for order in one.advance(now, millis, BOTH) if isinstance(order, RecordCheckpoint))
    if is_durable:
        one.recorded(record.checkpoint.checkpoint_id, now)


def test_each_state_on_its_way() -> None:
    one = coordinator()
    assert archived_checkpoints(one).history == ()
    complete(one, 10.0)
    complete(one, 20.0)
    one.advance(30.0, 30_000, BOTH)
    one.acknowledged(3, TWO, position(TWO, 30_007))
    shown = archived_checkpoints(one)
    assert [(each.checkpoint_id, each.status, each.is_discarded) for each in shown.history] == [
        (3, S.IN_PROGRESS, False),
        (2, S.COMPLETED, False),
        (1, S.COMPLETED, True),
    ]
    pending, latest, _ = shown.history
    assert (pending.tasks_total, pending.tasks_acknowledged, pending.duration_millis) == (2, 1, 7)
    assert pending.missing == (SubtaskOfCheckpoint(ONE.vertex_id, 0),)
    assert (latest.state_bytes, latest.duration_millis) == (200, 20)
    assert (shown.latest_completed, shown.interval_millis, shown.timeout_millis) == (latest, 10_000, 5_000)
    assert (shown.completed_count, shown.in_progress_count, shown.failed_count) == (2, 1, 0)
    assert (shown.duration_millis.least, shown.duration_millis.most) == (20, 20)
    one.advance(35.0, 35_000, BOTH)
    expired = archived_checkpoints(one).history[0]
    assert (expired.status, expired.duration_millis, expired.tasks_acknowledged) == (S.FAILED, 5000, 1)
    assert expired.failure.startswith("Checkpoint expired before completing.")
    assert (expired.positions[0].vertex_id, expired.missing[0].vertex_id) == (TWO.vertex_id, ONE.vertex_id)


def test_one_whose_record_is_being_written_is_under_way() -> None:
    one = coordinator()
    complete(one, 10.0, is_durable=False)
    (shown,) = archived_checkpoints(one).history
    assert (shown.status, shown.tasks_acknowledged, shown.ended_millis) == (S.IN_PROGRESS, 2, -1)
    assert archived_checkpoints(one).latest_completed is None
    one.recorded(1, 10.1)
    (shown,) = archived_checkpoints(one).history
    assert shown.status is S.COMPLETED


def test_the_restored_one_is_the_latest_at_that_time() -> None:
    one = coordinator(retained=2)
    assert archived_checkpoints(one).restored_millis == -1
    complete(one, 10.0)
    one.statistics.note_restored(15_000)
    complete(one, 20.0)
    shown = archived_checkpoints(one)
    assert shown.restored is not None
    assert (shown.restored.checkpoint_id, shown.restored_millis, shown.restored_count) == (1, 15_000, 1)
    assert shown.restored.is_discarded is False
    assert shown.checkpoint(2) == shown.latest_completed
    assert shown.checkpoint(3) is None


def test_of_very_many_queries_only_the_latest_has_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_archive, "POSITIONS_MAX", 3)
    one = coordinator()
    complete(one, 10.0)
    complete(one, 20.0)
    shown = archived_checkpoints(one)
    assert [(each.positions, each.tasks_total, each.state_bytes) for each in shown.history] == [((), 2, 200)] * 2
    assert shown.latest_completed is not None
    assert len(shown.latest_completed.positions) == 2


def test_quantiles_are_interpolated_as_in_flink() -> None:
    found = summary_of([39, 42, 50, 53, 56, 56, 57, 80, 166, 688])
    assert (found.least, found.most, found.mean) == (39, 688, 128)
    assert [round(one, 1) for one in found.quantiles] == [56.0, 635.8, 688.0, 688.0, 688.0]
    assert summary_of([7]).quantiles == (7.0,) * 5
    assert summary_of([]).quantiles == ()


def test_they_are_in_the_archive_of_a_job_with_queries_only() -> None:
    archived = JobMasterDriver(streaming_job("orders")).core.archived()
    assert archived.checkpoints is not None
    assert archived.has_checkpointing is False, "the interval is 0"
    assert ArchivedExecutionGraph.from_json(archived.to_json()) == archived
    assert JobMasterDriver(lone()).core.archived().checkpoints is None
