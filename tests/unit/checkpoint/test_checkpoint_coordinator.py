"""The CheckpointCoordinator by table: what begins, completes and ends a checkpoint, and what counts."""

from __future__ import annotations

import pytest

from runtime.checkpoint.core.checkpoint_coordinator import (
    AskPositions,
    CheckpointCoordinator,
    Order,
    RecordCheckpoint,
    RequestedCheckpoint,
    WakeUp,
)
from runtime.checkpoint.core.checkpoints import (
    CheckpointFailureReason,
    CompletedCheckpoint,
)
from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.gateways.checkpoints import QueryPosition

JOB = JobId("1" * 32)
ONE, TWO = (ExecutionAttemptId(JOB, VertexId(str(number) * 32), 0, 7, 0) for number in (1, 2))
BOTH = {ONE: True, TWO: True}
SETTINGS = CheckpointSettings(interval=10.0, timeout=60.0, retained=2)


def position(attempt_id: ExecutionAttemptId, batch: int = 5) -> QueryPosition:
    return QueryPosition(attempt_id.vertex_id, attempt_id.subtask_index, "uid", "query", batch)


def coordinator(**changes: float) -> CheckpointCoordinator:
    settings = {"interval": 10.0, "timeout": 60.0, "retained": 2, **changes}
    return CheckpointCoordinator(CheckpointSettings(**settings), 0.0)  # type: ignore[arg-type]


def advance(one: CheckpointCoordinator, now: float, queries: dict[ExecutionAttemptId, bool] = BOTH) -> list[Order]:
    orders = one.advance(now, int(now * 1000), queries)
    one.check_invariants()
    return [order for order in orders if not isinstance(order, WakeUp)]


def complete(one: CheckpointCoordinator, now: float) -> RecordCheckpoint:
    (asked,) = advance(one, now)
    assert isinstance(asked, AskPositions)
    for attempt_id in asked.attempts:
        one.acknowledged(asked.checkpoint_id, attempt_id, position(attempt_id))
    (record,) = advance(one, now)
    assert isinstance(record, RecordCheckpoint)
    one.recorded(record.checkpoint.checkpoint_id, now)
    return record


def shown(one: CheckpointCoordinator) -> int | None:
    latest = one.statistics.latest_completed
    return None if latest is None else latest.checkpoint_id


def test_one_begins_each_interval_and_is_complete_when_all_have_answered() -> None:
    one = coordinator()
    assert advance(one, 9.9) == []
    assert advance(one, 10.0) == [AskPositions(1, (ONE, TWO))]
    one.acknowledged(1, TWO, position(TWO))
    assert advance(one, 11.0) == []
    one.acknowledged(1, ONE, position(ONE))
    (order,) = advance(one, 12.0)
    assert order == RecordCheckpoint(CompletedCheckpoint(1, 10_000, 12_000, (position(ONE), position(TWO))), ())
    assert shown(one) is None, "its record is not durable"
    one.recorded(1, 12.0)
    assert shown(one) == 1
    assert advance(one, 19.9) == []
    assert advance(one, 20.0) == [AskPositions(2, (ONE, TWO))]


def test_it_says_when_it_wants_to_be_called() -> None:
    one = coordinator()
    assert one.advance(0.0, 0, BOTH) == [WakeUp(10.0)]
    assert one.advance(1.0, 0, BOTH) == [], "once"
    assert one.advance(10.0, 0, BOTH)[1:] == [WakeUp(70.0)]


def test_none_is_made_unless_an_interval_is_set() -> None:
    one = CheckpointCoordinator(CheckpointSettings(), 0.0)
    assert one.advance(1e9, 0, BOTH) == []


def test_old_records_go_with_the_one_that_subsumes_them() -> None:
    one = coordinator(retained=2)
    dropped = [complete(one, now).subsumed for now in (10.0, 20.0, 30.0, 40.0)]
    assert dropped == [(), (), (1,), (2,)]


def test_a_later_owner_goes_on_with_the_next_number_and_drops_what_is_too_old() -> None:
    kept = [CompletedCheckpoint(number, 0, 0, ()) for number in (4, 7)]
    one = CheckpointCoordinator(CheckpointSettings(interval=10.0, retained=1), 0.0, completed=kept)
    assert one.statistics.latest_completed == kept[1]
    record = complete(one, 10.0)
    assert (record.checkpoint.checkpoint_id, record.subsumed) == (8, (4, 7))


def test_queries_that_are_not_running_put_it_off_and_count_nothing() -> None:
    one = coordinator()
    assert advance(one, 10.0, {ONE: True, TWO: False}) == []
    assert one.statistics.last_reason_not_begun is CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
    assert one.problem == ""
    assert advance(one, 20.0) == [AskPositions(1, (ONE, TWO))]


def test_a_pause_follows_a_completed_one() -> None:
    one = coordinator(min_pause=15.0)
    complete(one, 10.0)
    assert advance(one, 24.9) == []
    assert advance(one, 25.0) == [AskPositions(2, (ONE, TWO))]


