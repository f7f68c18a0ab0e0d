"""When a checkpoint begins, what completes it and what ends it (Flink's CheckpointCoordinator), for one owner of a job.

Invariants (checked): one checkpoint is under way at most; its number is higher than that of every one before; it is
complete only when every query of the job has told its position under the attempt that was asked; a completed one is
shown only when its record is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class RequestedCheckpoint:
    """A checkpoint that was asked for. `checkpoint_id`: 0 before it has begun. `failure`: None until it has ended."""

    checkpoint_id: int = 0
    failure: str | None = None


class CheckpointCoordinator:
    """The checkpoints of one job. Times are monotonic seconds, but for those in milliseconds, which people read."""

    def __init__(
        self,
        settings: CheckpointSettings,
        now: float,
        *,
        completed: Sequence[CompletedCheckpoint] = (),
        taken: int = 0,
        named: Callable[[ExecutionAttemptId], str] = str,
    ) -> None:
        """`completed`: those that earlier owners have recorded, oldest first. `taken`: no number up to it is free.

        `named`: what people call the query of an attempt.
        """
        self._named = named
        self.settings = settings
        self.statistics = CheckpointStatistics(completed)
        self._retained = list(completed)
        self._next_id = 1 + max((taken, *(one.checkpoint_id for one in completed)))
        self._requested: RequestedCheckpoint | None = None
        self._is_paused = False
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

    # --- on request ---------------------------------------------------------------------------------------

    def take_number(self) -> int:
        """A number that no checkpoint has and none will have (R61)."""
        number, self._next_id = self._next_id, self._next_id + 1
        return number

    def request(self) -> None:
        """Make a checkpoint as soon as none is under way, whatever the interval says. `requested` tells its end."""
        self._requested = RequestedCheckpoint()

    def requested(self) -> RequestedCheckpoint | None:
        """What has become of the last request, told once it has ended and once only; None before."""
        if self._requested is None or self._requested.failure is None:
            return None
        ended, self._requested = self._requested, None
        return ended

    def pause(self, *, is_paused: bool, millis: int) -> None:
        """While queries are held for a stop no checkpoint is made, which is no failure of any."""
        if is_paused and not self._is_paused:
            self._abort(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND, "The job is being stopped.", millis)
        self._is_paused = is_paused

    def stop(self, millis: int) -> None:
        """The job is ending, or another owner has it: no checkpoint begins any more."""
        self._is_stopped = True
        self._abort(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN, "", millis)

    # --- what queries say ---------------------------------------------------------------------------------

    def acknowledged(self, checkpoint_id: int, attempt_id: ExecutionAttemptId, *positions: QueryPosition) -> None:
        """An attempt has told the positions of its queries. What is late, or of another attempt, says nothing of this
        checkpoint."""
        pending = self._pending
        if pending is None or pending.checkpoint_id != checkpoint_id or attempt_id not in pending.awaited:
            return
        self._pending = replace(
            pending, awaited=pending.awaited - {attempt_id}, positions=(*pending.positions, *positions)
        )

    def declined(self, checkpoint_id: int, attempt_id: ExecutionAttemptId, why: str, millis: int) -> None:
        """A query cannot tell its position."""
        pending = self._pending
        if pending is not None and pending.checkpoint_id == checkpoint_id and attempt_id in pending.awaited:
            self._abort(CheckpointFailureReason.CHECKPOINT_DECLINED, why, millis)

    def not_begun(self, checkpoint_id: int, attempt_id: ExecutionAttemptId, why: str, millis: int) -> None:
        """An attempt has no query yet that could tell its position, which is no failure of any."""
        pending = self._pending
        if pending is not None and pending.checkpoint_id == checkpoint_id and attempt_id in pending.awaited:
            self._abort(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, why, millis)

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
        self._conclude(checkpoint_id, "")

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
            self._abort(CheckpointFailureReason.TASK_FAILURE, f"{self._named(gone[0])} has ended", millis)
        elif now >= pending.deadline and pending.awaited:
            silent = ", ".join(sorted(map(self._named, pending.awaited))[:3])
            why = f"{len(pending.awaited)} of {pending.tasks_total} queries have not answered: {silent}"
            self._abort(CheckpointFailureReason.CHECKPOINT_EXPIRED, why, millis)

    def _completed(self, millis: int) -> CompletedCheckpoint | None:
        pending = self._pending
        if pending is None or pending.awaited or self._writing is not None:
            return None
        ordered = sorted(pending.positions, key=lambda one: (one.vertex_id, one.subtask_index, one.uid))
        self._pending = None
        self._writing = CompletedCheckpoint(pending.checkpoint_id, pending.trigger_millis, millis, tuple(ordered))
        return self._writing

    def _begun(self, now: float, millis: int, queries: Mapping[ExecutionAttemptId, bool]) -> AskPositions | None:
        if self._is_stopped or self._is_paused or self._pending is not None or self._writing is not None:
            return None
        is_due = bool(self.settings.interval) and now >= self._due and bool(queries)
        is_requested = self._requested is not None and not self._requested.checkpoint_id
        if not is_requested and not is_due:
            return None
        if is_due:
            self._due = now + self.settings.interval
        number = self.take_number() if queries and all(queries.values()) else 0
        if is_requested:
            self._requested = RequestedCheckpoint(number)
        if not number:
            reason = CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
            self.statistics.not_begun(reason)
            self._conclude(number, reason.value)
            return None
        self._pending = PendingCheckpoint(number, millis, now + self.settings.timeout, frozenset(queries))
        self.statistics.begun()
        return AskPositions(number, tuple(queries))

    def _conclude(self, number: int, why: str) -> None:
        if self._requested is not None and self._requested.checkpoint_id == number:
            self._requested = RequestedCheckpoint(number, why)

    def _abort(self, reason: CheckpointFailureReason, why: str, millis: int) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        message = f"{reason.value} {why}".strip()
        self._failures_in_a_row += reason.counts
        self._conclude(pending.checkpoint_id, message)
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
        if self._is_stopped:
            return None
        if self._pending is not None:
            return self._pending.deadline
        if not self.settings.interval:
            return None
        return self._due if self._due > now and self._writing is None else None

    def check_invariants(self) -> None:
        """Raises AssertionError when the coordinator contradicts itself."""
        assert self._pending is None or self._writing is None, (self._pending, self._writing)
        ids = [one.checkpoint_id for one in self._retained]
        assert ids == sorted(set(ids)), ids
        assert all(number < self._next_id for number in ids), (ids, self._next_id)
