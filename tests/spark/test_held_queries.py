"""A query ends between two batches, is held until its owner's word, and goes on or finishes by it (R61)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import QueryPhase, StreamLook
from runtime.jobgraph.streams import StreamTrigger, TriggerKind
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import RecordingListener, query
from tests.kit.spark.spark_box import SparkBox, wait_until

pytestmark = pytest.mark.timeout(600)

SLOW = 1.5
OFTEN = StreamTrigger(kind=TriggerKind.PROCESSING_TIME, interval="100 milliseconds")
SELDOM = StreamTrigger(kind=TriggerKind.PROCESSING_TIME, interval="1 hour")
_jobs = iter(range(1, 10_000))


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


@pytest.fixture
def job() -> JobId:
    return JobId(f"{next(_jobs):032x}")


def files(ctx: Any) -> Any:
    return ctx.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(ctx.params["in"])


def slowly(ctx: Any, batch: Any, batch_id: int) -> None:
    import time

    with Path(ctx.params["out"]).open("a") as out:
        out.write(f"begin {batch_id}\n")
        out.flush()
        time.sleep(ctx.params["seconds"])
        out.writelines(f"{batch_id} {row.id}\n" for row in sorted(batch.collect()))


def write(directory: Path, name: str, ids: range) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f".{name}").write_text("".join(json.dumps({"id": one}) + "\n" for one in ids))
    (directory / f".{name}").rename(directory / name)


class Held:
    """A query that runs in slot 0, and what is said of it."""

    def __init__(
        self, slots: SlotBox, job: JobId, tmp_path: Path, trigger: StreamTrigger, seconds: float = 0.0
    ) -> None:
        self.slots, self.source, self.out = slots, tmp_path / "in", tmp_path / "out"
        self.directory = slots.directory / "checkpoints" / job / "sink" / "0"
        self.params = {"in": str(self.source), "out": str(self.out), "seconds": seconds}
        self.work = slots.work(
            *query(files, slowly, trigger=trigger, is_batch_function=True), job_id=job, params=self.params
        )
        self.attempt_id: ExecutionAttemptId = self.work.task.attempt_id
        write(self.source, "1.json", range(3))
        self.listener: RecordingListener
        self.listener, self.running = slots.begin(self.work)

    def look(self, hold: str = "", *, drains: bool = False) -> StreamLook:
        return self.slots.do(self.slots.pool.queries.look(self.attempt_id, hold, drains=drains))

    def hold(self, hold: str, *, drains: bool = False) -> StreamLook:
        found: list[StreamLook] = []

        def is_held() -> bool:
            found.append(self.look(hold, drains=drains))
            return found[-1].phase is QueryPhase.HELD

        wait_until(is_held)
        return found[-1]

    def release(self, hold: str, *, finishes: bool) -> None:
        async def tell() -> None:
            self.slots.pool.queries.release(self.attempt_id, hold, finishes=finishes)

        self.slots.do(tell())

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []

    def batches(self, name: str) -> set[int]:
        return {int(one.name) for one in (self.directory / name).iterdir() if one.name.isdigit()}

    def end(self) -> Any:
        self.slots.end(self.running)
        report = self.listener.terminal
        assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
        return json.loads(report.value)


def test_the_batch_that_runs_is_committed_and_none_follows(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    held = Held(slots, job, tmp_path, OFTEN, seconds=SLOW)
    write(held.source, "2.json", range(5))
    wait_until(lambda: "begin 0" in held.lines())
    assert held.look("a").phase is QueryPhase.ENDING
    assert held.lines() == ["begin 0"]
    told = held.hold("a")
    assert told.position is not None
    assert told.position.batch_id == 0
    assert held.batches("commits") == held.batches("offsets") == {0}
    assert held.lines() == ["begin 0", "0 0", "0 1", "0 2"]
    assert held.look("a").phase is QueryPhase.HELD
    held.release("b", finishes=True)
    held.release("a", finishes=False)
    wait_until(lambda: "1 4" in held.lines())
    assert [one for one in held.lines() if one.startswith("0 ")] == ["0 0", "0 1", "0 2"]
    told = held.hold("c")
    assert (told.position is not None and told.position.batch_id, held.batches("offsets")) == (1, {0, 1})
    held.release("c", finishes=True)
    assert held.end() == {"batches": 2, "rows": 8, "last_batch": 1}


def test_a_query_that_waits_for_its_trigger_is_held_at_once(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    held = Held(slots, job, tmp_path, SELDOM)
    wait_until(lambda: ExecutionState.RUNNING in held.listener.states.value)
    write(held.source, "2.json", range(5))
    told = held.hold("a")
    assert told.position is not None
    assert told.position.batch_id == 0
    held.release("a", finishes=True)
    assert held.end() == {"batches": 1, "rows": 3, "last_batch": 0}


def test_a_drain_reads_what_is_there(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    held = Held(slots, job, tmp_path, SELDOM)
    wait_until(lambda: ExecutionState.RUNNING in held.listener.states.value)
    write(held.source, "2.json", range(5))
    write(held.source, "3.json", range(2))
    held.hold("a", drains=True)
    assert held.batches("commits") == {0, 1, 2}
    held.release("a", finishes=True)
    assert held.end() == {"batches": 3, "rows": 10, "last_batch": 2}


def test_a_held_attempt_is_cancelled(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    held = Held(slots, job, tmp_path, OFTEN)
    wait_until(lambda: ExecutionState.RUNNING in held.listener.states.value)
    held.hold("a")
    slots.do(slots.pool.cancel(0, held.attempt_id))
    slots.end(held.running)
    assert held.listener.terminal.state is ExecutionState.CANCELED


def test_a_query_of_a_stopped_job_does_not_begin(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    work = slots.work(*query(files, slowly, trigger=OFTEN, is_batch_function=True), job_id=job, params={"in": "/none"})
    work = replace(work, task=replace(work.task, is_stopped=True))
    listener, running = slots.begin(work)
    slots.end(running)
    assert listener.terminal.state is ExecutionState.FINISHED
    assert json.loads(listener.terminal.value) == {"batches": 0, "rows": 0, "last_batch": -1}


def test_a_query_that_goes_on_is_told_with_what_it_did_before(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    held = Held(slots, job, tmp_path, OFTEN)

    def told() -> tuple[int, int, int] | None:
        streams = [one for progress in held.listener.progresses.value for one in progress.streams]
        return (streams[-1].batch_id, streams[-1].batches, streams[-1].rows) if streams else None

    wait_until(lambda: told() == (0, 1, 3))
    run_id = held.listener.progresses.value[-1].streams[0].run_id
    held.hold("a")
    held.release("a", finishes=False)
    wait_until(lambda: held.listener.progresses.value[-1].streams[0].run_id != run_id)
    assert told() == (0, 1, 3), "a run that has read nothing yet"
    write(held.source, "2.json", range(5))
    wait_until(lambda: told() == (1, 2, 8))
    held.hold("b", drains=True)
    held.release("b", finishes=True)
    assert held.end() == {"batches": 2, "rows": 8, "last_batch": 1}
    assert told() == (1, 2, 8), "a drain that has found nothing"