@pytest.mark.parametrize(
    ("now", "queries", "declines", "reason", "counts"),
    [
        (11.0, {ONE: True}, "", CheckpointFailureReason.TASK_FAILURE, False),
        (11.0, {ONE: True, TWO: False}, "", CheckpointFailureReason.TASK_FAILURE, False),
        (70.0, BOTH, "", CheckpointFailureReason.CHECKPOINT_EXPIRED, True),
        (11.0, BOTH, "no query runs", CheckpointFailureReason.CHECKPOINT_DECLINED, True),
    ],
)
def test_what_ends_one_and_what_counts(
    now: float,
    queries: dict[ExecutionAttemptId, bool],
    declines: str,
    reason: CheckpointFailureReason,
    counts: bool,
) -> None:
    one = coordinator()
    advance(one, 10.0)
    one.acknowledged(1, ONE, position(ONE))
    if declines:
        one.declined(1, TWO, declines, 11_000)
    advance(one, now, queries)
    failed = one.statistics.latest_failed
    assert failed is not None
    assert (failed.reason, failed.tasks_total, failed.tasks_acknowledged) == (reason, 2, 1)
    assert bool(one.problem) is counts is reason.counts
    assert not declines or declines in one.problem


def test_failures_in_a_row_are_tolerated_and_a_completed_one_ends_the_row() -> None:
    one = coordinator(tolerable_failures=1, timeout=1.0)
    advance(one, 10.0)
    advance(one, 11.0)
    assert one.problem == ""
    complete(one, 20.0)
    advance(one, 30.0)
    advance(one, 31.0)
    assert one.problem == ""
    advance(one, 40.0)
    advance(one, 41.0)
    assert "2 checkpoints in a row have failed" in one.problem


def test_late_and_foreign_answers_say_nothing() -> None:
    one = coordinator(timeout=1.0)
    advance(one, 10.0)
    advance(one, 11.0)
    (asked,) = advance(one, 20.0)
    assert asked == AskPositions(2, (ONE, TWO))
    one.acknowledged(1, ONE, position(ONE))
    one.declined(1, ONE, "late", 20_000)
    other = ExecutionAttemptId(JOB, ONE.vertex_id, 0, 7, 1)
    one.acknowledged(2, other, position(other))
    assert one.pending is not None
    assert one.pending.awaited == {ONE, TWO}


def test_what_may_be_lost_on_its_way_counts_nothing_and_the_next_one_follows() -> None:
    one = coordinator()
    advance(one, 10.0)
    one.acknowledged(1, ONE, position(ONE))
    one.interrupted([ONE], "its stream has ended", 11_000)
    assert one.pending is not None, "it has answered already"
    one.interrupted([TWO], "its stream has ended", 11_000)
    failed = one.statistics.latest_failed
    assert failed is not None
    assert failed.reason is CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND
    assert one.problem == ""
    assert advance(one, 20.0) == [AskPositions(2, (ONE, TWO))]


def test_nothing_begins_once_the_job_ends() -> None:
    one = coordinator()
    advance(one, 10.0)
    one.stop(11_000)
    failed = one.statistics.latest_failed
    assert failed is not None
    assert failed.reason is CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert one.problem == ""
    assert advance(one, 100.0) == []


def test_a_restart_goes_on_from_the_latest() -> None:
    one = coordinator()
    one.statistics.note_restored(5)
    assert one.statistics.restored_count == 0, "there is none yet"
    record = complete(one, 10.0)
    one.statistics.note_restored(11_000)
    assert (one.statistics.restored, one.statistics.restored_count) == (record.checkpoint, 1)


def test_a_requested_one_is_made_without_an_interval_and_told_once() -> None:
    one = CheckpointCoordinator(CheckpointSettings(timeout=5.0), 0.0, taken=6)
    assert one.requested() is None
    one.request()
    assert AskPositions(7, (ONE, TWO)) in advance(one, 1.0)
    one.declined(7, ONE, "no", 1000)
    assert one.requested() == RequestedCheckpoint(7, "Checkpoint was declined. no")
    assert one.requested() is None
    one.request()
    advance(one, 2.0, {ONE: True, TWO: False})
    ended = one.requested()
    assert ended is not None
    assert (ended.checkpoint_id, ended.failure) == (0, CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING.value)


def test_while_queries_are_held_none_begins_and_none_counts_as_failed() -> None:
    one = coordinator()
    assert AskPositions(1, (ONE, TWO)) in advance(one, 10.0)
    one.pause(is_paused=True, millis=10_000)
    assert one.pending is None
    assert one.problem == ""
    assert not [order for order in advance(one, 30.0) if isinstance(order, AskPositions)]
    one.pause(is_paused=False, millis=30_000)
    assert AskPositions(2, (ONE, TWO)) in advance(one, 40.0)
