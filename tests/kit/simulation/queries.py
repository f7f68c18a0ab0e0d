"""Streaming queries of the simulation: the directories in which they commit, and the jobs that are made of them.

A directory is a real one, in the form of Spark's, that all hosts share and that outlives the processes that work on it:
the product copies it into savepoints, puts it back from them, and deletes it. A batch is committed in one piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from runtime.aio.entropy import SeededEntropy
from runtime.checkpoint.savepoint.ended_note import EndedNote, note_path
from runtime.checkpoint.savepoint.query_restore import QueryToRestore, claim, restore_query
from runtime.checkpoint.savepoint.savepoint_files import local_path
from runtime.checkpoint.savepoint.shares import shapes_of
from runtime.common.errors import FlinklikeError
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import NO_BATCH, QueryPhase, StreamLook, StreamPosition
from runtime.jobgraph.savepoints import ClaimMode, parse_query_settings
from runtime.taskexecutor.slots.running_attempt import checkpoints_of
from runtime.taskexecutor.slots.stream_queries import QueryPlace, is_endless
from runtime.taskexecutor.slots.work import SlotWork
from tests.kit.control_plane.streaming_jobs import streaming_job
from tests.kit.simulation.clients import PlannedJob, Upgrade
from tests.kit.simulation.history import (
    BatchCommitted,
    Happening,
    QueryHeld,
    QueryReleased,
    QueryStarted,
    SavepointTaken,
)
from tests.kit.simulation.processes import SimulatedLoop
from tests.kit.simulation.shelf import Shelf
from tests.kit.simulation.user_code import UserCode

SHARE = 0.3
"""So many seeds have streaming jobs."""
_BATCH_LOW, _BATCH_HIGH = 0.2, 3.0
_BATCHES_MAX = 6
_RESTORE_MAX = 2.0
_NAME = "orders"


class Directories:
    """Offsets and commits of each query, below the directory of all checkpoints."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.shelf = Shelf()

    def path(self, directory: str) -> Path:
        """Where it is."""
        return self._base / directory

    def last(self, directory: str) -> int:
        """The number of the last committed batch, NO_BATCH before the first."""
        try:
            return max((int(one.name) for one in (self.path(directory) / "commits").iterdir()), default=NO_BATCH)
        except FileNotFoundError:
            return NO_BATCH

    def begin(self, directory: str) -> None:
        """The next batch: what it reads is written down."""
        path = self.path(directory)
        if not (path / "metadata").exists():
            _write(path / "metadata", json.dumps({"id": directory}))
        batch = self.last(directory) + 1
        _write(path / "offsets" / str(batch), f'v1\n{{"batchWatermarkMs":0}}\n{{"offset":{batch}}}')

    def commit(self, directory: str, attempt_id: ExecutionAttemptId) -> BatchCommitted:
        """The batch that was begun."""
        batch = self.last(directory) + 1
        _write(self.path(directory) / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')
        return BatchCommitted(attempt_id, directory, batch)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class QueryHost(Protocol):
    """The attempt whose query it is."""

    attempt_id: ExecutionAttemptId

    @property
    def loop(self) -> SimulatedLoop:
        """Where time comes from."""

    @property
    def is_alive(self) -> bool:
        """Does its process still run?"""

    def record(self, what: Happening) -> None:
        """Into the history."""

    def query_begun(self) -> None:
        """Its directory is as it has to be."""

    def batch_made(self) -> None:
        """The query runs."""

    def finish(self, state: ExecutionState) -> None:
        """Nothing of the query is left."""


class Query:
    """The query of one attempt: when its batches are, where it is, and who holds it.

    As slot process and JVM do it together: the JVM ends a query that is to be held between two batches and knows the
    phase, the process waits for the word, and takes no word for another hold.
    """

    def __init__(
        self, directories: Directories, work: SlotWork, host: QueryHost, entropy: SeededEntropy, batches: int
    ) -> None:
        task = work.task
        self.is_endless = is_endless(task.task)
        self.directory = f"{checkpoints_of(work.job)}/{task.task.stream_uid}/{task.attempt_id.subtask_index}"
        self._directories = directories
        self._work = work
        self._host = host
        self._draw = entropy.child(f"batches of {task.attempt_id}").uniform
        self._batches = batches
        self._committed = 0
        self._hold, self._drains, self._phase = "", False, QueryPhase.RUNNING
        self._waits_for = ""
        self._words: list[tuple[str, bool]] = []

    @property
    def place(self) -> QueryPlace:
        """For whoever copies it."""
        task, index = self._work.task.task, self._work.task.attempt_id.subtask_index
        return QueryPlace(self._directories.path(self.directory), task.stream_uid, index, task.parallelism)

    @property
    def is_held(self) -> bool:
        """Has it ended between two batches, and waits for a word?"""
        return bool(self._waits_for)

    @property
    def has_read_all(self) -> bool:
        """True once a query that ends has nothing more to read."""
        return 0 < self._batches <= self._directories.last(self.directory) + 1

    def position(self) -> StreamPosition:
        """What a checkpoint is told."""
        return StreamPosition(self.directory, self._directories.last(self.directory))

    def begin(self) -> None:
        """From where its directory says, or the savepoint of its job."""
        if self._work.task.is_stopped:
            self._host.record(QueryReleased(self._host.attempt_id, "", finishes=True))
            self._host.loop.outside_later(0.05, self._host.finish, ExecutionState.FINISHED)
            return
        if self._work.job.savepoint and not self.place.directory.exists():
            self._host.loop.outside_later(self._draw(0.0, _RESTORE_MAX), self._restored)
        else:
            self._restored()

    def _restored(self) -> None:
        """Go on, when the directory is as it has to be."""
        if not self._host.is_alive:
            return
        try:
            self._restore()
        except (FlinklikeError, OSError):
            self._host.loop.outside_later(0.05, self._host.finish, ExecutionState.FAILED)
            return
        behind = self._directories.last(self.directory)
        self._host.record(QueryStarted(self._host.attempt_id, self.directory, behind, not self.is_endless))
        self._host.query_begun()
        self._run()

    def _restore(self) -> None:
        settings = parse_query_settings(self._work.job.savepoint)
        if settings is None:
            return
        path, place = local_path(settings.path), self.place
        job_id = self._host.attempt_id.job_id
        shapes = shapes_of(settings.queries, settings.splits)
        asked = QueryToRestore(place.directory, place.uid, place.subtask_index, shapes, job_id=job_id)
        restore_query(path, asked)
        if settings.claim_mode is ClaimMode.CLAIM:
            claim(path, asked)
            for taken in self._directories.shelf.taken():
                self._host.record(SavepointTaken(taken, job_id))

    # --- batches --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        if not self.has_read_all:
            self._directories.begin(self.directory)
        self._host.loop.outside_later(self._draw(_BATCH_LOW, _BATCH_HIGH), self._next_batch)

    def _next_batch(self) -> None:
        """Also while its task is told to stop, until it has stopped."""
        if not self._host.is_alive:
            return
        if self.has_read_all:
            self._ended()
            return
        self._host.record(self._directories.commit(self.directory, self._host.attempt_id))
        self._committed += 1
        if self._committed == 1:
            self._host.batch_made()
        if self._hold:
            self._ended()
        else:
            self._run()

    def _ended(self) -> None:
        if not self._hold:
            self._leave_note()
            self._host.finish(ExecutionState.FINISHED)
        elif self._drains and self._phase is QueryPhase.ENDING:
            self._phase = QueryPhase.DRAINING
            self._run()
        else:
            self._phase, self._waits_for = QueryPhase.HELD, self._hold
            self._host.record(QueryHeld(self._host.attempt_id, self._hold))
            self._heed()

    def _leave_note(self) -> None:
        """As the slot process does before the attempt is FINISHED."""
        place = self.place
        note = Path(note_path(str(place.directory.parent.parent), place.uid, place.subtask_index))
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(EndedNote(sink="simulated").model_dump_json())

    # --- holds ----------------------------------------------------------------------------------------------

    def look(self, hold: str, *, drains: bool) -> StreamLook:
        """At the query; with a hold it ends between two batches. Another hold takes the place of the one before."""
        if hold and hold != self._hold:
            self._hold, self._drains, self._phase = hold, drains, QueryPhase.ENDING
        if self._waits_for and self._waits_for != self._hold:
            return StreamLook(QueryPhase.NONE)
        return StreamLook(self._phase, self.position())

    def take_over(self, hold: str) -> None:
        """What another hold has ended is held by this one, as of queries that are held together."""
        if hold and self._waits_for and self._waits_for != hold:
            self._hold = self._waits_for = hold
            self._host.record(QueryHeld(self._host.attempt_id, hold))

    def release(self, hold: str, *, finishes: bool) -> None:
        """The word of the owner. One that comes early waits."""
        self._words.append((hold, finishes))
        self._heed()

    def _heed(self) -> None:
        while self._waits_for and self._words and self._host.is_alive:
            hold, finishes = self._words.pop(0)
            if hold == self._waits_for:
                self._host.record(QueryReleased(self._host.attempt_id, hold, finishes))
                self._waits_for, self._hold, self._phase = "", "", QueryPhase.RUNNING
                if finishes:
                    self._host.finish(ExecutionState.FINISHED)
                else:
                    self._run()


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


UPGRADES = 0.35
"""So many seeds have jobs that are stopped with savepoints and started from them."""


def planned_upgrades(entropy: SeededEntropy, target: str, slots: int) -> Iterator[PlannedJob]:
    """In some seeds: a job of one or two queries, in half of the slots at most, and jobs that follow it."""
    if entropy.uniform(0.0, 1.0) >= UPGRADES or slots < 2:
        return
    shape = entropy.child("shape").uniform
    uids = ("views", "sales")[: 1 + int(shape(0.0, 1.999))] if slots >= 4 else ("views",)
    parallelism = 1 + int(shape(0.0, 1.6)) if slots >= 4 * len(uids) else 1
    made = streaming_job(*uids, parallelism=parallelism)
    before: Upgrade | None = None
    for number in range(3 if slots >= 4 else 2):
        draw = entropy.child(f"job-{number}").uniform
        of_stop = draw(0.0, 1.0) < 0.8
        upgrade = Upgrade(
            target,
            draw(1.0, 10.0) if not of_stop or draw(0.0, 1.0) < 0.5 else None,
            draw(2.0, 20.0),
            drains=draw(0.0, 1.0) < 0.3,
            claim_mode=ClaimMode.CLAIM if draw(0.0, 1.0) < 0.4 else ClaimMode.NO_CLAIM,
            successor_of_stop=of_stop,
        )
        programs = {vertex.id: UserCode() for vertex in made.vertices}
        job_id = JobId(entropy.child(f"job-{number}/id").hex_id())
        begin = draw(0.0, 15.0) if before is None else draw(0.0, 2.0)
        yield PlannedJob(job_id, made, programs, begin, upgrade=upgrade, restored_from=before)
        before = upgrade
