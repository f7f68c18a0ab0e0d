"""What is shown of a job's checkpoints: how many there were, the latest of each kind, and the last ones one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from runtime.checkpoint.core.checkpoints import CheckpointFailureReason, CompletedCheckpoint, FailedCheckpoint

HISTORY_MAX = 10
"""Checkpoints that are shown one by one (Flink's default of web.checkpoints.history)."""
SAMPLES_MAX = 1_000
"""Completed checkpoints that summaries are made of."""


class CheckpointStatistics:
    """Counts since the first owner of the job, as far as records tell: those of failed ones are this owner's own."""

    def __init__(self, completed: Sequence[CompletedCheckpoint] = ()) -> None:
        self.history: deque[CompletedCheckpoint | FailedCheckpoint] = deque(completed, maxlen=HISTORY_MAX)
        self.samples: deque[tuple[int, int]] = deque(map(_sample, completed), maxlen=SAMPLES_MAX)
        """Bytes of state and milliseconds of completed checkpoints."""
        self.latest_completed = completed[-1] if completed else None
        self.latest_failed: FailedCheckpoint | None = None
        self.restored: CompletedCheckpoint | None = None
        self.restored_millis = 0
        self.restored_count = 0
        self.completed_count = completed[-1].checkpoint_id if completed else 0
        self.failed_count = 0
        self.savepoints_completed = 0
        """Those that `completed_count` does not have already: it begins with a number that they have used, too."""
        self.savepoints_failed = 0
        self.in_progress_count = 0
        self.last_reason_not_begun: CheckpointFailureReason | None = None

    def begun(self) -> None:
        """A checkpoint is under way."""
        self.in_progress_count += 1
        self.last_reason_not_begun = None

    def not_begun(self, reason: CheckpointFailureReason) -> None:
        """One was due and could not begin, which is no failure of a checkpoint."""
        self.last_reason_not_begun = reason

    def completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Its record is durable."""
        self.in_progress_count -= 1
        self.completed_count += 1
        self.latest_completed = checkpoint
        self.samples.append(_sample(checkpoint))
        self.history.append(checkpoint)

    def failed(self, checkpoint: FailedCheckpoint) -> None:
        """It will not be made."""
        self.in_progress_count -= 1
        self.failed_count += 1
        self.latest_failed = checkpoint
        self.history.append(checkpoint)

    def savepoint_ended(self, *, is_completed: bool) -> None:
        """The outcome of a savepoint, or of that of a stop, is durable."""
        if is_completed:
            self.savepoints_completed += 1
        else:
            self.savepoints_failed += 1

    def note_restored(self, millis: int) -> None:
        """Queries go on behind their last batches, for the latest checkpoint is the state of all of them."""
        if self.latest_completed is not None:
            self.restored, self.restored_millis = self.latest_completed, millis
            self.restored_count += 1


def _sample(checkpoint: CompletedCheckpoint) -> tuple[int, int]:
    acknowledged = max((one.acknowledged_millis for one in checkpoint.positions), default=checkpoint.completed_millis)
    return checkpoint.state_bytes, max(0, acknowledged - checkpoint.trigger_millis)
