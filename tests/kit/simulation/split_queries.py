"""Streaming queries that run once for each split, several in one attempt (R68), and the jobs that are made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import QueryPhase, ScriptLook, ScriptQuery, StreamPosition
from runtime.taskexecutor.slots.stream_queries import QueryPlace
from runtime.taskexecutor.slots.work import SlotWork
from tests.kit.control_plane.job_graphs import graph
from tests.kit.control_plane.streaming_jobs import query
from tests.kit.simulation.clients import PlannedJob
from tests.kit.simulation.history import Happening, QueryHeld, QueryReleased
from tests.kit.simulation.processes import SimulatedLoop
from tests.kit.simulation.queries import Directories, Query, QueryHost
from tests.kit.simulation.user_code import UserCode


class _Part:
    """What one of the queries sees of the attempt: the attempt hears of it when all queries are so far."""

    def __init__(self, whole: SplitQueries) -> None:
        self._whole = whole
        self.attempt_id: ExecutionAttemptId = whole.attempt_id

    @property
    def loop(self) -> SimulatedLoop:
        """Of the attempt."""
        return self._whole.host.loop

    @property
    def is_alive(self) -> bool:
        """Of the attempt."""
        return self._whole.host.is_alive

    def record(self, what: Happening) -> None:
        """Into the history; of holds what is true of all queries."""
        self._whole.record(self, what)

    def query_begun(self) -> None:
        """One has begun."""
        self._whole.begun.add(self)
        if len(self._whole.begun) == len(self._whole.queries):
            self._whole.host.query_begun()

    def batch_made(self) -> None:
        """One runs."""
        self._whole.made.add(self)
        if len(self._whole.made) == len(self._whole.queries):
            self._whole.host.batch_made()

    def finish(self, state: ExecutionState) -> None:
        """One has ended."""
        self._whole.ended.add(self)
        if state is not ExecutionState.FINISHED or len(self._whole.ended) == len(self._whole.queries):
            self._whole.host.finish(state)


class SplitQueries:
    """Those of one attempt, as `Query` is of others."""

    def __init__(self, directories: Directories, work: SlotWork, host: QueryHost, entropy: SeededEntropy) -> None:
        self.host = host
        self.attempt_id = work.task.attempt_id
        self.is_endless = True
        self.begun: set[_Part] = set()
        self.made: set[_Part] = set()
        self.ended: set[_Part] = set()
        self._held: dict[_Part, str] = {}
        self._is_told, self._let_go = False, ""
        splits = json.loads(work.task.splits)
        self.queries = {
            str(one.number): Query(directories, _of_split(work, one.number, split), _Part(self), entropy, 0)
            for one, split in zip(work.task.queries, splits, strict=True)
        }

    @property
    def places(self) -> dict[str, QueryPlace]:
        """For whoever copies them."""
        return {name: one.place for name, one in self.queries.items()}

    @property
    def place(self) -> QueryPlace:
        """Of the first one, for messages."""
        return next(iter(self.queries.values())).place

    @property
    def is_held(self) -> bool:
        """Have all ended between two batches?"""
        return all(one.is_held for one in self.queries.values())

    def positions(self) -> tuple[StreamPosition, ...]:
        """What a checkpoint is told."""
        return tuple(replace(one.position(), name=name) for name, one in self.queries.items())

    def begin(self) -> None:
        """All of them."""
        if self.host.is_alive:
            for one in self.queries.values():
                one.begin()

    def look(self, hold: str) -> ScriptLook:
        """At all queries; with a hold they end between two batches."""
        for one in self.queries.values():
            one.take_over(hold)
        looks = [one.look(hold, drains=False) for one in self.queries.values()]
        is_held = all(look.phase is QueryPhase.HELD for look in looks)
        phase = QueryPhase.HELD if is_held else QueryPhase.ENDING if hold else QueryPhase.RUNNING
        told = zip(self.queries, self.positions(), strict=True)
        return ScriptLook(phase, tuple(ScriptQuery(name, position) for name, position in told))

    def release(self, hold: str, *, finishes: bool) -> None:
        """The word of the owner, for all."""
        for one in self.queries.values():
            one.release(hold, finishes=finishes)

    def record(self, part: _Part, what: Happening) -> None:
        """Of one of them."""
        match what:
            case QueryHeld(hold=hold):
                self._held[part] = hold
                if [*self._held.values()].count(hold) == len(self.queries):
                    self._is_told = True
                    self.host.record(what)
            case QueryReleased(hold=hold):
                self._held.pop(part, None)
                if self._is_told or hold != self._let_go or not hold:
                    self._is_told, self._let_go = False, hold
                    self.host.record(what)
            case _:
                self.host.record(what)


def _of_split(work: SlotWork, number: int, split: object) -> SlotWork:
    task = work.task
    of_split = replace(
        task,
        attempt_id=replace(task.attempt_id, subtask_index=number),
        task=replace(task.task, parallelism=task.task.queries),
        splits=json.dumps([split]).encode(),
        queries=(),
    )
    return replace(work, task=of_split)


def planned_rescaled_jobs(entropy: SeededEntropy) -> Iterator[PlannedJob]:
    """Two jobs that follow their slots, early enough that faults meet them before and behind rescales."""
    for number in range(2):
        draw = entropy.child(f"job-{number}").uniform
        made = graph(query(f"followers-{number}", splits=2 + int(draw(0.0, 3.999))))
        programs = {one.id: UserCode() for one in made.vertices}
        job_id = JobId(entropy.child(f"id-{number}").hex_id())
        yield PlannedJob(job_id, made, programs, draw(0.0, 15.0), draw(25.0, 60.0))
