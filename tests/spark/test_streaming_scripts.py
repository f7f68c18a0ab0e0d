"""Scripts that were submitted as streaming jobs: queries keep state, and one that fails fails the attempt (R63)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import Fault, TaskExecutionReport
from runtime.jobgraph.graph import Artifact, Operator, OperatorKind, ScriptCode
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.spark_box import SparkBox, wait_until

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

BEGIN = """
import sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("orders").getOrCreate()
landing, out = sys.argv[1:3]
orders = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(landing)
"""
TABLE = (
    BEGIN
    + """
query = orders.writeStream.format("parquet").queryName("orders").trigger(availableNow=True).start(out)
query.awaitTermination()
print("batches", (query.lastProgress or {}).get("batchId"))
print("stops others", spark.conf.get("spark.sql.streaming.stopActiveRunOnRestart"))
"""
)
RAISING = """
def raising(batch, number):
    raise ValueError(f"no price in batch {number}")

failing = orders.writeStream.queryName("prices").foreachBatch(raising).start()
"""
SLEEPS = BEGIN + RAISING + "time.sleep(300)\n"
AWAITS_ANOTHER = (
    BEGIN
    + RAISING
    + """
rates = spark.readStream.format("rate").load().writeStream.format("noop").queryName("rates").start()
try:
    rates.awaitTermination()
except Exception as error:
    print("swallowed", error)
"""
)
HANDLED = (
    BEGIN
    + RAISING
    + """
try:
    failing.awaitTermination()
except Exception as error:
    print("handled", type(error).__name__)
orders.writeStream.queryName("prices").format("noop").trigger(availableNow=True).start().awaitTermination()
time.sleep(8)
"""
)
# Ends each query that it starts by the other one's failure, and starts it again: no wait of its own ever raises.
SUPERVISES = (
    BEGIN
    + RAISING
    + """
while True:
    rates = spark.readStream.format("rate").load().writeStream.format("noop").queryName("rates").start()
    rates.awaitTermination()
"""
)
ONE_OF_TWO_NAMELESS = (
    BEGIN
    + """
from pyspark.sql.functions import lit, raise_error

orders.select(raise_error(lit("no price"))).writeStream.format("noop").start()
spark.readStream.format("rate").load().writeStream.format("noop").start()
time.sleep(300)
"""
)
NAMELESS = BEGIN + 'orders.writeStream.format("parquet").start(out)\n'
WRONGLY_NAMED = BEGIN + 'orders.writeStream.format("parquet").queryName("../orders").start(out)\n'
# As structured_network_wordcount of Spark's examples, from files in place of a socket.
WORDCOUNT = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

spark = SparkSession.builder.appName("StructuredWordCount").getOrCreate()
lines = spark.readStream.format("text").load(sys.argv[1])
words = lines.select(explode(split(lines.value, " ")).alias("word"))
query = words.groupBy("word").count().writeStream.outputMode("complete").format("console")
query = query.trigger(availableNow=True).start()
query.awaitTermination()
"""
RELATIVE = BEGIN + 'orders.writeStream.format("parquet").option("checkpointLocation", "state").start(out)\n'
SLEEPS_BESIDE = (
    BEGIN
    + """
from pathlib import Path

query = orders.writeStream.format("noop").queryName("orders").start()
query.processAllAvailable()
Path(out).touch()
while not Path(f"{out}-ends").exists():
    time.sleep(0.05)
"""
)
ENDS_MANY = (
    BEGIN
    + """
import gc

for one in range(5):
    query = orders.writeStream.format("noop").queryName("orders").trigger(availableNow=True).start()
    query.awaitTermination()
    if one == 0:
        time.sleep(3)
from pyspark.sql.streaming.query import StreamingQuery

time.sleep(3)
del query
gc.collect()
print("kept", sum(isinstance(one, StreamingQuery) for one in gc.get_objects()))
"""
)
ELSEWHERE = (
    BEGIN
    + """
from pathlib import Path

spark.range(1).count()
other = spark.newSession()
orders = other.readStream.schema("id long").json(landing)
orders.writeStream.format("noop").queryName("elsewhere").start().processAllAvailable()
while not Path(f"{out}-ends").exists():
    time.sleep(0.05)
"""
)
USES_A_WRITER_TWICE = (
    BEGIN
    + """
writer = orders.writeStream.format("parquet").trigger(availableNow=True)
queries = [writer.queryName(name).start(f"{out}-{name}") for name in ("a", "b")]
for query in queries:
    query.awaitTermination()
"""
)
STARTS_WITH_A_PID = (
    BEGIN
    + """
import os
from pathlib import Path

Path(f"{out}-pid").write_text(str(os.getpid()))
query = orders.writeStream.format("parquet").queryName("orders").option("checkpointLocation", sys.argv[3]).start(out)
query.awaitTermination()
"""
)
LEAVES = BEGIN + 'orders.writeStream.format("noop").queryName("left").start()\n'


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
    return JobId(f"5{next(_jobs):031x}")


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    put(tmp_path / "landing", "1.json", range(3))
    return tmp_path / "landing"


