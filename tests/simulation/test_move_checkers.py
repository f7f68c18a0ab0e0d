"""The checker of moves refuses a history that breaks D-122, and queries move in the simulation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedException
from runtime.gateways.resource_manager import DrainTaskManager
from runtime.gateways.task import FailureInfo
from runtime.scheduler.core.job_events import FailureHandled
from tests.kit.control_plane.streaming_jobs import streaming_job
from tests.kit.simulation.checkers import ALWAYS, check
from tests.kit.simulation.clients import PlannedJob
from tests.kit.simulation.history import (
    TERMINATED,
    AttemptEnded,
    AttemptStarted,
    BatchCommitted,
    Fault,
    Happening,
    QueryHeld,
    QueryReleased,
    QueryStarted,
    Received,
)
from tests.kit.simulation.move_checkers import DRAINED
from tests.kit.simulation.past import JOB, Past, attempt
from tests.kit.simulation.processes import SimulatedLoop
from tests.kit.simulation.query_drains import QueryDrains
from tests.kit.simulation.seeds import keep, on_virtual_time
from tests.kit.simulation.user_code import UserCode
from tests.kit.simulation.world import Shape, World, until

DIRECTORY = f"{JOB}/views/0"
HOLD = "drain-1"
FOUND = "was ended by the drain of tm-1 within a batch, and it had time"


class Moves:
    """A history of one TaskManager, at times that are given."""

    def __init__(self) -> None:
        self.past = Past()
        self.past.submit()

    def at(self, at: float, what: Happening) -> None:
        self.past.history.add(at, "tm-1", what)

    def drain(self, at: float, *, is_draining: bool = True) -> None:
        self.at(at, Received("jm-1", DrainTaskManager(is_draining)))

    def start(self, at: float, number: int = 0, *, ends: bool = False) -> None:
        self.at(at, QueryStarted(attempt(number), DIRECTORY, ends=ends))

    def move(self, *, backoff: float | None = None) -> None:
        failure = FailureInfo(DRAINED, "its query has ended", "", "SYSTEM", is_recoverable=True, timestamp_millis=1)
        exception = ArchivedException(failure, "views", "tm-1:1", "tm-1")
        event = FailureHandled(exception, 1, is_concurrent=False, backoff_seconds=backoff, attempts=(attempt(),))
        self.past.write_event(event)

    @property
    def found(self) -> list[str]:
        return self.past.violations().get("moves", [])


@pytest.fixture
def moves() -> Moves:
    """A query that runs from 100 s on, and a drain from 101 s on."""
    made = Moves()
    made.start(100.0)
    made.drain(101.0)
    return made


def test_a_move_as_it_should_be(moves: Moves) -> None:
    moves.at(103.0, BatchCommitted(attempt(), DIRECTORY, 0))
    moves.at(103.0, QueryHeld(attempt(), HOLD))
    moves.at(108.0, AttemptEnded(attempt(), ExecutionState.CANCELED))
    moves.move()
    moves.past.history.add(110.0, "tm-2", QueryStarted(attempt(1), DIRECTORY, 0))
    assert not moves.found


def test_a_drain_that_is_taken_back(moves: Moves) -> None:
    moves.at(103.0, QueryHeld(attempt(), HOLD))
    moves.drain(103.1, is_draining=False)
    moves.at(103.2, QueryReleased(attempt(), HOLD, finishes=False))
    moves.at(120.0, BatchCommitted(attempt(), DIRECTORY, 0))
    moves.start(121.0, 1)
    assert not moves.found


def test_a_query_that_begins_where_one_drains(moves: Moves) -> None:
    moves.start(105.0, 1)
    assert moves.found == [f"{attempt(1)} begins on tm-1, which has drained for 4.0 s"]


@pytest.mark.parametrize(("taken_at", "is_late"), [(101.5, False), (104.0, True)])
def test_a_query_that_begins_where_its_attempt_was_taken_before_the_drain(
    moves: Moves, taken_at: float, *, is_late: bool
) -> None:
    """Its savepoint was restored meanwhile."""
    moves.at(taken_at, AttemptStarted(attempt(1), 1, is_exclusive=True))
    moves.start(105.0, 1)
    moves.at(106.0, QueryHeld(attempt(1), HOLD))
    moves.at(106.5, AttemptEnded(attempt(1), ExecutionState.CANCELED))
    assert moves.found == ([f"{attempt(1)} begins on tm-1, which has drained for 3.0 s"] if is_late else [])


def test_a_query_that_is_not_ended(moves: Moves) -> None:
    moves.start(101.5, 1, ends=True)
    for number, at in ((0, 104.0), (1, 109.0), (0, 109.0)):
        moves.at(at, BatchCommitted(attempt(number), DIRECTORY, 0))
    assert moves.found == [f"{attempt()} works on on tm-1, which has drained for 8.0 s"]


def test_a_frozen_task_manager_has_the_time_that_it_is_awake(moves: Moves) -> None:
    moves.at(102.0, Fault("is frozen"))
    moves.at(130.0, Fault("wakes"))
    moves.at(132.0, BatchCommitted(attempt(), DIRECTORY, 0))
    assert not moves.found
    moves.at(137.0, BatchCommitted(attempt(), DIRECTORY, 1))
    assert moves.found == [f"{attempt()} works on on tm-1, which has drained for 8.0 s"]


def test_a_query_that_stays_held(moves: Moves) -> None:
    moves.at(103.0, QueryHeld(attempt(), HOLD))
    moves.drain(103.1, is_draining=False)
    assert moves.found == [f"{attempt()} is held on tm-1 for a drain, for good"]
    moves.at(120.0, AttemptEnded(attempt(), None))
    assert moves.found == [f"{attempt()} was held on tm-1 for a drain, for 17.0 s"]


def test_a_query_that_finishes_by_a_drain(moves: Moves) -> None:
    moves.at(103.0, QueryHeld(attempt(), HOLD))
    moves.at(103.2, QueryReleased(attempt(), HOLD, finishes=True))
    assert moves.found == [f"{attempt()} finishes by {HOLD}"]


def test_a_move_that_is_counted(moves: Moves) -> None:
    moves.at(103.0, QueryHeld(attempt(), HOLD))
    moves.at(104.0, AttemptEnded(attempt(), ExecutionState.CANCELED))
    moves.move(backoff=1.0)
    assert moves.found == [f"a move of {attempt()} of job {JOB} counts as a restart"]


@pytest.mark.parametrize(("at", "is_early"), [(110.0, True), (121.5, False)])
def test_a_batch_that_is_cut_off_before_the_time_is_over(moves: Moves, at: float, *, is_early: bool) -> None:
    moves.at(at, AttemptEnded(attempt(), ExecutionState.CANCELED))
    moves.move()
    assert moves.found == ([f"{attempt()} {FOUND}"] if is_early else [])


def test_a_task_manager_that_is_stopped_is_drained_for_good(moves: Moves) -> None:
    moves.at(101.5, Fault(TERMINATED))
    moves.drain(102.0, is_draining=False)
    moves.start(105.0, 1)
    assert moves.found == [f"{attempt(1)} begins on tm-1, which has drained for 4.0 s"]


# --- in the simulation ------------------------------------------------------------------------------------------


@pytest.fixture
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def live(run: Path, *, is_taken_back: bool) -> World:
    """A query on one of two TaskManagers; its own is drained until it is held, or for good."""

    async def main(loop: SimulatedLoop) -> World:
        world = keep(World(loop, "moves", run, Shape(task_managers=2, slots=1)))
        world.start()
        assert await until(lambda: all(map(world.is_ready, world.names[1:])), within=10.0)
        graph = streaming_job("views")
        world.plan(PlannedJob(JobId("1" * 32), graph, {one.id: UserCode() for one in graph.vertices}, 0.0, 60.0))
        assert await until(lambda: where(world) != "", within=10.0)
        first = where(world)
        machine = world.machine(first)
        world.operator.drain_until(first, lambda: is_taken_back and machine.has_held_queries, 50.0)
        await asyncio.sleep(30.0)
        assert (where(world) == first) is is_taken_back
        assert await until(lambda: not world.unfinished, within=60.0)
        return world

    return on_virtual_time(main)


def where(world: World) -> str:
    return "".join(name for name in world.task_managers if world.machine(name).has_endless_queries)


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_query_moves_and_one_whose_drain_is_taken_back_goes_on(tmp_path: Path, *, is_taken_back: bool) -> None:
    world = live(tmp_path, is_taken_back=is_taken_back)
    happened = [record.what for record in world.history.records]
    held = [what for what in happened if isinstance(what, QueryHeld)]
    assert [what.hold for what in held] == [HOLD]
    words = [what for what in happened if isinstance(what, QueryReleased)]
    assert words == ([QueryReleased(held[0].attempt_id, HOLD, finishes=False)] if is_taken_back else [])
    assert len([what for what in happened if isinstance(what, QueryStarted)]) == (1 if is_taken_back else 2)
    assert not check(world.history, world.keys, ALWAYS)


@pytest.mark.usefixtures("_quiet")
def test_queries_are_drained_in_nearly_half_of_the_seeds_that_have_some(tmp_path: Path) -> None:
    async def main(loop: SimulatedLoop) -> list[bool]:
        world = World(loop, "drains", tmp_path, Shape())
        entropies = [world.entropy.child(f"{number}") for number in range(100)]
        assert not any(QueryDrains(world, one, drains=False, stops=True).happens for one in entropies)
        return [QueryDrains(world, one, drains=True, stops=True).happens for one in entropies]

    assert 30 < sum(on_virtual_time(main)) < 60
