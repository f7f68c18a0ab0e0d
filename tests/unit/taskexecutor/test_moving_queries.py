"""The streaming queries of a TaskManager that is emptied: each ends between two batches, and is released."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.common.errors import UnavailableError
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.common.stream_progress import QueryPhase, StreamLook, StreamPosition
from runtime.taskexecutor.core.events import Released
from runtime.taskexecutor.moving_queries import MovingQueries
from runtime.taskexecutor.slots.stream_queries import StreamQueries

JOB = JobId("a" * 32)


def attempt(number: int) -> ExecutionAttemptId:
    return ExecutionAttemptId(JOB, VertexId(f"{number:032x}"), 0, 1, number)


class Queries(StreamQueries):
    """Queries without processes."""

    def __init__(self) -> None:
        super().__init__(list, stop_timeout=30.0)
        self.phases = {attempt(1): QueryPhase.ENDING, attempt(2): QueryPhase.ENDING}
        self.batches = {attempt(1): 4, attempt(2): -1}
        self.lost: set[ExecutionAttemptId] = set()
        self.looks: Watch[list[tuple[ExecutionAttemptId, str]]] = Watch([])
        self.words: list[tuple[ExecutionAttemptId, str, bool]] = []
        self.answers = Watch(True)

    def endless(self) -> list[ExecutionAttemptId]:
        return list(self.phases)

    async def look(self, attempt_id: ExecutionAttemptId, hold: str = "", *, drains: bool = False) -> StreamLook:
        assert not drains
        self.looks.set([*self.looks.value, (attempt_id, hold)])
        if attempt_id in self.lost:
            message = "Spark is away"
            raise UnavailableError(message)
        await self.answers.wait_until(bool)
        return StreamLook(self.phases[attempt_id], StreamPosition("query", self.batches[attempt_id]), "sink")

    def release(self, attempt_id: ExecutionAttemptId, hold: str, *, finishes: bool) -> None:
        self.words.append((attempt_id, hold, finishes))


class Bench:
    """Two queries of a TaskManager that drains."""

    def __init__(self, scope: ServiceScope) -> None:
        self.queries = Queries()
        self.held: set[ExecutionAttemptId] = set()
        self.released: Watch[list[Released]] = Watch([])
        running = Watch(2)
        self.moving = MovingQueries(self.queries, scope, self._post, self.held.__contains__, running, self._flush)

    def _post(self, event: Released) -> None:
        self.released.set([*self.released.value, event])

    async def _flush(self) -> None:
        """Nothing is on its way."""

    async def looked_at(self, number: int, hold: str) -> None:
        before = len(self.queries.looks.value)
        await self.queries.looks.wait_until(lambda looks: (attempt(number), hold) in looks[before:])


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    scope = ServiceScope("test")
    await scope.open()
    yield Bench(scope)
    await scope.close()


@pytest.mark.asyncio
async def test_each_is_released_when_it_has_ended(bench: Bench) -> None:
    bench.moving.begin("it drains")
    await bench.looked_at(2, "drain-1")
    assert bench.released.value == []
    bench.queries.phases[attempt(1)] = QueryPhase.HELD
    [first] = await bench.released.wait_until(bool)
    assert first == Released("it drains: its query has ended behind batch 4, and goes on elsewhere", attempt(1))
    bench.queries.phases[attempt(2)] = QueryPhase.HELD
    both = await bench.released.wait_until(lambda events: len(events) == 2)
    assert both[1].reason == "it drains: its query has ended before its first batch, and goes on elsewhere"
    assert bench.moving.is_moving(attempt(1))


@pytest.mark.asyncio
async def test_one_that_an_owner_holds_for_a_stop_is_left_to_it(bench: Bench) -> None:  # R61
    bench.held.add(attempt(1))
    bench.moving.begin("it drains")
    await bench.looked_at(2, "drain-1")
    await bench.looked_at(2, "drain-1")
    assert {one for one, _ in bench.queries.looks.value} == {attempt(2)}
    assert not bench.moving.is_moving(attempt(1))
    bench.held.clear()
    await bench.looked_at(1, "drain-1")
    assert bench.moving.is_moving(attempt(1))


@pytest.mark.asyncio
async def test_what_has_not_ended_goes_on_when_the_drain_is_taken_back(bench: Bench) -> None:
    bench.queries.phases[attempt(1)] = QueryPhase.HELD
    bench.moving.begin("it drains")
    await bench.released.wait_until(bool)
    await bench.looked_at(2, "drain-1")
    bench.moving.take_back()
    assert bench.queries.words == [(attempt(2), "drain-1", False)]
    assert not bench.moving.is_moving(attempt(2))
    bench.moving.begin("again")
    await bench.looked_at(2, "drain-2")


@pytest.mark.asyncio
async def test_a_look_on_its_way_when_the_drain_is_taken_back_is_followed_by_the_word(bench: Bench) -> None:
    """It may come behind that word, and have the query held again for a drain that is none."""
    bench.queries.answers.set(False)
    bench.moving.begin("it drains")
    await bench.looked_at(1, "drain-1")
    bench.moving.take_back()
    before = len(bench.queries.words)
    bench.queries.answers.set(True)
    for _ in range(100):
        if len(bench.queries.words) > before:
            break
        await asyncio.sleep(0.01)
    assert bench.queries.words[before:] == [(attempt(1), "drain-1", False)]


@pytest.mark.asyncio
async def test_a_query_that_cannot_be_asked_is_asked_again(bench: Bench) -> None:
    bench.queries.lost.add(attempt(1))
    bench.moving.begin("it drains")
    await bench.looked_at(1, "drain-1")
    await bench.looked_at(1, "drain-1")
    assert bench.released.value == []