def put(directory: Path, name: str, ids: range) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f".{name}").write_text("".join(json.dumps({"id": one}) + "\n" for one in ids))
    (directory / f".{name}").rename(directory / name)


def streaming(text: str, *args: object) -> Operator:
    code = ScriptCode(
        script=Artifact.of_bytes("etl.py", text.encode()), args=tuple(map(str, args)), starts_queries=True
    )
    return Operator(name="etl.py", kind=OperatorKind.SCRIPT, code=code)


def run(slots: SlotBox, job: JobId, text: str, *args: object) -> tuple[TaskExecutionReport, str, Any]:
    """The report, standard output and error, and the listener."""
    work = slots.work(streaming(text, *args), job_id=job)
    listener, running = slots.begin(work)
    slots.end(running)
    logs = "".join(path.read_text() for path in sorted(Path(work.log_directory).rglob("std*")))
    return listener.terminal, logs, listener


def state_of(slots: SlotBox, job: JobId) -> Path:
    return next(Path(slots.directory).rglob(f"checkpoints/{job}"))


def rows(out: Path) -> int:
    return len(list(out.glob("part-*")))


def test_a_query_without_a_location_has_one_of_its_name_and_goes_on_there(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report, logs, _ = run(slots, job, TABLE, landing, out)
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "batches 0" in logs
    assert "stops others false" in logs, "R59: a query of another job that runs is not ended for this one"
    put(landing, "2.json", range(3, 5))
    report, logs, _ = run(slots, job, TABLE, landing, out)  # another attempt, or the script of a job started again
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "batches 1" in logs, "it goes on behind batch 0"
    assert rows(out) == 2


def test_a_location_of_the_script_is_its_own(slots: SlotBox, job: JobId, landing: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    text = TABLE.replace(".trigger(", f'.option("checkpointLocation", {str(own)!r}).trigger(')
    report, _, _ = run(slots, job, text, landing, tmp_path / "out")
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert (own / "commits" / "0").is_file()


@pytest.mark.parametrize(
    "text",
    [SLEEPS, AWAITS_ANOTHER, SUPERVISES],
    ids=["sleeps", "awaits another and swallows errors", "starts what has ended"],
)
def test_a_query_that_fails_fails_the_attempt_whatever_the_script_waits_for(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path, text: str
) -> None:
    begun = time.monotonic()
    report, logs, _ = run(slots, job, text, landing, tmp_path / "out")
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert "no price in batch 0" in report.failure.message, report.failure
    assert report.failure.fault is Fault.USER
    assert "swallowed" not in logs
    assert time.monotonic() - begun < 120


def test_a_failure_that_the_script_handles_is_none(slots: SlotBox, job: JobId, landing: Path, tmp_path: Path) -> None:
    report, logs, _ = run(slots, job, HANDLED, landing, tmp_path / "out")
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "handled StreamingQueryException" in logs


def test_queries_without_a_name_do_not_stand_for_each_other(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    report, _, _ = run(slots, job, ONE_OF_TWO_NAMELESS, landing, tmp_path / "out")
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert "no price" in report.failure.message


def test_a_look_at_the_stacks_of_a_script_ends_nothing(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    work = slots.work(streaming(SLEEPS_BESIDE, landing, out), job_id=job)
    listener, running = slots.begin(work)
    wait_until(out.exists)

    async def look() -> str:
        return "".join([text async for _, text in slots.pool.stacks()])

    assert "etl.py" in slots.do(look())
    assert not running.done()
    (tmp_path / "out-ends").touch()
    slots.end(running)
    assert listener.terminal.state is ExecutionState.FINISHED
    logs = "".join(path.read_text() for path in sorted(Path(work.log_directory).rglob("stderr")))
    assert "another handling" not in logs, "the runtime's own signal is no leftover of the script"


def test_queries_of_another_session_of_the_script_are_shown(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    listener, running = slots.begin(slots.work(streaming(ELSEWHERE, landing, tmp_path / "out"), job_id=job))

    def told() -> set[tuple[str, int]]:
        return {(query.name, query.rows) for one in listener.progresses.value for query in one.streams}

    wait_until(lambda: ("elsewhere", 3) in told())
    (tmp_path / "out-ends").touch()
    slots.end(running)
    assert listener.terminal.state is ExecutionState.FINISHED


def test_queries_that_have_ended_are_forgotten(slots: SlotBox, job: JobId, landing: Path, tmp_path: Path) -> None:
    report, logs, _ = run(slots, job, ENDS_MANY, landing, tmp_path / "out")
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "kept 0" in logs


def test_a_query_that_begins_anew_in_the_table_of_another_one_is_refused(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    """Spark would take its first batches for written, and drop their rows."""
    out = tmp_path / "out"
    report, _, _ = run(slots, job, TABLE, landing, out)
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    put(landing, "2.json", range(3, 5))
    report, _, _ = run(slots, JobId(f"6{next(_jobs):031x}"), TABLE, landing, out)
    assert report.failure is not None
    assert "batches up to 0 of an earlier query" in report.failure.message
    assert rows(out) == 1


def test_a_query_that_goes_on_in_another_table_is_refused(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    """That one would lack its first batches."""
    out, other = tmp_path / "out", tmp_path / "other"
    report, _, _ = run(slots, job, TABLE, landing, out)
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    put(landing, "2.json", range(3, 5))
    for _ in range(2):
        report, _, _ = run(slots, job, TABLE, landing, other)
        assert report.failure is not None
        assert "goes on behind what it has written to another table than" in report.failure.message
        assert not report.failure.is_recoverable
    report, _, _ = run(slots, job, TABLE, landing, out)
    assert report.state is ExecutionState.FINISHED, "where it has written it goes on"
    assert rows(out) == 2
    shutil.rmtree(state_of(slots, job) / "orders")
    for _ in range(2):
        report, _, _ = run(slots, job, TABLE, landing, other)
        assert report.state is ExecutionState.FINISHED, "one that begins anew writes where it likes, and goes on there"
    assert rows(other) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NAMELESS, "has a name, or a directory"),
        (WRONGLY_NAMED, "'../orders'"),
        (WRONGLY_NAMED.replace("../orders", "_metadata"), "'_metadata'"),
        (RELATIVE, "'state' is relative"),
    ],
)
def test_a_query_without_a_place_for_its_state_is_refused(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path, text: str, words: str
) -> None:
    report, _, _ = run(slots, job, text, landing, tmp_path / "out")
    assert report.failure is not None
    assert words in report.failure.message
    assert not report.failure.is_recoverable, "the next attempt would meet the same"


def test_an_example_of_spark_runs_unchanged(slots: SlotBox, job: JobId, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "1.txt").write_text("apple pear apple\n")
    report, logs, _ = run(slots, job, WORDCOUNT, tmp_path / "lines")
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    assert "apple|    2" in logs.replace(" |", "|") or "apple" in logs


def test_a_script_that_ends_before_its_queries_says_so(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    report, logs, _ = run(slots, job, LEAVES, landing, tmp_path / "out")
    assert report.state is ExecutionState.FINISHED
    assert "they end with it: left" in logs


def test_a_script_that_is_submitted_again_does_not_begin_in_the_table_of_before(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report, _, _ = run(slots, job, TABLE, landing, out)
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    put(landing, "2.json", range(3, 5))
    report, _, _ = run(slots, JobId(f"6{job[1:]}"), TABLE, landing, out)
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert "begins at batch 0, and the table" in report.failure.message, "Spark would leave its rows out (R59)"
    assert rows(out) == 1


def test_a_query_that_starts_behind_the_death_of_its_process_ends_with_the_session(
    slots: SlotBox, job: JobId, tmp_path: Path
) -> None:
    """The JVM reads the id of the query from a pipe, so the start is in flight until that is written (R15).

    It finds no rows at first: the cancel of all jobs would end a query in its batch.
    """
    landing, out, own = tmp_path / "landing", tmp_path / "out", tmp_path / "own"
    landing.mkdir()
    own.mkdir()
    os.mkfifo(own / "metadata")
    listener, running = slots.begin(slots.work(streaming(STARTS_WITH_A_PID, landing, out, own), job_id=job))
    with (own / "metadata").open("w") as told:  # returns when the JVM has opened its end
        os.kill(int((tmp_path / "out-pid").read_text()), signal.SIGKILL)
        time.sleep(0.4)  # the session is shut meanwhile; its calls are not interrupted yet
        told.write(json.dumps({"id": "6f0a2b52-25a8-4a8e-9f0e-0c1f6f3a1b11"}))
    slots.end(running)
    assert listener.terminal.state is ExecutionState.FAILED
    slots.wait_attached()
    put(landing, "1.json", range(3))
    time.sleep(3)
    assert not (own / "offsets" / "0").exists(), "nobody has the query, and it goes on"


def test_a_writer_that_is_used_twice_gives_each_query_a_directory_of_its_own(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    report, _, _ = run(slots, job, USES_A_WRITER_TWICE, landing, tmp_path / "out")
    assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
    for name in ("a", "b"):
        assert (state_of(slots, job) / name / "0" / "commits" / "0").is_file()
        assert rows(tmp_path / f"out-{name}") == 1


def test_a_query_that_was_renamed_begins_anew_and_stderr_says_what_is_left(
    slots: SlotBox, job: JobId, landing: Path, tmp_path: Path
) -> None:
    def under_a_name(job_id: str, text: str, out: str) -> str:
        work = slots.work(streaming(text, landing, tmp_path / out), job_id=JobId(job_id))
        work = replace(work, job=replace(work.job, checkpoint_name=f"state-{job}"))
        listener, running = slots.begin(work)
        slots.end(running)
        report = listener.terminal
        assert report.state is ExecutionState.FINISHED, report.failure and report.failure.stack_trace
        return "".join(path.read_text() for path in sorted(Path(work.log_directory).rglob("std*")))

    again, renamed = f"6{job[1:]}", TABLE.replace('"orders"', '"other"')
    assert renamed != TABLE
    assert "begins anew. Under" not in under_a_name(job, TABLE, "out"), "nothing is left"
    put(landing, "2.json", range(3, 5))
    assert "begins anew. Under" not in under_a_name(again, TABLE, "out"), "it goes on"
    logs = under_a_name(again, renamed, "another")
    assert "WARNING: the query 'other' begins anew" in logs
    assert f"state-{job}) is state of 'orders', which this script has not started" in logs
