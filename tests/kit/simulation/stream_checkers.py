"""Judges of streaming queries and of their checkpoints (R59)."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.stream_progress import NO_BATCH
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import CheckpointRecord
from tests.kit.simulation.checker import CheckerBase, Reader, subtask
from tests.kit.simulation.history import Applied, AttemptEnded, BatchCommitted, QueryStarted, Record

_CHECKPOINTS = "checkpoints/"


class QueriesKeepApart(CheckerBase):
    """R59: no two queries work on one directory at once, be they of one job or of two that have its name in turn."""

    rule = "R59"

    sees: tuple[type, ...] = (QueryStarted, AttemptEnded)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._at: dict[str, set[ExecutionAttemptId]] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Begins and ends."""
        match record.what:
            case QueryStarted(attempt_id, directory):
                there = self._at.setdefault(directory, set())
                for other in sorted(there, key=str):
                    yield f"{attempt_id} works on {directory}, where {other} still works"
                there.add(attempt_id)
            case AttemptEnded(attempt_id=attempt_id):
                for there in self._at.values():
                    there.discard(attempt_id)
            case _:
                return


class CheckpointsAreTrue(CheckerBase):
    """R59: a checkpoint that is recorded tells of committed batches only, and no number is used again."""

    rule = "checkpoints"

    sees: tuple[type, ...] = (Applied, QueryStarted, BatchCommitted)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._directory: dict[tuple[JobId, str, int], str] = {}
        self._committed: dict[str, int] = {}
        """By directory: a job that has the name of an earlier one goes on with its batches."""
        self._latest: dict[JobId, int] = {}

    def see(self, record: Record) -> Iterator[str]:
        """What is committed, and what is recorded of it."""
        match record.what:
            case QueryStarted(attempt_id, directory, behind):
                job_id, vertex_id, _ = subtask(attempt_id)
                self._directory[job_id, vertex_id, int(directory.rpartition("/")[2])] = directory
                self._committed.setdefault(directory, behind)  # from a savepoint
            case BatchCommitted(directory=directory, batch_id=batch_id):
                self._committed[directory] = batch_id
            case _:
                yield from self._recorded(record)

    def _recorded(self, record: Record) -> Iterator[str]:
        for job_id, name, event in self.job_writes(record):
            if name.startswith(_CHECKPOINTS) and not event.is_delete and self.is_news(event):
                found = decode_record(CheckpointRecord, event.kv.value, key=event.kv.key)
                yield from self._judge(job_id, int(name.removeprefix(_CHECKPOINTS)), found)

    def _judge(self, job_id: JobId, number: int, found: CheckpointRecord) -> Iterator[str]:
        latest = self._latest.get(job_id, 0)
        if number <= latest or found.checkpoint_id != number:
            yield f"checkpoint {found.checkpoint_id} of job {job_id} is recorded as {number}, after number {latest}"
        self._latest[job_id] = max(latest, number)
        for one in found.positions:
            directory = self._directory.get((job_id, one.vertex_id, one.subtask_index), "")
            committed = self._committed.get(directory, NO_BATCH)
            if one.batch_id > committed:
                yield (
                    f"checkpoint {number} of job {job_id} tells batch {one.batch_id} of {one.uid} {one.subtask_index}, "
                    f"whose last committed one is {committed}"
                )
