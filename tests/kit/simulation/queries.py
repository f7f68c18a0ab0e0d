"""Streaming queries of the simulation: the directories in which they commit, and the jobs that are made of them.

A directory outlives the processes that work on it, as a shared one does. A batch is committed in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.stream_progress import NO_BATCH, StreamPosition
from runtime.taskexecutor.slots.running_attempt import checkpoints_of
from runtime.taskexecutor.slots.work import SlotWork
from tests.kit.control_plane.streaming_jobs import streaming_job
from tests.kit.simulation.clients import PlannedJob
from tests.kit.simulation.history import BatchCommitted
from tests.kit.simulation.user_code import UserCode

SHARE = 0.3
"""So many seeds have streaming jobs."""
_BATCH_LOW, _BATCH_HIGH = 0.2, 3.0
_BATCHES_MAX = 6
_NAME = "orders"


class Directories:
    """The last committed batch of each directory."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def last(self, directory: str) -> int:
        """The number of the last committed batch, NO_BATCH before the first."""
        return self._last.get(directory, NO_BATCH)

    def commit(self, directory: str, attempt_id: ExecutionAttemptId) -> BatchCommitted:
        """One batch more."""
        self._last[directory] = self.last(directory) + 1
        return BatchCommitted(attempt_id, directory, self._last[directory])


class Query:
    """The query of one attempt: when its batches are, and where it is."""

    def __init__(self, directories: Directories, work: SlotWork, entropy: SeededEntropy, batches: int) -> None:
        self.directory = f"{checkpoints_of(work.job)}/{work.task.task.stream_uid}/{work.task.attempt_id.subtask_index}"
        self._directories = directories
        self._attempt_id = work.task.attempt_id
        self._draw = entropy.child(f"batches of {work.task.attempt_id}").uniform
        self._batches = batches
        self.committed = 0
        """Batches of this attempt."""

    @property
    def has_read_all(self) -> bool:
        """True once a query that ends has nothing more to read."""
        return 0 < self._batches <= self._directories.last(self.directory) + 1

    def pause(self) -> float:
        """Seconds until the next batch is committed."""
        return self._draw(_BATCH_LOW, _BATCH_HIGH)

    def commit(self) -> BatchCommitted:
        """The next batch."""
        self.committed += 1
        return self._directories.commit(self.directory, self._attempt_id)

    def position(self) -> StreamPosition:
        """What a checkpoint is told."""
        return StreamPosition(self.directory, self._directories.last(self.directory))


def query_of(directories: Directories, work: SlotWork, entropy: SeededEntropy, code: UserCode) -> Query | None:
    """The query of an attempt, None for a task that is none."""
    return Query(directories, work, entropy, code.batches) if work.task.task.stream_uid else None


def planned_streams(entropy: SeededEntropy) -> Iterator[PlannedJob]:
    """In some seeds: one that ends by itself or is cancelled, and two that keep their state under one name, in turn."""
    if entropy.uniform(0.0, 1.0) >= SHARE:
        return
    draw = entropy.child("alone").uniform
    ends = draw(0.0, 1.0) < 0.4
    made = streaming_job("clicks", parallelism=1 + int(draw(0.0, 1.6)), ends=ends)
    code = UserCode(batches=1 + int(draw(0.0, _BATCHES_MAX)) if ends else 0)
    programs = {vertex.id: code for vertex in made.vertices}
    job_id = JobId(entropy.child("alone/id").hex_id())
    cancel_after = None if ends else draw(15.0, 45.0)
    yield PlannedJob(job_id, made, programs, draw(0.0, 20.0), cancel_after)
    for number in range(2):
        draw = entropy.child(f"named-{number}").uniform
        made = streaming_job(_NAME).model_copy(update={"checkpoint_name": _NAME})
        programs = {vertex.id: UserCode() for vertex in made.vertices}
        # One namespace: that of a job follows from the beginning of its id.
        job_id = JobId("a" + entropy.child(f"named-{number}/id").hex_id()[1:])
        begin = draw(0.0, 10.0) + 15.0 * number
        yield PlannedJob(job_id, made, programs, begin, draw(10.0, 40.0))
