"""What one event makes a job send to each TaskManager: gathered, so that it leaves in one write and in a safe order.

The order within one TaskManager: answers to offers, the job, deployments, cancels, acknowledgements, the commit,
releases, freed slots, the checkpoint, savepoints, splits, the end of the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId, PartitionId, VertexId
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    AnswerSplits,
    CancelTasks,
    CommitOutputs,
    DeployTasks,
    EndJob,
    EndSavepoint,
    FinishSavepoint,
    FreeSlots,
    JobMasterToTaskManager,
    RegisterJob,
    ReleasePartitions,
    SplitAnswer,
    TriggerCheckpoint,
    TriggerSavepoint,
)
from runtime.gateways.task import JobInformation, OutputDirectory, TaskDeploymentDescriptor
from runtime.scheduler.core.effects import SendMessages


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """The order to move the job's outputs (R27)."""

    vertex_id: VertexId
    outputs: tuple[OutputDirectory, ...]
    order: int
    fence_revision: int


class Letter:
    """What is to be sent to one TaskManager."""

    __slots__ = (
        "accepted",
        "acknowledged",
        "cancelled",
        "checkpoint",
        "commit",
        "deployed",
        "ended",
        "ends",
        "fence_revision",
        "freed",
        "job",
        "keeps_outputs",
        "rejected",
        "released",
        "savepoints",
        "splits",
    )

    def __init__(self) -> None:
        self.accepted: list[AllocationId] = []
        self.rejected: list[AllocationId] = []
        self.job: JobInformation | None = None
        self.deployed: list[TaskDeploymentDescriptor] = []
        self.fence_revision = 0
        self.cancelled: list[ExecutionAttemptId] = []
        self.ended: list[ExecutionAttemptId] = []
        self.acknowledged: list[ExecutionAttemptId] = []
        self.commit: CommitOrder | None = None
        self.released: list[PartitionId] = []
        self.freed: list[AllocationId] = []
        self.checkpoint: tuple[int, tuple[ExecutionAttemptId, ...]] | None = None
        self.savepoints: list[TriggerSavepoint | FinishSavepoint | EndSavepoint] = []
        self.splits: list[SplitAnswer] = []
        self.ends = False
        self.keeps_outputs = False


class Outbox:
    """One letter per TaskManager, emptied after each event."""

    __slots__ = ("_epoch", "_job_id", "_letters")

    def __init__(self, job_id: JobId, epoch: int) -> None:
        self._job_id = job_id
        self._epoch = epoch
        self._letters: dict[Incarnation, Letter] = {}

    def to(self, incarnation: Incarnation) -> Letter:
        """The letter to one TaskManager."""
        letter = self._letters.get(incarnation)
        if letter is None:
            letter = self._letters[incarnation] = Letter()
        return letter

    def drop(self, incarnation: Incarnation) -> None:
        """Send nothing to a TaskManager that is lost or dead."""
        self._letters.pop(incarnation, None)

    def take(self) -> list[SendMessages]:
        """All letters, in the order in which they were begun."""
        letters, self._letters = self._letters, {}
        return [SendMessages(to, messages) for to, letter in letters.items() if (messages := self._messages(letter))]

    def _messages(self, letter: Letter) -> tuple[JobMasterToTaskManager, ...]:
        job_id, epoch = self._job_id, self._epoch
        messages: list[JobMasterToTaskManager] = []
        if letter.accepted or letter.rejected:
            messages.append(AnswerSlotOffers(job_id, epoch, tuple(letter.accepted), tuple(letter.rejected)))
        if letter.job is not None:
            messages.append(RegisterJob(letter.job))
        if letter.deployed:
            messages.append(DeployTasks(job_id, epoch, tuple(letter.deployed), letter.fence_revision))
        if letter.cancelled:
            messages.append(CancelTasks(job_id, epoch, tuple(letter.cancelled)))
        if letter.ended:
            messages.append(CancelTasks(job_id, epoch, tuple(letter.ended), ends_batches=True))
        if letter.acknowledged:
            messages.append(AcknowledgeReports(job_id, epoch, tuple(letter.acknowledged)))
        if (one := letter.commit) is not None:
            messages.append(CommitOutputs(job_id, epoch, one.vertex_id, one.outputs, one.order, one.fence_revision))
        return (*messages, *self._last(letter))

    def _last(self, letter: Letter) -> Iterator[JobMasterToTaskManager]:
        job_id, epoch = self._job_id, self._epoch
        if letter.released:
            yield ReleasePartitions(job_id, epoch, tuple(letter.released))
        if letter.freed:
            yield FreeSlots(job_id, epoch, tuple(letter.freed))
        if letter.checkpoint is not None:
            yield TriggerCheckpoint(job_id, epoch, *letter.checkpoint)
        yield from letter.savepoints
        if letter.splits:
            yield AnswerSplits(job_id, epoch, tuple(letter.splits))
        if letter.ends:
            yield EndJob(job_id, epoch, letter.keeps_outputs)
