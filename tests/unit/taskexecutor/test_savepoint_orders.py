"""Savepoints at a TaskManager: queries are copied, held until a word, and what is none is removed (R60, R61)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.checkpoint.savepoint.ended_note import EndedNote, note_path
from runtime.checkpoint.savepoint.savepoint_files import read_savepoint
from runtime.common.errors import NotFoundError
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.common.stream_progress import NO_BATCH, QueryPhase, ScriptLook, ScriptQuery, StreamLook, StreamPosition
from runtime.gateways.job_master import (
    EndedQuery,
    EndSavepoint,
    FinishSavepoint,
    SavepointAnswered,
    SavepointFinished,
    TriggerSavepoint,
)
from runtime.taskexecutor.core.events import DoSavepoint, SavepointTold, TellOwner
from runtime.taskexecutor.savepoints import SavepointOrder, Savepoints
from runtime.taskexecutor.script_state import require_all
from runtime.taskexecutor.slots.stream_queries import QueryPlace, StreamQueries
from tests.kit.control_plane.task_messages import deploy
from tests.unit.taskexecutor.test_task_executor_core import Driver, only

JOB = JobId("a" * 32)
OPERATION = "b" * 32
SCRIPT = 9
"""The number of an attempt whose script starts queries."""


def attempt(number: int) -> ExecutionAttemptId:
    return ExecutionAttemptId(JOB, VertexId(f"{number:032x}"), 0, 1, number)


class Queries(StreamQueries):
    """Queries with directories of their own, without processes."""

    def __init__(self, root: Path) -> None:
        super().__init__(list, stop_timeout=30.0)
        self.root = root
        self.phase = QueryPhase.HELD
        self.batch = 1
        self.gone: set[ExecutionAttemptId] = set()
        self.released: list[tuple[ExecutionAttemptId, str, bool]] = []
        self.gate: asyncio.Event | None = None
        self.looked: Watch[int] = Watch(0)
        self.words: Watch[int] = Watch(0)
        self.of_script: tuple[ScriptQuery, ...] = ()
        for number in (1, 2):
            own = root / f"q{number}" / "0"
            for name in ("offsets", "commits"):
                (own / name).mkdir(parents=True)
                for batch in range(3):
                    (own / name / str(batch)).write_text("v1\n{}\n{}\n")
            (own / "metadata").write_text('{"id":"query"}')

    def place(self, attempt_id: ExecutionAttemptId) -> QueryPlace:
        if attempt_id in self.gone:
            raise NotFoundError("no query of it runs here")
        uid = f"q{attempt_id.counter}"
        return QueryPlace(self.root / uid / "0", uid, 0, 1)

    async def look(self, attempt_id: ExecutionAttemptId, hold: str = "", *, drains: bool = False) -> StreamLook:
        self.place(attempt_id)
        self.looked.set(self.looked.value + 1)
        if self.gate is not None:
            await self.gate.wait()
        phase = self.phase if hold else QueryPhase.RUNNING
        return StreamLook(phase, StreamPosition("query", self.batch), "ForeachBatchSink")

    def is_script(self, attempt_id: ExecutionAttemptId) -> bool:
        return attempt_id.counter == SCRIPT

    def state_directory(self, attempt_id: ExecutionAttemptId) -> Path:
        return self.root

    async def look_at_script(self, attempt_id: ExecutionAttemptId, hold: str = "") -> ScriptLook:
        return ScriptLook(self.phase if hold else QueryPhase.RUNNING, self.of_script)

    def release(self, attempt_id: ExecutionAttemptId, hold: str, *, finishes: bool) -> None:
        self.released.append((attempt_id, hold, finishes))
        self.words.set(len(self.released))


class Bench:
    """Savepoints over two queries, and what they say."""

    def __init__(self, root: Path, scope: ServiceScope) -> None:
        self.queries = Queries(root / "checkpoints")
        self.said: Watch[list[SavepointAnswered | SavepointFinished]] = Watch([])
        self.moving: set[ExecutionAttemptId] = set()
        self.savepoints = Savepoints(self.queries, scope, self._say, self.moving.__contains__)
        self.directory = root / "saved" / "savepoint-aaaaaa-000000000001"
        self.part = self.directory.with_name(f".{self.directory.name}.part")

    def _say(self, told: SavepointTold) -> None:
        self.said.set([*self.said.value, told.message])

    def trigger(self, *numbers: int, holds: bool = False) -> None:
        attempts = tuple(map(attempt, numbers))
        self.obey(TriggerSavepoint(JOB, 7, OPERATION, str(self.part), attempts, holds=holds))

    def finish(self, number: int = 5, queries: int = 2) -> None:
        paths = str(self.part), str(self.directory)
        self.obey(FinishSavepoint(JOB, 7, OPERATION, *paths, number, 1000, "job", queries))

    def end(self, *numbers: int, finishes: bool = False, discards: bool = False) -> None:
        attempts, part = tuple(map(attempt, numbers)), str(self.part) if discards else ""
        self.obey(EndSavepoint(JOB, 7, OPERATION, attempts, finishes=finishes, part=part))

    def obey(self, order: SavepointOrder) -> None:
        self.savepoints.obey(order)

    async def heard(self, count: int) -> list[SavepointAnswered | SavepointFinished]:
        return await self.said.wait_until(lambda said: len(said) >= count)


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    scope = ServiceScope("test")
    await scope.open()
    yield Bench(tmp_path, scope)
    await scope.close()


def leave_note(root: Path, left: EndedNote) -> None:
    note = Path(note_path(str(root), "q2", 0))
    note.parent.mkdir(parents=True)
    note.write_text(left.model_dump_json())


@pytest.mark.asyncio
async def test_a_query_that_has_ended_is_copied_as_of_its_last_batch(bench: Bench) -> None:
    """Its sink is told by what its process has left: nothing of it runs."""
    table = bench.part.parent / "table"
    log = table / "_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(3):
        (log / str(batch)).write_text("v1\n")
    root = bench.queries.root

    async def answer(number: int, committed: int) -> str:
        ended = EndedQuery(attempt(2), "q2", 1, committed_batch=committed)
        bench.obey(TriggerSavepoint(JOB, 7, OPERATION, str(bench.part), (attempt(1),), ended=(ended,)))
        said = [told for told in await bench.heard(2 * number) if isinstance(told, SavepointAnswered)]
        (last,) = [one for told in said[-2:] for one in told.answers if one.attempt_id == attempt(2)]
        return last.declined or f"batch {last.position and last.position.batch_id}"

    assert "q2' has finished" in await answer(1, 2), "nobody knows where it has written"
    leave_note(root, EndedNote(sink=f"FileSink[{table}]", sources=("FileStreamSource[file:/in]",), state_rows=3))
    assert "finished with batch 3" in await answer(2, 3)
    assert await answer(3, 2) == "batch 2"
    bench.finish()
    told = (await bench.heard(7))[-1]
    made = read_savepoint(bench.directory)
    size_bytes = sum(file.size for query in made.queries for file in query.snapshot.files)
    assert told == SavepointFinished(JOB, 7, OPERATION, "", size_bytes)
    assert size_bytes > 0
    saved = made.query("q2", 0)
    assert saved is not None
    assert (saved.snapshot.batch_id, saved.snapshot.sink_path, saved.state_rows) == (2, str(table), 3)
    assert "_sink/_spark_metadata/2" in {file.path for file in saved.snapshot.files}


@pytest.mark.asyncio
async def test_queries_are_copied_and_the_savepoint_is_made_visible_last(bench: Bench) -> None:
    bench.trigger(1, 2)
    answers = [one for told in await bench.heard(2) if isinstance(told, SavepointAnswered) for one in told.answers]
    assert {(one.attempt_id, one.position and one.position.batch_id, one.declined) for one in answers} == {
        (attempt(1), 1, ""),
        (attempt(2), 1, ""),
    }
    assert not bench.directory.exists()
    bench.finish()
    last = (await bench.heard(3))[-1]
    assert isinstance(last, SavepointFinished)
    assert last.failure == ""
    found = read_savepoint(bench.directory)
    assert (found.job_id, found.checkpoint_id, found.job_name) == (JOB, 5, "job")
    assert {(one.uid, one.snapshot.batch_id) for one in found.queries} == {("q1", 1), ("q2", 1)}
    assert sorted(one.name for one in bench.directory.iterdir()) == ["_metadata", "q1", "q2"]
    bench.finish()
    assert (await bench.heard(4))[-1] == last, "a repeat finds it"
    bench.finish(number=6)
    assert isinstance(other := (await bench.heard(5))[-1], SavepointFinished)
    assert "is another savepoint" in other.failure


@pytest.mark.asyncio
async def test_a_query_whose_copy_is_not_here_is_missed(bench: Bench) -> None:  # R60: its directory is not shared
    bench.trigger(1)
    await bench.heard(1)
    bench.finish()
    assert isinstance(last := (await bench.heard(2))[-1], SavepointFinished)
    assert "copies of 1 of 2 queries here: the directory of savepoints must be one that all" in last.failure
    assert not bench.directory.exists()


@pytest.mark.asyncio
async def test_what_is_not_held_yet_is_not_copied(bench: Bench) -> None:
    bench.queries.phase = QueryPhase.ENDING
    bench.trigger(1, holds=True)
    await asyncio.sleep(0.2)
    assert not bench.part.exists()
    bench.queries.phase = QueryPhase.HELD
    await bench.heard(1)
    assert (bench.part / "q1" / "0" / "commits" / "1").exists()
    bench.end(1, finishes=True)
    assert bench.queries.released == [(attempt(1), OPERATION, True)]


@pytest.mark.asyncio
async def test_a_query_that_moves_is_not_held(bench: Bench) -> None:  # R61: the stop fails, and the query goes on
    bench.queries.phase = QueryPhase.ENDING
    bench.trigger(1, holds=True)
    bench.moving.add(attempt(1))
    [told] = await bench.heard(1)
    assert isinstance(told, SavepointAnswered)
    assert told.answers[0].declined == "q1 moves: this TaskManager is drained, or its job is rescaled"


@pytest.mark.asyncio
@pytest.mark.parametrize("place", ["", "q1/0", "../" + "c" * 32, "../" + "c" * 32 + "/deep", "../link"])
async def test_a_savepoint_does_not_lie_where_state_is_deleted(bench: Bench, place: str) -> None:
    """R59, R61: the directory of a job goes when it has ended, and with it what its own stop has left there."""
    state = bench.queries.root
    (state.parent / "link").symlink_to(state)
    bench.part = Path(f"{state}/{place}", ".savepoint-a.part")
    bench.trigger(1, holds=True)
    (told,) = await bench.heard(1)
    assert isinstance(told, SavepointAnswered)
    assert "which is deleted when that job has ended" in told.answers[0].declined
    assert not bench.part.exists()


@pytest.mark.asyncio
async def test_what_cannot_be_copied_is_declined(bench: Bench) -> None:
    bench.queries.batch = NO_BATCH
    bench.queries.gone = {attempt(2)}
    bench.trigger(1, 2)
    told = await bench.heard(2)
    declined = {
        one.attempt_id: one.declined for each in told if isinstance(each, SavepointAnswered) for one in each.answers
    }
    assert "has not committed a batch yet" in declined[attempt(1)]
    assert "no query of it runs here" in declined[attempt(2)]
    bench.finish()
    last = (await bench.heard(3))[-1]
    assert isinstance(last, SavepointFinished)
    assert "cannot be written" in last.failure


@pytest.mark.asyncio
async def test_what_was_copied_for_nothing_goes(bench: Bench) -> None:
    bench.trigger(1)
    await bench.heard(1)
    foreign = bench.part / "q9" / "0"
    foreign.mkdir(parents=True)
    bench.end(1, discards=True)
    saved = bench.part.parent
    for _ in range(200):
        if not list(saved.iterdir()):
            break
        await asyncio.sleep(0.01)
    assert not list(saved.iterdir()), "what others have copied goes with it: the operation is over for all"
    assert bench.queries.released == [(attempt(1), OPERATION, False)]


@pytest.mark.parametrize("below", ["file", "file/deeper", "x" * 300])
@pytest.mark.asyncio
async def test_a_directory_that_cannot_be_ends_nothing_but_the_savepoint(
    bench: Bench, tmp_path: Path, below: str
) -> None:  # R52
    (tmp_path / "file").write_text("x")
    bench.directory = tmp_path / below / bench.directory.name
    bench.part = tmp_path / below / bench.part.name
    bench.trigger(1)
    (told,) = await bench.heard(1)
    assert isinstance(told, SavepointAnswered)
    assert told.answers[0].declined
    bench.end(1, discards=True)
    await asyncio.sleep(0.1)
    bench.part = tmp_path / "saved" / ".savepoint-aaaaaa-000000000001.part"
    bench.trigger(2)
    await bench.heard(2)
    assert (bench.part / "q2" / "0" / "commits" / "1").exists(), "the TaskManager goes on"


@pytest.mark.asyncio
async def test_whatever_a_task_has_written_into_its_directory_ends_the_copy_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:  # R52
    def broken(*_: object) -> None:
        raise KeyError("sstFiles")

    monkeypatch.setattr("runtime.taskexecutor.savepoints.copy_query", broken)
    bench.trigger(1)
    (told,) = await bench.heard(1)
    assert isinstance(told, SavepointAnswered)
    assert "cannot be read: 'sstFiles'" in told.answers[0].declined


@pytest.mark.asyncio
async def test_an_operation_that_is_over_says_nothing_more(bench: Bench) -> None:
    bench.queries.phase = QueryPhase.ENDING
    bench.trigger(1, holds=True)
    await asyncio.sleep(0.05)
    bench.end(1)
    bench.queries.phase = QueryPhase.HELD
    await asyncio.sleep(0.2)
    assert bench.said.value == []
    assert not bench.part.exists()


def test_a_census_names_what_is_held() -> None:
    driver = Driver()
    driver.activate()
    driver.says(deploy(1, 0))
    running = next(slot.running for slot in driver.core.slots if slot.running is not None)
    job_id = running.job_id

    def holds() -> list[str]:
        found = driver.core.ledger.unacknowledged(job_id, {})
        return [one.hold for one in found]

    order = TriggerSavepoint(job_id, 1, OPERATION, "/s/.x.part", (running,), holds=True)
    assert only(driver.says(order), DoSavepoint) == [DoSavepoint(order)]
    assert holds() == [OPERATION]
    end = EndSavepoint(job_id, 1, OPERATION, (running,))
    assert only(driver.says(end), DoSavepoint) == [DoSavepoint(end)]
    assert holds() == [""]
    told = SavepointAnswered(job_id, 1, OPERATION, ())
    assert [one.message for one in only(driver.handle(SavepointTold(told)), TellOwner)] == [told]
    stale = SavepointAnswered(job_id, 0, OPERATION, ())
    assert driver.handle(SavepointTold(stale)) == []


@pytest.mark.asyncio
async def test_the_word_goes_behind_the_looks_on_their_way(bench: Bench) -> None:  # R61: they would hold it again
    bench.queries.phase = QueryPhase.ENDING
    bench.queries.gate = asyncio.Event()
    bench.trigger(1, holds=True)
    await bench.queries.looked.wait_until(bool)
    bench.end(1)
    await asyncio.sleep(0)
    assert bench.queries.released == [], "a look is on its way to the query"
    bench.queries.gate.set()
    await bench.queries.words.wait_until(bool)
    assert bench.queries.released == [(attempt(1), OPERATION, False)]
    assert bench.queries.looked.value == 1, "nobody looks any more"


def queries_of_script(**batches: int) -> tuple[ScriptQuery, ...]:
    return tuple(ScriptQuery(name, StreamPosition("q", batch, name=name), "Sink") for name, batch in batches.items())


@pytest.mark.asyncio
async def test_a_savepoint_of_a_script_has_each_query_by_its_name(bench: Bench) -> None:
    bench.queries.of_script = queries_of_script(q1=1, q2=2)
    bench.trigger(SCRIPT, holds=True)
    (told,) = await bench.heard(1)
    assert isinstance(told, SavepointAnswered)
    (answer,) = told.answers
    assert [(one.name, one.batch_id) for one in answer.queries] == [("q1", 1), ("q2", 2)]
    bench.finish()
    assert isinstance(last := (await bench.heard(2))[-1], SavepointFinished)
    assert last.failure == ""
    found = read_savepoint(bench.directory)
    assert {(one.uid, one.subtask_index, one.snapshot.batch_id) for one in found.queries} == {
        ("q1", 0, 1),
        ("q2", 0, 2),
    }


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ({}, "has started no query"),
        ({"q1": 1}, "has not started 'q2' in this attempt"),
        ({"q1": 1, "q2": NO_BATCH}, "'q2' of the script has not committed a batch yet"),
    ],
)
async def test_a_savepoint_of_a_script_without_a_query_that_has_state_is_none(
    bench: Bench, batches: dict[str, int], words: str
) -> None:
    bench.queries.of_script = queries_of_script(**batches)
    bench.trigger(SCRIPT)
    (told,) = await bench.heard(1)
    assert isinstance(told, SavepointAnswered)
    assert words in told.answers[0].declined


def test_a_script_that_has_not_started_what_it_was_restored_with_says_what_to_do(tmp_path: Path) -> None:
    look = ScriptLook(QueryPhase.RUNNING, queries_of_script(q1=1), ("q2",))
    with pytest.raises(NotFoundError, match=r"has not started 'q2' of the savepoint.*--allow-non-restored-state"):
        require_all(tmp_path, look)
