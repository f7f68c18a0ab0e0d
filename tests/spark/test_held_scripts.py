"""All queries of a script are held for a stop, and go on or end by the owner's word, whatever the script does (R61)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.checkpoint.savepoint.savepoint_files import finish_savepoint, read_savepoint
from runtime.checkpoint.savepoint.savepoint_form import Savepoint, SavepointQuery
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import QueryPhase, ScriptLook, StreamLook
from runtime.gateways.job_master import CheckpointAnswer
from runtime.jobgraph.savepoints import SavepointRestoreSettings, dump_query_settings
from runtime.taskexecutor.savepoints import _copied
from runtime.taskexecutor.slots.stream_positions import positions_of
from runtime.taskexecutor.slots.stream_queries import QueryPlace
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.spark_box import SparkBox, wait_until
from tests.spark.test_streaming_scripts import BEGIN, put, streaming

pytestmark = pytest.mark.timeout(600)

TWO = (
    BEGIN
    + """
from pathlib import Path

events = Path(f"{out}-events")

def tell(line):
    with events.open("a") as file:
        file.write(f"{line}\\n")

table = orders.writeStream.format("parquet").queryName("table").trigger(processingTime="100 milliseconds").start(out)
each = orders.writeStream.queryName("each").foreachBatch(lambda batch, number: tell(f"each {number} {batch.count()}"))
each = each.start()
spark.readStream.format("rate").load().writeStream.format("noop").start()
tell("started")
"""
)
AWAITS = TWO + 'table.awaitTermination()\ntell("returned")\n'
AWAITS_ANY = TWO + 'spark.streams.awaitAnyTermination()\ntell("returned")\n'
POLLS = TWO + 'while table.isActive:\n    time.sleep(0.1)\ntell("returned")\n'
MOVES = (
    BEGIN.replace("orders =", 'spark.conf.set("spark.sql.streaming.checkpointLocation", f"{out}-states")\norders =')
    + """
table = orders.writeStream.format("parquet").queryName("table").start(out)
spark.conf.unset("spark.sql.streaming.checkpointLocation")
orders.writeStream.format("csv").queryName("third").start(f"{out}-third")
table.awaitTermination()
"""
)
IN_A_BATCH = (
    TWO
    + """
def waits(batch, number):
    tell(f"begins {number} {batch.count()}")
    while not Path(f"{out}-goes").exists():
        time.sleep(0.1)

orders.writeStream.queryName("slow").foreachBatch(waits).start()
table.awaitTermination()
"""
)
LISTS = TWO + 'while spark.streams.active:\n    time.sleep(0.1)\ntell("returned")\n'
AWAITS_LISTED = (
    TWO
    + "for query in spark.streams.active:\n    query.awaitTermination()\n"
    + 'assert spark.streams.get(table.id) is None\ntell("returned")\n'
)
AWAITS_FOUND = TWO + 'spark.streams.get(table.id).awaitTermination()\ntell("returned")\n'
ENDS_DURING_A_STOP = TWO + 'import os\nwhile not os.path.exists(f"{out}-ends"):\n    time.sleep(0.1)\ntell("ends")\n'
SLEEPS = TWO + "time.sleep(600)\n"
RESTARTS = (
    TWO
    + """
while True:
    table.awaitTermination()
    tell("again")
    try:
        table = orders.writeStream.format("parquet").queryName("table").start(out)
    except Exception as error:
        tell(f"refused {error}")
    tell("started again")
"""
)
LATE = (
    TWO
    + 'orders.writeStream.format("noop").queryName("late").start()\norders.writeStream.queryName("third")'
    + ('.format("csv").start(f"{out}-third")\ntell("third")\ntime.sleep(600)\n')
)
TABLE = (
    BEGIN
    + """
table = orders.writeStream.format("parquet").queryName("table").trigger(availableNow=True).start(out)
table.awaitTermination()
"""
)
FAILS = (
    BEGIN
    + """
from pathlib import Path

def fails(batch, number):
    Path(f"{out}-begun").touch()
    while not Path(f"{out}-go").exists():
        time.sleep(0.1)
    raise ValueError("no such customer")

