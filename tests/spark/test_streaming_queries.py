"""Streaming queries in slots: they go on where their directory says, end with their attempt, and say what they do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import Fault
from runtime.jobgraph.streams import StreamTrigger, TriggerKind
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import RecordingListener, query
from tests.kit.spark.spark_box import SparkBox, wait_until

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

NOW = StreamTrigger(kind=TriggerKind.AVAILABLE_NOW)
OFTEN = StreamTrigger(kind=TriggerKind.PROCESSING_TIME, interval="100 milliseconds")


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


_jobs = iter(range(1, 10_000))


@pytest.fixture
def job() -> JobId:
    return JobId(f"{next(_jobs):032x}")


def files(ctx: Any) -> Any:
    return ctx.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(ctx.params["in"])


def rates(ctx: Any) -> Any:
    return ctx.spark.readStream.format("rate").option("rowsPerSecond", 50).load()


def thirds(ctx: Any, df: Any) -> Any:
    return df.groupBy((df.id % 3).alias("third")).count()


def table(ctx: Any, df: Any) -> Any:
    return df.writeStream.format("parquet").option("path", ctx.params["out"])


def read_back(ctx: Any) -> Any:
    return ctx.spark.read.parquet(ctx.params["out"]).count()


def rows_of(ctx: Any, batch: Any, batch_id: int) -> None:
    with Path(ctx.params["out"]).open("a") as out:
        out.writelines(f"{batch_id} {list(row)}\n" for row in sorted(batch.collect()))


def raising(ctx: Any, batch: Any, batch_id: int) -> None:
    prices: dict[str, float] = {}
    prices["apple"]


def write(directory: Path, name: str, ids: range) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f".{name}").write_text("".join(json.dumps({"id": one}) + "\n" for one in ids))
    (directory / f".{name}").rename(directory / name)


def run(slots: SlotBox, work: Any) -> tuple[RecordingListener, Any]:
    listener, running = slots.begin(work)
    slots.end(running)
    report = listener.terminal
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    return listener, json.loads(report.value)


def test_a_query_goes_on_where_its_directory_says(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    parts = query(files, table, trigger=NOW)
    write(tmp_path / "in", "1.json", range(10))
    write(tmp_path / "in", "2.json", range(5))

    def again() -> Any:
        return run(slots, slots.work(*parts, job_id=job, params=params))[1]

    assert again() == {"batches": 2, "rows": 15, "last_batch": 1}
    assert again() == {"batches": 0, "rows": 0, "last_batch": -1}
    write(tmp_path / "in", "3.json", range(7))
    assert again() == {"batches": 1, "rows": 7, "last_batch": 2}
    assert slots.value(slots.work(read_back, params=params)) == 22
    assert (slots.directory / "checkpoints" / job / "sink" / "0" / "commits" / "2").exists()


def test_a_query_does_not_begin_anew_in_the_table_of_another_job(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    """Spark's sink takes batches whose numbers its log has for written: their rows would be dropped without a word."""
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    parts = query(files, table, trigger=NOW)
    for number in range(12):  # a compact entry, and some behind it
        write(tmp_path / "in", f"{number}.json", range(2))
    run(slots, slots.work(*parts, job_id=job, params=params))
    listener, running = slots.begin(slots.work(*parts, job_id=JobId(f"7{next(_jobs):031x}"), params=params))
    slots.end(running)
    failure = listener.terminal.failure
    assert failure is not None
    assert f"{params['out']} has batches up to 11 of an earlier query in its log" in failure.message
    assert (failure.at_fault, failure.is_recoverable) == (Fault.USER, False)
    assert slots.value(slots.work(read_back, params=params)) == 24
    params["out"] = str(tmp_path / "elsewhere")
    run(slots, slots.work(*parts, job_id=JobId(f"7{next(_jobs):031x}"), params=params))


