"""When a checkpoint begins, what completes it and what ends it (Flink's CheckpointCoordinator), for one owner of a job.

Invariants (checked): one checkpoint is under way at most; its number is higher than that of every one before; it is
complete only when every query of the job has told its position under the attempt that was asked; a completed one is
shown only when its record is durable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.checkpoint.core.checkpoint_statistics import CheckpointStatistics
from runtime.checkpoint.core.checkpoints import (
    CheckpointFailureReason,
    CompletedCheckpoint,
    FailedCheckpoint,
    PendingCheckpoint,
)
from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import ExecutionAttemptId
from runtime.gateways.checkpoints import QueryPosition


@dataclass(frozen=True, slots=True)
class AskPositions:
    """Ask the queries of these attempts for their last committed batches."""

    checkpoint_id: int
    attempts: tuple[ExecutionAttemptId, ...]


@dataclass(frozen=True, slots=True)
class RecordCheckpoint:
    """Make a checkpoint durable and drop the records of `subsumed`, in one transaction; then say `recorded`."""

    checkpoint: CompletedCheckpoint
    subsumed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Call `advance` at this monotonic time."""

    at: float


Order = AskPositions | RecordCheckpoint | WakeUp


class CheckpointCoordinator:
    """The checkpoints of one job. Times are monotonic seconds, but for those in milliseconds, which people read."""

    def __init__(
        self, settings: CheckpointSettings, now: float, *, completed: Sequence[CompletedCheckpoint] = ()
    ) -> None:
        """`completed`: those that earlier owners have recorded, oldest first."""
        self.settings = settings
        self.statistics = CheckpointStatistics(completed)
        self._retained = list(completed)
        self._next_id = 1 + max((one.checkpoint_id for one in completed), default=0)
        self._due = now + settings.interval
        self._pending: PendingCheckpoint | None = None
        self._writing: CompletedCheckpoint | None = None
        self._failures_in_a_row = 0
        self._wakes_at = 0.0
        self._is_stopped = False

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The checkpoint under way, None without one."""
        return self._pending

    @property
    def writing(self) -> CompletedCheckpoint | None:
        """The checkpoint whose record is being made durable, None without one."""
        return self._writing

    @property
    def retained(self) -> tuple[int, ...]:
        """Numbers of completed checkpoints whose records are kept, oldest first."""
        return tuple(one.checkpoint_id for one in self._retained)

    @property
    def problem(self) -> str:
        """Why the job has to fail, "" as long as it has not to."""
        tolerable = self.settings.tolerable_failures
        if self._failures_in_a_row <= tolerable:
            return ""
        last = self.statistics.latest_failed
        why = f": {last.message}" if last is not None else ""
        return (
            f"{self._failures_in_a_row} checkpoints in a row have failed, and "
            f"execution.checkpointing.tolerable-failed-checkpoints is {tolerable}{why}"
        )

    def stop(self, millis: int) -> None:
        """The job is ending, or another owner has it: no checkpoint begins any more."""
        self._is_stopped = True
        self._abort(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN, "", millis)

    # --- what queries say ---------------------------------------------------------------------------------

    def acknowledged(self, checkpoint_id: int, attempt_id: ExecutionAttemptId, position: QueryPosition) -> None:
        """A query has told its position. What is late, or of another attempt, says nothing of this checkpoint."""
        pending = self._pending
        if pending is None or pending.checkpoint_id != checkpoint_id or attempt_id not in pending.awaited:
            return
        self._pending = replace(
            pending, awaited=pending.awaited - {attempt_id}, positions=(*pending.positions, position)
        )

    def declined(self, checkpoint_id: int, attempt_id: ExecutionAttemptId, why: str, millis: int) -> None:
        """A query cannot tell its position."""
        pending = self._pending
        if pending is not None and pending.checkpoint_id == checkpoint_id and attempt_id in pending.awaited:
            self._abort(CheckpointFailureReason.CHECKPOINT_DECLINED, why, millis)

    def interrupted(self, attempts: Collection[ExecutionAttemptId], why: str, millis: int) -> None:
        """The question to one of these, or its answer, may be lost: no fault of its query, and it counts nothing."""
        if self._pending is not None and not self._pending.awaited.isdisjoint(attempts):
            self._abort(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND, why, millis)

    def recorded(self, checkpoint_id: int, now: float) -> None:
        """The record is durable: the checkpoint is completed, and those that it subsumes are forgotten."""
        done, self._writing = self._writing, None
        assert done is not None, checkpoint_id
        assert done.checkpoint_id == checkpoint_id, (done.checkpoint_id, checkpoint_id)
        self._retained = [*self._retained, done][-self.settings.retained :]
        self._failures_in_a_row = 0
        self._due = max(self._due, now + self.settings.min_pause)
        self.statistics.completed(done)

    # --- what follows -------------------------------------------------------------------------------------

    def advance(self, now: float, millis: int, queries: Mapping[ExecutionAttemptId, bool]) -> list[Order]:
        """Complete, end or begin a checkpoint. `queries`: the attempt of each query now, and whether it is RUNNING."""
        self._heed(now, millis, queries)
        orders: list[Order] = []
        if (done := self._completed(millis)) is not None:
            kept = self.settings.retained - 1
            subsumed = [one.checkpoint_id for one in self._retained[: max(0, len(self._retained) - kept)]]
            orders.append(RecordCheckpoint(done, tuple(subsumed)))
        if (asked := self._begun(now, millis, queries)) is not None:
            orders.append(asked)
        if (at := self._wakes_next(now)) is not None and at != self._wakes_at:
            self._wakes_at = at
            orders.append(WakeUp(at))
        return orders

    def _heed(self, now: float, millis: int, queries: Mapping[ExecutionAttemptId, bool]) -> None:
        pending = self._pending
        if pending is None:
            return
        if gone := [one for one in pending.awaited if not queries.get(one, False)]:
            self._abort(CheckpointFailureReason.TASK_FAILURE, f"attempt {gone[0]} has ended", millis)
        elif now >= pending.deadline and pending.awaited:
            silent = ", ".join(str(one) for one in sorted(pending.awaited, key=str)[:3])
            why = f"{len(pending.awaited)} of {pending.tasks_total} queries have not answered: {silent}"
            self._abort(CheckpointFailureReason.CHECKPOINT_EXPIRED, why, millis)

    def _completed(self, millis: int) -> CompletedCheckpoint | None:
        pending = self._pending
        if pending is None or pending.awaited or self._writing is not None:
            return None
        ordered = sorted(pending.positions, key=lambda one: (one.vertex_id, one.subtask_index))
        self._pending = None
        self._writing = CompletedCheckpoint(pending.checkpoint_id, pending.trigger_millis, millis, tuple(ordered))
        return self._writing

    def _begun(self, now: float, millis: int, queries: Mapping[ExecutionAttemptId, bool]) -> AskPositions | None:
        if self._is_stopped or not self.settings.interval or self._pending is not None or self._writing is not None:
            return None
        if now < self._due or not queries:
            return None
        self._due = now + self.settings.interval
        if not all(queries.values()):
            self.statistics.not_begun(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING)
            return None
        number, self._next_id = self._next_id, self._next_id + 1
        self._pending = PendingCheckpoint(number, millis, now + self.settings.timeout, frozenset(queries))
        self.statistics.begun()
        return AskPositions(number, tuple(queries))

    def _abort(self, reason: CheckpointFailureReason, why: str, millis: int) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        message = f"{reason.value} {why}".strip()
        self._failures_in_a_row += reason.counts
        self.statistics.failed(
            FailedCheckpoint(
                pending.checkpoint_id,
                pending.trigger_millis,
                millis,
                reason,
                message,
                pending.tasks_total,
                len(pending.positions),
                pending.positions,
                tuple(sorted((one.vertex_id, one.subtask_index) for one in pending.awaited)),
            )
        )

    def _wakes_next(self, now: float) -> float | None:
        if self._is_stopped or not self.settings.interval:
            return None
        if self._pending is not None:
            return self._pending.deadline
        return self._due if self._due > now and self._writing is None else None

    def check_invariants(self) -> None:
        """Raises AssertionError when the coordinator contradicts itself."""
        assert self._pending is None or self._writing is None, (self._pending, self._writing)
        ids = [one.checkpoint_id for one in self._retained]
        assert ids == sorted(set(ids)), ids
        assert all(number < self._next_id for number in ids), (ids, self._next_id)
