"""How the checkpoints of a streaming job are made and kept, as its submission has settled it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.states import JobStatus


class CheckpointRetention(Enum):
    """What becomes of the directories of a job's queries when the job has ended, in Flink's words."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"

    def deletes(self, status: JobStatus) -> bool:
        """True if nothing stays of a job that has ended so. Those of a job that has FINISHED never stay."""
        if status is JobStatus.FAILED:
            return self is CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        if status is JobStatus.CANCELED:
            return self is not CheckpointRetention.RETAIN_ON_CANCELLATION
        return status is JobStatus.FINISHED


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """`execution.checkpointing.*`, in seconds. `interval` 0: checkpoints are made on request only.

    `retained`: completed checkpoints whose records are kept. `tolerable_failures`: more in a row end the job.
    `retention`: of directories, when the job has ended.
    """

    interval: float = 0.0
    timeout: float = 600.0
    min_pause: float = 0.0
    tolerable_failures: int = 0
    retained: int = 1
    retention: CheckpointRetention = CheckpointRetention.RETAIN_ON_CANCELLATION


NO_CHECKPOINTS = CheckpointSettings()
"""None is made by itself."""