def test_a_query_does_not_begin_anew_where_its_batches_are_not(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    work = slots.work(*query(files, table, trigger=NOW), job_id=job, params=params)
    write(tmp_path / "in", "1.json", range(3))

    def refused(batch: int) -> Any:
        again = slots.work(*query(files, table, trigger=NOW), job_id=job, params=params)
        listener, running = slots.begin(replace(again, task=replace(again.task, committed_batch=batch)))
        slots.end(running)
        return listener.terminal.failure

    nothing = refused(0)
    assert not (tmp_path / "out").exists()
    own = slots.directory / "checkpoints" / job / "sink" / "0"
    assert f"has committed batch 0, and its directory {own} has no committed batch here" in nothing.message
    assert "execution.checkpointing.dir must be a directory that all TaskManagers reach" in nothing.message
    assert (nothing.at_fault, nothing.is_recoverable, nothing.is_restart_vain) == (Fault.SYSTEM, True, False)
    assert run(slots, work)[1] == {"batches": 1, "rows": 3, "last_batch": 0}
    assert "has batch 0 at the latest" in refused(1).message
    assert refused(0) is None, "it goes on"


def test_the_next_job_goes_on_under_the_name_of_the_one_before(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    parts = query(files, rows_of, trigger=NOW, is_batch_function=True)
    write(tmp_path / "in", "1.json", range(10))
    named: dict[str, Any] = {"params": params, "checkpoint_name": f"orders of {job}"}
    assert run(slots, slots.work(*parts, job_id=job, **named))[1] == {"batches": 1, "rows": 10, "last_batch": 0}
    write(tmp_path / "in", "2.json", range(5))
    other = JobId(f"{next(_jobs):032x}")
    assert run(slots, slots.work(*parts, job_id=other, **named))[1] == {"batches": 1, "rows": 5, "last_batch": 1}
    own = slots.directory / "checkpoints" / "named" / "default" / f"orders of {job}"
    assert sorted(one.name for one in (own / "sink").iterdir()) == ["0", "_parallelism=1"]
    assert not (slots.directory / "checkpoints" / job).exists()


def test_a_trigger_with_an_end_is_the_sinks(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    def ends(ctx: Any, df: Any) -> Any:
        return df.writeStream.format("noop").trigger(availableNow=True)

    write(tmp_path / "in", "1.json", range(3))
    listener, running = slots.begin(slots.work(*query(files, ends), job_id=job, params={"in": str(tmp_path / "in")}))
    slots.end(running)
    failure = listener.terminal.failure
    assert failure is not None
    assert not failure.is_recoverable, failure
    assert "to AvailableNowTrigger, and the job has to know" in failure.message


def test_state_of_another_parallelism_is_not_taken_for_that_of_this(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    parts = query(files, rows_of, trigger=NOW, is_batch_function=True)
    write(tmp_path / "in", "1.json", range(10))
    named: dict[str, Any] = {"params": params, "checkpoint_name": f"orders {job}", "job_id": job}
    for subtask in range(2):
        run(slots, slots.work(*parts, **named, subtask=subtask, parallelism=2))
    listener, running = slots.begin(slots.work(*parts, **named, parallelism=1))
    slots.end(running)
    failure = listener.terminal.failure
    assert failure is not None
    assert not failure.is_recoverable
    assert "is of 2 subtasks, and the query has 1: give it parallelism 2, or the job another" in failure.message
    assert len((tmp_path / "out").read_text().splitlines()) == 20


def test_each_subtask_and_each_uid_has_a_directory(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    write(tmp_path / "in", "1.json", range(3))
    for subtask, uid in ((0, "a"), (1, "a"), (0, "b")):
        parts = query(files, rows_of, uid=uid, trigger=NOW, is_batch_function=True)
        work = slots.work(*parts, job_id=job, params=params, subtask=subtask, parallelism=2)
        assert run(slots, work)[1] == {"batches": 1, "rows": 3, "last_batch": 0}
    own = slots.directory / "checkpoints" / job
    assert {str(one.parent.relative_to(own)) for one in own.rglob("commits")} == {"a/0", "a/1", "b/0"}


def test_state_is_kept_between_attempts(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    parts = query(files, thirds, rows_of, trigger=NOW, is_batch_function=True, output_mode="complete")
    write(tmp_path / "in", "1.json", range(3))
    run(slots, slots.work(*parts, job_id=job, params=params))
    write(tmp_path / "in", "2.json", range(3))
    run(slots, slots.work(*parts, job_id=job, params=params))
    assert (tmp_path / "out").read_text().splitlines() == [
        *(f"0 [{third}, 1]" for third in range(3)),
        *(f"1 [{third}, 2]" for third in range(3)),
    ]


def test_a_query_runs_from_its_first_trigger_on(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    parts = query(rates, rows_of, trigger=OFTEN, is_batch_function=True)
    listener, running = slots.begin(slots.work(*parts, job_id=job, params={"out": str(tmp_path / "out")}))
    assert [one.value for one in listener.states.value] == ["INITIALIZING"]
    wait_until(lambda: len(listener.states.value) > 1)
    assert [one.value for one in listener.states.value] == ["INITIALIZING", "RUNNING"]
    wait_until(lambda: any(stream.batches > 3 for one in listener.progresses.value for stream in one.streams))
    (stream,) = listener.progresses.value[-1].streams
    assert (stream.batch_id >= 3, stream.rows > 0, stream.has_triggered, stream.trigger_millis > 0) == (True,) * 4
    assert stream.committed_batch == stream.batch_id
    assert "triggerExecution" in {phase.name for phase in stream.phases}
    slots.do(slots.pool.cancel(0, listener.reports[0].attempt_id))
    slots.end(running)
    assert listener.terminal.state is ExecutionState.CANCELED
    assert_no_query(slots)


def test_a_query_that_goes_on_has_its_last_batch_at_once(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    """Nothing has come since: whoever looks, or waits for a batch, sees how far it is."""
    params = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}
    write(tmp_path / "in", "1.json", range(3))
    run(slots, slots.work(*query(files, table, trigger=NOW), job_id=job, params=params))
    listener, running = slots.begin(slots.work(*query(files, table, trigger=OFTEN), job_id=job, params=params), slot=1)
    wait_until(lambda: any(stream.has_triggered for one in listener.progresses.value for stream in one.streams))
    (stream,) = listener.progresses.value[-1].streams
    assert (stream.batch_id, stream.committed_batch, stream.batches, stream.rows) == (0, 0, 0, 0)
    assert stream.name == "sink"
    slots.do(slots.pool.cancel(1, listener.reports[0].attempt_id))
    slots.end(running)


def waiting(ctx: Any, batch: Any, batch_id: int) -> None:
    while not Path(ctx.params["gate"]).exists():
        time.sleep(0.1)


def test_a_query_that_goes_on_has_its_last_batch_during_its_next_one(
    slots: SlotBox, job: JobId, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    params = {"in": str(tmp_path / "in"), "gate": str(gate)}
    write(tmp_path / "in", "1.json", range(3))
    gate.touch()
    run(slots, slots.work(*query(files, waiting, trigger=NOW, is_batch_function=True), job_id=job, params=params))
    gate.unlink()
    write(tmp_path / "in", "2.json", range(3))
    parts = query(files, waiting, trigger=OFTEN, is_batch_function=True)
    listener, running = slots.begin(slots.work(*parts, job_id=job, params=params), slot=1)
    wait_until(lambda: any(stream.committed_batch == 0 for one in listener.progresses.value for stream in one.streams))
    assert not any(stream.has_triggered for one in listener.progresses.value for stream in one.streams)
    gate.touch()
    wait_until(lambda: any(stream.committed_batch == 1 for one in listener.progresses.value for stream in one.streams))
    slots.do(slots.pool.cancel(1, listener.reports[0].attempt_id))
    slots.end(running)


def stopping(ctx: Any, batch: Any, batch_id: int) -> None:
    for one in ctx.spark.streams.active:
        one.stop()


def test_a_query_that_is_stopped_has_not_finished(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    """Its job would be FINISHED, and what it keeps deleted."""
    write(tmp_path / "in", "1.json", range(3))
    parts = query(files, stopping, trigger=OFTEN, is_batch_function=True)
    listener, running = slots.begin(slots.work(*parts, job_id=job, params={"in": str(tmp_path / "in")}))
    slots.end(running)
    failure = listener.terminal.failure
    assert failure is not None
    assert "has ended, and its trigger lets it run for ever: code of the job has stopped it" in failure.message
    assert failure.is_recoverable


def test_a_batch_that_does_not_end_says_since_when(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", range(3))
    params = {"in": str(tmp_path / "in"), "gate": str(tmp_path / "gate")}
    parts = query(files, waiting, trigger=OFTEN, is_batch_function=True)
    begun = time.time()
    listener, running = slots.begin(slots.work(*parts, job_id=job, params=params))

    def busy_since() -> set[int]:
        return {stream.busy_since_millis for one in listener.progresses.value for stream in one.streams}

    wait_until(lambda: max(busy_since(), default=0) > 0)
    (since,) = busy_since() - {0}
    (hung,) = (one.streams[0] for one in listener.progresses.value[-1:])
    assert hung.interval_millis == 100, "of its trigger"
    assert re.match(r"stream execution thread for \S+, [A-Z_]+ in \S+:\d+( < \S+:-?\d+){4}\Z", hung.thread), hung.thread
    assert "py4j" in hung.thread or "CallbackC" in hung.thread, "Spark waits for the function of the batch"
    assert begun < since / 1000 < time.time() - 9
    (tmp_path / "gate").touch()
    wait_until(lambda: [one.streams[0].busy_since_millis for one in listener.progresses.value if one.streams][-1] == 0)
    slots.do(slots.pool.cancel(0, listener.reports[0].attempt_id))
    slots.end(running)


def test_a_query_that_commits_later_than_it_tells(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    def nothing(_ctx: Any, df: Any) -> Any:
        return df.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")

    listener, running = slots.begin(slots.work(*query(rates, nothing, trigger=OFTEN), job_id=job))
    wait_until(lambda: any(stream.batches > 2 for one in listener.progresses.value for stream in one.streams))
    assert {stream.committed_batch for one in listener.progresses.value for stream in one.streams} == {None}
    slots.do(slots.pool.cancel(0, listener.reports[0].attempt_id))
    slots.end(running)


def test_real_time_mode_reaches_spark_which_says_what_it_takes(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    """No source that a test has is one of that mode: Kafka is."""

    def nothing(_ctx: Any, df: Any) -> Any:
        return df.writeStream.format("noop")

    write(tmp_path / "in", "1.json", range(3))
    trigger = StreamTrigger(kind=TriggerKind.REAL_TIME, interval="5 minutes")
    parts = query(files, nothing, trigger=trigger, output_mode="update")
    listener, running = slots.begin(slots.work(*parts, job_id=job, params={"in": str(tmp_path / "in")}))
    slots.end(running)
    failure = listener.terminal.failure
    assert failure is not None
    assert re.search(r"(?i)real.?time", failure.message), failure.message


def assert_no_query(slots: SlotBox) -> None:
    """R15: no query of an attempt that was reported as ended runs in the JVM."""
    alive = "emit(len(spark._jsparkSession.sharedState().activeStreamingQueries()))"
    assert slots.box.evaluate(alive, job_id="f" * 32, directory=slots.directory / "look") == 0


def test_a_query_ends_with_its_process(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    parts = query(rates, rows_of, trigger=OFTEN, is_batch_function=True)
    listener, running = slots.begin(slots.work(*parts, job_id=job, params={"out": str(tmp_path / "out")}))
    wait_until(lambda: ExecutionState.RUNNING in listener.states.value)
    attempt = slots.pool._slots[0].attempt
    assert attempt is not None
    assert attempt.process is not None
    os.kill(attempt.process.pid, signal.SIGKILL)
    slots.end(running)
    assert listener.terminal.state is ExecutionState.FAILED
    assert_no_query(slots)
    last = (tmp_path / "out").read_text()
    slots.do(asyncio.sleep(0.5))
    assert (tmp_path / "out").read_text() == last


def test_what_a_function_raises_in_a_batch_is_the_cause(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    failure = slots_failure(slots, job, tmp_path, query(rates, raising, trigger=OFTEN, is_batch_function=True))
    assert "KeyError: 'apple'" in failure.message, failure.message
    assert "test_streaming_queries.py" in failure.message


def test_what_is_no_query_is_told(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    def bounded(ctx: Any) -> Any:
        return ctx.spark.range(3)

    def number(ctx: Any, df: Any) -> Any:
        return 3

    assert (
        "writes a stream, and what it got is none"
        in slots_failure(slots, job, tmp_path, query(bounded, table, trigger=NOW)).message
    )
    assert "returned a int" in slots_failure(slots, job, tmp_path, query(rates, number, trigger=NOW)).message


def slots_failure(slots: SlotBox, job: JobId, tmp_path: Path, parts: Any) -> Any:
    listener, running = slots.begin(slots.work(*parts, job_id=job, params={"out": str(tmp_path / "out")}))
    slots.end(running)
    assert listener.terminal.failure is not None, listener.terminal
    return listener.terminal.failure