orders.writeStream.queryName("each").foreachBatch(fails).start()
time.sleep(600)
"""
)
EACH = (
    BEGIN
    + 'orders.writeStream.queryName("each").foreachBatch(lambda batch, _: batch.count()).start()\ntime.sleep(600)\n'
)
EACH_OF_RATES = EACH.replace("orders.write", 'spark.readStream.format("rate").load().write')
SAVED = "savepoint-700000-000000000001"
OTHER = TABLE.replace('"table"', '"other"').replace("start(out)", 'start(f"{out}-other")')


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


_jobs = iter(range(1, 10_000))


class Script:
    """It runs in slot 0, with one file of three rows."""

    def __init__(self, slots: SlotBox, tmp_path: Path, text: str, savepoint: bytes = b"") -> None:
        self.slots, self.landing, self.out = slots, tmp_path / "landing", tmp_path / "out"
        if not self.landing.exists():
            put(self.landing, "1.json", range(3))
        self.job = JobId(f"7{next(_jobs):031x}")
        self.state = slots.directory / "checkpoints" / self.job
        self.work = slots.work(streaming(text, self.landing, self.out), job_id=self.job)
        if savepoint:
            self.work = replace(self.work, job=replace(self.work.job, savepoint=savepoint))
        self.attempt_id: ExecutionAttemptId = self.work.task.attempt_id
        self.listener, self.running = slots.begin(self.work)

    def events(self) -> list[str]:
        events = Path(f"{self.out}-events")
        return events.read_text().splitlines() if events.exists() else []

    def look(self, hold: str = "") -> ScriptLook:
        return self.slots.do(self.slots.pool.queries.look_at_script(self.attempt_id, hold))

    def hold(self, hold: str) -> ScriptLook:
        wait_until(lambda: self.look(hold).phase is QueryPhase.HELD)
        return self.look(hold)

    def release(self, hold: str, *, finishes: bool) -> None:
        async def tell() -> None:
            self.slots.pool.queries.release(self.attempt_id, hold, finishes=finishes)

        self.slots.do(tell())

    def positions(self) -> CheckpointAnswer:
        async def ask() -> tuple[CheckpointAnswer, ...]:
            return await positions_of([self.attempt_id], self.slots.pool.queries._running())

        return self.slots.do(ask())[0]

    def end(self) -> str:
        self.slots.end(self.running)
        report = self.listener.terminal
        assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
        return self.logs()

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(Path(self.work.log_directory).rglob("*")) if path.is_file())

    def has_committed(self, name: str, batch: int) -> bool:
        return (self.state / name / "0" / "commits" / str(batch)).is_file()


def test_a_query_that_fails_while_it_is_being_held_fails_the_attempt(slots: SlotBox, tmp_path: Path) -> None:
    script = Script(slots, tmp_path, FAILS)
    wait_until(Path(f"{script.out}-begun").exists)
    assert script.look("a").phase is QueryPhase.ENDING
    Path(f"{script.out}-go").touch()
    slots.end(script.running)
    report = script.listener.terminal
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert "no such customer" in report.failure.stack_trace


@pytest.mark.parametrize(
    "text",
    [AWAITS, AWAITS_ANY, POLLS, LISTS, AWAITS_LISTED, AWAITS_FOUND, SLEEPS],
    ids=["awaits", "awaits any", "polls", "lists", "awaits what is listed", "awaits what is found", "sleeps"],
)
def test_a_script_goes_on_or_ends_by_the_word(slots: SlotBox, tmp_path: Path, text: str) -> None:
    script = Script(slots, tmp_path, text)
    wait_until(lambda: script.has_committed("table", 0) and "each 0 3" in script.events())
    held = script.hold("a")
    assert [(one.name, one.position.batch_id) for one in held.queries] == [("table", 0), ("each", 0)]
    assert "FileSink" in held.queries[0].sink
    put(script.landing, "2.json", range(3, 5))
    script.release("other", finishes=True)
    script.release("a", finishes=False)
    wait_until(lambda: script.has_committed("table", 1) and "each 1 2" in script.events())
    script.hold("b")
    put(script.landing, "3.json", range(5, 6))
    script.release("b", finishes=True)
    logs = script.end()
    assert "was stopped with a savepoint" in logs
    assert ("returned" in script.events()) == (text != SLEEPS), script.events()
    assert "each 2 1" not in script.events(), "no batch follows on a stop"
    assert not script.has_committed("table", 2)


def test_a_script_cannot_start_queries_after_a_stop(slots: SlotBox, tmp_path: Path) -> None:
    script = Script(slots, tmp_path, RESTARTS)
    wait_until(lambda: script.has_committed("table", 0))
    script.hold("a")
    put(script.landing, "2.json", range(3, 5))
    script.release("a", finishes=True)
    script.end()
    assert script.events()[-1] == "again"
    assert not script.has_committed("table", 1)


def test_a_query_goes_on_in_its_directory_when_the_script_has_changed_the_conf(slots: SlotBox, tmp_path: Path) -> None:
    script = Script(slots, tmp_path, MOVES)
    states = tmp_path / "out-states" / "table" / "commits"
    wait_until(lambda: (states / "0").is_file() and script.has_committed("third", 0))
    script.hold("a")
    put(script.landing, "2.json", range(3, 5))
    script.release("a", finishes=False)
    wait_until(lambda: script.has_committed("third", 1) and (states / "1").is_file())
    script.hold("b")
    script.release("b", finishes=True)
    script.end()


def test_a_stop_that_fails_while_a_query_is_in_its_batch_lets_all_go_on(slots: SlotBox, tmp_path: Path) -> None:
    script = Script(slots, tmp_path, IN_A_BATCH)
    wait_until(lambda: script.has_committed("table", 0) and "begins 0 3" in script.events())
    assert script.look("a").phase is QueryPhase.ENDING
    script.release("a", finishes=False)
    time.sleep(2)
    assert script.look("b").phase is QueryPhase.ENDING, "the next stop holds what the first one has ended"
    script.release("b", finishes=False)
    put(script.landing, "2.json", range(3, 5))
    Path(f"{script.out}-goes").touch()
    wait_until(lambda: script.has_committed("table", 1) and script.has_committed("slow", 1))
    script.hold("c")
    script.release("c", finishes=True)
    script.end()


def test_a_script_that_ends_during_a_stop_that_fails_fails(slots: SlotBox, tmp_path: Path) -> None:
    script = Script(slots, tmp_path, ENDS_DURING_A_STOP)
    wait_until(lambda: script.has_committed("table", 0))
    script.hold("a")
    Path(f"{script.out}-ends").touch()
    wait_until(lambda: "ends" in script.events())
    time.sleep(0.5)
    script.release("a", finishes=False)
    slots.end(script.running)
    report = script.listener.terminal
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert "has ended while its queries were held for a stop" in report.failure.message
    assert report.failure.is_recoverable, "it runs again, and has its state"


def test_a_query_that_starts_while_others_are_held_waits_for_the_word(slots: SlotBox, tmp_path: Path) -> None:
    script = Script(slots, tmp_path, LATE)
    script.hold("a")
    assert not script.has_committed("third", 0)
    assert "third" not in script.events()
    script.release("a", finishes=False)
    wait_until(lambda: script.has_committed("third", 0))
    script.hold("b")
    script.release("b", finishes=True)
    script.end()


def test_positions_are_of_the_queries_that_have_state(slots: SlotBox, tmp_path: Path) -> None:
    script = Script(slots, tmp_path, SLEEPS)
    wait_until(lambda: script.has_committed("table", 0) and script.has_committed("each", 0))
    answer = script.positions()
    assert (answer.position, answer.declined) == (None, "")
    assert [(one.name, one.batch_id) for one in answer.queries] == [("table", 0), ("each", 0)]
    script.hold("a")
    script.release("a", finishes=True)
    script.end()


def test_queries_go_on_from_a_savepoint_by_their_names(slots: SlotBox, tmp_path: Path) -> None:
    first = Script(slots, tmp_path, SLEEPS)
    wait_until(lambda: first.has_committed("table", 0) and first.has_committed("each", 0))
    held = first.hold("a")
    saved = tmp_path / SAVED
    save(first, held, saved)
    for one in read_savepoint(saved).queries:
        assert [str(first.landing) in source for source in one.sources] == [True], one.sources
    first.release("a", finishes=True)
    first.end()
    put(first.landing, "2.json", range(3, 5))
    second = Script(slots, tmp_path, SLEEPS, savepoint=settings(saved))
    wait_until(lambda: second.has_committed("table", 1) and "each 1 2" in second.events())
    assert second.events().count("each 0 3") == 1
    assert not second.look().awaited
    second.hold("a")
    second.release("a", finishes=True)
    assert "goes on behind batch 0" in second.end()


def test_a_query_that_reads_others_than_in_its_savepoint_says_so(slots: SlotBox, tmp_path: Path) -> None:
    first = Script(slots, tmp_path, EACH)
    wait_until(lambda: first.has_committed("each", 0))
    held, saved = first.hold("a"), tmp_path / SAVED
    save(first, held, saved)
    first.release("a", finishes=True)
    first.end()
    second = Script(slots, tmp_path, EACH_OF_RATES, savepoint=settings(saved))
    slots.end(second.running)
    assert second.listener.terminal.state is ExecutionState.FAILED, "Spark cannot read the offsets"
    said = "has failed before Spark knew what it reads. In its savepoint it has read FileStreamSource[file:"
    assert said in second.logs(), "its source cannot read the state of the other one"


@pytest.mark.parametrize("is_allowed", [False, True])
def test_what_a_script_leaves_in_the_savepoint_is_not_lost_silently(
    slots: SlotBox, tmp_path: Path, is_allowed: bool
) -> None:
    first = Script(slots, tmp_path, SLEEPS)
    wait_until(lambda: first.has_committed("table", 0) and first.has_committed("each", 0))
    held, saved = first.hold("a"), tmp_path / SAVED
    save(first, held, saved)
    first.release("a", finishes=True)
    first.end()
    text = TABLE + 'time.sleep(1)\nprint("done")\n'
    second = Script(slots, tmp_path, text, savepoint=settings(saved, allow_non_restored_state=is_allowed))
    slots.end(second.running)
    report = second.listener.terminal
    assert report.state is (ExecutionState.FINISHED if is_allowed else ExecutionState.FAILED), report.failure
    if report.failure is not None:
        assert "has not started 'each' of savepoint" in report.failure.message
        assert not report.failure.is_recoverable
    other = Script(slots, tmp_path, OTHER, savepoint=settings(saved, allow_non_restored_state=is_allowed))
    slots.end(other.running)
    report = other.listener.terminal
    assert report.state is (ExecutionState.FINISHED if is_allowed else ExecutionState.FAILED), report.failure
    if report.failure is not None:
        assert "'other' of the script is not in savepoint" in report.failure.message
        assert "'each', 'table'" in report.failure.message


def save(script: Script, look: ScriptLook, target: Path) -> None:
    """A savepoint of what is held, as a TaskManager makes it."""
    queries, part = [], target.with_name(f".{target.name}.part")
    for one in look.queries:
        place = QueryPlace(script.state / one.name / "0", one.name, 0, 1)
        note = target.parent / f"{one.name}.json"
        shown = StreamLook(look.phase, one.position, one.sink, one.sources)
        _copied(place, shown, one.position, part / one.name / "0", note)
        queries.append(SavepointQuery.model_validate_json(note.read_bytes()))
    form = Savepoint(
        job_id=script.job,
        job_name="orders",
        checkpoint_id=1,
        trigger_millis=1,
        software_version="0",
        spark_version="4",
        queries=tuple(queries),
    )
    finish_savepoint(part, form)


def settings(saved: Path, **more: Any) -> bytes:
    return dump_query_settings(SavepointRestoreSettings(path=str(saved), **more), {}, {})
